/* The linear layer, and its two gradients; n counts the rows of all leading dimensions. A missing bias counts as 0.
 *
 *     y[n,o]        = bias[o] + sum over f of  x[n,f] * weight[o,f]
 *     dx[n,f]       =           sum over o of  dy[n,o] * weight[o,f]
 *     dweight[o,f] +=           sum over n of  dy[n,o] * x[n,f]
 *     dbias[o]     +=           sum over n of  dy[n,o]
 *
 * linear+add and linear_grad_input+add add y or dx to a tensor; y may be added to only some of its columns. */
#include "reference.h"

REFERENCE(linear, "linear")
{
  const int64_t N = rows_of(launch->node->in[0]), O = launch->node->in[1]->shape.dim[0];
  const int64_t F = launch->node->in[1]->shape.dim[1];
  const double *x = launch->in[0], *weight = launch->in[1];
  const double *bias = launch->node->in_count > 2 ? launch->in[2] : NULL;
  double *y = launch->out[0];

  for (int64_t n = 0; n < N; n++)
    for (int64_t o = 0; o < O; o++) {
      double sum = 0;
      for (int64_t f = 0; f < F; f++) sum += x[n * F + f] * weight[o * F + f];
      y[n * O + o] = bias ? bias[o] + sum : sum;
    }
  return BRIM_OK;
}

REFERENCE(linear_add, "linear+add")
{
  const int64_t N = rows_of(launch->node->in[1]), O = launch->node->in[2]->shape.dim[0];
  const int64_t F = launch->node->in[2]->shape.dim[1];
  const brim_shape *shape = &launch->node->in[0]->shape;
  const int64_t A = shape->dim[shape->rank - 1], first = launch->node->attr.linear.first;
  const double *a = launch->in[0], *x = launch->in[1], *weight = launch->in[2];
  double *y = launch->out[0];

  for (int64_t i = 0; i < N * A; i++) y[i] = a[i];
  for (int64_t n = 0; n < N; n++)
    for (int64_t o = 0; o < O; o++) {
      double sum = 0;
      for (int64_t f = 0; f < F; f++) sum += x[n * F + f] * weight[o * F + f];
      y[n * A + first + o] += sum;
    }
  return BRIM_OK;
}

/* Computes dx. `a`: added to dx; may be NULL or the memory of dx. */
static void find_dx(const brim_tensor *like_dy, const brim_tensor *like_weight, const double *a, const double *dy,
                    const double *weight, double *dx)
{
  const int64_t N = rows_of(like_dy), O = like_weight->shape.dim[0], F = like_weight->shape.dim[1];

  for (int64_t n = 0; n < N; n++)
    for (int64_t f = 0; f < F; f++) {
      double sum = 0;
      for (int64_t o = 0; o < O; o++) sum += dy[n * O + o] * weight[o * F + f];
      dx[n * F + f] = a ? a[n * F + f] + sum : sum;
    }
}

REFERENCE(linear_grad_input, "linear_grad_input")
{
  find_dx(launch->node->in[0], launch->node->in[1], NULL, launch->in[0], launch->in[1], launch->out[0]);
  return BRIM_OK;
}

REFERENCE(linear_grad_input_add, "linear_grad_input+add")
{
  find_dx(launch->node->in[1], launch->node->in[2], launch->in[0], launch->in[1], launch->in[2], launch->out[0]);
  return BRIM_OK;
}

REFERENCE(linear_grad_weight, "linear_grad_weight")
{
  const int64_t N = rows_of(launch->node->in[0]), O = launch->node->out[0]->shape.dim[0];
  const int64_t F = launch->node->out[0]->shape.dim[1];
  const double *x = launch->in[0], *dy = launch->in[1];
  double *dweight = launch->out[0], *dbias = launch->node->out_count > 1 ? launch->out[1] : NULL;

  for (int64_t n = 0; n < N; n++) /* samples are the outermost loop, so their order is the order of the sum */
    for (int64_t o = 0; o < O; o++) {
      for (int64_t f = 0; f < F; f++) dweight[o * F + f] += dy[n * O + o] * x[n * F + f];
      if (dbias) dbias[o] += dy[n * O + o];
    }
  return BRIM_OK;
}
