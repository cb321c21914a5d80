#include "federate/aggregation.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "builtin/builtin.h"
#include "federate/fold.h"
#include "memory/plugin_call.h"

/* Arguments and results of a call of the aggregator. They outlive the call, because a hanging aggregator may still
 * write to them later. */
typedef struct call {
  brim_arrival arrival;
  double weight;
  brim_arrival_scale scale;
  brim_updates block;
  double *out;
} call;

struct brim_aggregation {
  const brim_config_choice *choice; /* NULL: the core's fedavg, without a guard */
  const brim_aggregator_ops *ops;
  const void *self;
  brim_guard *guard; /* NULL: an aggregator of the core */
  call call;
  int exponent;            /* weights are divided by 2^exponent */
  double divisors, scaled; /* sums of the round: of divisors, and of divisors times factors */
};

static brim_status call_weigh(void *context)
{
  brim_aggregation *a = context;
  return a->ops->weigh(a->self, &a->call.arrival, &a->call.weight);
}

static brim_status call_scale(void *context)
{
  brim_aggregation *a = context;
  return a->ops->scale(a->self, &a->call.arrival, a->call.weight, &a->call.scale);
}

static brim_status call_look(void *context)
{
  brim_aggregation *a = context;
  return a->ops->look(a->self, &a->call.block);
}

static brim_status call_merge(void *context)
{
  brim_aggregation *a = context;
  return a->ops->merge(a->self, &a->call.block, a->call.out);
}

static brim_status run(brim_aggregation *a, const char *function, brim_guard_work work)
{
  const brim_plugin_call about = {a->choice, function, true};
  const brim_status status = a->guard ? brim_plugin_run(a->guard, &about, work, a) : work(a);
  if (status == BRIM_OK || !a->guard || status == BRIM_EPLUGIN || status == BRIM_ENOMEM_HOST) return status;
  return brim_fail(BRIM_EPLUGIN, "aggregator '%s' failed in %s: %s", a->choice->plugin->id, function,
                   status == BRIM_ENOTSUP ? "it returned BRIM_ENOTSUP, but no other aggregator can answer"
                                          : brim_error_text());
}

brim_status brim_aggregation_open(const brim_config_choice *choice, brim_aggregation **out)
{
  brim_aggregation *a = brim_try_calloc(1, sizeof *a);
  if (!a) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the aggregator");
  a->choice = choice;
  a->ops = (choice ? choice->plugin : &brim_aggregator_fedavg)->ops;
  a->self = choice ? choice->params : NULL;
  const brim_status status = choice && choice->file[0] ? brim_guard_open(&a->guard) : BRIM_OK;
  if (status == BRIM_OK)
    *out = a;
  else
    brim_aggregation_close(a);
  return status;
}

void brim_aggregation_close(brim_aggregation *a)
{
  if (!a) return;
  if (a->guard && brim_guard_is_lost(a->guard)) return; /* the hung thread may still use it */
  brim_guard_close(a->guard);
  free(a);
}

static const char *name_of(const brim_aggregation *a)
{
  return a->choice ? a->choice->plugin->id : "fedavg";
}

/* The status for an unusable answer: EPLUGIN for a plugin, ENUMERIC for an aggregator of the core. */
static brim_status blame(const brim_aggregation *a)
{
  return a->guard ? BRIM_EPLUGIN : BRIM_ENUMERIC;
}

brim_status brim_aggregation_weigh(brim_aggregation *a, const brim_arrival *arrival, int64_t count, double *weight)
{
  double sum = 0;
  if (a->ops->merge) {
    for (int64_t i = 0; i < count; i++) weight[i] = 1;
    return BRIM_OK;
  }
  for (int64_t i = 0; i < count; i++) {
    a->call.arrival = arrival[i];
    a->call.weight = NAN;
    BRIM_TRY(run(a, "weigh", call_weigh));
    weight[i] = a->call.weight;
    if (!isfinite(weight[i]) || weight[i] < 0)
      return brim_fail(blame(a), "aggregator '%s' gave client %lld the weight %g in round %lld", name_of(a),
                       (long long)arrival[i].client, weight[i], (long long)arrival[i].round + 1);
    sum += weight[i];
  }
  if (count > 0 && !(sum > 0 && isfinite(sum)))
    return brim_fail(blame(a), "the weights of aggregator '%s' add up to %g in round %lld", name_of(a), sum,
                     (long long)arrival[0].round + 1);
  a->exponent = count > 0 ? brim_fold_exponent(sum) : 0;
  for (int64_t i = 0; i < count; i++) weight[i] = ldexp(weight[i], -a->exponent);
  return BRIM_OK;
}

void brim_aggregation_start(brim_aggregation *a)
{
  a->divisors = a->scaled = 0;
}

brim_status brim_aggregation_add(brim_aggregation *a, const brim_arrival *arrival, double weight)
{
  a->call.arrival = *arrival;
  a->call.weight = ldexp(weight, a->exponent);
  a->call.scale = (brim_arrival_scale){a->call.weight, 1};
  if (a->ops->scale) BRIM_TRY(run(a, "scale", call_scale));
  const double divisor = ldexp(a->call.scale.divisor, -a->exponent), factor = a->call.scale.factor;
  if (!isfinite(divisor) || divisor < 0 || !isfinite(factor))
    return brim_fail(blame(a), "aggregator '%s' gave client %lld the divisor %g and the factor %g in round %lld",
                     name_of(a), (long long)arrival->client, a->call.scale.divisor, factor,
                     (long long)arrival->round + 1);
  a->divisors += divisor;
  a->scaled += divisor * factor;
  return BRIM_OK;
}

brim_status brim_aggregation_divisor(const brim_aggregation *a, double *out)
{
  *out = a->ops->scale ? a->divisors / (a->scaled / a->divisors) : a->divisors;
  if (*out > 0 && isfinite(*out)) return BRIM_OK;
  return brim_fail(blame(a), "aggregator '%s' divides the sum of updates by %g", name_of(a), *out);
}

/* ---- all updates of a round at once ---- */

bool brim_aggregation_merges(const brim_aggregation *a)
{
  return a->ops->merge != NULL;
}

bool brim_aggregation_looks(const brim_aggregation *a)
{
  return a->ops->look != NULL;
}

bool brim_aggregation_is_lost(const brim_aggregation *a)
{
  return a && a->guard && brim_guard_is_lost(a->guard);
}

brim_status brim_aggregation_merge(brim_aggregation *a, const brim_updates *block, double *out)
{
  a->call.block = *block;
  a->call.out = out;
  if (!out) return run(a, "look", call_look);
  BRIM_TRY(run(a, "merge", call_merge));
  for (int64_t i = 0; i < block->values; i++)
    if (!isfinite(out[i]))
      return brim_fail(blame(a), "aggregator '%s' gave value %lld of the update %g in round %lld", name_of(a),
                       (long long)(block->first + i), out[i], (long long)block->arrival[0]->round + 1);
  return BRIM_OK;
}
