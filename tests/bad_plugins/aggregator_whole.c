/* An aggregator that gets all updates of a round at once, and misbehaves as $BRIM_BAD says. Without the variable it is
 * the plain mean. */
#include <math.h>

#include "bad.h"

static brim_status look(const void *self, const brim_updates *block)
{
  (void)self;
  return block->arrival[0]->round < 2 ? BRIM_OK : bad_in("look", 0);
}

static brim_status merge(const void *self, const brim_updates *block, double *out)
{
  static double calls;
  (void)self;
  for (int64_t i = 0; i < block->values; i++) {
    out[i] = 0;
    for (int64_t k = 0; k < block->clients; k++) out[i] += block->update[k][i] / (double)block->clients;
  }
  if (bad_is("merge", "moves")) out[0] += ++calls;
  if (block->arrival[0]->round < 2) return BRIM_OK;
  if (bad_is("merge", "nan")) out[block->values - 1] = NAN;
  return bad_in("merge", 0);
}

static const brim_aggregator_ops ops = {.size = sizeof ops, .look = look, .merge = merge};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_AGGREGATOR,
                                   .id = "bad",
                                   .help = "an aggregator of all updates that behaves badly",
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("bad-aggregator-whole", "1.0", plugins)
