/* Box and Muller's method in vector code, with the bits of the C library's functions: each value is computed by
 * polynomials with an error far below a float's precision. If the error could change the nearest float, the C library's
 * functions compute the value instead. So the bits do not depend on the instruction set either.
 *
 * The loops are written so that compilers vectorise them. */
#include "exec/normal.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "brim/random.h"

#define TWO_PI 6.283185307179586
#define HALF_PI 1.5707963267948966
#define LN_2 0.6931471805599453
/* Bound of the error of a normal value, in units of its radius. The polynomials and the C library have errors below
 * 5e-15. */
#define ERROR 1e-13

enum { PAIRS = BRIM_NORMAL_BLOCK / 2, COUNTERS = BRIM_NORMAL_BLOCK / 4 };

#define INLINE static inline __attribute__((always_inline))

void brim_normal_pair(double scale, double u, double w, double out[2])
{
  out[0] = scale * sqrt(-2 * log(1 - u)) * cos(TWO_PI * w);
  out[1] = scale * sqrt(-2 * log(1 - u)) * sin(TWO_PI * w);
}

/* The numbers of brim_random4() for COUNTERS blocks from `block` on: in u those of even place, in w of odd place. */
INLINE void draw(uint64_t seed, uint64_t item, uint32_t block, double u[PAIRS], double w[PAIRS])
{
  int32_t bits[4][COUNTERS];
  for (int i = 0; i < COUNTERS; i++) {
    const brim_philox random = brim_random4(seed, BRIM_STREAM_INIT, 0, item, block + (uint32_t)i);
    for (int k = 0; k < 4; k++) bits[k][i] = (int32_t)(random.v[k] ^ 0x80000000u);
  }
  for (int i = 0; i < COUNTERS; i++) { /* signed numbers are converted in vectors */
    u[i] = ((double)bits[0][i] + 2147483648.0) * (1.0 / 4294967296.0);
    w[i] = ((double)bits[1][i] + 2147483648.0) * (1.0 / 4294967296.0);
    u[COUNTERS + i] = ((double)bits[2][i] + 2147483648.0) * (1.0 / 4294967296.0);
    w[COUNTERS + i] = ((double)bits[3][i] + 2147483648.0) * (1.0 / 4294967296.0);
  }
}

/* log(x) for a normal x in (0, 1]: x = m 2^e with m in [sqrt(1/2), sqrt(2)), by the series of atanh((m-1)/(m+1)). */
INLINE double log_of(double x)
{
  const uint64_t root_half = 0x3FE6A09E667F3BCDu, offset = (uint64_t)64 << 52; /* keeps the exponent positive */
  const double whole = 4503599627370496.0;                                     /* 2^52 */
  uint64_t bits, exponent, number;
  double m, e;
  memcpy(&bits, &x, sizeof bits);
  exponent = (bits - root_half + offset) >> 52;
  bits -= (exponent << 52) - offset;
  memcpy(&m, &bits, sizeof m);
  number = exponent | 0x4330000000000000u; /* 2^52 + exponent */
  memcpy(&e, &number, sizeof e);
  const double s = (m - 1) / (m + 1), z = s * s;
  double sum = 1.0 / 19;
  sum = sum * z + 1.0 / 17;
  sum = sum * z + 1.0 / 15;
  sum = sum * z + 1.0 / 13;
  sum = sum * z + 1.0 / 11;
  sum = sum * z + 1.0 / 9;
  sum = sum * z + 1.0 / 7;
  sum = sum * z + 1.0 / 5;
  sum = sum * z + 1.0 / 3;
  sum = sum * z + 1;
  return (e - whole - 64) * LN_2 + 2 * s * sum;
}

/* The cosine and sine of w turns, w in [0, 1): Taylor's series of the distance from the nearest quarter. */
INLINE void turn(double w, double *cosine, double *sine)
{
  /* 1.5 * 2^52: adding it rounds to an integer, which is then in the lowest bits. */
  const double shift = 6755399441055744.0;
  const double shifted = 4 * w + shift, a = (4 * w - (shifted - shift)) * HALF_PI, z = a * a;
  uint64_t quarter;
  memcpy(&quarter, &shifted, sizeof quarter);
  double s = -1.0 / 1307674368000.0, c = 1.0 / 20922789888000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  s = (s * z + 1) * a;
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z - 0.5;
  c = c * z + 1;
  const bool odd = quarter & 1;
  const double x = odd ? s : c, y = odd ? c : s;
  *cosine = (quarter + 1) & 2 ? -x : x;
  *sine = quarter & 2 ? -y : y;
}

INLINE void make_block(uint64_t seed, uint64_t item, double scale, uint32_t block, float out[BRIM_NORMAL_BLOCK])
{
  double u[PAIRS], w[PAIRS], radius[PAIRS], even[PAIRS], odd[PAIRS];
  int32_t unsure[PAIRS], any = 0;
  draw(seed, item, block, u, w);
  for (int i = 0; i < PAIRS; i++) radius[i] = scale * sqrt(-2 * log_of(1 - u[i]));
  for (int i = 0; i < PAIRS; i++) {
    double cosine, sine;
    turn(w[i], &cosine, &sine);
    even[i] = radius[i] * cosine;
    odd[i] = radius[i] * sine;
  }
  for (int i = 0; i < PAIRS; i++) {
    const double error = fabs(radius[i]) * ERROR;
    unsure[i] = !(error > 0) | ((float)(even[i] - error) != (float)(even[i] + error)) |
                ((float)(odd[i] - error) != (float)(odd[i] + error));
    any |= unsure[i];
  }
  for (int i = 0; any && i < PAIRS; i++) {
    double pair[2];
    if (!unsure[i]) continue;
    brim_normal_pair(scale, u[i], w[i], pair);
    even[i] = pair[0];
    odd[i] = pair[1];
  }
  for (int i = 0; i < COUNTERS; i++) {
    out[4 * i] = (float)even[i];
    out[4 * i + 1] = (float)odd[i];
    out[4 * i + 2] = (float)even[COUNTERS + i];
    out[4 * i + 3] = (float)odd[COUNTERS + i];
  }
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static void make_block_avx2(uint64_t seed, uint64_t item, double scale,
                                                                uint32_t block, float out[BRIM_NORMAL_BLOCK])
{
  make_block(seed, item, scale, block, out);
}
#endif

void brim_normal_block(uint64_t seed, uint64_t item, double scale, int64_t first, float out[BRIM_NORMAL_BLOCK])
{
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    make_block_avx2(seed, item, scale, (uint32_t)(first / 4), out);
    return;
  }
#endif
  make_block(seed, item, scale, (uint32_t)(first / 4), out);
}
