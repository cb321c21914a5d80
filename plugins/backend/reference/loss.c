/* Softmax cross-entropy, its gradient, and the metrics of classification.
 *
 *     loss[n]      = log(sum over k of exp(logits[n,k])) - logits[n,label[n]]
 *     dlogits[n,k] = (softmax(logits[n])[k] - (k == label[n])) * loss_scale
 *
 * With smoothed labels and weights of classes, the loss is a sum over classes, with nll[k] = lse - logits[k]:
 *
 *     loss         = (1 - s) * w[label] * nll[label] + s/K * sum over k of w[k] * nll[k]
 *     dlogits[k]   = ((1 - s) * w[label] * (softmax[k] - (k == label))
 *                     + s/K * (softmax[k] * (sum over j of w[j]) - w[k])) * loss_scale
 *
 * If labels are shares t[k] of the classes, the coefficient of every class k is s/K + (1 - s) * t[k]. This coefficient
 * replaces s/K, and 1 - s at the label.
 *
 * There is one loss per label, and it is 0 if the label is ignored. loss_scale is 1 / samples of the effective batch,
 * so the gradients of micro-batches add up to the gradient of the mean loss. The maximum is first subtracted from the
 * logits, so that exp() cannot overflow; the result is the same. */
#include <stdbool.h>

#include "reference.h"

static int64_t first_greatest(const double *value, int64_t count)
{
  int64_t best = 0;
  for (int64_t k = 1; k < count; k++)
    if (is_greater(value[k], value[best])) best = k;
  return best;
}

/* Returns log(sum of exp(logits)). */
static double log_sum_exp(const double *logits, int64_t count)
{
  const double greatest = logits[first_greatest(logits, count)];
  double sum = 0;
  for (int64_t k = 0; k < count; k++) sum += exp(logits[k] - greatest);
  return greatest + log(sum);
}

/* The dataset supplies the labels, and they are used as indices, so the kernel checks them. */
static brim_status check_label(int32_t label, int64_t sample, int64_t classes)
{
  if (label >= 0 && label < classes) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "sample %lld of the micro-batch has label %d, but there are %lld classes",
                   (long long)sample, label, (long long)classes);
}

static bool is_ignored(const brim_loss_attr *attr, int32_t label)
{
  return attr->ignores && label == attr->ignore_index;
}

/* Returns the number of labels per sample, which is more than one in a sequence. */
static int64_t labels_per_sample(const brim_tensor *label)
{
  return brim_shape_count(&label->shape) / label->shape.dim[0];
}

static int64_t last_of(const brim_tensor *t)
{
  return t->shape.dim[t->shape.rank - 1];
}

static const double *weights(const brim_launch *launch)
{
  return launch->node->in_count > 2 ? launch->in[2] : NULL;
}

/* Returns the coefficient of class k if labels are shares of the K classes. */
static double share_of(const brim_launch *launch, const double *label, int64_t K, int64_t k)
{
  const double s = launch->node->attr.loss.smoothing, *w = weights(launch);
  return (w ? w[k] : 1) * ((1 - s) * label[k] + s / (double)K);
}

static bool has_shares(const brim_launch *launch)
{
  return launch->node->in[1]->dtype != BRIM_DTYPE_I32;
}

static brim_status loss_of_shares(const brim_launch *launch)
{
  const int64_t N = rows_of(launch->node->in[0]), K = last_of(launch->node->in[0]);
  const double *logits = launch->in[0], *label = launch->in[1];
  double *loss = launch->out[0];
  for (int64_t n = 0; n < N; n++) {
    const double lse = log_sum_exp(&logits[n * K], K);
    loss[n] = 0;
    for (int64_t k = 0; k < K; k++) loss[n] += share_of(launch, &label[n * K], K, k) * (lse - logits[n * K + k]);
  }
  return BRIM_OK;
}

static brim_status gradient_of_shares(const brim_launch *launch)
{
  const int64_t N = rows_of(launch->node->in[0]), K = last_of(launch->node->in[0]);
  const double *logits = launch->in[0], *label = launch->in[1];
  double *dlogits = launch->out[0]; /* may share memory with logits */
  for (int64_t n = 0; n < N; n++) {
    const double lse = log_sum_exp(&logits[n * K], K);
    double sum = 0;
    for (int64_t k = 0; k < K; k++) sum += share_of(launch, &label[n * K], K, k);
    for (int64_t k = 0; k < K; k++)
      dlogits[n * K + k] =
          (exp(logits[n * K + k] - lse) * sum - share_of(launch, &label[n * K], K, k)) * launch->step->loss_scale;
  }
  return BRIM_OK;
}

REFERENCE(softmax_cross_entropy, "softmax_cross_entropy")
{
  if (has_shares(launch)) return loss_of_shares(launch);
  const int64_t N = rows_of(launch->node->in[0]), K = last_of(launch->node->in[0]);
  const int64_t each = labels_per_sample(launch->node->in[1]);
  const brim_loss_attr *attr = &launch->node->attr.loss;
  const double *logits = launch->in[0];
  const int32_t *label = launch->in[1];
  const double *w = weights(launch), s = attr->smoothing;
  double *loss = launch->out[0];

  for (int64_t n = 0; n < N; n++) {
    loss[n] = 0;
    if (is_ignored(attr, label[n])) continue;
    BRIM_TRY(check_label(label[n], n / each, K));
    const double lse = log_sum_exp(&logits[n * K], K);
    double smooth = 0;
    for (int64_t k = 0; k < K; k++) smooth += (w ? w[k] : 1) * (lse - logits[n * K + k]);
    loss[n] = (1 - s) * (w ? w[label[n]] : 1) * (lse - logits[n * K + label[n]]);
    if (s > 0) loss[n] += s / (double)K * smooth;
  }
  return BRIM_OK;
}

REFERENCE(softmax_cross_entropy_grad, "softmax_cross_entropy_grad")
{
  if (has_shares(launch)) return gradient_of_shares(launch);
  const int64_t N = rows_of(launch->node->in[0]), K = last_of(launch->node->in[0]);
  const int64_t each = labels_per_sample(launch->node->in[1]);
  const brim_loss_attr *attr = &launch->node->attr.loss;
  const double *logits = launch->in[0];
  const int32_t *label = launch->in[1];
  const double *w = weights(launch), s = attr->smoothing;
  double *dlogits = launch->out[0]; /* may share memory with logits */
  double weight_sum = 0;

  for (int64_t k = 0; k < K; k++) weight_sum += w ? w[k] : 1;
  for (int64_t n = 0; n < N; n++) {
    const bool ignored = is_ignored(attr, label[n]);
    if (!ignored) BRIM_TRY(check_label(label[n], n / each, K));
    const double lse = ignored ? 0 : log_sum_exp(&logits[n * K], K);
    for (int64_t k = 0; k < K; k++) {
      if (ignored) {
        dlogits[n * K + k] = 0;
        continue;
      }
      const double softmax = exp(logits[n * K + k] - lse);
      const double hard = (1 - s) * (w ? w[label[n]] : 1) * (softmax - (k == label[n]));
      const double smooth = s / (double)K * (softmax * weight_sum - (w ? w[k] : 1));
      dlogits[n * K + k] = (hard + smooth) * launch->step->loss_scale;
    }
  }
  return BRIM_OK;
}

/* Returns whether the label is among the k greatest logits. Of equal logits the first counts as greater. */
static bool is_in_top(const double *logits, int64_t classes, int32_t label, int32_t k)
{
  const double own = logits[label];
  int64_t before = 0;
  for (int64_t c = 0; c < classes; c++)
    if (is_greater(logits[c], own) || (c < label && !is_greater(own, logits[c]))) before++;
  return before < k;
}

/* Returns the class of label n. */
static int32_t class_of(const brim_launch *launch, int64_t n, int64_t K)
{
  const void *label = launch->in[2];
  if (launch->node->in[2]->dtype == BRIM_DTYPE_I32) return ((const int32_t *)label)[n];
  return (int32_t)first_greatest((const double *)label + n * K, K);
}

/* The prediction is the first greatest logit. All figures are added to the metrics of earlier micro-batches. */
REFERENCE(classification_metrics, "classification_metrics")
{
  const int64_t N = rows_of(launch->node->in[1]), K = last_of(launch->node->in[1]);
  const int64_t each = labels_per_sample(launch->node->in[0]);
  const double *loss = launch->in[0], *logits = launch->in[1];
  double *metrics = launch->out[0];
  const brim_metrics_attr *attr = &launch->node->attr.metrics;
  const int64_t top = 2 + (attr->confusion ? K * K : 0);

  for (int64_t n = 0; n < N; n++) {
    const int32_t label = class_of(launch, n, K);
    if (attr->ignores && label == attr->ignore_index) continue;
    BRIM_TRY(check_label(label, n / each, K));
    const int64_t predicted = first_greatest(&logits[n * K], K);
    metrics[0] += loss[n];
    metrics[1] += predicted == label;
    if (attr->confusion) metrics[2 + label * K + predicted] += 1;
    if (attr->top_k > 0) metrics[top] += is_in_top(&logits[n * K], K, label, attr->top_k);
  }
  return BRIM_OK;
}
