/* The augmentations of a run, in order: those that keys of `augment` ask for, then those of the list `augmentation`.
 *
 *     bytes:   colours, then those of the list for bytes
 *     values:  scaled and mirrored before ▶ a rectangle erased, then those of the list for values
 *     mixing:  mixup, or the one of the list that mixes */
#ifndef BRIM_DATA_AUGMENT_H
#define BRIM_DATA_AUGMENT_H
#include "data/transform.h"

/* Of BRIM_DTYPE_U8 or BRIM_DTYPE_F32; `values` lie as brim/augment.h says. `scratch`: brim_augment_bytes(). */
void brim_augment_apply(const brim_transform *t, uint32_t dtype, const brim_draws *draws, void *values, void *scratch);
/* Mixes values with a partner's. Returns the own label's share. */
float brim_augment_mix(const brim_transform *t, const brim_draws *draws, float *values, const float *partner,
                       void *scratch);
/* [init] Scratch of the one that takes most. */
uint64_t brim_augment_bytes(const brim_transform *t);
/* [init] ECONFIG: one of the list cannot be applied to such samples. */
brim_status brim_augment_check(const brim_transform *t, const char *dataset, const brim_dataset_info *info);
/* Is there one for bytes in the list? */
bool brim_augment_has_bytes(const brim_settings *settings);
#endif
