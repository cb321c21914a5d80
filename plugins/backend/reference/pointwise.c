/* Operations on single elements: relu, dropout, and reshape, which changes no value. Element i of the output depends
 * only on element i of the inputs, so an output may overwrite an input. */
#include <stdbool.h>
#include <string.h>

#include "brim/random.h"
#include "reference.h"

static int64_t count_of(const brim_launch *launch)
{
  return brim_shape_count(&launch->node->out[0]->shape);
}

/* y = max(x, 0), but NaN stays NaN. */
REFERENCE(relu, "relu")
{
  const double *x = launch->in[0];
  double *y = launch->out[0];
  for (int64_t i = 0; i < count_of(launch); i++) y[i] = x[i] <= 0 ? 0 : x[i];
  return BRIM_OK;
}

/* dx = dy where the output is not 0, else 0. So the slope at 0 is 0. */
REFERENCE(relu_grad, "relu_grad")
{
  const double *y = launch->in[0], *dy = launch->in[1];
  double *dx = launch->out[0];
  for (int64_t i = 0; i < count_of(launch); i++) dx[i] = y[i] <= 0 ? 0 : dy[i];
  return BRIM_OK;
}

/* A storage type: the bits of its mantissa, and the exponents of its normal numbers, as frexp() defines them. */
typedef struct small_type {
  uint32_t dtype;
  int bits, least, most;
} small_type;
static const small_type small_types[] = {{BRIM_DTYPE_BF16, 8, -125, 128}, {BRIM_DTYPE_F16, 11, -13, 16}};

/* Returns the number of the type nearest to x; of two, the one whose last bit is 0. Subnormal numbers have the same
 * spacing as the smallest normal numbers. */
static double round_to(const small_type *type, double x)
{
  int exponent;
  if (!isfinite(x)) return x;
  frexp(x, &exponent);
  if (exponent < type->least) exponent = type->least;
  const double y = ldexp(nearbyint(ldexp(x, type->bits - exponent)), exponent - type->bits);
  return fabs(y) < ldexp(1, type->most) ? y : copysign(INFINITY, x);
}

/* Values stay in double precision, but are rounded to the numbers of the type. */
REFERENCE(cast, "cast")
{
  const small_type *type = NULL;
  for (size_t i = 0; i < sizeof small_types / sizeof small_types[0]; i++)
    if (small_types[i].dtype == launch->node->attr.cast.rounds_to) type = &small_types[i];
  const double *x = launch->in[0];
  double *y = launch->out[0];
  for (int64_t i = 0; i < count_of(launch); i++) y[i] = type ? round_to(type, x[i]) : x[i];
  return BRIM_OK;
}

/* Returns the number of a sample's element in the numbering that brim/random.h defines for masks: channels fastest, C
 * rounded up to a multiple of 4. `index` is the row-major index of the element. */
static int64_t mask_element(const brim_shape *shape, int64_t index)
{
  if (shape->rank != 4) return index;
  const int64_t pixels = shape->dim[2] * shape->dim[3], channels = (shape->dim[1] + 3) / 4 * 4;
  return index % pixels * channels + index / pixels;
}

/* y = x * mask / (1 - p). The mask is a function of seed, step, sample and coordinate, so the gradient computes it
 * again instead of storing it. The gradient is the same function: dx = dy * mask / (1 - p). */
REFERENCE(dropout, "dropout")
{
  const brim_dropout_attr *attr = &launch->node->attr.dropout;
  const brim_step *step = launch->step;
  const brim_shape *shape = &launch->node->out[0]->shape;
  const brim_dropout_key key = brim_dropout_key_make(step->seed, step->step, attr->stream, attr->p);
  const int64_t N = shape->dim[0], size = brim_shape_count(shape) / N;
  const double *x = launch->in[0];
  double *y = launch->out[0];

  for (int64_t n = 0; n < N; n++)
    for (int64_t i = 0; i < size; i++) {
      const double mask = brim_dropout_keep(&key, step->first_sample + n, mask_element(shape, i));
      y[n * size + i] = x[n * size + i] * mask / (1 - attr->p);
    }
  return BRIM_OK;
}

/* y = a + x * mask / (1 - p) */
REFERENCE(dropout_add, "dropout+add")
{
  const brim_dropout_attr *attr = &launch->node->attr.dropout;
  const brim_step *step = launch->step;
  const brim_shape *shape = &launch->node->out[0]->shape;
  const brim_dropout_key key = brim_dropout_key_make(step->seed, step->step, attr->stream, attr->p);
  const int64_t N = shape->dim[0], size = brim_shape_count(shape) / N;
  const double *a = launch->in[0], *x = launch->in[1];
  double *y = launch->out[0];

  for (int64_t n = 0; n < N; n++)
    for (int64_t i = 0; i < size; i++) {
      const double mask = brim_dropout_keep(&key, step->first_sample + n, mask_element(shape, i));
      y[n * size + i] = a[n * size + i] + x[n * size + i] * mask / (1 - attr->p);
    }
  return BRIM_OK;
}

REFERENCE(dropout_grad, "dropout_grad")
{
  return dropout(self, launch);
}

/* The gradient of relu after dropout, computed from the result y, which is 0 where a value is dropped. */
REFERENCE(dropout_relu_grad, "dropout+relu_grad")
{
  const double *y = launch->in[0], *dy = launch->in[1], p = launch->node->attr.dropout.p;
  double *dx = launch->out[0];
  for (int64_t i = 0; i < count_of(launch); i++) dx[i] = y[i] <= 0 ? 0 : dy[i] / (1 - p);
  return BRIM_OK;
}

REFERENCE(reshape, "reshape")
{
  if (launch->out[0] != launch->in[0]) memcpy(launch->out[0], launch->in[0], (size_t)count_of(launch) * sizeof(double));
  return BRIM_OK;
}
