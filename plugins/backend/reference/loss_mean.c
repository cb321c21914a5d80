/* Losses that compare y with a target t element by element and average over a sample, and their gradients, times
 * loss_scale. With d = y - t:
 *
 *     mse    d^2                                          2 d
 *     mae    |d|                                          sign(d), 0 at 0
 *     huber  d^2 / 2 where |d| <= delta,                  d cut off at -delta and delta
 *            else delta * (|d| - delta / 2)
 *     bce    log(1 + exp(y)) - t y, of a logit y          1 / (1 + exp(-y)) - t
 *            = max(y, 0) - t y + log(1 + exp(-|y|))
 *
 * The target is an input, or 1 at the sample's label and 0 elsewhere. The file also has the metrics of regression. */
#include <stddef.h>

#include "reference.h"

typedef double element_fn(double y, double t, double delta);

static double mse(double y, double t, double delta)
{
  (void)delta;
  return (y - t) * (y - t);
}
static double mse_slope(double y, double t, double delta)
{
  (void)delta;
  return 2 * (y - t);
}

static double mae(double y, double t, double delta)
{
  (void)delta;
  return fabs(y - t);
}
static double mae_slope(double y, double t, double delta)
{
  (void)delta;
  const double d = y - t;
  return isnan(d) ? d : (d > 0) - (d < 0);
}

static double huber(double y, double t, double delta)
{
  const double d = fabs(y - t);
  return d <= delta ? d * d / 2 : delta * (d - delta / 2);
}
static double huber_slope(double y, double t, double delta)
{
  const double d = y - t;
  return d > delta ? delta : d < -delta ? -delta : d;
}

static double bce(double y, double t, double delta)
{
  (void)delta;
  return (y > 0 ? y : 0) - t * y + log1p(exp(-fabs(y)));
}
static double bce_slope(double y, double t, double delta)
{
  (void)delta;
  return 1 / (1 + exp(-y)) - t;
}

/* Returns the target of element i of sample n. */
static double target_at(const brim_launch *launch, int64_t n, int64_t i, int64_t count)
{
  if (launch->node->in[1]->dtype == BRIM_DTYPE_I32) return ((const int32_t *)launch->in[1])[n] == i;
  return ((const double *)launch->in[1])[n * count + i];
}

static brim_status check_labels(const brim_launch *launch, int64_t N, int64_t K)
{
  const int32_t *label = launch->node->in[1]->dtype == BRIM_DTYPE_I32 ? launch->in[1] : NULL;
  for (int64_t n = 0; label && n < N; n++)
    if (label[n] < 0 || label[n] >= K)
      return brim_fail(BRIM_EINVAL, "sample %lld of the micro-batch has label %d, but there are %lld classes",
                       (long long)n, label[n], (long long)K);
  return BRIM_OK;
}

static brim_status sum_up(const brim_launch *launch, element_fn *element)
{
  const brim_shape *shape = &launch->node->in[0]->shape;
  const int64_t N = shape->dim[0], count = brim_shape_count(shape) / N;
  const double *y = launch->in[0], delta = launch->node->attr.loss.delta;
  double *loss = launch->out[0];
  BRIM_TRY(check_labels(launch, N, count));
  for (int64_t n = 0; n < N; n++) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += element(y[n * count + i], target_at(launch, n, i, count), delta);
    loss[n] = sum / (double)count;
  }
  return BRIM_OK;
}

static brim_status give_back(const brim_launch *launch, element_fn *slope)
{
  const brim_shape *shape = &launch->node->in[0]->shape;
  const int64_t N = shape->dim[0], count = brim_shape_count(shape) / N;
  const double *y = launch->in[0], delta = launch->node->attr.loss.delta;
  const double scale = launch->step->loss_scale / (double)count;
  double *dy = launch->out[0]; /* may share memory with y */
  BRIM_TRY(check_labels(launch, N, count));
  for (int64_t n = 0; n < N; n++)
    for (int64_t i = 0; i < count; i++)
      dy[n * count + i] = slope(y[n * count + i], target_at(launch, n, i, count), delta) * scale;
  return BRIM_OK;
}

#define LOSS(id)                                                                                                       \
  REFERENCE(id##_run, #id)                                                                                             \
  {                                                                                                                    \
    return sum_up(launch, id);                                                                                         \
  }                                                                                                                    \
  REFERENCE(id##_grad, #id "_grad")                                                                                    \
  {                                                                                                                    \
    return give_back(launch, id##_slope);                                                                              \
  }
LOSS(mse)
LOSS(mae)
LOSS(huber)
LOSS(bce)

#define PERCENT_LEAST 1e-7 /* minimum of |t| as a divisor, as in Keras' MeanAbsolutePercentageError */

/* All figures are added to the metrics of earlier micro-batches, in the order of the samples. */
REFERENCE(regression_metrics, "regression_metrics")
{
  const brim_shape *shape = &launch->node->in[1]->shape;
  const int64_t N = shape->dim[0], K = shape->dim[1];
  const double *loss = launch->in[0], *y = launch->in[1], *t = launch->in[2];
  double *metrics = launch->out[0];

  for (int64_t n = 0; n < N; n++, y += K, t += K) {
    double error = 0, share = 0;
    for (int64_t k = 0; k < K; k++) {
      error += fabs(y[k] - t[k]);
      share += fabs(y[k] - t[k]) / fmax(fabs(t[k]), PERCENT_LEAST);
    }
    metrics[0] += loss[n];
    metrics[1] += error / (double)K;
    if (!launch->node->attr.metrics.errors) continue;
    metrics[2] += share / (double)K;
    for (int64_t k = 0; k < K; k++) {
      metrics[3 + 3 * k] += (y[k] - t[k]) * (y[k] - t[k]);
      metrics[4 + 3 * k] += t[k];
      metrics[5 + 3 * k] += t[k] * t[k];
    }
  }
  return BRIM_OK;
}
