/* An aggregator that misbehaves as $BRIM_BAD says, like the bad policy. Without the variable it is federated averaging.
 */
#include <math.h>

#include "bad.h"

static brim_status weigh(const void *self, const brim_arrival *a, double *weight)
{
  static double calls;
  (void)self;
  *weight = (double)a->samples;
  if (bad_is("weigh", "moves")) *weight += ++calls;
  if (a->round < 2) return BRIM_OK;
  if (bad_is("weigh", "nothing")) *weight = 0;
  if (bad_is("weigh", "below") && a->client == 2) *weight = -1;
  if (bad_is("weigh", "nan")) *weight = NAN;
  return bad_in("weigh", 0);
}

static brim_status scale(const void *self, const brim_arrival *a, double weight, brim_arrival_scale *out)
{
  (void)self;
  out->divisor = weight;
  if (a->round < 2) return BRIM_OK;
  if (bad_is("scale", "below") && a->client == 2) out->divisor = -1;
  if (bad_is("scale", "infinite")) out->factor = INFINITY;
  if (bad_is("scale", "nothing")) out->divisor = 0;
  if (bad_is("scale", "opposite")) out->factor = -1;
  return bad_in("scale", 0);
}

static const brim_aggregator_ops ops = {.size = sizeof ops, .weigh = weigh, .scale = scale};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_AGGREGATOR,
                                   .id = "bad",
                                   .help = "an aggregator that behaves badly",
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("bad-aggregator", "1.0", plugins)
