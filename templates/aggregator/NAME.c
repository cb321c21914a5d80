/* @NAME@: an aggregator in which clients with few samples count more than in the mean by samples:
 *
 *     w(k) = samples(k)^power
 *
 * With power=1 it is federated averaging, with power=0 the plain mean. brim/aggregator.h is the interface of
 * aggregators. */
#include <brim/brim.h>
#include <math.h>

typedef struct settings { /* brim fills this struct from the table below */
  double power;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(F64, settings, power, "0.5", "[0,1]", "exponent of a client's samples; 1: federated averaging"),
    BRIM_PARAMS_END,
};

/* The weight of a client's update: finite, not negative, and the same whenever it is asked for. */
static brim_status weigh(const void *self, const brim_arrival *a, double *weight)
{
  const settings *s = self;
  *weight = pow((double)a->samples, s->power);
  return BRIM_OK;
}

static const brim_aggregator_ops ops = {.size = sizeof ops, .weigh = weigh};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_AGGREGATOR,
                                   .id = "@NAME@",
                                   .ops = &ops,
                                   .help = "the mean of updates, weighted by a power of the clients' samples",
                                   .params_size = sizeof(settings),
                                   .params = table};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("@NAME@", "0.1", plugins)
