/* Sums and means over axes, and sum_to, the gradient of repetition.
 *
 * Each sample is first summed over its axes in double precision. If the operation also sums over samples, their results
 * are then added one after another. So neither the micro-batch nor the threads change a bit of a parameter's
 * gradient. */
#include "broadcast.h"

enum { COLUMNS = 1024 }; /* elements of a result that one task adds up over the samples */

typedef struct reduction {
  const cpu_broadcast *table;
  const cpu_simd *simd;
  cpu_walk walk;               /* walks over a sample, with its sums as the first operand */
  int64_t samples, size, sums; /* size, sums: elements of a sample before and after summing */
  double factor;
  const float *x;
  float *partial;   /* [samples, sums] */
  char *scratch;    /* [sums] in double precision, for each thread */
  float *y;         /* [sums] */
  bool accumulates; /* adds to y */
  bool overwrites;  /* treats y as zeros */
} reduction;

static uint64_t scratch_bytes(int64_t sums)
{
  return cpu_aligned((uint64_t)sums * sizeof(double));
}

static void sum_sample(void *arg, int64_t n, int32_t thread)
{
  const reduction *v = arg;
  const cpu_walk *w = &v->walk;
  const float *x = v->x + n * v->size;
  float *to = v->partial + n * v->sums;
  double *sum = (double *)(void *)(v->scratch + (uint64_t)thread * scratch_bytes(v->sums));
  for (int64_t i = 0; i < v->sums; i++) sum[i] = 0;
  for (int64_t r = 0; r < w->rows; r++, x += w->length) {
    int64_t offset[2];
    cpu_walk_offsets(w, r, offset);
    if (w->advances[0])
      v->table->add_row(x, sum + offset[0], w->length);
    else
      sum[offset[0]] += v->table->sum_row(x, w->length);
  }
  for (int64_t i = 0; i < v->sums; i++) to[i] = (float)(sum[i] * v->factor);
}

static void add_samples(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const reduction *v = arg;
  const int64_t at = task * COLUMNS, count = cpu_min(COLUMNS, v->sums - at);
  const float *from = v->x + at;
  float *y = v->y + at;
  if (!v->accumulates) memcpy(y, from, (size_t)count * sizeof *y);
  if (v->overwrites) memset(y, 0, (size_t)count * sizeof *y);
  for (int64_t n = v->accumulates ? 0 : 1; n < v->samples; n++) v->simd->add(y, from + n * v->sums, y, count);
}

/* Returns `shape` without its first dimension. */
static brim_shape sample_of(const brim_shape *shape)
{
  brim_shape sample = {shape->rank > 0 ? shape->rank - 1 : 0, {0}};
  for (int32_t d = 0; d < sample.rank; d++) sample.dim[d] = shape->dim[d + 1];
  return sample;
}

/* Derives the axes that are summed within a sample. The dimensions of y are aligned with those of x at the right. */
static reduction reduction_of(const brim_shape *x, const brim_shape *y)
{
  const brim_shape sample = sample_of(x), sums = y->rank == x->rank ? sample_of(y) : *y;
  reduction v = {.samples = x->rank > 0 ? x->dim[0] : 1, .factor = 1};
  v.size = brim_shape_count(&sample);
  v.sums = brim_shape_count(&sums);
  cpu_walk_init(&v.walk, &sample, &sums, &sample);
  return v;
}

static bool sums_samples(const brim_shape *x, const brim_shape *y)
{
  return y->rank < x->rank || x->rank == 0 || y->dim[0] == 1;
}

/* Returns the scratch for the sums of samples, if they must still be added up or added to a gradient; 0 if they are the
 * result. */
static uint64_t partial_bytes(const brim_node *node, const reduction *v)
{
  const bool direct =
      !sums_samples(&node->in[0]->shape, &node->out[0]->shape) && node->out[0]->role != BRIM_ROLE_GRADIENT;
  return direct ? 0 : cpu_aligned((uint64_t)(v->samples * v->sums) * sizeof(float));
}

static CPU_PREPARE(sum_to_prepare)
{
  const cpu_backend *b = self;
  const reduction v = reduction_of(&node->in[0]->shape, &node->out[0]->shape);
  BRIM_TRY(cpu_plain_prepare(self, program, node, need, state));
  need->overwrites = 1;
  if (v.sums != v.size) need->workspace_bytes += partial_bytes(node, &v) + (uint64_t)b->threads * scratch_bytes(v.sums);
  return BRIM_OK;
}

static CPU_RUN(sum_to_run)
{
  cpu_backend *b = self;
  const brim_node *node = launch->node;
  const brim_shape *x = &node->in[0]->shape, *y = &node->out[0]->shape;
  const bool across = sums_samples(x, y);
  reduction v = reduction_of(x, y);
  v.table = cpu_broadcast_table(b);
  v.simd = b->simd;
  v.x = cpu_plain_input(b, launch, 0);
  v.accumulates = node->out[0]->role == BRIM_ROLE_GRADIENT;
  v.overwrites = v.accumulates && !cpu_adds(launch, 0);
  v.y = launch->out[0];
  v.partial = across || v.accumulates ? cpu_plain_end(launch) : v.y;
  v.scratch = (char *)cpu_plain_end(launch) + partial_bytes(node, &v);
  if (v.sums != v.size) {
    cpu_pool_run(b->pool, v.samples, sum_sample, &v);
    v.x = v.partial;
  }
  if (v.x == v.y) return BRIM_OK;
  /* Here the sums are a matrix [samples, sums] whose rows are added up. If samples are not summed, it becomes a single
   * row. */
  if (!across) {
    v.sums *= v.samples;
    v.samples = 1;
  }
  cpu_pool_run(b->pool, cpu_divide_up(v.sums, COLUMNS), add_samples, &v);
  return BRIM_OK;
}
CPU_KERNEL(sum_to) = {.op = "sum_to", .prepare = sum_to_prepare, .run = sum_to_run};

static CPU_PREPARE(reduce_prepare)
{
  const cpu_backend *b = self;
  const brim_shape *x = &node->in[0]->shape, y = cpu_reduced_shape(x, node->attr.reduce.axes);
  BRIM_TRY(cpu_plain_prepare(self, program, node, need, state));
  need->workspace_bytes += (uint64_t)b->threads * scratch_bytes(reduction_of(x, &y).sums);
  return BRIM_OK;
}

static brim_status reduce(cpu_backend *b, const brim_launch *launch, bool is_mean)
{
  const brim_shape *x = &launch->node->in[0]->shape, y = cpu_reduced_shape(x, launch->node->attr.reduce.axes);
  reduction v = reduction_of(x, &y);
  v.table = cpu_broadcast_table(b);
  if (is_mean) v.factor = (double)v.sums / (double)v.size;
  v.x = cpu_plain_input(b, launch, 0);
  v.partial = launch->out[0];
  v.scratch = cpu_plain_end(launch);
  cpu_pool_run(b->pool, v.samples, sum_sample, &v);
  return BRIM_OK;
}

static CPU_RUN(sum_run)
{
  return reduce(self, launch, false);
}
CPU_KERNEL(sum) = {.op = "sum", .prepare = reduce_prepare, .run = sum_run};

static CPU_RUN(mean_run)
{
  return reduce(self, launch, true);
}
CPU_KERNEL(mean) = {.op = "mean", .prepare = reduce_prepare, .run = mean_run};
