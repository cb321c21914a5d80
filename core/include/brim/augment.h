/* For authors of augmentations: what changes a training sample at random. Since ABI 1.10. */
#ifndef BRIM_AUGMENT_H
#define BRIM_AUGMENT_H
#include "brim/plugin.h"
#include "brim/random.h"
#include "brim/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

/* A training sample that is prepared for an epoch. */
typedef struct brim_augment_sample {
  brim_shape shape; /* what the model gets: [C, H, W], [T, F] or [F] */
  /* To be changed in place; nothing outside of them. Of ops.dtype BRIM_DTYPE_U8: pixels of an image before it is
   * normalised, for H rows of W pixels the C channels of each together. Of BRIM_DTYPE_F32: normalised values in the
   * order of `shape`; they must stay finite. */
  void *values;
  /* Of ops.mixes: the values of another training sample, prepared as this one is; else NULL. */
  const void *partner;
  void *scratch; /* ops.scratch_bytes(), aligned to 64 bytes; of no defined contents */
  /* Of ops.mixes: the weight of the sample's own label, 0 to 1; the partner's has the rest. 1 at first. */
  float share;
  uint32_t block; /* for brim_augment_random */
  uint64_t seed;
  int64_t epoch, index; /* index: of the sample in its split */
} brim_augment_sample;

typedef struct brim_augment_ops {
  uint32_t size;
  uint32_t dtype; /* BRIM_DTYPE_U8: for images of bytes; BRIM_DTYPE_F32: for normalised values, not for tokens */
  /* [any thread] Changes a sample. A pure function of the parameters, of the sample's values, and of random numbers
   * from brim_augment_random: a sample is the same on any thread, in any micro-batch and after a resume. Must not
   * allocate. */
  void (*apply)(const void *self, brim_augment_sample *sample);
  /* [init] Bytes of scratch for samples of this shape. NULL: none. */
  uint64_t (*scratch_bytes)(const void *self, const brim_shape *shape);
  int32_t images; /* 1: only for images [C, H, W], as all of dtype BRIM_DTYPE_U8 are, which have 1 channel or 3 */
  int32_t mixes;  /* 1: `apply` takes a partner and sets `share`. Of dtype BRIM_DTYPE_F32 */
} brim_augment_ops;

#define BRIM_AUGMENT_BLOCKS (1u << 24) /* of an augmentation */

/* [any thread] Four random numbers: those of block `block`, below BRIM_AUGMENT_BLOCKS, of this sample in this epoch. No
 * other augmentation of the run has the same. */
BRIM_ANYWHERE brim_philox brim_augment_random(const brim_augment_sample *sample, uint32_t block)
{
  return brim_random4(sample->seed, BRIM_STREAM_AUGMENT, (uint32_t)sample->epoch, (uint64_t)sample->index,
                      sample->block + block);
}

#ifdef __cplusplus
}
#endif
#endif
