/* Softmax cross-entropy, its gradient, and the metrics of classification. Rows take little time compared with the
 * network, so exponentials use the C library in double precision.
 *
 *     loss[n]      = log(sum over k of exp(logits[n,k])) - logits[n,label[n]]
 *     dlogits[n,k] = (softmax(logits[n])[k] - (k == label[n])) * loss_scale
 *
 * With smoothed labels s and weights w of the classes, nll[k] = lse - logits[k]:
 *     loss       = (1 - s) * w[label] * nll[label] + s/K * sum over k of w[k] * nll[k]
 *     dlogits[k] = ((1 - s) * w[label] * (softmax[k] - (k == label))
 *                   + s/K * (softmax[k] * (sum of w) - w[k])) * loss_scale
 *
 * With class shares instead of labels, u[k] = w[k] * ((1 - s) * share[k] + s/K):
 *     loss       = sum over k of u[k] * nll[k]
 *     dlogits[k] = (softmax[k] * sum of u - u[k]) * loss_scale */
#include <math.h>

#include "loss.h"

typedef struct rows {
  const float *logits;
  const int32_t *label;
  const float *share; /* class shares instead of labels: [samples, classes] */
  float *out;
  int64_t samples, classes, per_task;
  double scale, smoothing;
  bool ignores;
  int32_t ignore_index;
  const float *weight; /* NULL if all weights are 1 */
  double weight_sum;
} rows;

static bool is_ignored(const rows *v, int64_t n)
{
  return v->ignores && v->label[n] == v->ignore_index;
}

static double weight_of(const rows *v, int64_t k)
{
  return v->weight ? (double)v->weight[k] : 1;
}

/* NaN counts as greater than every number. */
static bool is_greater(float value, float best)
{
  return value > best || (isnan(value) && !isnan(best));
}

static int64_t first_greatest(const float *value, int64_t count)
{
  int64_t best = 0;
  for (int64_t k = 1; k < count; k++)
    if (is_greater(value[k], value[best])) best = k;
  return best;
}

static double log_sum_exp(const float *logits, int64_t count)
{
  const double greatest = logits[first_greatest(logits, count)];
  double sum = 0;
  for (int64_t k = 0; k < count; k++) sum += exp((double)logits[k] - greatest);
  return greatest + log(sum);
}

static void loss_rows(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const rows *v = arg;
  for (int64_t n = task * v->per_task; n < cpu_min((task + 1) * v->per_task, v->samples); n++) {
    const float *logits = v->logits + n * v->classes;
    if (is_ignored(v, n)) {
      v->out[n] = 0;
      continue;
    }
    const double whole = log_sum_exp(logits, v->classes);
    double loss = (1 - v->smoothing) * weight_of(v, v->label[n]) * (whole - (double)logits[v->label[n]]), smooth = 0;
    for (int64_t k = 0; v->smoothing > 0 && k < v->classes; k++)
      smooth += weight_of(v, k) * (whole - (double)logits[k]);
    if (v->smoothing > 0) loss += v->smoothing / (double)v->classes * smooth;
    v->out[n] = (float)loss;
  }
}

static void loss_rows_grad(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const rows *v = arg;
  for (int64_t n = task * v->per_task; n < cpu_min((task + 1) * v->per_task, v->samples); n++) {
    const float *logits = v->logits + n * v->classes;
    float *out = v->out + n * v->classes; /* may share memory with logits */
    if (is_ignored(v, n)) {
      memset(out, 0, (size_t)v->classes * sizeof *out);
      continue;
    }
    const double whole = log_sum_exp(logits, v->classes);
    const double hard = (1 - v->smoothing) * weight_of(v, v->label[n]), soft = v->smoothing / (double)v->classes;
    for (int64_t k = 0; k < v->classes; k++) {
      const double softmax = exp((double)logits[k] - whole);
      const double smooth = soft * (softmax * v->weight_sum - weight_of(v, k));
      out[k] = (float)((hard * (softmax - (k == v->label[n])) + smooth) * v->scale);
    }
  }
}

/* Returns the weight of class k in sample n, if labels are class shares. */
static double share_of(const rows *v, int64_t n, int64_t k)
{
  const double share = (double)v->share[n * v->classes + k];
  return weight_of(v, k) * ((1 - v->smoothing) * share + v->smoothing / (double)v->classes);
}

static void share_rows(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const rows *v = arg;
  for (int64_t n = task * v->per_task; n < cpu_min((task + 1) * v->per_task, v->samples); n++) {
    const float *logits = v->logits + n * v->classes;
    const double whole = log_sum_exp(logits, v->classes);
    double loss = 0;
    for (int64_t k = 0; k < v->classes; k++) loss += share_of(v, n, k) * (whole - (double)logits[k]);
    v->out[n] = (float)loss;
  }
}

static void share_rows_grad(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const rows *v = arg;
  for (int64_t n = task * v->per_task; n < cpu_min((task + 1) * v->per_task, v->samples); n++) {
    const float *logits = v->logits + n * v->classes;
    float *out = v->out + n * v->classes; /* may share memory with logits */
    const double whole = log_sum_exp(logits, v->classes);
    double sum = 0;
    for (int64_t k = 0; k < v->classes; k++) sum += share_of(v, n, k);
    for (int64_t k = 0; k < v->classes; k++)
      out[k] = (float)((exp((double)logits[k] - whole) * sum - share_of(v, n, k)) * v->scale);
  }
}

/* The dataset supplies the labels, and they are used as indices, so the kernel checks them. */
brim_status cpu_loss_check_labels(const brim_tensor *t, const int32_t *label, int64_t classes,
                                  const brim_loss_attr *attr)
{
  const int64_t count = brim_shape_count(&t->shape), each = count / t->shape.dim[0];
  for (int64_t n = 0; n < count; n++)
    if ((label[n] < 0 || label[n] >= classes) && !(attr->ignores && label[n] == attr->ignore_index))
      return brim_fail(BRIM_EINVAL, "sample %lld of the micro-batch has label %d, but there are %lld classes",
                       (long long)(n / each), label[n], (long long)classes);
  return BRIM_OK;
}

/* Runs `fn`, or `by_share` if labels are class shares. */
static brim_status run_rows(cpu_backend *b, const brim_launch *launch, cpu_task_fn fn, cpu_task_fn by_share)
{
  const brim_tensor *logits = launch->node->in[0];
  const bool has_label = launch->node->in[1]->dtype == BRIM_DTYPE_I32;
  const brim_loss_attr *attr = &launch->node->attr.loss;
  rows v = {.logits = cpu_plain_input(b, launch, 0),
            .label = has_label ? launch->in[1] : NULL,
            .share = has_label ? NULL : cpu_plain_input(b, launch, 1),
            .out = launch->out[0],
            .samples = cpu_rows(logits),
            .classes = logits->shape.dim[logits->shape.rank - 1],
            .scale = launch->step->loss_scale,
            .smoothing = attr->smoothing,
            .ignores = attr->ignores,
            .ignore_index = attr->ignore_index,
            .weight = launch->node->in_count > 2 ? launch->in[2] : NULL};
  if (has_label) BRIM_TRY(cpu_loss_check_labels(launch->node->in[1], v.label, v.classes, attr));
  for (int64_t k = 0; k < v.classes; k++) v.weight_sum += weight_of(&v, k);
  v.per_task = cpu_max(1, 512 / v.classes);
  cpu_pool_run(b->pool, cpu_divide_up(v.samples, v.per_task), has_label ? fn : by_share, &v);
  return BRIM_OK;
}

static CPU_RUN(softmax_cross_entropy_run)
{
  return run_rows(self, launch, loss_rows, share_rows);
}

static CPU_RUN(softmax_cross_entropy_grad_run)
{
  return run_rows(self, launch, loss_rows_grad, share_rows_grad);
}

/* Returns whether the label is among the k greatest logits. Of equal logits the first counts as greater. */
static bool is_in_top(const float *logits, int64_t classes, int32_t label, int32_t k)
{
  const float own = logits[label];
  int64_t before = 0;
  for (int64_t c = 0; c < classes; c++)
    if (is_greater(logits[c], own) || (c < label && !is_greater(own, logits[c]))) before++;
  return before < k;
}

static CPU_RUN(classification_metrics_run)
{
  (void)self;
  const brim_shape *shape = &launch->node->in[1]->shape;
  const float *loss = launch->in[0], *logits = launch->in[1];
  const bool has_label = launch->node->in[2]->dtype == BRIM_DTYPE_I32;
  const int32_t *labels = has_label ? launch->in[2] : NULL;
  const float *share =
      launch->in[2]; /* class shares instead of labels: the class with the greatest share is the label */
  double *metrics = launch->out[0];
  const int64_t classes = shape->dim[shape->rank - 1], count = cpu_rows(launch->node->in[1]);
  const brim_metrics_attr *attr = &launch->node->attr.metrics;
  const brim_loss_attr ignored = {.ignores = attr->ignores, .ignore_index = attr->ignore_index};
  const int64_t top = 2 + (attr->confusion ? classes * classes : 0);
  if (has_label) BRIM_TRY(cpu_loss_check_labels(launch->node->in[2], labels, classes, &ignored));
  for (int64_t n = 0; n < count; n++) {
    const int64_t label = has_label ? labels[n] : first_greatest(share + n * classes, classes);
    if (attr->ignores && label == attr->ignore_index) continue;
    const int64_t predicted = first_greatest(logits + n * classes, classes);
    metrics[0] += (double)loss[n];
    metrics[1] += predicted == label;
    if (attr->confusion) metrics[2 + label * classes + predicted] += 1;
    if (attr->top_k > 0) metrics[top] += is_in_top(logits + n * classes, classes, (int32_t)label, attr->top_k);
  }
  return BRIM_OK;
}

CPU_KERNEL(softmax_cross_entropy) = {
    .op = "softmax_cross_entropy", .prepare = cpu_plain_prepare, .run = softmax_cross_entropy_run};
CPU_KERNEL(softmax_cross_entropy_grad) = {
    .op = "softmax_cross_entropy_grad", .prepare = cpu_plain_prepare, .run = softmax_cross_entropy_grad_run};
CPU_KERNEL(classification_metrics) = {.op = "classification_metrics", .run = classification_metrics_run};
