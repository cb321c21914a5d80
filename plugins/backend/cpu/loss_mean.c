/* Losses that compare element by element and average over a sample: mse, mae, huber, bce. A task computes one sample;
 * the vector code is in simd_loss.c. The file also has the metrics of regression, a few numbers for each sample, added
 * up in double precision in the order of the samples. */
#include <math.h>

#include "loss.h"
#include "simd_loss.h"

typedef struct samples {
  const cpu_loss_simd *simd;
  enum cpu_mean_loss kind;
  const float *y, *t;
  const int32_t *label; /* class labels instead of t */
  float *out;           /* the losses, or the gradient of y */
  int64_t count, each, per_task;
  float delta, scale;
} samples;

static cpu_mean_row row_of(const samples *v, int64_t n)
{
  return (cpu_mean_row){.y = v->y + n * v->each,
                        .t = v->t ? v->t + n * v->each : NULL,
                        .hot = v->label ? v->label[n] : -1,
                        .count = v->each,
                        .delta = v->delta,
                        .scale = v->scale};
}

static void sum_samples(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const samples *v = arg;
  for (int64_t n = task * v->per_task; n < cpu_min((task + 1) * v->per_task, v->count); n++) {
    const cpu_mean_row row = row_of(v, n);
    v->out[n] = (float)(v->simd->mean_sum[v->kind](&row) / (double)v->each);
  }
}

static void give_back(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const samples *v = arg;
  for (int64_t n = task * v->per_task; n < cpu_min((task + 1) * v->per_task, v->count); n++) {
    const cpu_mean_row row = row_of(v, n);
    v->simd->mean_grad[v->kind](&row, v->out + n * v->each);
  }
}

static brim_status run_samples(cpu_backend *b, const brim_launch *launch, enum cpu_mean_loss kind, cpu_task_fn fn)
{
  static const cpu_loss_simd *const tables[] = {CPU_OF_ISAS(&, cpu_loss)};
  const brim_tensor *y = launch->node->in[0], *target = launch->node->in[1];
  const brim_loss_attr *attr = &launch->node->attr.loss;
  const bool by_label = target->dtype == BRIM_DTYPE_I32;
  const int64_t count = y->shape.dim[0], each = brim_shape_count(&y->shape) / count;
  samples v = {.simd = tables[b->isa],
               .kind = kind,
               .y = cpu_plain_input(b, launch, 0),
               .t = by_label ? NULL : cpu_plain_input(b, launch, 1),
               .label = by_label ? launch->in[1] : NULL,
               .out = launch->out[0],
               .count = count,
               .each = each,
               .per_task = cpu_max(1, 4096 / each),
               .delta = (float)attr->delta,
               .scale = (float)(launch->step->loss_scale / (double)each)};
  if (by_label) BRIM_TRY(cpu_loss_check_labels(target, v.label, each, &(brim_loss_attr){0}));
  cpu_pool_run(b->pool, cpu_divide_up(count, v.per_task), fn, &v);
  return BRIM_OK;
}

#define LOSS(id, kind)                                                                                                 \
  static CPU_RUN(id##_run)                                                                                             \
  {                                                                                                                    \
    return run_samples(self, launch, kind, sum_samples);                                                               \
  }                                                                                                                    \
  static CPU_RUN(id##_grad_run)                                                                                        \
  {                                                                                                                    \
    return run_samples(self, launch, kind, give_back);                                                                 \
  }                                                                                                                    \
  CPU_KERNEL(id) = {.op = #id, .prepare = cpu_plain_prepare, .run = id##_run};                                         \
  CPU_KERNEL(id##_grad) = {.op = #id "_grad", .prepare = cpu_plain_prepare, .run = id##_grad_run}
LOSS(mse, CPU_MEAN_MSE);
LOSS(mae, CPU_MEAN_MAE);
LOSS(huber, CPU_MEAN_HUBER);
LOSS(bce, CPU_MEAN_BCE);

#define PERCENT_LEAST 1e-7 /* errors are divided by at least this |t| */

/* Adds the errors of one sample. */
static void add_errors(double *metrics, const float *y, const float *t, int64_t count, bool all)
{
  double error = 0, share = 0;
  for (int64_t k = 0; k < count; k++) {
    const double d = fabs((double)y[k] - (double)t[k]);
    error += d;
    share += d / fmax(fabs((double)t[k]), PERCENT_LEAST);
  }
  metrics[1] += error / (double)count;
  if (!all) return;
  metrics[2] += share / (double)count;
  for (int64_t k = 0; k < count; k++) {
    const double d = (double)y[k] - (double)t[k];
    metrics[3 + 3 * k] += d * d;
    metrics[4 + 3 * k] += (double)t[k];
    metrics[5 + 3 * k] += (double)t[k] * (double)t[k];
  }
}

static CPU_RUN(regression_metrics_run)
{
  (void)self;
  const brim_shape *shape = &launch->node->in[1]->shape;
  const float *loss = launch->in[0], *y = launch->in[1], *t = launch->in[2];
  double *metrics = launch->out[0];
  for (int64_t n = 0; n < shape->dim[0]; n++) {
    metrics[0] += (double)loss[n];
    add_errors(metrics, y + n * shape->dim[1], t + n * shape->dim[1], shape->dim[1], launch->node->attr.metrics.errors);
  }
  return BRIM_OK;
}
CPU_KERNEL(regression_metrics) = {.op = "regression_metrics", .run = regression_metrics_run};
