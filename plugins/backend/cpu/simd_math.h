/* exp, log, tanh, erf, erfc and the logistic function for vectors in fp32, for the files that are compiled once for
 * each instruction set. Relative errors are below 2e-7, and 1e-6 for erfc (tests/unit/test_simd_math.c). NaN stays NaN,
 * overflow gives infinity, and underflow gives 0.
 *
 * The polynomials come from Moshier's Cephes library (expf.c, logf.c, tanhf.c, ndtrf.c). The code uses only operations
 * on single elements, so with -ffp-contract=off a value depends neither on the lane nor on the instruction set. The
 * values after the last whole vector use load_part() and store_part(), with the same operations. */
#ifndef CPU_SIMD_MATH_H
#define CPU_SIMD_MATH_H
#include "simd.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif

/* Loads `count` < LANES elements; the other lanes are 0. */
static inline vf load_part(const float *p, int64_t count)
{
#ifdef __AVX512F__
  return _mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), p);
#else
  float v[LANES] = {0};
  for (int64_t i = 0; i < count; i++) v[i] = p[i];
  return load(v);
#endif
}
static inline void store_part(float *p, vf v, int64_t count)
{
#ifdef __AVX512F__
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << count) - 1), v);
#else
  float values[LANES];
  store(values, v);
  for (int64_t i = 0; i < count; i++) p[i] = values[i];
#endif
}
/* Load and store up to LANES elements. */
static inline vf load_some(const float *p, int64_t count)
{
  return count == LANES ? load(p) : load_part(p, count);
}
static inline void store_some(float *p, vf v, int64_t count)
{
  if (count == LANES)
    store(p, v);
  else
    store_part(p, v, count);
}

/* Whether a mask that a comparison made is true in all lanes. */
static inline bool is_all(vi mask)
{
#if defined(__AVX512F__)
  return _mm512_cmpeq_epi32_mask((__m512i)mask, _mm512_setzero_si512()) == 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps((__m256)mask) == 0xFF;
#else
  const vq v = (vq)mask;
  uint64_t all = UINT64_MAX;
  for (int i = 0; i < LANES / 2; i++) all &= v[i];
  return all == UINT64_MAX;
#endif
}

static inline vf abs_of(vf x)
{
  return (vf)((vi)x & 0x7FFFFFFF);
}
/* |x| with the sign of `sign` */
static inline vf with_sign(vf x, vf sign)
{
  return (vf)(((vi)x & 0x7FFFFFFF) | ((vi)sign & INT32_MIN));
}
/* Returns the greater of x and y, or NaN if x is NaN. */
static inline vf max_of(vf x, vf y)
{
  return choose(x < y, y, x);
}
static inline vf min_of(vf x, vf y)
{
  return choose(x > y, y, x);
}

/* 2^n for n in [-126, 127] */
static inline vf exp2_of(vi n)
{
  return (vf)((n + 127) << 23);
}

/* Returns exp(x + low). `low` is the rounding error of x, small compared with 1. */
static inline vf exponential_sum(vf x, vf low)
{
  const vf magic = splat(12582912.0f); /* 1.5 * 2^23: adding a number rounds it to an integer */
  x = max_of(min_of(x, splat(89.0f)), splat(-104.0f));
  const vf sum = x * 1.44269504f + magic, k = sum - magic;
  const vf r = ((x - k * 0.693359375f) - k * -2.12194440e-4f) + low; /* k ln 2 in two parts, the first exact */
  vf p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  /* Multiplies by 2^k in two steps, because 2^128 and 2^-149 are not normal numbers. */
  const vi whole = (vi)sum - (vi)magic, half = whole >> 1;
  return p * exp2_of(half) * exp2_of(whole - half);
}

static inline vf exponential(vf x)
{
  return exponential_sum(x, splat(0.0f));
}

/* Gives -inf for 0 and NaN for negative numbers. Subnormal numbers are exact too. */
static inline vf log_of(vf x)
{
  const vf zero = splat(0.0f), infinity = splat(__builtin_inff());
  const vi tiny = x < 1.17549435e-38f;
  const vf scaled = choose(tiny, x * 33554432.0f, x); /* 2^25 */
  /* Bits of the mantissa minus those of sqrt(2). */
  const vi bits = (vi)scaled, above = (bits & 0x7FFFFF) - 0x3504F3;
  const vi up = ~(above >> 31) & 1;
  const vi exponent = ((bits >> 23) & 0xFF) - 127 + up - (tiny & 25);
  const vf m = (vf)((bits & 0x7FFFFF) | ((127 - up) << 23)), e = __builtin_convertvector(exponent, vf);
  const vf f = m - 1.0f, z = f * f;
  vf p = splat(7.0376836292e-2f);
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  vf y = f * z * p + e * -2.12194440e-4f;
  y = (f + (y - 0.5f * z)) + e * 0.693359375f;
  y = choose(x < infinity, y, x); /* infinity and NaN stay */
  y = choose(x == zero, -infinity, y);
  return choose(x < zero, splat(__builtin_nanf("")), y);
}

/* log(1 + x) by Kahan's method, which compensates the rounding of 1 + x. */
static inline vf log_of_one_plus(vf x)
{
  const vf one = splat(1), sum = one + x, rest = sum - one;
  return choose(sum == one, x, choose(sum - sum == splat(0), log_of(sum) * (x / rest), log_of(sum)));
}

/* 1 / (1 + exp(-x)) */
static inline vf sigmoid_of(vf x)
{
  return 1.0f / (1.0f + exponential(-x));
}

static inline vf tanh_of(vf x)
{
  const vf a = abs_of(x), z = x * x;
  const vf far = 1.0f - 2.0f / (exponential(a + a) + 1.0f);
  vf p = splat(-5.70498872745e-3f);
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  return choose(a < 0.625f, p * z * x + x, with_sign(far, x)); /* NaN is not below 0.625: far is NaN */
}

/* erf(x) for |x| < 1 */
static inline vf erf_near(vf x)
{
  const vf z = x * x;
  vf p = splat(7.853861353153693e-5f);
  p = p * z - 8.010193625184903e-4f;
  p = p * z + 5.188327685732524e-3f;
  p = p * z - 2.685381193529856e-2f;
  p = p * z + 1.128358514861418e-1f;
  p = p * z - 3.761262582423300e-1f;
  p = p * z + 1.128379165726710e0f;
  return x * p;
}

/* exp(-a^2) */
static inline vf bell_of(vf a)
{
  const vf high = (vf)((vi)a & (int32_t)0xFFFFF000), low = a - high; /* high^2 is exact */
  return exponential_sum(-(high * high), -(low * (a + high)));
}

/* Returns erfc(a) for a >= 1, as exp(-a^2) (`bell`) / a times a polynomial of 1 / a^2. */
static inline vf erfc_far(vf a, vf bell)
{
  const vf q = 1.0f / a, z = q * q;
  vf near = splat(2.326819970068386e-2f);
  near = near * z - 1.387039388740657e-1f;
  near = near * z + 3.687424674597105e-1f;
  near = near * z - 5.824733027278666e-1f;
  near = near * z + 6.210004621745983e-1f;
  near = near * z - 4.944515323274145e-1f;
  near = near * z + 3.404879937665872e-1f;
  near = near * z - 2.741127028184656e-1f;
  near = near * z + 5.638259427386472e-1f;
  if (is_all(a < 2.0f)) return bell * q * near;
  vf far = splat(-1.047766399936249e1f);
  far = far * z + 1.297719955372516e1f;
  far = far * z - 7.495518717768503e0f;
  far = far * z + 2.921019019210786e0f;
  far = far * z - 1.015265279202700e0f;
  far = far * z + 4.218463358204948e-1f;
  far = far * z - 2.820767439740514e-1f;
  far = far * z + 5.641895067754075e-1f;
  return bell * q * choose(a < 2.0f, near, far);
}

static inline vf erf_of(vf x)
{
  const vf a = abs_of(x), b = min_of(a, splat(10.0f)), far = 1.0f - erfc_far(b, bell_of(b));
  return choose(a < 1.0f, erf_near(x), with_sign(far, x));
}

/* Returns 1 - erf(x), which is also accurate if it is tiny, and exp(-x^2) in *bell. Takes less time if |x| < 1 in all
 * lanes, as for most values of a network. */
static inline vf erfc_of(vf x, vf *bell)
{
  const vf a = abs_of(x), b = min_of(a, splat(20.0f)), near = 1.0f - erf_near(x);
  *bell = bell_of(b);
  if (is_all(a < 1.0f)) return near;
  const vf far = erfc_far(b, *bell);
  return choose(a < 1.0f, near, choose(x < 0.0f, 2.0f - far, far));
}

#endif
