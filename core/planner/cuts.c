#include "planner/cuts.h"

#include <stdlib.h>

static int descending(const void *a, const void *b)
{
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

static void add_micro_batch(brim_planner *p, int64_t batch, bool multiples)
{
  const int64_t share = brim_setup_share(p->setup), grain = p->setup->grain;
  const bool own = batch == p->setup->settings->training.batch_size; /* the user's, whatever it is a multiple of */
  if (batch > BRIM_MICRO_BATCH_MAX || p->micro_batch_count == BRIM_MICRO_BATCHES_MAX) return;
  if (batch < p->setup->settings->min_batch_size && batch < share && !own) return;
  if (!brim_setup_allows(p->setup, batch)) return;
  if (multiples && batch % grain != 0 && batch >= grain && batch != share && !own) return;
  p->micro_batch[p->micro_batch_count++] = batch;
}

/* Not larger than the rank's share of a step, which may be one whatever it divides. */
size_t brim_planner_list_cuts(brim_planner *p)
{
  const int64_t effective = p->setup->settings->training.effective_batch_size, share = brim_setup_share(p->setup);
  const bool multiples = p->setup->grain > 1 && effective % p->setup->grain == 0;
  if (p->micro_batch_count > 0) return p->micro_batch_count;
  add_micro_batch(p, share > 0 ? share : brim_setup_limit_batch(p->setup, brim_setup_micro_batch(p->setup)), multiples);
  for (int64_t k = 1; k * k <= effective; k++) {
    if (effective % k != 0) continue;
    if (k < share) add_micro_batch(p, k, multiples);
    if (k != effective / k && effective / k < share) add_micro_batch(p, effective / k, multiples);
  }
  qsort(p->micro_batch, p->micro_batch_count, sizeof *p->micro_batch, descending);
  return p->micro_batch_count;
}
