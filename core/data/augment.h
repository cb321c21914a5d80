/* The augmentations of a run, in order: those that keys of `augment` turn on, then those of the list `augmentation`.
 *
 *     bytes:   colours, then those in the list for bytes
 *     values:  scaled and mirrored before ▶ a rectangle erased, then those in the list for values
 *     mixing:  mixup, or the one in the list that mixes */
#ifndef BRIM_DATA_AUGMENT_H
#define BRIM_DATA_AUGMENT_H
#include "data/transform.h"

/* Applies the augmentations for `dtype`, BRIM_DTYPE_U8 or BRIM_DTYPE_F32; the layout of `values` is as in
 * brim/augment.h. `scratch` has brim_augment_bytes() bytes. */
void brim_augment_apply(const brim_transform *t, uint32_t dtype, const brim_draws *draws, void *values, void *scratch);
/* Mixes values with a partner's. Returns the share of the sample's own label. */
float brim_augment_mix(const brim_transform *t, const brim_draws *draws, float *values, const float *partner,
                       void *scratch);
/* [init] Returns the bytes of scratch of the augmentation that needs most. */
uint64_t brim_augment_bytes(const brim_transform *t);
/* [init] ECONFIG if an augmentation in the list does not support such samples. */
brim_status brim_augment_check(const brim_transform *t, const char *dataset, const brim_dataset_info *info);
/* Whether the list contains an augmentation for bytes. */
bool brim_augment_has_bytes(const brim_settings *settings);
#endif
