/* Operations that do the work of two: here they are the two, one after the other.
 *
 *     first+relu     y = max(first's y, 0), but NaN stays NaN
 *     add+norm       sum = a + b, y = norm of sum  */
#include <string.h>

#include "reference.h"

static const brim_kernel *find(const char *op, size_t length)
{
  for (const brim_kernel *const *k = BRIM_KERNELS; k < BRIM_KERNELS_END; k++)
    if (strlen((*k)->op) == length && strncmp((*k)->op, op, length) == 0) return *k;
  return NULL;
}

static brim_status relu_behind(void *self, const brim_launch *launch)
{
  const char *op = launch->node->op;
  BRIM_TRY(find(op, strcspn(op, "+"))->run(self, launch));
  double *y = launch->out[0];
  for (int64_t i = 0; i < brim_shape_count(&launch->node->out[0]->shape); i++) y[i] = y[i] <= 0 ? 0 : y[i];
  return BRIM_OK;
}
BRIM_KERNEL(linear_relu) = {.op = "linear+relu", .run = relu_behind};
BRIM_KERNEL(conv2d_relu) = {.op = "conv2d+relu", .run = relu_behind};
BRIM_KERNEL(batch_norm_relu) = {.op = "batch_norm+relu", .run = relu_behind};
BRIM_KERNEL(batch_norm_inference_relu) = {.op = "batch_norm_inference+relu", .run = relu_behind};
BRIM_KERNEL(group_norm_relu) = {.op = "group_norm+relu", .run = relu_behind};
BRIM_KERNEL(layer_norm_relu) = {.op = "layer_norm+relu", .run = relu_behind};

/* The norm's kernel is given the sum, which has the shape of the node's first input, and its own outputs. */
static brim_status norm_behind(void *self, const brim_launch *launch)
{
  const char *norm = launch->node->op + strlen("add+");
  const double *a = launch->in[0], *b = launch->in[1];
  double *sum = launch->out[0];
  for (int64_t i = 0; i < brim_shape_count(&launch->node->out[0]->shape); i++) sum[i] = a[i] + b[i];

  void *in[3] = {sum, launch->in[2], launch->node->in_count > 3 ? launch->in[3] : NULL};
  brim_launch inner = *launch;
  inner.in = in;
  inner.out = launch->out + 1;
  return find(norm, strlen(norm))->run(self, &inner);
}
BRIM_KERNEL(add_layer_norm) = {.op = "add+layer_norm", .run = norm_behind};
BRIM_KERNEL(add_rms_norm) = {.op = "add+rms_norm", .run = norm_behind};
