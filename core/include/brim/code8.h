/* 8-bit codes for numbers in [-1, 1]: the dynamic maps of Dettmers, Lewis, Shleifer and Zettlemoyer (8-bit Optimizers
 * via Block-wise Quantization, ICLR 2022), as in their library bitsandbytes. The coded values are 0, 1, and the centers
 * of 2^i (unsigned: 2^(i+1)) equal parts of [0.1, 1) * 10^(i-6) in each of the decades i = 0 .. 6. Values are coded in
 * blocks: each value is divided by the greatest magnitude in its block, which is stored too.
 *
 * Unsigned codes hold second moments, and updates are divided by their root. So only 0 itself gets the code of 0; any
 * greater value gets at least the smallest magnitude above 0. Otherwise, once the gradient is 0, a first moment that is
 * not 0 yet would be divided by eps alone. */
#ifndef BRIM_CODE8_H
#define BRIM_CODE8_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_CODE8_BLOCK 256       /* values */
#define BRIM_CODE8_VALUES_MIN 4096 /* smaller tensors are not coded */
#define BRIM_CODE8_ZERO 127        /* the signed code of 0; the unsigned one is 0 */

static inline int64_t brim_code8_blocks(int64_t count)
{
  return (count + BRIM_CODE8_BLOCK - 1) / BRIM_CODE8_BLOCK;
}

/* Writes the magnitudes that have a code, ascending from 0 to 1, and returns their number: 129 if signed, else 256. The
 * signed code of magnitude k is BRIM_CODE8_ZERO + k, and BRIM_CODE8_ZERO - k (k below 128) is that of its negative. */
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

/* The largest value that gets code k, which must not be the last code. */
static inline double brim_code8_border(const double *magnitude, int32_t count, int32_t k)
{
  return count == 256 && k == 0 ? 0 : (magnitude[k] + magnitude[k + 1]) / 2;
}

/* The index of the magnitude nearest to x; if two are equally near, the smaller. Unsigned: 0 only if x is 0. */
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
