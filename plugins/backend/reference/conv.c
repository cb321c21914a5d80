/* Two-dimensional convolution (a cross-correlation, as usual), with or without bias, and its two gradients.
 *
 *     y[n,k,p,q]  =  bias[k] + sum over c,r,s of  x[n, first + c, h, w] * weight[k,c,r,s]
 *     with  h = p*stride - padding + r*dilation,  w likewise from q and s;  x is 0 outside the image.
 *
 * Channels are in groups: filter k sees the C/groups channels of its own group, which begin at channel `first`. Every
 * product x * weight is added to one y. The gradients go over the same products: dx gets dy * weight, and dweight gets
 * dy * x.
 *
 * A transposed convolution computes the gradient of x as its result: its input takes the place of dy, and each sum
 * starts from the bias. */
#include "reference.h"

/* The sizes, named as in the formula. */
typedef struct conv {
  int64_t N, C, H, W; /* x */
  int64_t K, D, R, S; /* weight [K,D,R,S]; D = C / groups, the depth of a filter */
  int64_t P, Q;       /* y [N,K,P,Q] */
  const brim_conv2d_attr *attr;
} conv;

static conv conv_of(const brim_launch *launch, const brim_tensor *x, const brim_tensor *y)
{
  const brim_conv2d_attr *attr = &launch->node->attr.conv2d;
  return (conv){.N = x->shape.dim[0],
                .C = x->shape.dim[1],
                .H = x->shape.dim[2],
                .W = x->shape.dim[3],
                .K = y->shape.dim[1],
                .D = x->shape.dim[1] / attr->groups,
                .P = y->shape.dim[2],
                .Q = y->shape.dim[3],
                .R = attr->kernel[0],
                .S = attr->kernel[1],
                .attr = attr};
}

/* Return positions in memory. */
static int64_t at_x(const conv *v, int64_t n, int64_t c, int64_t h, int64_t w)
{
  return ((n * v->C + c) * v->H + h) * v->W + w;
}
static int64_t at_weight(const conv *v, int64_t k, int64_t c, int64_t r, int64_t s)
{
  return ((k * v->D + c) * v->R + r) * v->S + s;
}
static int64_t at_y(const conv *v, int64_t n, int64_t k, int64_t p, int64_t q)
{
  return ((n * v->K + k) * v->P + p) * v->Q + q;
}

/* Returns the first channel that filter k sees. */
static int64_t first_of(const conv *v, int64_t k)
{
  return k / (v->K / v->attr->groups) * v->D;
}

/* Return the row and the column of x that meet weight (r, s) at output (p, q). They may lie in the padding. */
static int64_t row_of(const conv *v, int64_t p, int64_t r)
{
  return p * v->attr->stride[0] - v->attr->padding[0] + r * v->attr->dilation[0];
}
static int64_t column_of(const conv *v, int64_t q, int64_t s)
{
  return q * v->attr->stride[1] - v->attr->padding[1] + s * v->attr->dilation[1];
}

/* Returns whether row r of a filter meets a row of x at outputs in row p, and which. */
static int meets(const conv *v, int64_t p, int64_t r, int64_t *h)
{
  *h = row_of(v, p, r);
  return *h >= 0 && *h < v->H;
}

/* The outputs of a row at which column s of a filter meets x: `count` from q on. The first meets column w of x, each
 * further one a column that is `stride` later. */
typedef struct span {
  int64_t q, w, count, stride;
} span;

static span span_of(const conv *v, int64_t s)
{
  int64_t first = 0, end = v->Q;
  while (first < end && column_of(v, first, s) < 0) first++;
  while (end > first && column_of(v, end - 1, s) >= v->W) end--;
  return (span){first, column_of(v, first, s), end - first, v->attr->stride[1]};
}

/* Computes row p of y: each element is the sum over its window of x with the filter k. */
static void convolve(const conv *v, const double *x, const double *weight, double *y, int64_t n, int64_t k, int64_t p)
{
  double *to = &y[at_y(v, n, k, p, 0)];
  for (int64_t q = 0; q < v->Q; q++) to[q] = 0;
  for (int64_t c = 0, h; c < v->D; c++)
    for (int64_t r = 0; r < v->R; r++)
      for (int64_t s = 0; meets(v, p, r, &h) && s < v->S; s++) {
        const span at = span_of(v, s);
        const double *from = &x[at_x(v, n, first_of(v, k) + c, h, 0)], factor = weight[at_weight(v, k, c, r, s)];
        for (int64_t i = 0; i < at.count; i++) to[at.q + i] += from[at.w + i * at.stride] * factor;
      }
}

REFERENCE(conv2d, "conv2d")
{
  const conv v = conv_of(launch, launch->node->in[0], launch->node->out[0]);
  const double *x = launch->in[0], *weight = launch->in[1];
  const double *bias = launch->node->in_count > 2 ? launch->in[2] : NULL;
  double *y = launch->out[0];

  for (int64_t n = 0; n < v.N; n++)
    for (int64_t k = 0; k < v.K; k++)
      for (int64_t p = 0; p < v.P; p++) {
        convolve(&v, x, weight, y, n, k, p);
        for (int64_t q = 0; bias && q < v.Q; q++) y[at_y(&v, n, k, p, q)] += bias[k];
      }
  return BRIM_OK;
}

/* Adds row p of dy to the gradient of its windows of x. The last column of the filter comes first, so that each dx
 * adds up the outputs of a row in their order. */
static void scatter(const conv *v, double *dx, const double *weight, const double *dy, int64_t n, int64_t k, int64_t p)
{
  const double *from = &dy[at_y(v, n, k, p, 0)];
  for (int64_t c = 0, h; c < v->D; c++)
    for (int64_t r = 0; r < v->R; r++)
      for (int64_t s = v->S - 1; meets(v, p, r, &h) && s >= 0; s--) {
        const span at = span_of(v, s);
        double *to = &dx[at_x(v, n, first_of(v, k) + c, h, 0)];
        const double factor = weight[at_weight(v, k, c, r, s)];
        for (int64_t i = 0; i < at.count; i++) to[at.w + i * at.stride] += from[at.q + i] * factor;
      }
}

REFERENCE(conv2d_grad_input, "conv2d_grad_input")
{
  const conv v = conv_of(launch, launch->node->out[0], launch->node->in[0]);
  const double *dy = launch->in[0], *weight = launch->in[1];
  const double *bias = launch->node->in_count > 2 ? launch->in[2] : NULL;
  double *dx = launch->out[0];

  for (int64_t i = 0; i < v.N * v.C * v.H * v.W; i++) dx[i] = bias ? bias[i / (v.H * v.W) % v.C] : 0;
  for (int64_t n = 0; n < v.N; n++)
    for (int64_t k = 0; k < v.K; k++)
      for (int64_t p = 0; p < v.P; p++) scatter(&v, dx, weight, dy, n, k, p);
  return BRIM_OK;
}
BRIM_KERNEL(conv_transpose2d) = {.op = "conv_transpose2d", .run = conv2d_grad_input};

/* Returns sample n's part of one weight's gradient, from every output that uses the weight. */
static double correlate(const conv *v, const double *x, const double *dy, int64_t n, int64_t k, int64_t c, int64_t r,
                        int64_t s)
{
  const span at = span_of(v, s);
  double sum = 0;
  for (int64_t p = 0, h; p < v->P; p++) {
    if (!meets(v, p, r, &h)) continue;
    const double *its_x = &x[at_x(v, n, first_of(v, k) + c, h, 0)], *its_dy = &dy[at_y(v, n, k, p, 0)];
    for (int64_t i = 0; i < at.count; i++) sum += its_x[at.w + i * at.stride] * its_dy[at.q + i];
  }
  return sum;
}

static double sum_of(const conv *v, const double *dy, int64_t n, int64_t k)
{
  double sum = 0;
  for (int64_t p = 0; p < v->P; p++)
    for (int64_t q = 0; q < v->Q; q++) sum += dy[at_y(v, n, k, p, q)];
  return sum;
}

REFERENCE(conv2d_grad_weight, "conv2d_grad_weight")
{
  const conv v = conv_of(launch, launch->node->in[0], launch->node->in[1]);
  const double *x = launch->in[0], *dy = launch->in[1];
  double *dweight = launch->out[0], *dbias = launch->node->out_count > 1 ? launch->out[1] : NULL;

  for (int64_t n = 0; n < v.N; n++) /* samples are the outermost loop, so their order is the order of the sum */
    for (int64_t k = 0; k < v.K; k++) {
      for (int64_t c = 0; c < v.D; c++)
        for (int64_t r = 0; r < v.R; r++)
          for (int64_t s = 0; s < v.S; s++) dweight[at_weight(&v, k, c, r, s)] += correlate(&v, x, dy, n, k, c, r, s);
      if (dbias) dbias[k] += sum_of(&v, dy, n, k);
    }
  return BRIM_OK;
}

REFERENCE(conv_transpose2d_grad_bias, "conv_transpose2d_grad_bias")
{
  const brim_shape *y = &launch->node->in[0]->shape;
  const int64_t pixels = y->dim[2] * y->dim[3];
  const double *dy = launch->in[0];
  double *dbias = launch->out[0];
  for (int64_t i = 0; i < y->dim[0] * y->dim[1]; i++)
    for (int64_t k = 0; k < pixels; k++) dbias[i % y->dim[1]] += dy[i * pixels + k];
  return BRIM_OK;
}
