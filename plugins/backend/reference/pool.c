/* Pooling of each channel separately, and its gradients.
 *
 *     max_pool2d           y[n,c,p,q] = the greatest x[n,c,h,w] in the window of (p, q)
 *     avg_pool2d           y[n,c,p,q] = the sum of these x / (R*S), or / their number (exclude_padding)
 *         windows:  h = p*stride - padding + r,  w = q*stride - padding + s;  only elements inside x count
 *     adaptive_avg_pool2d  y[n,c,p,q] = the mean over  h = floor(p*H/P) .. ceil((p+1)*H/P) - 1,  w likewise
 *
 * Max pooling stores the position of the selected element in the window, index = r*S + s, and dy is added to that
 * element alone. Of equal elements the first is selected; NaN is greater than every number. The gradient of a mean is
 * distributed equally over its elements. Windows may overlap. */
#include <string.h>

#include "reference.h"

typedef struct pool {
  int64_t planes;    /* N*C, because each channel is pooled separately */
  int64_t extent[2]; /* H, W of x [N*C,H,W] */
  int64_t places[2]; /* P, Q of y [N*C,P,Q] */
  const brim_pool2d_attr *attr;
} pool;

static pool pool_of(const brim_launch *launch, const brim_tensor *x, const brim_tensor *y)
{
  return (pool){.planes = x->shape.dim[0] * x->shape.dim[1],
                .extent = {x->shape.dim[2], x->shape.dim[3]},
                .places = {y->shape.dim[2], y->shape.dim[3]},
                .attr = &launch->node->attr.pool2d};
}

/* The rows (d = 0) or columns (d = 1) of x in a window: [from, to). */
typedef struct range {
  int64_t from, to;
} range;

static range window_of(const pool *v, int d, int64_t place)
{
  const int64_t start = place * v->attr->stride[d] - v->attr->padding[d], end = start + v->attr->kernel[d];
  return (range){start < 0 ? 0 : start, end > v->extent[d] ? v->extent[d] : end};
}

static range adaptive_window_of(const pool *v, int d, int64_t place)
{
  const int64_t P = v->places[d], H = v->extent[d];
  return (range){place * H / P, ((place + 1) * H + P - 1) / P};
}

/* Return positions in memory. */
static int64_t at_x(const pool *v, int64_t plane, int64_t h, int64_t w)
{
  return (plane * v->extent[0] + h) * v->extent[1] + w;
}
static int64_t at_y(const pool *v, int64_t plane, int64_t p, int64_t q)
{
  return (plane * v->places[0] + p) * v->places[1] + q;
}

/* Convert an index within the window of (p, q) into a position in x, and back. */
static int64_t at_index(const pool *v, int64_t plane, int64_t p, int64_t q, int64_t index)
{
  const int64_t S = v->attr->kernel[1];
  return at_x(v, plane, p * v->attr->stride[0] - v->attr->padding[0] + index / S,
              q * v->attr->stride[1] - v->attr->padding[1] + index % S);
}
static int64_t index_of(const pool *v, int64_t p, int64_t q, int64_t h, int64_t w)
{
  const int64_t r = h - (p * v->attr->stride[0] - v->attr->padding[0]);
  return r * v->attr->kernel[1] + w - (q * v->attr->stride[1] - v->attr->padding[1]);
}

/* Returns the index of the first greatest value in the window. */
static int64_t find_greatest(const pool *v, const double *x, int64_t plane, int64_t p, int64_t q)
{
  const range rows = window_of(v, 0, p), columns = window_of(v, 1, q);
  int64_t best = index_of(v, p, q, rows.from, columns.from);
  for (int64_t h = rows.from; h < rows.to; h++)
    for (int64_t w = columns.from; w < columns.to; w++)
      if (is_greater(x[at_x(v, plane, h, w)], x[at_index(v, plane, p, q, best)])) best = index_of(v, p, q, h, w);
  return best;
}

REFERENCE(max_pool2d, "max_pool2d")
{
  const pool v = pool_of(launch, launch->node->in[0], launch->node->out[0]);
  const double *x = launch->in[0];
  double *y = launch->out[0];
  uint8_t *index = launch->out[1];

  for (int64_t plane = 0; plane < v.planes; plane++)
    for (int64_t p = 0; p < v.places[0]; p++)
      for (int64_t q = 0; q < v.places[1]; q++) {
        const int64_t best = find_greatest(&v, x, plane, p, q);
        y[at_y(&v, plane, p, q)] = x[at_index(&v, plane, p, q, best)];
        index[at_y(&v, plane, p, q)] = (uint8_t)best;
      }
  return BRIM_OK;
}

REFERENCE(max_pool2d_grad, "max_pool2d_grad")
{
  const pool v = pool_of(launch, launch->node->out[0], launch->node->in[0]);
  const double *dy = launch->in[0];
  const uint8_t *index = launch->in[1];
  const double *result = launch->node->in_count > 2 ? launch->in[2] : NULL; /* the result of relu, which masks dy */
  double *dx = launch->out[0];

  memset(dx, 0, (size_t)brim_shape_count(&launch->node->out[0]->shape) * sizeof *dx);
  for (int64_t plane = 0; plane < v.planes; plane++)
    for (int64_t p = 0; p < v.places[0]; p++)
      for (int64_t q = 0; q < v.places[1]; q++) {
        const int64_t at = at_y(&v, plane, p, q);
        dx[at_index(&v, plane, p, q, index[at])] += result && result[at] <= 0 ? 0 : dy[at];
      }
  return BRIM_OK;
}
BRIM_KERNEL(max_pool2d_relu_grad) = {.op = "max_pool2d+relu_grad", .run = max_pool2d_grad};

/* Returns the divisor of the sum over a window. */
static double divisor_of(const pool *v, int adaptive, range rows, range columns)
{
  if (!adaptive && !v->attr->exclude_padding) return (double)(v->attr->kernel[0] * v->attr->kernel[1]);
  return (double)((rows.to - rows.from) * (columns.to - columns.from));
}

static brim_status average(const brim_launch *launch, int adaptive)
{
  const pool v = pool_of(launch, launch->node->in[0], launch->node->out[0]);
  const double *x = launch->in[0];
  double *y = launch->out[0];

  for (int64_t plane = 0; plane < v.planes; plane++)
    for (int64_t p = 0; p < v.places[0]; p++)
      for (int64_t q = 0; q < v.places[1]; q++) {
        const range rows = adaptive ? adaptive_window_of(&v, 0, p) : window_of(&v, 0, p);
        const range columns = adaptive ? adaptive_window_of(&v, 1, q) : window_of(&v, 1, q);
        double sum = 0;
        for (int64_t h = rows.from; h < rows.to; h++)
          for (int64_t w = columns.from; w < columns.to; w++) sum += x[at_x(&v, plane, h, w)];
        y[at_y(&v, plane, p, q)] = sum / divisor_of(&v, adaptive, rows, columns);
      }
  return BRIM_OK;
}

static brim_status average_grad(const brim_launch *launch, int adaptive)
{
  const pool v = pool_of(launch, launch->node->out[0], launch->node->in[0]);
  const double *dy = launch->in[0];
  double *dx = launch->out[0];

  memset(dx, 0, (size_t)brim_shape_count(&launch->node->out[0]->shape) * sizeof *dx);
  for (int64_t plane = 0; plane < v.planes; plane++)
    for (int64_t p = 0; p < v.places[0]; p++)
      for (int64_t q = 0; q < v.places[1]; q++) {
        const range rows = adaptive ? adaptive_window_of(&v, 0, p) : window_of(&v, 0, p);
        const range columns = adaptive ? adaptive_window_of(&v, 1, q) : window_of(&v, 1, q);
        const double each = dy[at_y(&v, plane, p, q)] / divisor_of(&v, adaptive, rows, columns);
        for (int64_t h = rows.from; h < rows.to; h++)
          for (int64_t w = columns.from; w < columns.to; w++) dx[at_x(&v, plane, h, w)] += each;
      }
  return BRIM_OK;
}

REFERENCE(avg_pool2d, "avg_pool2d")
{
  return average(launch, 0);
}

REFERENCE(avg_pool2d_grad, "avg_pool2d_grad")
{
  return average_grad(launch, 0);
}

REFERENCE(adaptive_avg_pool2d, "adaptive_avg_pool2d")
{
  return average(launch, 1);
}

REFERENCE(adaptive_avg_pool2d_grad, "adaptive_avg_pool2d_grad")
{
  return average_grad(launch, 1);
}
