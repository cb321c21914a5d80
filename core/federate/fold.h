/* The bounds of exact sums (fold in brim/ops.h): weighted updates are rounded to multiples of BRIM_FOLD_GRID, weights
 * add up to at most 1, and no parameter of a client may move by BRIM_FOLD_MOST or more. Internal to core/federate. */
#ifndef BRIM_FEDERATE_FOLD_H
#define BRIM_FEDERATE_FOLD_H
#include <math.h>

#define BRIM_FOLD_GRID 0x1p-42
#define BRIM_FOLD_MOST 512.0

/* The smallest exponent e with 2^e >= sum > 0. Weights that add up to `sum` add up to at most 1 when divided by 2^e,
 * which is exact. */
static inline int brim_fold_exponent(double sum)
{
  int exponent;
  return frexp(sum, &exponent) > 0.5 ? exponent : exponent - 1;
}
#endif
