/* Functions of vectors, for the files of one instruction set that include simd.h. None uses the position within a
 * vector, so what is left at a loop's end goes through a padded vector and gets the same bits. */
#ifndef CPU_SIMD_MATH_H
#define CPU_SIMD_MATH_H
#include "simd.h"

/* 2^n for n in [-126, 127]. */
static inline vf exp2_of(vi n)
{
  return (vf)((n + 127) << 23);
}

/* e^x within 1e-7 relative; 0 below -104, infinite above 88.8, NaN stays. x = n ln 2 + r with |r| <= ln 2 / 2; e^r by
 * the polynomial of Cephes' expf. 2^n is multiplied in two steps, as results below 2^-126 and n = 128 need. */
static inline vf exponential(vf x)
{
  const vf least = splat(-104.0f), greatest = splat(89.0f), magic = splat(12582912.0f); /* 1.5 * 2^23: rounds */
  x = choose(x < least, least, x);
  x = choose(x > greatest, greatest, x);
  const vf rounded = x * 1.44269504088896341f + magic, n = rounded - magic;
  const vi whole = (vi)rounded - (vi)magic, half = whole >> 1;
  const vf r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  vf p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return ((p * (r * r) + r) + 1.0f) * exp2_of(half) * exp2_of(whole - half);
}
#endif
