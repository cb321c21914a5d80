/* Normalisation of [N,C,...] with a weight for each channel: batch norm, group norm and their gradients. P places
 * follow the channels. A set is the values that share a mean and a deviation:
 *
 *     batch norm   (group of samples g, channel c): set g*C + c
 *     group norm   (sample n, group of channels k): set n*groups + k
 *
 * With M values in a set, sums over it:
 *     mean = sum of x / M      rstd = 1 / sqrt(sum of (x - mean)^2 / M + eps)      h = (x - mean) * rstd
 *     y           = h * weight[c] + bias[c]
 *     dx          = rstd * (g - mean of g - h * mean of g*h),   g = dy * weight[c]
 *     dweight[c] += sum of dy * h,   dbias[c] += sum of dy      over each set in the order of the samples */
#include "reference.h"

/* One set: samples [n0, n1), channels [c0, c1), all places. */
typedef struct set {
  int64_t n0, n1, c0, c1, C, P;
} set;

static int64_t size_of(const set *s)
{
  return (s->n1 - s->n0) * (s->c1 - s->c0) * s->P;
}

/* Goes over the channel planes of a set, in order; plane (n, c) begins at `at`. */
#define EACH_PLANE(s, n, c, at)                                                                                        \
  for (int64_t n = (s)->n0; n < (s)->n1; n++)                                                                          \
    for (int64_t c = (s)->c0, at = (n * (s)->C + c) * (s)->P; c < (s)->c1; c++, at += (s)->P)

static void normalise(const set *s, const brim_launch *launch, double *mean, double *variance, double *rstd)
{
  const double *x = launch->in[0], *weight = launch->in[1], *bias = launch->in[2];
  double *y = launch->out[0], sum = 0, squares = 0;

  EACH_PLANE(s, n, c, at) for (int64_t p = 0; p < s->P; p++) sum += x[at + p];
  *mean = sum / (double)size_of(s);
  EACH_PLANE(s, n, c, at) for (int64_t p = 0; p < s->P; p++) squares += (x[at + p] - *mean) * (x[at + p] - *mean);
  *variance = squares / (double)size_of(s);
  *rstd = 1 / sqrt(*variance + launch->node->attr.norm.eps);
  EACH_PLANE(s, n, c, at)
  for (int64_t p = 0; p < s->P; p++) y[at + p] = (x[at + p] - *mean) * *rstd * weight[c] + bias[c];
}

static void differentiate(const set *s, const brim_launch *launch, double mean, double rstd)
{
  const double *x = launch->in[0], *weight = launch->in[1], *dy = launch->in[4], M = (double)size_of(s);
  double *dx = launch->out[0], *dweight = launch->out[1], *dbias = launch->out[2], sum = 0, product = 0;

  for (int64_t c = s->c0; c < s->c1; c++) {
    double dy_sum = 0, dy_product = 0; /* of this channel in this set */
    const set channel = {s->n0, s->n1, c, c + 1, s->C, s->P};
    EACH_PLANE(&channel, n, k, at) for (int64_t p = 0; p < s->P; p++)
    {
      dy_sum += dy[at + p];
      dy_product += dy[at + p] * (x[at + p] - mean) * rstd;
    }
    dweight[c] += dy_product;
    dbias[c] += dy_sum;
    sum += weight[c] * dy_sum;
    product += weight[c] * dy_product;
  }
  EACH_PLANE(s, n, c, at) for (int64_t p = 0; p < s->P; p++)
  {
    const double h = (x[at + p] - mean) * rstd;
    dx[at + p] = rstd * (dy[at + p] * weight[c] - sum / M - h * product / M);
  }
}

static int64_t places_of(const brim_shape *shape)
{
  return brim_shape_count(shape) / (shape->dim[0] * shape->dim[1]);
}

/* Channel c of group g; the last group also has the remaining samples. */
static set of_batch_norm(const brim_node *node, int64_t g, int64_t c)
{
  const brim_shape *x = &node->in[0]->shape;
  const int64_t N = x->dim[0], size = node->attr.norm.group, G = N / size > 1 ? N / size : 1;
  return (set){g * size, g == G - 1 ? N : (g + 1) * size, c, c + 1, x->dim[1], places_of(x)};
}

/* Running averages use the unbiased variance, as in PyTorch; for a single value it is 0. */
static brim_status batch_norm(void *self, const brim_launch *launch)
{
  (void)self;
  const brim_shape *sets = &launch->node->out[1]->shape;
  const int64_t G = sets->dim[0], C = sets->dim[1];
  double *mean = launch->out[1], *rstd = launch->out[2], *mean_sum = launch->out[3], *var_sum = launch->out[4];

  for (int64_t g = 0; g < G; g++)
    for (int64_t c = 0; c < C; c++) {
      const set s = of_batch_norm(launch->node, g, c);
      const double M = (double)size_of(&s);
      double variance;
      normalise(&s, launch, &mean[g * C + c], &variance, &rstd[g * C + c]);
      mean_sum[c] += mean[g * C + c];
      var_sum[c] += M > 1 ? variance * M / (M - 1) : variance;
    }
  return BRIM_OK;
}
BRIM_KERNEL(batch_norm) = {.op = "batch_norm", .run = batch_norm};

static brim_status batch_norm_grad(void *self, const brim_launch *launch)
{
  (void)self;
  const brim_shape *sets = &launch->node->in[2]->shape;
  const int64_t G = sets->dim[0], C = sets->dim[1];
  const double *mean = launch->in[2], *rstd = launch->in[3];

  for (int64_t g = 0; g < G; g++)
    for (int64_t c = 0; c < C; c++) {
      const set s = of_batch_norm(launch->node, g, c);
      differentiate(&s, launch, mean[g * C + c], rstd[g * C + c]);
    }
  return BRIM_OK;
}
BRIM_KERNEL(batch_norm_grad) = {.op = "batch_norm_grad", .run = batch_norm_grad};

/* y = (x - running_mean[c]) / sqrt(running_var[c] + eps) * weight[c] + bias[c] */
static brim_status batch_norm_inference(void *self, const brim_launch *launch)
{
  (void)self;
  const brim_shape *shape = &launch->node->in[0]->shape;
  const double *x = launch->in[0], *weight = launch->in[1], *bias = launch->in[2];
  const double *mean = launch->in[3], *variance = launch->in[4];
  double *y = launch->out[0];
  const set all = {0, shape->dim[0], 0, shape->dim[1], shape->dim[1], places_of(shape)};

  EACH_PLANE(&all, n, c, at) for (int64_t p = 0; p < all.P; p++)
  {
    const double rstd = 1 / sqrt(variance[c] + launch->node->attr.norm.eps);
    y[at + p] = (x[at + p] - mean[c]) * rstd * weight[c] + bias[c];
  }
  return BRIM_OK;
}
BRIM_KERNEL(batch_norm_inference) = {.op = "batch_norm_inference", .run = batch_norm_inference};

static set of_group_norm(const brim_node *node, int64_t n, int64_t k)
{
  const brim_shape *x = &node->in[0]->shape;
  const int64_t C = x->dim[1], size = C / node->attr.norm.groups;
  return (set){n, n + 1, k * size, (k + 1) * size, C, places_of(x)};
}

static brim_status group_norm(void *self, const brim_launch *launch)
{
  (void)self;
  const int64_t N = launch->node->in[0]->shape.dim[0], groups = launch->node->attr.norm.groups;
  double *mean = launch->out[1], *rstd = launch->out[2];

  for (int64_t n = 0; n < N; n++)
    for (int64_t k = 0; k < groups; k++) {
      const set s = of_group_norm(launch->node, n, k);
      double variance;
      normalise(&s, launch, &mean[n * groups + k], &variance, &rstd[n * groups + k]);
    }
  return BRIM_OK;
}
BRIM_KERNEL(group_norm) = {.op = "group_norm", .run = group_norm};

static brim_status group_norm_grad(void *self, const brim_launch *launch)
{
  (void)self;
  const int64_t N = launch->node->in[0]->shape.dim[0], groups = launch->node->attr.norm.groups;
  const double *mean = launch->in[2], *rstd = launch->in[3];

  for (int64_t n = 0; n < N; n++) /* samples outermost: their order is the order of the sums */
    for (int64_t k = 0; k < groups; k++) {
      const set s = of_group_norm(launch->node, n, k);
      differentiate(&s, launch, mean[n * groups + k], rstd[n * groups + k]);
    }
  return BRIM_OK;
}
BRIM_KERNEL(group_norm_grad) = {.op = "group_norm_grad", .run = group_norm_grad};
