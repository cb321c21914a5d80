/* Mixup (Zhang et al., ICLR 2018, arXiv 1710.09412): a training sample is
 *
 *     x = share * x_own + (1 - share) * x_partner,   y = share * y_own + (1 - share) * y_partner
 *
 * with a share drawn from Beta(alpha, alpha) for each sample, as timm's Mixup does in its mode "elem". In timm the
 * partner is another sample of the batch. In brim it is any training sample, so that a mixed sample is the same in
 * every micro-batch and on every rank: in each epoch the partners are a permutation of the training samples. brim
 * transforms and augments a partner exactly as it does when the partner's own turn comes in that epoch. */
#ifndef BRIM_DATA_MIXUP_H
#define BRIM_DATA_MIXUP_H
#include "builtin/augment.h"
#include "data/data.h"

/* Room for a partner in the scratch, after everything else. */
typedef struct brim_mixup_room {
  uint64_t values, label; /* offsets in the scratch: values as floats, and the label as the dataset writes it */
  uint64_t bytes;         /* total bytes of the scratch; UINT64_MAX if that does not fit in 64 bits */
} brim_mixup_room;
/* Lays out the scratch. `before`: bytes already in use. Without mixup `bytes` equals `before`. */
brim_mixup_room brim_mixup_room_of(const brim_data *data, uint64_t before);

/* [any thread] The training sample, below `count`, with which training sample k is mixed. */
int64_t brim_mixup_partner(const brim_data *data, int64_t epoch, int64_t k);
/* [any thread] Writes the mixed label: a probability for each of `classes` classes. */
void brim_mixup_classes(float *out, int64_t classes, int32_t own, int32_t partner, float share);
#endif
