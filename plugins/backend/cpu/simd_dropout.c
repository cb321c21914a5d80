/* Dropout for one instruction set. Random numbers are those of brim/random.h, by Philox4x32-10, for LANES/2 counters at
 * a time.
 *
 * A lane of 64 bits holds one counter's 32-bit word in its lower half. The upper half may hold any value, because the
 * 32x32-bit product ignores it. The four words of a block are the numbers of four neighbouring channels: channels-last
 * order interleaves them, and planes use them as they are. The mask is never stored; the gradient computes it again. */
#include "simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { BLOCKS = LANES / 2 }; /* counters in a vector */

typedef float half_vf __attribute__((vector_size(BLOCKS * 4)));
typedef uint32_t half_vu __attribute__((vector_size(BLOCKS * 4)));
typedef int32_t half_vi __attribute__((vector_size(BLOCKS * 4)));
typedef uint32_t vu __attribute__((vector_size(LANES * 4)));

/* Multiplies the lower halves to full 64-bit products. */
static inline vq product(vq a, vq b)
{
#if defined(__AVX512F__)
  return (vq)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (vq)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__x86_64__)
  return (vq)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
#endif
}

typedef struct numbers {
  vq v[4]; /* lane i: the four numbers of block i, in the lower halves */
} numbers;

static inline numbers draw(const brim_dropout_key *key, int64_t sample, vq block)
{
  const vq none = {0}, m0 = none + 0xD2511F53u, m1 = none + 0xCD9E8D57u;
  vq c0 = block, c1 = block >> 32, c2 = none + (uint32_t)sample, c3 = none + key->stream;
  uint32_t k0 = key->k0, k1 = key->k1;
  for (int round = 0; round < 10; round++) {
    const vq p0 = product(c0, m0), p1 = product(c2, m1);
    c0 = (p1 >> 32) ^ c1 ^ (none + k0);
    c2 = (p0 >> 32) ^ c3 ^ (none + k1);
    c1 = p1;
    c3 = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (numbers){{c0, c1, c2, c3}};
}

static inline vq pair(vq low, vq high)
{
  return (low & 0xFFFFFFFFu) | high << 32;
}

static inline vf factors(vq random, vu threshold, vf scale)
{
  return (vf)((vi)scale & (vi)((vu)random >= threshold));
}

/* Processes runs of `run` blocks, which are contiguous in memory. In the counter, runs begin `stride` blocks apart.
 * `run` divides BLOCKS. */
static int64_t dropout_vectors(const brim_dropout_key *key, float scale, int64_t sample, int64_t block, int64_t run,
                               int64_t stride, const float *x, const float *a, float *y, int64_t count)
{
  const vu threshold = (vu){0} + key->threshold;
  const vf scales = splat(scale);
  vq counter;
  uint64_t offset[BLOCKS];
  for (int64_t i = 0; i < BLOCKS; i++) offset[i] = (uint64_t)(block + i / run * stride + i % run);
  memcpy(&counter, offset, sizeof counter);
  int64_t i = 0;
  for (; i + 2 * LANES <= count; i += 2 * LANES, counter += (uint64_t)(BLOCKS / run * stride)) {
    const numbers n = draw(key, sample, counter);
    const vq p = pair(n.v[0], n.v[1]), q = pair(n.v[2], n.v[3]);
    vf low = load(x + i) * factors(INTERLEAVE_LOW_64(p, q), threshold, scales);
    vf high = load(x + i + LANES) * factors(INTERLEAVE_HIGH_64(p, q), threshold, scales);
    if (a) {
      low = load(a + i) + low;
      high = load(a + i + LANES) + high;
    }
    store(y + i, low);
    store(y + i + LANES, high);
  }
  return i;
}

void CPU_NAME(simd_dropout_run)(const brim_dropout_key *key, float scale, int64_t sample, int64_t block, int64_t run,
                                int64_t stride, const float *x, const float *a, float *y, int64_t count)
{
  if (run == stride) run = stride = BLOCKS; /* runs without gaps are one long run */
  if (BLOCKS % run != 0) {
    for (int64_t i = 0; i < count; i += 4 * run, block += stride) {
      const int64_t rest = count - i < 4 * run ? count - i : 4 * run;
      CPU_NAME(simd_dropout_run)(key, scale, sample, block, BLOCKS, BLOCKS, x + i, a ? a + i : NULL, y + i, rest);
    }
    return;
  }
  int64_t i = dropout_vectors(key, scale, sample, block, run, stride, x, a, y, count);
  while (i < count) {
    const brim_philox random = brim_dropout_block(key, sample, block + i / 4 / run * stride + i / 4 % run);
    for (int j = 0; j < 4 && i < count; j++, i++) {
      const float v = x[i] * (random.v[j] >= key->threshold ? scale : 0);
      y[i] = a ? a[i] + v : v;
    }
  }
}

static const vq ramp =
#if LANES == 16
    {0, 1, 2, 3, 4, 5, 6, 7};
#elif LANES == 8
    {0, 1, 2, 3};
#else
    {0, 1};
#endif

void CPU_NAME(simd_dropout_planes)(const brim_dropout_key *key, float scale, int64_t sample, int64_t block,
                                   int64_t blocks_per_pixel, const float *x, const float *a, float *y,
                                   int64_t plane_stride, int64_t planes, int64_t count)
{
  const half_vu threshold = (half_vu){0} + key->threshold;
  const half_vf scales = scale - (half_vf){0};
  int64_t i = 0;
  for (; i + BLOCKS <= count; i += BLOCKS) {
    const numbers n = draw(key, sample, (ramp + (uint64_t)i) * (uint64_t)blocks_per_pixel + (uint64_t)block);
    for (int64_t j = 0; j < planes; j++) {
      const half_vi kept = __builtin_convertvector(n.v[j], half_vu) >= threshold;
      half_vf v;
      memcpy(&v, x + j * plane_stride + i, sizeof v);
      v *= (half_vf)((half_vi)scales & kept);
      if (a) {
        half_vf other;
        memcpy(&other, a + j * plane_stride + i, sizeof other);
        v = other + v;
      }
      memcpy(y + j * plane_stride + i, &v, sizeof v);
    }
  }
  for (; i < count; i++) {
    const brim_philox random = brim_dropout_block(key, sample, block + i * blocks_per_pixel);
    for (int64_t j = 0; j < planes; j++) {
      const float v = x[j * plane_stride + i] * (random.v[j] >= key->threshold ? scale : 0);
      y[j * plane_stride + i] = a ? a[j * plane_stride + i] + v : v;
    }
  }
}
