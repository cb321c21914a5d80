/* Max pooling without padding, and its gradient.
 *
 *     y[n,c,p,q] = the greatest x[n,c,h,w] in the window  h = p*stride + r,  w = q*stride + s
 *
 * The forward pass notes which element of the window it took, index = r*S + s (the first one of equals;
 * a NaN beats every number), and the gradient goes back to that element alone. Windows may overlap. */
#include <string.h>

#include "reference.h"

typedef struct pool {
  int64_t planes, H, W; /* x [N*C,H,W]: channels are pooled by themselves */
  int64_t P, Q;         /* y [N*C,P,Q] */
  const brim_pool2d_attr *attr;
} pool;

static pool pool_of(const brim_launch *launch, const brim_tensor *x, const brim_tensor *y)
{
  return (pool){.planes = x->shape.dim[0] * x->shape.dim[1],
                .H = x->shape.dim[2],
                .W = x->shape.dim[3],
                .P = y->shape.dim[2],
                .Q = y->shape.dim[3],
                .attr = &launch->node->attr.pool2d};
}

/* Position in x of element `index` of the window of output (p, q). */
static int64_t at_window(const pool *v, int64_t plane, int64_t p, int64_t q, int64_t index)
{
  const int64_t S = v->attr->kernel[1];
  const int64_t h = p * v->attr->stride[0] + index / S, w = q * v->attr->stride[1] + index % S;
  return (plane * v->H + h) * v->W + w;
}

static brim_status max_pool2d(void *self, const brim_launch *launch)
{
  (void)self;
  const pool v = pool_of(launch, launch->node->in[0], launch->node->out[0]);
  const int64_t window = v.attr->kernel[0] * v.attr->kernel[1];
  const double *x = launch->in[0];
  double *y = launch->out[0];
  uint8_t *index = launch->out[1];

  for (int64_t plane = 0; plane < v.planes; plane++)
    for (int64_t p = 0; p < v.P; p++)
      for (int64_t q = 0; q < v.Q; q++) {
        int64_t best = 0;
        for (int64_t i = 1; i < window; i++)
          if (is_greater(x[at_window(&v, plane, p, q, i)], x[at_window(&v, plane, p, q, best)])) best = i;
        const int64_t at_y = (plane * v.P + p) * v.Q + q;
        y[at_y] = x[at_window(&v, plane, p, q, best)];
        index[at_y] = (uint8_t)best;
      }
  return BRIM_OK;
}
BRIM_KERNEL(max_pool2d) = {.op = "max_pool2d", .run = max_pool2d};

static brim_status max_pool2d_grad(void *self, const brim_launch *launch)
{
  (void)self;
  const pool v = pool_of(launch, launch->node->out[0], launch->node->in[0]);
  const double *dy = launch->in[0];
  const uint8_t *index = launch->in[1];
  double *dx = launch->out[0];

  memset(dx, 0, (size_t)(v.planes * v.H * v.W) * sizeof *dx);
  for (int64_t plane = 0; plane < v.planes; plane++)
    for (int64_t p = 0; p < v.P; p++)
      for (int64_t q = 0; q < v.Q; q++) {
        const int64_t at_y = (plane * v.P + p) * v.Q + q;
        dx[at_window(&v, plane, p, q, index[at_y])] += dy[at_y];
      }
  return BRIM_OK;
}
BRIM_KERNEL(max_pool2d_grad) = {.op = "max_pool2d_grad", .run = max_pool2d_grad};
