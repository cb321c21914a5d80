/* The operations that move values: permute, concat, slice, pad. They copy elements of any type by their size. */
#include <string.h>

#include "reference.h"

/* Return the products of the dimensions before and after `axis`: [outer][axis][inner]. */
static int64_t outer_of(const brim_shape *shape, int32_t axis)
{
  int64_t count = 1;
  for (int32_t d = 0; d < axis; d++) count *= shape->dim[d];
  return count;
}
static int64_t inner_of(const brim_shape *shape, int32_t axis)
{
  int64_t count = 1;
  for (int32_t d = axis + 1; d < shape->rank; d++) count *= shape->dim[d];
  return count;
}

/* Dimension d of y is dimension order[d] of x. */
REFERENCE(permute, "permute")
{
  const brim_shape *x = &launch->node->in[0]->shape, *y = &launch->node->out[0]->shape;
  const int32_t *order = launch->node->attr.move.order;
  const size_t size = brim_dtype_bytes(launch->node->out[0]->dtype);
  const char *from = launch->in[0];
  char *to = launch->out[0];

  for (int64_t i = 0; i < brim_shape_count(y); i++, to += size) {
    int64_t rest = i, at = 0;
    for (int32_t d = y->rank - 1; d >= 0; d--) {
      at += rest % y->dim[d] * inner_of(x, order[d]);
      rest /= y->dim[d];
    }
    memcpy(to, from + (size_t)at * size, size);
  }
  return BRIM_OK;
}

REFERENCE(concat, "concat")
{
  const int32_t axis = launch->node->attr.move.axis;
  const brim_tensor *y = launch->node->out[0];
  const size_t inner = (size_t)inner_of(&y->shape, axis) * brim_dtype_bytes(y->dtype);
  char *to = launch->out[0];

  for (int64_t o = 0; o < outer_of(&y->shape, axis); o++)
    for (uint32_t i = 0; i < launch->node->in_count; i++) {
      const size_t run = (size_t)launch->node->in[i]->shape.dim[axis] * inner;
      memcpy(to, (const char *)launch->in[i] + (size_t)o * run, run);
      to += run;
    }
  return BRIM_OK;
}

REFERENCE(slice, "slice")
{
  const brim_move_attr *a = &launch->node->attr.move;
  const brim_tensor *x = launch->node->in[0], *y = launch->node->out[0];
  const size_t inner = (size_t)inner_of(&x->shape, a->axis) * brim_dtype_bytes(x->dtype);
  const size_t whole = (size_t)x->shape.dim[a->axis] * inner, run = (size_t)y->shape.dim[a->axis] * inner;
  const char *from = launch->in[0];
  char *to = launch->out[0];

  for (int64_t o = 0; o < outer_of(&x->shape, a->axis); o++)
    memcpy(to + (size_t)o * run, from + (size_t)o * whole + (size_t)a->start * inner, run);
  return BRIM_OK;
}

static void store_value(void *to, uint32_t dtype, double value)
{
  const int32_t whole = dtype == BRIM_DTYPE_I32 ? (int32_t)value : 0;
  const uint8_t byte = dtype == BRIM_DTYPE_U8 ? (uint8_t)value : 0;
  if (dtype == BRIM_DTYPE_F64) memcpy(to, &value, sizeof value);
  if (dtype == BRIM_DTYPE_I32) memcpy(to, &whole, sizeof whole);
  if (dtype == BRIM_DTYPE_U8) memcpy(to, &byte, sizeof byte);
}

REFERENCE(pad, "pad")
{
  const brim_move_attr *a = &launch->node->attr.move;
  const brim_shape *x = &launch->node->in[0]->shape, *y = &launch->node->out[0]->shape;
  const uint32_t dtype = launch->node->out[0]->dtype;
  const size_t size = brim_dtype_bytes(dtype);
  const char *from = launch->in[0];
  char *to = launch->out[0];

  for (int64_t i = 0; i < brim_shape_count(y); i++, to += size) {
    int64_t rest = i, at = 0;
    int inside = 1;
    for (int32_t d = y->rank - 1; d >= 0; d--) {
      const int64_t place = rest % y->dim[d] - a->before[d];
      inside = inside && place >= 0 && place < x->dim[d];
      at += place * inner_of(x, d);
      rest /= y->dim[d];
    }
    if (inside)
      memcpy(to, from + (size_t)at * size, size);
    else
      store_value(to, dtype, a->value);
  }
  return BRIM_OK;
}
