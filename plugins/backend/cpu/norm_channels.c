/* Batch norm, group norm and their gradients, on [N,C,...] in any memory order; with a fused relu, applied while a
 * piece is in the cache.
 *
 * Statistics belong to a set (a group of samples and a channel, or a sample and a group of channels). First, each
 * sample and channel is summed in double precision; then the sums of a set are combined in the order of the samples and
 * channels; then every element is scaled by numbers of its set and channel. The variance of a set is that within its
 * parts plus that of the parts' means (Chan, Golub and LeVeque, 1979). So nothing depends on the number of threads, and
 * batch norm depends on the micro-batch only through whole groups.
 *
 * Memory is divided into units of planes: a plane holds `block` adjacent channels for each pixel. A unit is a sample;
 * but if a sample is a single pixel, batch norm's unit is a group of samples, whose rows are then the pixels. */
#include <math.h>

#include "cpu.h"
#include "simd_norm.h"

enum { TASK_ELEMENTS = 16384 }; /* minimum of a task */

typedef struct sums {
  double first, second; /* mean, and sum of squared deviations; or sums of dy and dy * (x - mean) */
} sums;

typedef struct work {
  const cpu_norm_simd *simd;
  const cpu_simd *pointwise;
  bool relu;
  cpu_pool *pool;
  int64_t N, C, P, block;
  int64_t unit, units;     /* samples of a unit (the last one also has the rest); their number */
  int64_t strips, lanes;   /* pieces of a plane; channels of a piece */
  int64_t per_task, tasks; /* pieces */
  int64_t group, groups;   /* batch norm: samples of a set, sets of a channel */
  int64_t channels;        /* group norm: of a set; 0 for batch norm */
  double eps;
  const float *x, *dy, *weight, *bias;
  float *y;                             /* or dx */
  float *mean, *rstd;                   /* written by the forward pass */
  const float *given_mean, *given_rstd; /* read by the backward pass */
  const float *running_mean, *running_var;
  float *first_sum, *second_sum; /* mean_sum and var_sum, or dweight and dbias */
  sums *of_unit;                 /* [units][C] */
  float *shift, *slope;          /* by set, backward; see cpu_norm_lanes */
} work;

/* A piece of a plane: its place and size. */
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

/* The set of a unit's channel. */
static int64_t set_of(const work *w, int64_t unit, int64_t channel)
{
  if (w->channels > 0) return unit * (w->C / w->channels) + channel / w->channels;
  return (w->unit > 1 ? unit : cpu_min(unit / w->group, w->groups - 1)) * w->C + channel;
}

/* The units of batch norm's group g: [*from, *to). Returns the values in a set. */
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

/* Mean and variance of a set of `count` parts of equal size, `stride` apart. */
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

static void scale_piece(const work *w, const piece *p, cpu_norm_lanes *by)
{
  const cpu_norm_plane *v = &p->plane;
  float *y = w->y + p->at;
  w->simd->scale(v, by, w->x + p->at, y);
  if (!w->relu) return;
  const bool whole = v->lanes == v->stride; /* the piece is contiguous */
  const int64_t runs = whole ? 1 : v->pixels, count = whole ? v->pixels * v->lanes : v->lanes;
  for (int64_t i = 0; i < runs; i++, y += v->stride) w->pointwise->relu(y, y, count);
}

static void scale(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const work *w = arg;
  cpu_norm_lanes by;
  for (int64_t i = task * w->per_task; i < cpu_min((task + 1) * w->per_task, w->tasks); i++) {
    const piece p = piece_of(w, i);
    for (int64_t l = 0; l < p.plane.lanes; l++) {
      const int64_t c = p.channel + l, set = set_of(w, p.unit, c);
      by.mean[l] = w->mean[set];
      by.factor[l] = w->rstd[set] * w->weight[c];
      by.shift[l] = w->bias[c];
      by.slope[l] = 0;
    }
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

static void find_products(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const work *w = arg;
  float mean[CPU_NORM_LANES];
  double sum[CPU_NORM_LANES], product[CPU_NORM_LANES];
  for (int64_t i = task * w->per_task; i < cpu_min((task + 1) * w->per_task, w->tasks); i++) {
    const piece p = piece_of(w, i);
    for (int64_t l = 0; l < p.plane.lanes; l++) mean[l] = w->given_mean[set_of(w, p.unit, p.channel + l)];
    w->simd->products(&p.plane, w->x + p.at, w->dy + p.at, mean, sum, product);
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

/* Group norm: computes the numbers of a sample's sets that dx needs; other tasks add up the parameters' gradients of a
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
    w->simd->scale_grad(&p.plane, &by, w->x + p.at, w->dy + p.at, w->y + p.at);
  }
}

/* ---- kernels ---- */

/* Derives sizes from x and the attributes. `unit`: samples of a unit if a sample is one pixel. */
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

static brim_status run_norm(cpu_backend *b, const brim_launch *launch, bool relu)
{
  work w = work_of(launch->node, cpu_max(1, launch->node->attr.norm.group));
  fill(&w, b, launch);
  w.relu = relu;
  w.bias = launch->in[2];
  w.mean = launch->out[1];
  w.rstd = launch->out[2];
  w.of_unit = launch->workspace;
  run_pieces(&w, find_moments);
  if (w.channels > 0) {
    cpu_pool_run(w.pool, w.N, combine_channels, &w);
  } else {
    w.first_sum = launch->out[3];
    w.second_sum = launch->out[4];
    run_strips(&w, combine_groups);
  }
  run_pieces(&w, scale);
  return BRIM_OK;
}

static CPU_RUN(norm_run)
{
  return run_norm(self, launch, false);
}

static CPU_RUN(norm_relu_run)
{
  return run_norm(self, launch, true);
}

static brim_status run_inference(cpu_backend *b, const brim_launch *launch, bool relu)
{
  work w = work_of(launch->node, CPU_NORM_LANES);
  fill(&w, b, launch);
  w.relu = relu;
  w.bias = launch->in[2];
  w.running_mean = launch->in[3];
  w.running_var = launch->in[4];
  run_pieces(&w, scale_by_running);
  return BRIM_OK;
}

static CPU_RUN(inference_run)
{
  return run_inference(self, launch, false);
}

static CPU_RUN(inference_relu_run)
{
  return run_inference(self, launch, true);
}

/* dx takes the order of x, and dy is converted to it. */
static CPU_PREPARE(norm_grad_prepare)
{
  BRIM_TRY(cpu_follow_prepare(self, program, node, need, state));
  const work w = work_of(node, cpu_max(1, node->attr.norm.group));
  need->workspace_bytes = cpu_aligned(cpu_layout_bytes(node->in[4], node->in[0]->channel_block)) + sums_bytes(&w);
  need->workspace_bytes += 2 * (uint64_t)brim_shape_count(&node->in[2]->shape) * sizeof(float);
  return BRIM_OK;
}

static CPU_RUN(norm_grad_run)
{
  const brim_node *node = launch->node;
  const int64_t block = node->in[0]->channel_block;
  work w = work_of(node, cpu_max(1, node->attr.norm.group));
  fill(&w, self, launch);
  char *at = launch->workspace;
  w.given_mean = launch->in[2];
  w.given_rstd = launch->in[3];
  w.dy = cpu_layout_of(self, node->in[4], launch->in[4], block, at);
  at += cpu_aligned(cpu_layout_bytes(node->in[4], block));
  w.of_unit = (sums *)(void *)at;
  w.shift = (float *)(void *)(at + sums_bytes(&w));
  w.slope = w.shift + brim_shape_count(&node->in[2]->shape);
  w.first_sum = launch->out[1];
  w.second_sum = launch->out[2];
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

CPU_KERNEL(batch_norm) = {.op = "batch_norm", .prepare = norm_prepare, .run = norm_run};
CPU_KERNEL(batch_norm_inference) = {.op = "batch_norm_inference", .prepare = cpu_follow_prepare, .run = inference_run};
CPU_KERNEL(batch_norm_grad) = {.op = "batch_norm_grad", .prepare = norm_grad_prepare, .run = norm_grad_run};
CPU_KERNEL(group_norm) = {.op = "group_norm", .prepare = norm_prepare, .run = norm_run};
CPU_KERNEL(group_norm_grad) = {.op = "group_norm_grad", .prepare = norm_grad_prepare, .run = norm_grad_run};
CPU_KERNEL(batch_norm_relu) = {.op = "batch_norm+relu", .prepare = norm_prepare, .run = norm_relu_run};
CPU_KERNEL(batch_norm_inference_relu) = {
    .op = "batch_norm_inference+relu", .prepare = cpu_follow_prepare, .run = inference_relu_run};
CPU_KERNEL(group_norm_relu) = {.op = "group_norm+relu", .prepare = norm_prepare, .run = norm_relu_run};
