/* For authors of backends: the frequencies of the operation rotary (brim/ops.h). */
#ifndef BRIM_ROTARY_H
#define BRIM_ROTARY_H
#include <math.h>

#include "brim/model.h"
#include "brim/ops.h"
#include "brim/random.h"

/* The pair, as a real number, that makes this many turns within `original` positions. */
BRIM_ANYWHERE double brim_rotary_pair_of(const brim_rotary_attr *a, double turns)
{
  return (double)a->dims * log(a->original / (turns * 6.283185307179586)) / (2 * log(a->base));
}

/* With yarn, the share of pair i's frequency that is divided by the factor: rises from 0, at `high` turns, to 1, at
 * `low` turns. */
BRIM_ANYWHERE double brim_rotary_ramp(const brim_rotary_attr *a, int64_t i)
{
  const double first = fmax(floor(brim_rotary_pair_of(a, a->high)), 0.0);
  double last = fmin(ceil(brim_rotary_pair_of(a, a->low)), (double)a->dims - 1);
  if (last == first) last += 0.001;
  return fmin(fmax(((double)i - first) / (last - first), 0.0), 1.0);
}

/* The angle of pair i at position 1. Since ABI 1.12 */
BRIM_ANYWHERE double brim_rotary_frequency(const brim_rotary_attr *a, int64_t i)
{
  const double plain = pow(a->base, -2 * (double)i / (double)a->dims);
  double divided = 1; /* the part that is divided by the factor */
  if (a->scaling == BRIM_ROTARY_PLAIN) return plain;
  if (a->scaling == BRIM_ROTARY_LONGROPE) return plain / a->divisor[i];
  if (a->scaling == BRIM_ROTARY_LLAMA3)
    divided = fmin(fmax((a->high - a->original * plain / 6.283185307179586) / (a->high - a->low), 0.0), 1.0);
  if (a->scaling == BRIM_ROTARY_YARN) divided = brim_rotary_ramp(a, i);
  return plain / a->factor * divided + plain * (1 - divided);
}
#endif
