/* Operations around the graph of a loss plugin. one_hot makes the graph's target: 1 at the label and 0 elsewhere. The
 * other operation multiplies each sample's loss by the weight of its class. The gradient that enters the graph is
 * loss_scale times the same weight. */
#include <stdbool.h>

#include "reference.h"

static bool is_ignored(const brim_launch *launch, int32_t label)
{
  const brim_loss_attr *attr = &launch->node->attr.loss;
  return attr->ignores && label == attr->ignore_index;
}

REFERENCE(one_hot, "one_hot")
{
  const brim_tensor *label = launch->node->in[0];
  const int64_t count = brim_shape_count(&label->shape), each = count / label->shape.dim[0];
  const int64_t K = brim_shape_count(&launch->node->out[0]->shape) / count;
  const int32_t *at = launch->in[0];
  double *y = launch->out[0];
  for (int64_t i = 0; i < count; i++) {
    if (!is_ignored(launch, at[i]) && (at[i] < 0 || at[i] >= K))
      return brim_fail(BRIM_EINVAL, "sample %lld of the micro-batch has label %d, but there are %lld classes",
                       (long long)(i / each), at[i], (long long)K);
    for (int64_t k = 0; k < K; k++) y[i * K + k] = k == at[i] && !is_ignored(launch, at[i]);
  }
  return BRIM_OK;
}

/* Returns the weight of sample i. */
static double weight_of(const brim_launch *launch, int64_t i)
{
  const int32_t *label = launch->node->in_count > 1 ? launch->in[1] : NULL;
  if (!label) return 1;
  if (is_ignored(launch, label[i])) return 0;
  return launch->node->in_count > 2 ? ((const double *)launch->in[2])[label[i]] : 1;
}

REFERENCE(sample_loss, "sample_loss")
{
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);
  const double *x = launch->in[0];
  double *loss = launch->out[0];
  for (int64_t i = 0; i < count; i++) {
    const double weight = weight_of(launch, i);
    loss[i] = weight > 0 ? weight * x[i] : 0;
  }
  return BRIM_OK;
}

REFERENCE(sample_loss_grad, "sample_loss_grad")
{
  const int64_t count = brim_shape_count(&launch->node->in[0]->shape);
  double *dx = launch->out[0];
  for (int64_t i = 0; i < count; i++) dx[i] = launch->step->loss_scale * weight_of(launch, i);
  return BRIM_OK;
}
