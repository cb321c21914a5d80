#include "setup/distribution.h"

#include <stdlib.h>

#include "base/alloc.h"

void brim_distribution_release(brim_distribution *d)
{
  free(d->weight);
  free(d->batch);
  *d = (brim_distribution){0};
}

bool brim_distribution_weigh(const uint64_t *sample_time, int32_t ranks, int64_t *weight)
{
  const int64_t parts = (int64_t)BRIM_PARTS_A_RANK * ranks;
  uint64_t least = UINT64_MAX, sum = 0;
  int64_t given = 0;
  for (int32_t r = 0; r < ranks; r++) least = sample_time[r] < least ? sample_time[r] : least;
  if (least == 0) return false;
  if (least > UINT64_MAX >> 20) least = UINT64_MAX >> 20;
  uint64_t *speed = brim_xmalloc((size_t)ranks * sizeof *speed);
  for (int32_t r = 0; r < ranks; r++) {
    speed[r] = (least << 20) / sample_time[r];
    if (speed[r] == 0) speed[r] = 1;
    sum += speed[r];
  }
  for (int32_t r = 0; r < ranks; r++) {
    weight[r] = (int64_t)((uint64_t)(parts - ranks) * speed[r] / sum) + 1; /* every rank gets something */
    given += weight[r];
  }
  /* The division rounds down. The remaining parts go to the ranks that lost most, relative to their speed. */
  for (; given < parts; given++) {
    int32_t best = 0;
    for (int32_t r = 1; r < ranks; r++)
      if (speed[r] * (uint64_t)(weight[best] + 1) > speed[best] * (uint64_t)(weight[r] + 1)) best = r;
    weight[best]++;
  }
  free(speed);
  return true;
}

brim_portion brim_distribution_portion(const brim_distribution *d, int32_t rank, int32_t ranks)
{
  brim_portion p = {0, 0, 0};
  if (!d->weight) return brim_portion_even(rank, ranks);
  for (int32_t r = 0; r < ranks; r++) {
    if (r < rank) p.from += d->weight[r];
    if (r <= rank) p.to += d->weight[r];
    p.of += d->weight[r];
  }
  return p;
}
