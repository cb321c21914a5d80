/* Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As
 * Easy as 1, 2, 3; SC 2011). A number is a pure function of its key and counter, so a dropout mask
 * does not depend on micro-batch, layout, thread, rank, recomputation or a retry. */
#ifndef BRIM_RANDOM_H
#define BRIM_RANDOM_H
#include <stdint.h>

#ifdef __CUDACC__
#define BRIM_ANYWHERE static __host__ __device__ inline
#else
#define BRIM_ANYWHERE static inline
#endif
#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_philox {
  uint32_t v[4];
} brim_philox;

/* Uses of random numbers. The high byte of a stream is the use, so that uses do not share numbers. */
enum brim_stream_use {
  BRIM_STREAM_INIT = 1,    /* weights */
  BRIM_STREAM_SHUFFLE = 2, /* order of samples */
  BRIM_STREAM_SPLIT = 3,   /* train / validation */
  BRIM_STREAM_AUGMENT = 4, /* augmentation of training samples */
  BRIM_STREAM_DROPOUT = 5,
  BRIM_STREAM_DATA = 6,   /* synthetic data */
  BRIM_STREAM_SAMPLE = 7, /* tokens sampled from a language model */
  BRIM_STREAM_MIXUP = 8,  /* the partner of a sample in mixup */
  /* for federations */
  BRIM_STREAM_PARTITION = 9, /* partition of samples among clients */
  BRIM_STREAM_CLIENT = 10,   /* seeds of clients in a round */
  BRIM_STREAM_SELECT = 11,   /* selection of clients */
  BRIM_STREAM_WORLD = 12,    /* speed, network and absence of simulated clients */
  BRIM_STREAM_NOISE = 13     /* noise of differential privacy */
};

/* Ten rounds on counter {c0..c3} under key {k0, k1}. */
BRIM_ANYWHERE brim_philox brim_philox4x32(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1)
{
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  brim_philox out;
  out.v[0] = c0;
  out.v[1] = c1;
  out.v[2] = c2;
  out.v[3] = c3;
  return out;
}

/* Returns the four random numbers of block `block` of the sequence (seed, use, stream, item). item: a sample, an epoch,
 * ...; stream: below 2^24, distinguishes sequences with the same use. */
BRIM_ANYWHERE brim_philox brim_random4(uint64_t seed, enum brim_stream_use use, uint32_t stream, uint64_t item,
                                       uint32_t block)
{
  return brim_philox4x32(block, (uint32_t)item, (uint32_t)(item >> 32), ((uint32_t)use << 24) | (stream & 0xFFFFFFu),
                         (uint32_t)seed, (uint32_t)(seed >> 32));
}

/* Converts 32 random bits to a number that is uniform in [0, 1); exact in double. */
BRIM_ANYWHERE double brim_uniform(uint32_t x)
{
  return (double)x * (1.0 / 4294967296.0);
}

/* Dropout. Each step has its own key; `sample` is the sample's position in the step's effective batch; `element` its
 * logical coordinate within the sample, channels fastest:
 *     rank 2 [N,F]:      element = f
 *     rank 4 [N,C,H,W]:  element = (h*W + w) * C4 + c, with C4 = C rounded up to a multiple of 4
 *     other ranks:       row-major index within the sample
 * so that four neighbours share one Philox block in every layout with channel blocks of 4 or more. */
typedef struct brim_dropout_key {
  uint32_t k0, k1;    /* seed and step, mixed */
  uint32_t stream;    /* use and stream, packed */
  uint32_t threshold; /* an element is kept if its number >= threshold */
} brim_dropout_key;

BRIM_ANYWHERE brim_dropout_key brim_dropout_key_make(uint64_t seed, uint64_t step, uint64_t stream, double p)
{
  const brim_philox k = brim_random4(seed, BRIM_STREAM_DROPOUT, 0xFFFFFFu, step, 0);
  brim_dropout_key key;
  key.k0 = k.v[0];
  key.k1 = k.v[1];
  key.stream = ((uint32_t)BRIM_STREAM_DROPOUT << 24) | ((uint32_t)stream & 0xFFFFFFu);
  key.threshold = (uint32_t)(p * 4294967296.0);
  return key;
}
/* The numbers of elements 4*block .. 4*block+3 of a sample. */
BRIM_ANYWHERE brim_philox brim_dropout_block(const brim_dropout_key *key, int64_t sample, int64_t block)
{
  return brim_philox4x32((uint32_t)block, (uint32_t)((uint64_t)block >> 32), (uint32_t)sample, key->stream, key->k0,
                         key->k1);
}
/* 1 if the element is kept, 0 if dropped. */
BRIM_ANYWHERE int brim_dropout_keep(const brim_dropout_key *key, int64_t sample, int64_t element)
{
  return brim_dropout_block(key, sample, element >> 2).v[element & 3] >= key->threshold;
}

#ifdef __cplusplus
}
#endif
#endif
