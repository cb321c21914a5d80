/* Sums, differences, products and quotients of shapes that broadcast to each other; the sum over repeated elements;
 * sums and means over axes; and the gradients.
 *
 * All of them go over the elements of the larger shape in row-major order and find the corresponding element of the
 * smaller shape. Its dimensions are aligned at the right; if one has length 1 or is missing, its index is always 0. */
#include "reference.h"

/* Returns the row-major position in a tensor of shape `small` that corresponds to position `index` in a tensor of shape
 * `large`. */
static int64_t position_in(const brim_shape *small, const brim_shape *large, int64_t index)
{
  int64_t position = 0, stride = 1;
  for (int32_t back = 1; back <= small->rank; back++) {
    const int64_t length = small->dim[small->rank - back], at = index % large->dim[large->rank - back];
    index /= large->dim[large->rank - back];
    if (length > 1) position += at * stride;
    stride *= length;
  }
  return position;
}

static double sum_of(double a, double b)
{
  return a + b;
}
static double difference_of(double a, double b)
{
  return a - b;
}
static double product_of(double a, double b)
{
  return a * b;
}
static double quotient_of(double a, double b)
{
  return a / b;
}

static brim_status combine(const brim_launch *launch, double (*of)(double a, double b))
{
  const brim_node *n = launch->node;
  const brim_shape *shape = &n->out[0]->shape, *shape_a = &n->in[0]->shape, *shape_b = &n->in[1]->shape;
  const double *a = launch->in[0], *b = launch->in[1];
  double *y = launch->out[0];
  const int whole_a = brim_shape_equal(shape_a, shape), whole_b = brim_shape_equal(shape_b, shape);
  for (int64_t i = 0; i < brim_shape_count(shape); i++)
    y[i] = of(a[whole_a ? i : position_in(shape_a, shape, i)], b[whole_b ? i : position_in(shape_b, shape, i)]);
  return BRIM_OK;
}

#define KERNEL(id, of)                                                                                                 \
  REFERENCE(id##_run, #id)                                                                                             \
  {                                                                                                                    \
    return combine(launch, of);                                                                                        \
  }
KERNEL(add, sum_of)
KERNEL(sub, difference_of)
KERNEL(mul, product_of)
KERNEL(div, quotient_of)

/* The gradient of repetition. Adds to the gradient of a parameter, in the order of the samples. */
REFERENCE(sum_to, "sum_to")
{
  const brim_tensor *x = launch->node->in[0], *y = launch->node->out[0];
  const double *from = launch->in[0];
  double *to = launch->out[0];
  for (int64_t i = 0; y->role != BRIM_ROLE_GRADIENT && i < brim_shape_count(&y->shape); i++) to[i] = 0;
  for (int64_t i = 0; i < brim_shape_count(&x->shape); i++) to[position_in(&y->shape, &x->shape, i)] += from[i];
  return BRIM_OK;
}

/* Returns x's shape with length 1 for the summed axes. This is y's shape if y keeps the axes. */
static brim_shape reduced(const brim_shape *x, uint32_t axes)
{
  brim_shape shape = *x;
  for (int32_t d = 0; d < x->rank; d++)
    if (axes >> d & 1) shape.dim[d] = 1;
  return shape;
}

static brim_status reduce(const brim_launch *launch, int is_mean)
{
  const brim_shape *x = &launch->node->in[0]->shape, y = reduced(x, launch->node->attr.reduce.axes);
  const double *from = launch->in[0];
  double *to = launch->out[0];
  const int64_t count = brim_shape_count(&y), summed = brim_shape_count(x) / count;
  for (int64_t i = 0; i < count; i++) to[i] = 0;
  for (int64_t i = 0; i < brim_shape_count(x); i++) to[position_in(&y, x, i)] += from[i];
  for (int64_t i = 0; is_mean && i < count; i++) to[i] /= (double)summed;
  return BRIM_OK;
}

static brim_status repeat(const brim_launch *launch, int is_mean)
{
  const brim_shape *x = &launch->node->out[0]->shape, y = reduced(x, launch->node->attr.reduce.axes);
  const double *dy = launch->in[0], summed = (double)(brim_shape_count(x) / brim_shape_count(&y));
  double *dx = launch->out[0];
  for (int64_t i = 0; i < brim_shape_count(x); i++) dx[i] = dy[position_in(&y, x, i)] / (is_mean ? summed : 1);
  return BRIM_OK;
}

REFERENCE(sum, "sum")
{
  return reduce(launch, 0);
}

REFERENCE(mean, "mean")
{
  return reduce(launch, 1);
}

REFERENCE(sum_grad, "sum_grad")
{
  return repeat(launch, 0);
}

REFERENCE(mean_grad, "mean_grad")
{
  return repeat(launch, 1);
}
