/* Numbers in [-1, 1] as codes of 8 bits, by the dynamic maps of Dettmers, Lewis, Shleifer and Zettlemoyer (8-bit
 * Optimizers via Block-wise Quantization, ICLR 2022), as their library bitsandbytes makes them. A code has a decade, of
 * seven, and in decade i the middle of one of 2^i (without sign 2^(i+1)) equal parts of [0.1, 1) times 10^(i-6); and
 * there are 0 and 1. Values go by blocks: each is divided by the greatest magnitude of its block, which is kept too.
 *
 * Codes without a sign hold second moments, whose root an update is divided by. So there only 0 itself has the code of
 * 0: a value above it has at least the smallest magnitude above 0. Otherwise a first moment that is not 0 yet would be
 * divided by eps alone, as soon as the gradient is 0. */
#ifndef BRIM_CODE8_H
#define BRIM_CODE8_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_CODE8_BLOCK 256       /* values */
#define BRIM_CODE8_VALUES_MIN 4096 /* tensors of fewer are kept in full */
#define BRIM_CODE8_ZERO 127        /* the code of 0 with a sign; without one it is 0 */

static inline int64_t brim_code8_blocks(int64_t count)
{
  return (count + BRIM_CODE8_BLOCK - 1) / BRIM_CODE8_BLOCK;
}

/* The magnitudes that codes stand for, ascending from 0 to 1; returns how many: 129 with a sign, else 256. With a sign
 * code BRIM_CODE8_ZERO + k is magnitude k, and BRIM_CODE8_ZERO - k, for k below 128, its opposite. */
static inline int32_t brim_code8_magnitudes(int32_t is_signed, double magnitude[256])
{
  static const double decade[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  int32_t count = 0;
  magnitude[count++] = 0;
  for (int32_t i = 0; i < 7; i++) {
    const int32_t parts = 1 << (is_signed ? i : i + 1);
    for (int32_t k = 0; k < parts; k++) magnitude[count++] = decade[i] * (0.1 + 0.9 * (k + 0.5) / parts);
  }
  magnitude[count++] = 1;
  return count;
}

/* A value above the border of code k, not the last of `count` ascending magnitudes, has a greater code. */
static inline double brim_code8_border(const double *magnitude, int32_t count, int32_t k)
{
  return count == 256 && k == 0 ? 0 : (magnitude[k] + magnitude[k + 1]) / 2;
}

/* Of `count` ascending magnitudes the one nearest to x, of two the smaller; without a sign 0 for 0 only. */
static inline int32_t brim_code8_nearest(const double *magnitude, int32_t count, double x)
{
  int32_t low = 0, high = count - 1;
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (x > brim_code8_border(magnitude, count, middle))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

#ifdef __cplusplus
}
#endif
#endif
