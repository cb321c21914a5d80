/* Batch norm, group norm and their gradients, on [N,C,...] in any memory order. A fused addition and relu are applied
 * while a piece is in the cache. The gradient of a fused relu is also computed there, before the sums: its result goes
 * to the memory of dx, or of the gradient of the other operand, and is read from there.
 *
 * Statistics belong to a set: a group of samples and one channel (batch norm), or one sample and a group of channels
 * (group norm). First, each sample and channel is summed in double precision. Then the sums of a set are combined in
 * the order of the samples and channels. Then every element is scaled by numbers of its set and channel. The variance
 * of a set is the variance within its parts plus the variance of the parts' means (Chan, Golub and LeVeque, 1979). So
 * nothing depends on the number of threads, and batch norm depends on the micro-batch only through whole groups.
 *
 * Memory is divided into units of planes: a plane holds `block` adjacent channels for each pixel. A unit is usually a
 * sample. If a sample is a single pixel, batch norm's unit is a group of samples, and the rows of these samples are the
 * pixels. */
#include <math.h>

#include "cpu.h"
#include "simd_norm.h"

enum { TASK_ELEMENTS = 16384 }; /* minimum elements of a task */

typedef struct sums {
  double first, second; /* mean and sum of squared deviations, or sums of dy and of dy * (x - mean) */
} sums;

typedef struct work {
  const cpu_norm_simd *simd;
  const cpu_simd *pointwise;
  bool relu;
  cpu_pool *pool;
  int64_t N, C, P, block;
  int64_t unit, units;     /* samples of a unit, and number of units; the last unit also has the samples that remain */
  int64_t strips, lanes;   /* pieces of a plane; channels of a piece */
  int64_t per_task, tasks; /* numbers of pieces */
  int64_t group, groups;   /* batch norm: samples of a set, and sets per channel */
  int64_t channels;        /* group norm: channels of a set; 0 for batch norm */
  double eps;
  const float *x, *dy, *weight, *bias;
  const float *a;      /* added to the result before relu, or NULL */
  float *y;            /* y; backward: dx */
  const float *result; /* backward: y, whose sign masks dy */
  float *masked;       /* backward: the masked dy is written here and used as dy; NULL: dy is not masked */
  float least;         /* backward without `result`: the greatest y that is stored as 0 */
  float *mean, *rstd;  /* statistics that the forward pass writes */
  const float *given_mean, *given_rstd; /* statistics that the backward pass reads */
  const float *running_mean, *running_var;
  float *first_sum, *second_sum; /* mean_sum and var_sum, or dweight and dbias */
  sums *of_unit;                 /* [units][C] */
  float *shift, *slope;          /* backward, one for each set; see cpu_norm_lanes */
} work;

/* A piece of a plane, with its place and its size. */
typedef struct piece {
  int64_t unit, channel, at;
  cpu_norm_plane plane;
} piece;

static int64_t samples_of(const work *w, int64_t unit)
{
  return unit == w->units - 1 ? w->N - unit * w->unit : w->unit;
}

static piece piece_of(const work *w, int64_t i)
{
  const int64_t planes = w->C / w->block, plane = i / w->strips % planes, from = i % w->strips * w->lanes;
  piece p = {.unit = i / w->strips / planes, .channel = plane * w->block + from};
  p.at = (p.unit * w->unit * w->C + plane * w->block) * w->P + from;
  p.plane = (cpu_norm_plane){samples_of(w, p.unit) * w->P, cpu_min(w->lanes, w->block - from), w->block};
  return p;
}

/* Returns the set that a channel of a unit belongs to. */
static int64_t set_of(const work *w, int64_t unit, int64_t channel)
{
  if (w->channels > 0) return unit * (w->C / w->channels) + channel / w->channels;
  return (w->unit > 1 ? unit : cpu_min(unit / w->group, w->groups - 1)) * w->C + channel;
}

/* Sets [*from, *to) to the units of batch norm's group g. Returns the number of values in a set. */
static double group_units(const work *w, int64_t g, int64_t *from, int64_t *to)
{
  const int64_t each = w->unit > 1 ? 1 : w->group, first = g * w->group;
  *from = g * each;
  *to = g == w->groups - 1 ? w->units : *from + each;
  return (double)((g == w->groups - 1 ? w->N - first : w->group) * w->P);
}

/* ---- forward ---- */

static void find_moments(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const work *w = arg;
  double mean[CPU_NORM_LANES], squares[CPU_NORM_LANES];
  for (int64_t i = task * w->per_task; i < cpu_min((task + 1) * w->per_task, w->tasks); i++) {
    const piece p = piece_of(w, i);
    w->simd->moments(&p.plane, w->x + p.at, mean, squares);
    sums *to = w->of_unit + p.unit * w->C + p.channel;
    for (int64_t l = 0; l < p.plane.lanes; l++) to[l] = (sums){mean[l], squares[l]};
  }
}

/* Returns the variance of a set of `count` parts of equal size, which are `stride` apart, and sets its mean. */
static double combine(const sums *part, int64_t count, int64_t stride, double values, double *mean)
{
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < count; i++) sum += part[i * stride].first;
  *mean = sum / (double)count;
  for (int64_t i = 0; i < count; i++) {
    const double d = part[i * stride].first - *mean;
    squares += part[i * stride].second + values / (double)count * (d * d);
  }
  return squares / values;
}

/* Batch norm: combines the sums of a strip of channels, group by group. */
static void combine_groups(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const work *w = arg;
  const int64_t end = cpu_min((task + 1) * CPU_NORM_LANES, w->C);
  for (int64_t g = 0; g < w->groups; g++) {
    int64_t from, to;
    const double values = group_units(w, g, &from, &to);
    for (int64_t c = task * CPU_NORM_LANES; c < end; c++) {
      double mean;
      const double variance = combine(w->of_unit + from * w->C + c, to - from, w->C, values, &mean);
      w->mean[g * w->C + c] = (float)mean;
      w->rstd[g * w->C + c] = (float)(1 / sqrt(variance + w->eps));
      w->first_sum[c] += (float)mean;
      w->second_sum[c] += (float)(values > 1 ? variance * values / (values - 1) : variance);
    }
  }
}

/* Group norm: combines the sums of a sample. */
static void combine_channels(void *arg, int64_t n, int32_t thread)
{
  (void)thread;
  const work *w = arg;
  const int64_t sets = w->C / w->channels;
  for (int64_t k = 0; k < sets; k++) {
    double mean;
    const sums *part = w->of_unit + n * w->C + k * w->channels;
    const double variance = combine(part, w->channels, 1, (double)(w->channels * w->P), &mean);
    w->mean[n * sets + k] = (float)mean;
    w->rstd[n * sets + k] = (float)(1 / sqrt(variance + w->eps));
  }
}

/* Derives the coefficients of the result from the statistics of the sets. */
static void find_scales(const work *w, const piece *p, cpu_norm_lanes *by)
{
  for (int64_t l = 0; l < p->plane.lanes; l++) {
    const int64_t c = p->channel + l, set = set_of(w, p->unit, c);
    by->mean[l] = w->given_mean[set];
    by->factor[l] = w->given_rstd[set] * w->weight[c];
    by->shift[l] = w->bias[c];
    by->slope[l] = 0;
  }
}

/* A piece consists of `number` contiguous runs of `count` values, v->stride apart. */
typedef struct runs {
  int64_t number, count;
} runs;

static runs runs_of(const cpu_norm_plane *v)
{
  return v->lanes == v->stride ? (runs){1, v->pixels * v->lanes} : (runs){v->pixels, v->lanes};
}

static void scale_piece(const work *w, const piece *p, cpu_norm_lanes *by)
{
  const runs r = runs_of(&p->plane);
  float *y = w->y + p->at;
  if (w->a)
    w->simd->scale_add(&p->plane, by, w->x + p->at, w->a + p->at, y);
  else
    w->simd->scale(&p->plane, by, w->x + p->at, y);
  for (int64_t i = 0; w->relu && i < r.number; i++, y += p->plane.stride) w->pointwise->relu(y, y, r.count);
}

static void scale(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const work *w = arg;
  cpu_norm_lanes by;
  for (int64_t i = task * w->per_task; i < cpu_min((task + 1) * w->per_task, w->tasks); i++) {
    const piece p = piece_of(w, i);
    find_scales(w, &p, &by);
    scale_piece(w, &p, &by);
  }
}

static void scale_by_running(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const work *w = arg;
  cpu_norm_lanes by;
  for (int64_t i = task * w->per_task; i < cpu_min((task + 1) * w->per_task, w->tasks); i++) {
    const piece p = piece_of(w, i);
    for (int64_t l = 0; l < p.plane.lanes; l++) {
      const int64_t c = p.channel + l;
      by.mean[l] = w->running_mean[c];
      by.factor[l] = (float)((double)w->weight[c] / sqrt((double)w->running_var[c] + w->eps));
      by.shift[l] = w->bias[c];
      by.slope[l] = 0;
    }
    scale_piece(w, &p, &by);
  }
}

/* ---- backward ---- */

/* Writes dy to w->masked, with 0 where the result is at most 0, as relu's gradient does. */
static void mask_piece(const work *w, const piece *p)
{
  const runs r = runs_of(&p->plane);
  cpu_norm_lanes by;
  if (!w->result) {
    find_scales(w, p, &by);
    w->simd->mask(&p->plane, &by, w->least, w->x + p->at, w->dy + p->at, w->masked + p->at);
    return;
  }
  for (int64_t i = 0, at = p->at; i < r.number; i++, at += p->plane.stride)
    w->pointwise->relu_grad(w->result + at, w->dy + at, w->masked + at, r.count);
}

static void find_products(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const work *w = arg;
  const float *dy = w->masked ? w->masked : w->dy;
  float mean[CPU_NORM_LANES];
  double sum[CPU_NORM_LANES], product[CPU_NORM_LANES];
  for (int64_t i = task * w->per_task; i < cpu_min((task + 1) * w->per_task, w->tasks); i++) {
    const piece p = piece_of(w, i);
    for (int64_t l = 0; l < p.plane.lanes; l++) mean[l] = w->given_mean[set_of(w, p.unit, p.channel + l)];
    if (w->masked) mask_piece(w, &p);
    w->simd->products(&p.plane, w->x + p.at, dy + p.at, mean, sum, product);
    sums *to = w->of_unit + p.unit * w->C + p.channel;
    for (int64_t l = 0; l < p.plane.lanes; l++) to[l] = (sums){sum[l], product[l]};
  }
}

/* Batch norm: combines the sums of a strip of channels, group by group. */
static void combine_groups_grad(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const work *w = arg;
  const int64_t end = cpu_min((task + 1) * CPU_NORM_LANES, w->C);
  for (int64_t g = 0; g < w->groups; g++) {
    int64_t from, to;
    const double values = group_units(w, g, &from, &to);
    for (int64_t c = task * CPU_NORM_LANES; c < end; c++) {
      const int64_t set = g * w->C + c;
      const double rstd = (double)w->given_rstd[set], factor = (double)(w->given_rstd[set] * w->weight[c]);
      sums s = {0, 0};
      for (int64_t u = from; u < to; u++) {
        s.first += w->of_unit[u * w->C + c].first;
        s.second += w->of_unit[u * w->C + c].second;
      }
      w->first_sum[c] += (float)(s.second * rstd);
      w->second_sum[c] += (float)s.first;
      w->shift[set] = (float)(factor * s.first / values);
      w->slope[set] = (float)(factor * s.second / values * rstd * rstd);
    }
  }
}

/* Group norm: computes the numbers of a sample's sets that dx needs. Other tasks add up the parameters' gradients for a
 * strip of channels. */
static void combine_channels_grad(void *arg, int64_t n, int32_t thread)
{
  (void)thread;
  const work *w = arg;
  const double values = (double)(w->channels * w->P);
  for (int64_t set = n * (w->C / w->channels); set < (n + 1) * (w->C / w->channels); set++) {
    const double rstd = (double)w->given_rstd[set];
    const int64_t first = set * w->channels - n * w->C;
    sums s = {0, 0};
    for (int64_t c = first; c < first + w->channels; c++) {
      const double factor = (double)(w->given_rstd[set] * w->weight[c]);
      s.first += factor * w->of_unit[n * w->C + c].first;
      s.second += factor * w->of_unit[n * w->C + c].second;
    }
    w->shift[set] = (float)(s.first / values);
    w->slope[set] = (float)(s.second / values * rstd * rstd);
  }
}

static void add_samples(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const work *w = arg;
  const int64_t end = cpu_min((task + 1) * CPU_NORM_LANES, w->C);
  for (int64_t n = 0; n < w->N; n++)
    for (int64_t c = task * CPU_NORM_LANES; c < end; c++) {
      const sums *s = &w->of_unit[n * w->C + c];
      w->first_sum[c] += (float)(s->second * (double)w->given_rstd[set_of(w, n, c)]);
      w->second_sum[c] += (float)s->first;
    }
}

static void scale_grad(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const work *w = arg;
  const float *dy = w->masked ? w->masked : w->dy;
  cpu_norm_lanes by;
  for (int64_t i = task * w->per_task; i < cpu_min((task + 1) * w->per_task, w->tasks); i++) {
    const piece p = piece_of(w, i);
    for (int64_t l = 0; l < p.plane.lanes; l++) {
      const int64_t c = p.channel + l, set = set_of(w, p.unit, c);
      by.mean[l] = w->given_mean[set];
      by.factor[l] = w->given_rstd[set] * w->weight[c];
      by.shift[l] = w->shift[set];
      by.slope[l] = w->slope[set];
    }
    w->simd->scale_grad(&p.plane, &by, w->x + p.at, dy + p.at, w->y + p.at);
  }
}

/* ---- kernels ---- */

/* Derives sizes from x and the attributes. `unit`: the samples of a unit if a sample is one pixel. */
static work work_of(const brim_node *node, int64_t unit)
{
  const brim_tensor *x = node->in[0];
  const brim_norm_attr *attr = &node->attr.norm;
  work w = {.N = x->shape.dim[0], .C = x->shape.dim[1], .eps = attr->eps, .group = attr->group, .block = 1};
  w.P = brim_shape_count(&x->shape) / (w.N * w.C);
  w.block = w.P == 1 ? w.C : x->channel_block; /* with one pixel, channels are contiguous in every order */
  w.unit = w.P == 1 ? cpu_min(unit, w.N) : 1;
  w.units = w.N / w.unit;
  w.groups = w.group > 0 ? cpu_max(1, w.N / w.group) : 0;
  w.channels = attr->groups > 0 ? w.C / attr->groups : 0;
  w.lanes = cpu_min(w.block, CPU_NORM_LANES);
  w.strips = cpu_divide_up(w.block, w.lanes);
  w.tasks = w.units * (w.C / w.block) * w.strips;
  w.per_task = cpu_max(1, TASK_ELEMENTS / (w.unit * w.P * w.lanes));
  return w;
}

static void fill(work *w, cpu_backend *b, const brim_launch *launch)
{
  static const cpu_norm_simd *const tables[] = {CPU_OF_ISAS(&, cpu_norm)};
  w->simd = tables[b->isa];
  w->pointwise = b->simd;
  w->pool = b->pool;
  w->x = launch->in[0];
  w->weight = launch->in[1];
  w->y = launch->out[0];
}

static void run_pieces(work *w, cpu_task_fn fn)
{
  cpu_pool_run(w->pool, cpu_divide_up(w->tasks, w->per_task), fn, w);
}

static void run_strips(work *w, cpu_task_fn fn)
{
  cpu_pool_run(w->pool, cpu_divide_up(w->C, CPU_NORM_LANES), fn, w);
}

static uint64_t sums_bytes(const work *w)
{
  return cpu_aligned((uint64_t)(w->units * w->C) * sizeof(sums));
}

static CPU_PREPARE(norm_prepare)
{
  BRIM_TRY(cpu_follow_prepare(self, program, node, need, state));
  const work w = work_of(node, cpu_max(1, node->attr.norm.group));
  need->workspace_bytes = sums_bytes(&w);
  return BRIM_OK;
}

/* Requests scratch for converting the operand of the sum to the order of x. It follows the kernel's other scratch. */
static void prepare_sum(const brim_node *node, brim_kernel_need *need)
{
  const uint64_t bytes = cpu_layout_bytes(node->in[node->in_count - 1], node->in[0]->channel_block);
  if (bytes > need->workspace_bytes) need->workspace_bytes = bytes;
}

static CPU_PREPARE(norm_add_prepare)
{
  BRIM_TRY(norm_prepare(self, program, node, need, state));
  prepare_sum(node, need);
  return BRIM_OK;
}

static CPU_PREPARE(inference_add_prepare)
{
  BRIM_TRY(cpu_follow_prepare(self, program, node, need, state));
  prepare_sum(node, need);
  return BRIM_OK;
}

/* The operations that follow a norm. */
typedef enum ending { END_NONE, END_RELU, END_ADD, END_ADD_RELU } ending;

static void fill_ending(work *w, cpu_backend *b, const brim_launch *launch, ending end)
{
  const uint32_t last = launch->node->in_count - 1;
  w->relu = end == END_RELU || end == END_ADD_RELU;
  if (end == END_ADD || end == END_ADD_RELU)
    w->a = cpu_layout_of(b, launch->node->in[last], launch->in[last], launch->node->in[0]->channel_block,
                         launch->workspace);
}

static brim_status run_norm(cpu_backend *b, const brim_launch *launch, ending end)
{
  work w = work_of(launch->node, cpu_max(1, launch->node->attr.norm.group));
  fill(&w, b, launch);
  w.bias = launch->in[2];
  w.given_mean = w.mean = launch->out[1];
  w.given_rstd = w.rstd = launch->out[2];
  w.of_unit = launch->workspace;
  run_pieces(&w, find_moments);
  if (w.channels > 0) {
    cpu_pool_run(w.pool, w.N, combine_channels, &w);
  } else {
    w.first_sum = launch->out[3];
    w.second_sum = launch->out[4];
    run_strips(&w, combine_groups);
  }
  fill_ending(&w, b, launch, end);
  run_pieces(&w, scale);
  return BRIM_OK;
}

static brim_status run_inference(cpu_backend *b, const brim_launch *launch, ending end)
{
  work w = work_of(launch->node, CPU_NORM_LANES);
  fill(&w, b, launch);
  fill_ending(&w, b, launch, end);
  w.bias = launch->in[2];
  w.running_mean = launch->in[3];
  w.running_var = launch->in[4];
  run_pieces(&w, scale_by_running);
  return BRIM_OK;
}

/* The indices of a gradient's tensors in the node's inputs and outputs. bias and y are 0 if the operation lacks
 * them. */
typedef struct gradient {
  uint32_t bias, mean, rstd, y, dy, dx, dweight, dbias;
} gradient;

/* dx gets the order of x; dy and y are converted to it. */
static brim_status prepare_gradient(const brim_node *node, const gradient *g, brim_kernel_need *need)
{
  const int64_t block = node->in[0]->channel_block;
  const work w = work_of(node, cpu_max(1, node->attr.norm.group));
  need->workspace_bytes = cpu_aligned(cpu_layout_bytes(node->in[g->dy], block)) + sums_bytes(&w);
  need->workspace_bytes += cpu_aligned(2 * (uint64_t)brim_shape_count(&node->in[g->mean]->shape) * sizeof(float));
  if (g->y) need->workspace_bytes += cpu_layout_bytes(node->in[g->y], block);
  return BRIM_OK;
}

/* Divides the scratch in the order of prepare_gradient. */
static void fill_gradient(work *w, cpu_backend *b, const brim_launch *launch, const gradient *g)
{
  const brim_node *node = launch->node;
  const int64_t block = node->in[0]->channel_block, sets = brim_shape_count(&node->in[g->mean]->shape);
  char *at = launch->workspace;
  w->y = launch->out[g->dx];
  w->given_mean = launch->in[g->mean];
  w->given_rstd = launch->in[g->rstd];
  w->first_sum = launch->out[g->dweight];
  w->second_sum = launch->out[g->dbias];
  w->dy = cpu_layout_of(b, node->in[g->dy], launch->in[g->dy], block, at);
  at += cpu_aligned(cpu_layout_bytes(node->in[g->dy], block));
  w->of_unit = (sums *)(void *)at;
  w->shift = (float *)(void *)(at + sums_bytes(w));
  w->slope = w->shift + sets;
  at += sums_bytes(w) + cpu_aligned(2 * (uint64_t)sets * sizeof(float));
  if (g->bias) w->bias = launch->in[g->bias];
  if (g->y) w->result = cpu_layout_of(b, node->in[g->y], launch->in[g->y], block, at);
  if (g->bias || g->y) w->masked = launch->out[0];
  w->least = cpu_stored_as_zero(node->in[0]);
}

static brim_status run_gradient(cpu_backend *b, const brim_launch *launch, const gradient *g)
{
  work w = work_of(launch->node, cpu_max(1, launch->node->attr.norm.group));
  fill(&w, b, launch);
  fill_gradient(&w, b, launch, g);
  run_pieces(&w, find_products);
  if (w.channels > 0) {
    cpu_pool_run(w.pool, w.N, combine_channels_grad, &w);
    run_strips(&w, add_samples);
  } else {
    run_strips(&w, combine_groups_grad);
  }
  run_pieces(&w, scale_grad);
  return BRIM_OK;
}

#define NORM(id, its_op, its_prepare, its_run, its_ending)                                                             \
  static CPU_RUN(id##_run)                                                                                             \
  {                                                                                                                    \
    return its_run(self, launch, its_ending);                                                                          \
  }                                                                                                                    \
  CPU_KERNEL(id) = {.op = its_op, .prepare = its_prepare, .run = id##_run}
NORM(batch_norm, "batch_norm", norm_prepare, run_norm, END_NONE);
NORM(batch_norm_relu, "batch_norm+relu", norm_prepare, run_norm, END_RELU);
NORM(batch_norm_add, "batch_norm+add", norm_add_prepare, run_norm, END_ADD);
NORM(batch_norm_add_relu, "batch_norm+add+relu", norm_add_prepare, run_norm, END_ADD_RELU);
NORM(batch_norm_inference, "batch_norm_inference", cpu_follow_prepare, run_inference, END_NONE);
NORM(batch_norm_inference_relu, "batch_norm_inference+relu", cpu_follow_prepare, run_inference, END_RELU);
NORM(batch_norm_inference_add, "batch_norm_inference+add", inference_add_prepare, run_inference, END_ADD);
NORM(batch_norm_inference_add_relu, "batch_norm_inference+add+relu", inference_add_prepare, run_inference,
     END_ADD_RELU);
NORM(group_norm, "group_norm", norm_prepare, run_norm, END_NONE);
NORM(group_norm_relu, "group_norm+relu", norm_prepare, run_norm, END_RELU);

#define GRADIENT(id, its_op, ...)                                                                                      \
  static const gradient of_##id = {__VA_ARGS__};                                                                       \
  static CPU_PREPARE(id##_prepare)                                                                                     \
  {                                                                                                                    \
    BRIM_TRY(cpu_follow_prepare(self, program, node, need, state));                                                    \
    return prepare_gradient(node, &of_##id, need);                                                                     \
  }                                                                                                                    \
  static CPU_RUN(id##_run)                                                                                             \
  {                                                                                                                    \
    return run_gradient(self, launch, &of_##id);                                                                       \
  }                                                                                                                    \
  CPU_KERNEL(id) = {.op = its_op, .prepare = id##_prepare, .run = id##_run}
GRADIENT(batch_norm_grad, "batch_norm_grad", .mean = 2, .rstd = 3, .dy = 4, .dweight = 1, .dbias = 2);
GRADIENT(group_norm_grad, "group_norm_grad", .mean = 2, .rstd = 3, .dy = 4, .dweight = 1, .dbias = 2);
GRADIENT(batch_norm_relu_grad, "batch_norm+relu_grad", .bias = 2, .mean = 3, .rstd = 4, .dy = 5, .dweight = 1,
         .dbias = 2);
GRADIENT(batch_norm_add_relu_grad, "batch_norm+add+relu_grad", .mean = 2, .rstd = 3, .y = 4, .dy = 5, .dx = 1,
         .dweight = 2, .dbias = 3);

int32_t cpu_norm_overwritten(const brim_kernel *kernel, size_t result)
{
  if (kernel->run != batch_norm_add_relu_grad_run || result > 1) return -1;
  return (int32_t)(result == 0 ? of_batch_norm_add_relu_grad.dy : of_batch_norm_add_relu_grad.y);
}
