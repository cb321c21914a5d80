/* Normalisation of [N,C,...] with a weight for each channel: batch norm, group norm and their gradients. P places
 * follow the channels. The values that share a mean and a deviation form a set:
 *
 *     batch norm   (group of samples g, channel c): set g*C + c
 *     group norm   (sample n, group of channels k): set n*groups + k
 *
 * With M values in a set, sums over it:
 *     mean = sum of x / M      rstd = 1 / sqrt(sum of (x - mean)^2 / M + eps)      h = (x - mean) * rstd
 *     y           = h * weight[c] + bias[c]
 *     dx          = rstd * (g - mean of g - h * mean of g*h),   g = dy * weight[c]
 *     dweight[c] += sum of dy * h,   dbias[c] += sum of dy      over each set, in the order of the samples
 *
 * batch_norm+add gives y + a, and batch_norm+add+relu gives relu(y + a). The gradients of batch norms with relu first
 * apply relu's gradient to dy. */
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

/* The operations that follow a norm. */
enum after { NOTHING, ADD, ADD_RELU };
typedef struct ending {
  const double *a; /* added to the norm's result, or NULL */
  int rectifies;   /* the sum */
} ending;

static ending ending_of(const brim_launch *launch, enum after after)
{
  if (after == NOTHING) return (ending){0};
  return (ending){launch->in[launch->node->in_count - 1], after == ADD_RELU};
}

static double end(const ending *e, double y, int64_t at)
{
  if (e->a) y += e->a[at];
  return e->rectifies && y <= 0 ? 0 : y;
}

static void normalise(const set *s, const brim_launch *launch, enum after after, double *mean, double *variance,
                      double *rstd)
{
  const ending e = ending_of(launch, after);
  const double *x = launch->in[0], *weight = launch->in[1], *bias = launch->in[2];
  double *y = launch->out[0], sum = 0, squares = 0;

  EACH_PLANE(s, n, c, at) for (int64_t p = 0; p < s->P; p++) sum += x[at + p];
  *mean = sum / (double)size_of(s);
  EACH_PLANE(s, n, c, at) for (int64_t p = 0; p < s->P; p++) squares += (x[at + p] - *mean) * (x[at + p] - *mean);
  *variance = squares / (double)size_of(s);
  *rstd = 1 / sqrt(*variance + launch->node->attr.norm.eps);
  EACH_PLANE(s, n, c, at)
  for (int64_t p = 0; p < s->P; p++) y[at + p] = end(&e, (x[at + p] - *mean) * *rstd * weight[c] + bias[c], at + p);
}

typedef struct gradient {
  const double *x, *weight, *mean, *rstd, *dy;
  double *dx, *dweight, *dbias;
} gradient;

/* Computes the gradient of a set. `index` is the index of its mean and deviation. dx may be dy. */
static void differentiate(const set *s, const gradient *v, int64_t index)
{
  const double *x = v->x, *weight = v->weight, *dy = v->dy, M = (double)size_of(s);
  const double mean = v->mean[index], rstd = v->rstd[index];
  double *dx = v->dx, *dweight = v->dweight, *dbias = v->dbias, sum = 0, product = 0;

  for (int64_t c = s->c0; c < s->c1; c++) {
    double dy_sum = 0, dy_product = 0; /* sums for this channel in this set */
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

/* Returns the set of channel c and group g. The last group also has the remaining samples. */
static set of_batch_norm(const brim_node *node, int64_t g, int64_t c)
{
  const brim_shape *x = &node->in[0]->shape;
  const int64_t N = x->dim[0], size = node->attr.norm.group, G = N / size > 1 ? N / size : 1;
  return (set){g * size, g == G - 1 ? N : (g + 1) * size, c, c + 1, x->dim[1], places_of(x)};
}

/* Running averages use the unbiased variance, as in PyTorch; for a single value it is 0. */
static brim_status run_batch_norm(const brim_launch *launch, enum after after)
{
  const brim_shape *sets = &launch->node->out[1]->shape;
  const int64_t G = sets->dim[0], C = sets->dim[1];
  double *mean = launch->out[1], *rstd = launch->out[2], *mean_sum = launch->out[3], *var_sum = launch->out[4];

  for (int64_t g = 0; g < G; g++)
    for (int64_t c = 0; c < C; c++) {
      const set s = of_batch_norm(launch->node, g, c);
      const double M = (double)size_of(&s);
      double variance;
      normalise(&s, launch, after, &mean[g * C + c], &variance, &rstd[g * C + c]);
      mean_sum[c] += mean[g * C + c];
      var_sum[c] += M > 1 ? variance * M / (M - 1) : variance;
    }
  return BRIM_OK;
}
#define NORM(id, its_op, run_it, its_after)                                                                            \
  REFERENCE(id, its_op)                                                                                                \
  {                                                                                                                    \
    return run_it(launch, its_after);                                                                                  \
  }
NORM(batch_norm, "batch_norm", run_batch_norm, NOTHING)
NORM(batch_norm_add, "batch_norm+add", run_batch_norm, ADD)
NORM(batch_norm_add_relu, "batch_norm+add+relu", run_batch_norm, ADD_RELU)

/* sets: the shape of mean, which has one value for each set. */
static void differentiate_batches(const brim_node *node, const brim_shape *sets, const gradient *v)
{
  for (int64_t g = 0; g < sets->dim[0]; g++)
    for (int64_t c = 0; c < sets->dim[1]; c++) {
      const set s = of_batch_norm(node, g, c);
      differentiate(&s, v, g * sets->dim[1] + c);
    }
}

REFERENCE(batch_norm_grad, "batch_norm_grad")
{
  const gradient v = {launch->in[0], launch->in[1],  launch->in[2],  launch->in[3],
                      launch->in[4], launch->out[0], launch->out[1], launch->out[2]};
  differentiate_batches(launch->node, &launch->node->in[2]->shape, &v);
  return BRIM_OK;
}

/* y, the result of the norm, is computed again. */
REFERENCE(batch_norm_relu_grad, "batch_norm+relu_grad")
{
  const brim_shape *sets = &launch->node->in[3]->shape;
  const double *x = launch->in[0], *weight = launch->in[1], *bias = launch->in[2], *dy = launch->in[5];
  double *dx = launch->out[0];
  const gradient v = {x, weight, launch->in[3], launch->in[4], dx, dx, launch->out[1], launch->out[2]};

  for (int64_t g = 0; g < sets->dim[0]; g++)
    for (int64_t k = 0; k < sets->dim[1]; k++) {
      const set s = of_batch_norm(launch->node, g, k);
      const double mean = v.mean[g * sets->dim[1] + k], rstd = v.rstd[g * sets->dim[1] + k];
      EACH_PLANE(&s, n, c, at) for (int64_t p = 0; p < s.P; p++)
      {
        const double y = (x[at + p] - mean) * rstd * weight[c] + bias[c];
        dx[at + p] = y <= 0 ? 0 : dy[at + p];
      }
    }
  differentiate_batches(launch->node, sets, &v);
  return BRIM_OK;
}

REFERENCE(batch_norm_add_relu_grad, "batch_norm+add+relu_grad")
{
  const double *y = launch->in[4], *dy = launch->in[5];
  double *da = launch->out[0];
  const gradient v = {launch->in[0],  launch->in[1],  launch->in[2], launch->in[3], da,
                      launch->out[1], launch->out[2], launch->out[3]};

  for (int64_t i = 0; i < brim_shape_count(&launch->node->out[0]->shape); i++) da[i] = y[i] <= 0 ? 0 : dy[i];
  differentiate_batches(launch->node, &launch->node->in[2]->shape, &v);
  return BRIM_OK;
}

/* y = (x - running_mean[c]) / sqrt(running_var[c] + eps) * weight[c] + bias[c] */
static brim_status run_inference(const brim_launch *launch, enum after after)
{
  const brim_shape *shape = &launch->node->in[0]->shape;
  const double *x = launch->in[0], *weight = launch->in[1], *bias = launch->in[2];
  const double *mean = launch->in[3], *variance = launch->in[4];
  double *y = launch->out[0];
  const ending e = ending_of(launch, after);
  const set all = {0, shape->dim[0], 0, shape->dim[1], shape->dim[1], places_of(shape)};

  EACH_PLANE(&all, n, c, at) for (int64_t p = 0; p < all.P; p++)
  {
    const double rstd = 1 / sqrt(variance[c] + launch->node->attr.norm.eps);
    y[at + p] = end(&e, (x[at + p] - mean[c]) * rstd * weight[c] + bias[c], at + p);
  }
  return BRIM_OK;
}
NORM(batch_norm_inference, "batch_norm_inference", run_inference, NOTHING)
NORM(batch_norm_inference_add, "batch_norm_inference+add", run_inference, ADD)
NORM(batch_norm_inference_add_relu, "batch_norm_inference+add+relu", run_inference, ADD_RELU)

static set of_group_norm(const brim_node *node, int64_t n, int64_t k)
{
  const brim_shape *x = &node->in[0]->shape;
  const int64_t C = x->dim[1], size = C / node->attr.norm.groups;
  return (set){n, n + 1, k * size, (k + 1) * size, C, places_of(x)};
}

REFERENCE(group_norm, "group_norm")
{
  const int64_t N = launch->node->in[0]->shape.dim[0], groups = launch->node->attr.norm.groups;
  double *mean = launch->out[1], *rstd = launch->out[2];

  for (int64_t n = 0; n < N; n++)
    for (int64_t k = 0; k < groups; k++) {
      const set s = of_group_norm(launch->node, n, k);
      double variance;
      normalise(&s, launch, NOTHING, &mean[n * groups + k], &variance, &rstd[n * groups + k]);
    }
  return BRIM_OK;
}

REFERENCE(group_norm_grad, "group_norm_grad")
{
  const int64_t N = launch->node->in[0]->shape.dim[0], groups = launch->node->attr.norm.groups;
  const gradient v = {launch->in[0], launch->in[1],  launch->in[2],  launch->in[3],
                      launch->in[4], launch->out[0], launch->out[1], launch->out[2]};

  for (int64_t n = 0; n < N; n++) /* samples are the outermost loop, so their order is the order of the sum */
    for (int64_t k = 0; k < groups; k++) {
      const set s = of_group_norm(launch->node, n, k);
      differentiate(&s, &v, n * groups + k);
    }
  return BRIM_OK;
}
