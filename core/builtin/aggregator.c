/* The core's own aggregators: federated averaging (McMahan et al., AISTATS 2017), the plain mean, q-FedAvg (Li et al.,
 * Fair Resource Allocation in Federated Learning, ICLR 2020) and FedNova (Wang et al., Tackling the Objective
 * Inconsistency Problem in Heterogeneous Federated Optimization, NeurIPS 2020). */
#include "brim/aggregator.h"

#include <math.h>

#include "builtin/builtin.h"

/* ---- fedavg and uniform ---- */

static brim_status weigh_by_samples(const void *self, const brim_arrival *a, double *weight)
{
  (void)self;
  *weight = (double)a->samples;
  return BRIM_OK;
}
static const brim_aggregator_ops fedavg_ops = {.size = sizeof(brim_aggregator_ops), .weigh = weigh_by_samples};
const brim_plugin brim_aggregator_fedavg = {.size = sizeof(brim_plugin),
                                            .kind = BRIM_AGGREGATOR,
                                            .id = "fedavg",
                                            .help = "the mean of the updates, weighted by the clients' samples",
                                            .ops = &fedavg_ops};

static brim_status weigh_alike(const void *self, const brim_arrival *a, double *weight)
{
  (void)self;
  (void)a;
  *weight = 1;
  return BRIM_OK;
}
static const brim_aggregator_ops uniform_ops = {.size = sizeof(brim_aggregator_ops), .weigh = weigh_alike};
const brim_plugin brim_aggregator_uniform = {.size = sizeof(brim_plugin),
                                             .kind = BRIM_AGGREGATOR,
                                             .id = "uniform",
                                             .help = "the mean of the updates, each with the same weight",
                                             .ops = &uniform_ops};

/* ---- q-FedAvg ---- */

typedef struct qfedavg {
  double q;
} qfedavg;
static const brim_param qfedavg_table[] = {
    BRIM_PARAM(F64, qfedavg, q, "1", "[0,10]",
               "exponent of a client's loss in its weight; 0: all clients have the same weight"),
    BRIM_PARAMS_END};

#define LEAST_LOSS 1e-10 /* added to each loss, as in the authors' program, so that no weight is 0 */

static brim_status weigh_by_loss(const void *self, const brim_arrival *a, double *weight)
{
  *weight = pow(a->loss_before + LEAST_LOSS, ((const qfedavg *)self)->q);
  return BRIM_OK;
}

/* Computes h(k) of the paper divided by L = 1 / rate, because brim's updates are the paper's updates divided by L. */
static brim_status scale_by_curvature(const void *self, const brim_arrival *a, double weight, brim_arrival_scale *out)
{
  const double q = ((const qfedavg *)self)->q;
  if (q > 0 && !(a->rate > 0))
    return brim_fail(BRIM_ENUMERIC,
                     "aggregator=qfedavg needs a client learning rate above 0, but it is %g in "
                     "round %lld",
                     a->rate, (long long)a->round + 1);
  out->divisor = weight;
  if (q > 0) out->divisor += q * pow(a->loss_before + LEAST_LOSS, q - 1) * a->norm * a->norm / a->rate;
  return BRIM_OK;
}
static const brim_aggregator_ops qfedavg_ops = {.size = sizeof(brim_aggregator_ops),
                                                .needs = BRIM_NEED_LOSS_BEFORE,
                                                .weigh = weigh_by_loss,
                                                .scale = scale_by_curvature};
const brim_plugin brim_aggregator_qfedavg = {.size = sizeof(brim_plugin),
                                             .kind = BRIM_AGGREGATOR,
                                             .id = "qfedavg",
                                             .help = "q-FedAvg: clients with higher losses count more",
                                             .params_size = sizeof(qfedavg),
                                             .params = qfedavg_table,
                                             .ops = &qfedavg_ops};

/* ---- FedNova ---- */

/* The paper divides each update by the L1 norm of the weights of its gradients, which is the reach of the client's
 * steps, and multiplies the mean of these quotients by the mean norm. */
static brim_status weigh_by_reach(const void *self, const brim_arrival *a, double *weight)
{
  (void)self;
  *weight = (double)a->samples / a->reach;
  return BRIM_OK;
}
static brim_status scale_by_reach(const void *self, const brim_arrival *a, double weight, brim_arrival_scale *out)
{
  (void)self;
  (void)weight;
  out->divisor = (double)a->samples;
  out->factor = a->reach;
  return BRIM_OK;
}
static const brim_aggregator_ops fednova_ops = {
    .size = sizeof(brim_aggregator_ops), .weigh = weigh_by_reach, .scale = scale_by_reach};
const brim_plugin brim_aggregator_fednova = {
    .size = sizeof(brim_plugin),
    .kind = BRIM_AGGREGATOR,
    .id = "fednova",
    .help = "FedNova: the mean of the updates per local step, times the mean number of steps",
    .ops = &fednova_ops};
