/* Division by a number that is known when a kernel is started. A GPU has no instruction for division: 64 bits take
 * about a hundred instructions, more than everything else in a thread that moves a few bytes. Here a division is a
 * multiplication and a shift, exact for all n >= 0 (Granlund and Montgomery, Division by Invariant Integers using
 * Multiplication, 1994). C and C++. */
#ifndef CUDA_DIVIDER_H
#define CUDA_DIVIDER_H
#include "geometry.h"

typedef struct cuda_divider {
  int64_t by;      /* at least 1 */
  uint64_t factor; /* 2^64 * (2^shift / by - 1), rounded down, + 1 */
  uint32_t shift;  /* 2^shift is the smallest power of two that is at least `by` */
} cuda_divider;

__extension__ typedef unsigned __int128 cuda_uint128;

static inline cuda_divider cuda_divider_of(int64_t by)
{
  cuda_divider d = {by, 0, 0};
  while ((uint64_t)1 << d.shift < (uint64_t)by) d.shift++;
  const uint64_t above = ((uint64_t)1 << d.shift) - (uint64_t)by;
  d.factor = (uint64_t)(((cuda_uint128)above << 64) / (uint64_t)by + 1);
  return d;
}

/* Returns n / d->by, for n >= 0. */
CUDA_ANYWHERE int64_t cuda_quotient(const cuda_divider *d, int64_t n)
{
#ifdef __CUDA_ARCH__
  const uint64_t high = __umul64hi((uint64_t)n, d->factor);
#else
  const uint64_t high = (uint64_t)((cuda_uint128)(uint64_t)n * d->factor >> 64);
#endif
  return (int64_t)((high + (uint64_t)n) >> d->shift); /* high is at most n, which is below 2^63 */
}

/* Splits the last coordinate off a position: returns *n % by, and *n becomes *n / by. */
CUDA_ANYWHERE int64_t cuda_take(const cuda_divider *d, int64_t *n)
{
  const int64_t quotient = cuda_quotient(d, *n), rest = *n - quotient * d->by;
  *n = quotient;
  return rest;
}
#endif
