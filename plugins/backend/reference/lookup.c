/* Gathers values by index, and adds up their gradients.
 *
 *     gather      y[o,j,i] = x[o, index[o,j,i], i]     o and i: all dimensions before and after the axis
 *     embedding   y[r,:]   = weight[index[r],:]        r: all dimensions of the index */
#include <string.h>

#include "reference.h"

/* The dataset supplies the indices, so the kernel checks them. */
static brim_status check_index(const brim_node *node, const brim_tensor *index, const int32_t *value, int64_t limit)
{
  const int64_t count = brim_shape_count(&index->shape);
  for (int64_t i = 0; i < count; i++)
    if (value[i] < 0 || value[i] >= limit)
      return brim_fail(BRIM_EINVAL, "%s '%s': index %d in sample %lld of the micro-batch is not in [0, %lld)", node->op,
                       node->name, value[i], (long long)(i / (count / index->shape.dim[0])), (long long)limit);
  return BRIM_OK;
}

/* A tensor's dimensions around the axis: [outer][count][inner]. */
typedef struct around {
  int64_t outer, count, inner;
} around;

static around around_axis(const brim_shape *shape, int32_t axis)
{
  around a = {1, shape->dim[axis], 1};
  for (int32_t d = 0; d < axis; d++) a.outer *= shape->dim[d];
  for (int32_t d = axis + 1; d < shape->rank; d++) a.inner *= shape->dim[d];
  return a;
}

REFERENCE(gather, "gather")
{
  const brim_node *node = launch->node;
  const around x = around_axis(&node->in[0]->shape, node->attr.move.axis);
  const around y = around_axis(&node->out[0]->shape, node->attr.move.axis);
  const size_t size = brim_dtype_bytes(node->out[0]->dtype);
  const char *from = launch->in[0];
  const int32_t *index = launch->in[1];
  char *to = launch->out[0];

  BRIM_TRY(check_index(node, node->in[1], index, x.count));
  for (int64_t o = 0; o < y.outer; o++)
    for (int64_t j = 0; j < y.count; j++)
      for (int64_t i = 0; i < y.inner; i++, index++, to += size)
        memcpy(to, from + (size_t)((o * x.count + *index) * x.inner + i) * size, size);
  return BRIM_OK;
}

REFERENCE(gather_grad, "gather_grad")
{
  const brim_node *node = launch->node;
  const around x = around_axis(&node->out[0]->shape, node->attr.move.axis);
  const around y = around_axis(&node->in[0]->shape, node->attr.move.axis);
  const int32_t *index = launch->in[0];
  const double *dy = launch->in[1];
  double *dx = launch->out[0];

  BRIM_TRY(check_index(node, node->in[0], index, x.count));
  for (int64_t i = 0; i < x.outer * x.count * x.inner; i++) dx[i] = 0;
  for (int64_t o = 0; o < y.outer; o++)
    for (int64_t j = 0; j < y.count; j++)
      for (int64_t i = 0; i < y.inner; i++) dx[(o * x.count + *index++) * x.inner + i] += *dy++;
  return BRIM_OK;
}

REFERENCE(embedding, "embedding")
{
  const brim_node *node = launch->node;
  const int64_t rows = brim_shape_count(&node->in[0]->shape), D = node->in[1]->shape.dim[1];
  const int32_t *index = launch->in[0];
  const double *weight = launch->in[1];
  double *y = launch->out[0];

  BRIM_TRY(check_index(node, node->in[0], index, node->in[1]->shape.dim[0]));
  for (int64_t r = 0; r < rows; r++)
    for (int64_t d = 0; d < D; d++) y[r * D + d] = weight[index[r] * D + d];
  return BRIM_OK;
}

REFERENCE(embedding_grad, "embedding_grad")
{
  const brim_node *node = launch->node;
  const int64_t rows = brim_shape_count(&node->in[0]->shape), D = node->out[0]->shape.dim[1];
  const int32_t *index = launch->in[0];
  const double *dy = launch->in[1];
  double *dweight = launch->out[0];

  BRIM_TRY(check_index(node, node->in[0], index, node->out[0]->shape.dim[0]));
  for (int64_t r = 0; r < rows; r++) /* adds in the order of the samples */
    for (int64_t d = 0; d < D; d++) dweight[index[r] * D + d] += dy[r * D + d];
  return BRIM_OK;
}
