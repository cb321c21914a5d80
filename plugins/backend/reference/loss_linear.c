/* Softmax cross-entropy of logits that are a matrix product, and metrics from ranks.
 *
 *     z[n,k] = sum over f of  x[n,f] * product[k,f]  + bias[k], with a soft cap  softcap * tanh(this / softcap)
 *     loss and dz as in loss.c, from z;  with a soft cap dz is multiplied by 1 - (z / softcap)^2
 *     rank[n] = the number of classes before the label: z greater, or equal and earlier; -1 if ignored
 *     dx[n,f]        = sum over k of  dz[n,k] * product[k,f]
 *     dproduct[k,f] += sum over n of  dz[n,k] * x[n,f]
 *     dbias[k]      += sum over n of  dz[n,k]
 *
 * Sums over n leave out rows whose label is ignored. The dx of these rows is 0.
 *
 * Logits are computed each time that they are needed, and not stored. If the parameters are frozen, dx is the only
 * gradient. */
#include <stdbool.h>

#include "reference.h"

typedef struct problem {
  int64_t N, F, K, each;            /* rows, features, classes, rows per sample */
  const double *x, *product, *bias; /* bias: NULL if there is none */
  const int32_t *label;
  const brim_loss_attr *attr;
} problem;

/* `bias`: the index of the bias, if there is one. */
static problem problem_of(const brim_launch *launch, uint32_t bias)
{
  const brim_tensor *x = launch->node->in[0];
  const brim_shape *product = &launch->node->in[1]->shape;
  return (problem){.N = rows_of(x),
                   .F = product->dim[1],
                   .K = product->dim[0],
                   .each = rows_of(x) / x->shape.dim[0],
                   .x = launch->in[0],
                   .product = launch->in[1],
                   .bias = launch->node->in_count > bias ? launch->in[bias] : NULL,
                   .label = launch->in[2],
                   .attr = &launch->node->attr.loss};
}

static double logit(const problem *p, int64_t n, int64_t k)
{
  double sum = p->bias ? p->bias[k] : 0;
  for (int64_t f = 0; f < p->F; f++) sum += p->x[n * p->F + f] * p->product[k * p->F + f];
  const double cap = p->attr->softcap;
  return cap > 0 ? cap * tanh(sum / cap) : sum;
}

/* Returns the derivative of a capped logit z with respect to the logit before the cap. */
static double slope_of_cap(const problem *p, double z)
{
  const double cap = p->attr->softcap;
  return cap > 0 ? 1 - z / cap * (z / cap) : 1;
}

static bool is_ignored(const problem *p, int64_t n)
{
  return p->attr->ignores && p->label[n] == p->attr->ignore_index;
}

static brim_status check_label(const problem *p, int64_t n)
{
  if (is_ignored(p, n) || (p->label[n] >= 0 && p->label[n] < p->K)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "sample %lld of the micro-batch has label %d, but there are %lld classes",
                   (long long)(n / p->each), p->label[n], (long long)p->K);
}

/* Returns log(sum of exp(logits)) for row n. */
static double log_sum_exp(const problem *p, int64_t n)
{
  double greatest = logit(p, n, 0), sum = 0;
  for (int64_t k = 1; k < p->K; k++) {
    const double z = logit(p, n, k);
    if (is_greater(z, greatest)) greatest = z;
  }
  for (int64_t k = 0; k < p->K; k++) sum += exp(logit(p, n, k) - greatest);
  return greatest + log(sum);
}

static int32_t rank_of(const problem *p, int64_t n)
{
  const double own = logit(p, n, p->label[n]);
  int32_t before = 0;
  for (int64_t k = 0; k < p->K; k++) {
    const double z = logit(p, n, k);
    before += is_greater(z, own) || (k < p->label[n] && !is_greater(own, z));
  }
  return before;
}

REFERENCE(linear_cross_entropy, "linear_cross_entropy")
{
  const problem p = problem_of(launch, 3);
  const double s = p.attr->smoothing;
  double *loss = launch->out[0];
  int32_t *rank = launch->out[1];

  for (int64_t n = 0; n < p.N; n++) {
    loss[n] = 0;
    rank[n] = -1;
    BRIM_TRY(check_label(&p, n));
    if (is_ignored(&p, n)) continue;
    const double lse = log_sum_exp(&p, n);
    double smooth = 0;
    for (int64_t k = 0; k < p.K; k++) smooth += lse - logit(&p, n, k);
    loss[n] = (1 - s) * (lse - logit(&p, n, p.label[n]));
    if (s > 0) loss[n] += s / (double)p.K * smooth;
    rank[n] = rank_of(&p, n);
  }
  return BRIM_OK;
}

REFERENCE(linear_cross_entropy_grad, "linear_cross_entropy_grad")
{
  const problem p = problem_of(launch, 4);
  const double s = p.attr->smoothing;
  const uint32_t outs = launch->node->out_count;
  double *dx = launch->out[0], *dproduct = outs > 1 ? launch->out[1] : NULL, *dbias = outs > 2 ? launch->out[2] : NULL;

  for (int64_t n = 0; n < p.N; n++) {
    BRIM_TRY(check_label(&p, n));
    for (int64_t f = 0; f < p.F; f++) dx[n * p.F + f] = 0;
    if (is_ignored(&p, n)) continue;
    const double lse = log_sum_exp(&p, n);
    for (int64_t k = 0; k < p.K; k++) {
      const double z = logit(&p, n, k), softmax = exp(z - lse), label = (1 - s) * (k == p.label[n]) + s / (double)p.K;
      const double dz = (softmax - label) * launch->step->loss_scale * slope_of_cap(&p, z);
      if (dbias) dbias[k] += dz;
      for (int64_t f = 0; f < p.F; f++) {
        dx[n * p.F + f] += dz * p.product[k * p.F + f];
        if (dproduct) dproduct[k * p.F + f] += dz * p.x[n * p.F + f];
      }
    }
  }
  return BRIM_OK;
}

/* The gradient has the loss as an input after the label, but does not read it. */
REFERENCE(linear_cross_entropy_both, "linear_cross_entropy+grad")
{
  BRIM_TRY(linear_cross_entropy(self, launch));
  const uint32_t in_count = launch->node->in_count;
  brim_node node = *launch->node;
  brim_launch inner = *launch;
  brim_tensor *in_tensor[5] = {node.in[0], node.in[1], node.in[2], node.out[0], in_count > 3 ? node.in[3] : NULL};
  void *const in[] = {launch->in[0], launch->in[1], launch->in[2], launch->out[0], in_count > 3 ? launch->in[3] : NULL};
  node.in = in_tensor;
  node.in_count++;
  node.out_count -= 2;
  inner.node = &node;
  inner.in = in;
  inner.out = launch->out + 2;
  return linear_cross_entropy_grad(self, &inner);
}

REFERENCE(rank_metrics, "rank_metrics")
{
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);
  const int32_t k = launch->node->attr.metrics.top_k;
  const double *loss = launch->in[0];
  const int32_t *rank = launch->in[1];
  double *metrics = launch->out[0];

  for (int64_t n = 0; n < count; n++) {
    metrics[0] += loss[n];
    metrics[1] += rank[n] == 0;
    if (k > 0) metrics[2] += rank[n] >= 0 && rank[n] < k;
  }
  return BRIM_OK;
}
