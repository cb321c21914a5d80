/* For authors of augmentations: an augmentation changes training samples at random. Since ABI 1.10. */
#ifndef BRIM_AUGMENT_H
#define BRIM_AUGMENT_H
#include "brim/plugin.h"
#include "brim/random.h"
#include "brim/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

/* A training sample that is being prepared. */
typedef struct brim_augment_sample {
  brim_shape shape; /* the shape of the model's input: [C, H, W], [T, F] or [F] */
  /* The values, to be changed in place. If ops.dtype is BRIM_DTYPE_U8: the pixels of an image before normalisation, in
   * the order [H, W, C]. If it is BRIM_DTYPE_F32: normalised values in the order of `shape`; they must stay finite. */
  void *values;
  /* With ops.mixes: the values of another training sample, prepared in the same way; otherwise NULL. */
  const void *partner;
  void *scratch; /* ops.scratch_bytes() bytes, aligned to 64; contents undefined */
  /* With ops.mixes: the weight of the sample's own label, in [0, 1], initially 1. The partner's label has weight 1 -
   * share. */
  float share;
  uint32_t block; /* used by brim_augment_random */
  uint64_t seed;
  int64_t epoch, index; /* index: the sample's index in its split */
} brim_augment_sample;

typedef struct brim_augment_ops {
  uint32_t size;
  uint32_t dtype; /* BRIM_DTYPE_U8: changes bytes of images; BRIM_DTYPE_F32: changes normalised values. Tokens are not
                     supported */
  /* [any thread] Changes a sample. Must be a pure function of the parameters, the sample and random numbers from
   * brim_augment_random, so that a sample is the same on any thread, in any micro-batch and after a resume. Must not
   * allocate. */
  void (*apply)(const void *self, brim_augment_sample *sample);
  /* [init] Returns the bytes of scratch needed for samples of this shape. NULL: 0. */
  uint64_t (*scratch_bytes)(const void *self, const brim_shape *shape);
  int32_t images; /* 1: supports only images [C, H, W]; always 1 for BRIM_DTYPE_U8, with 1 or 3 channels */
  int32_t mixes;  /* 1: `apply` uses `partner` and sets `share`. Only with BRIM_DTYPE_F32 */
} brim_augment_ops;

#define BRIM_AUGMENT_BLOCKS (1u << 24) /* blocks of random numbers per augmentation */

/* [any thread] Returns the four random numbers of block `block`, below BRIM_AUGMENT_BLOCKS, for this sample and epoch.
 * Each augmentation of a run has its own numbers. */
BRIM_ANYWHERE brim_philox brim_augment_random(const brim_augment_sample *sample, uint32_t block)
{
  return brim_random4(sample->seed, BRIM_STREAM_AUGMENT, (uint32_t)sample->epoch, (uint64_t)sample->index,
                      sample->block + block);
}

#ifdef __cplusplus
}
#endif
#endif
