/* Fused operations. Here they run their two operations one after the other.
 *
 *     first+activation   y = activation of first's y, which may be kept
 *     add+norm           sum = a + b, y = norm of sum */
#include <string.h>

#include "reference.h"

static const brim_kernel *find(const char *op, size_t length)
{
  for (const brim_kernel *const *k = BRIM_KERNELS; k < BRIM_KERNELS_END; k++)
    if (strlen((*k)->op) == length && strncmp((*k)->op, op, length) == 0) return *k;
  return NULL;
}

/* Runs both operations. `before`: where the first operation writes its result, from which the activation computes y. */
static brim_status run_both(void *self, const brim_launch *launch, void *const *before)
{
  const char *op = launch->node->op, *second = strchr(op, '+') + 1;
  brim_launch inner = *launch;
  inner.out = before;
  BRIM_TRY(find(op, strcspn(op, "+"))->run(self, &inner));

  brim_node node = *launch->node;
  node.attr = (brim_attr){.activation = launch->node->attr.fused.activation};
  inner.node = &node;
  inner.in = before;
  inner.out = launch->out;
  return find(second, strlen(second))->run(self, &inner);
}

static brim_status run_activation_after(void *self, const brim_launch *launch)
{
  return run_both(self, launch, launch->out);
}
BRIM_KERNEL(linear_relu) = {.op = "linear+relu", .run = run_activation_after};
BRIM_KERNEL(linear_leaky_relu) = {.op = "linear+leaky_relu", .run = run_activation_after};
BRIM_KERNEL(linear_sigmoid) = {.op = "linear+sigmoid", .run = run_activation_after};
BRIM_KERNEL(linear_tanh) = {.op = "linear+tanh", .run = run_activation_after};
BRIM_KERNEL(conv2d_relu) = {.op = "conv2d+relu", .run = run_activation_after};
BRIM_KERNEL(conv2d_leaky_relu) = {.op = "conv2d+leaky_relu", .run = run_activation_after};
BRIM_KERNEL(conv2d_sigmoid) = {.op = "conv2d+sigmoid", .run = run_activation_after};
BRIM_KERNEL(conv2d_tanh) = {.op = "conv2d+tanh", .run = run_activation_after};
BRIM_KERNEL(batch_norm_relu) = {.op = "batch_norm+relu", .run = run_activation_after};
BRIM_KERNEL(batch_norm_inference_relu) = {.op = "batch_norm_inference+relu", .run = run_activation_after};
BRIM_KERNEL(group_norm_relu) = {.op = "group_norm+relu", .run = run_activation_after};
BRIM_KERNEL(max_pool2d_relu) = {.op = "max_pool2d+relu", .run = run_activation_after};
BRIM_KERNEL(dropout_relu) = {.op = "dropout+relu", .run = run_activation_after};
BRIM_KERNEL(layer_norm_relu) = {.op = "layer_norm+relu", .run = run_activation_after};

/* If the node has two outputs, the second is linear's result. */
static brim_status activation_keeping(void *self, const brim_launch *launch)
{
  return run_both(self, launch, launch->out + (launch->node->out_count - 1));
}
BRIM_KERNEL(linear_gelu) = {.op = "linear+gelu", .run = activation_keeping};
BRIM_KERNEL(linear_silu) = {.op = "linear+silu", .run = activation_keeping};

/* The norm's kernel gets the sum, which has the shape of the node's first input, and the norm's outputs. */
static brim_status run_norm_of_sum(void *self, const brim_launch *launch)
{
  const char *norm = strchr(launch->node->op, '+') + 1;
  const double *a = launch->in[0], *b = launch->in[1];
  double *sum = launch->out[0];
  for (int64_t i = 0; i < brim_shape_count(&launch->node->out[0]->shape); i++) sum[i] = a[i] + b[i];

  void *in[3] = {sum, launch->in[2], launch->node->in_count > 3 ? launch->in[3] : NULL};
  brim_launch inner = *launch;
  inner.in = in;
  inner.out = launch->out + 1;
  return find(norm, strlen(norm))->run(self, &inner);
}
BRIM_KERNEL(add_layer_norm) = {.op = "add+layer_norm", .run = run_norm_of_sum};
BRIM_KERNEL(add_rms_norm) = {.op = "add+rms_norm", .run = run_norm_of_sum};
