/* Dropout, its gradient, and the sum of a tensor and dropout. All multiply by the mask of brim/random.h. A random
 * number belongs to the logical coordinates of an element, channels fastest, so a result does not depend on the memory
 * order. */
#include "cpu.h"

enum { PIECE = 16384 }; /* elements of a task, approximately */

typedef struct mask {
  const cpu_simd *simd;
  brim_dropout_key key;
  float scale; /* 1 / (1 - p) */
  int64_t first_sample, samples, samples_per_task;
  int64_t channels, pixels, block; /* [C/block][pixels][block]; other ranks: one pixel of block channels */
  const float *x, *a;              /* a: added to the result, or NULL */
  float *y;
} mask;

/* Returns a + count, or NULL if a is NULL. */
static const float *advance(const float *a, int64_t count)
{
  return a ? a + count : NULL;
}

/* Drops planes of single channels. Four channels share one block of random numbers. */
static void drop_planes(const mask *m, int64_t sample, const float *x, const float *a, float *y)
{
  const int64_t groups = cpu_divide_up(m->channels, 4);
  for (int64_t c = 0; c < m->channels; c += 4)
    m->simd->dropout_planes(&m->key, m->scale, sample, c / 4, groups, x + c * m->pixels, advance(a, c * m->pixels),
                            y + c * m->pixels, m->pixels, cpu_min(4, m->channels - c), m->pixels);
}

static void drop_sample(const mask *m, int64_t sample, const float *x, const float *a, float *y)
{
  const int64_t groups = cpu_divide_up(m->channels, 4), b = m->block;
  if (b == 1 && m->pixels > 1) {
    drop_planes(m, sample, x, a, y);
  } else if (b % 4 == 0) {
    for (int64_t c = 0, at = 0; c < m->channels; c += b, at += b * m->pixels)
      m->simd->dropout_run(&m->key, m->scale, sample, c / 4, b / 4, groups, x + at, advance(a, at), y + at,
                           b * m->pixels);
  } else {
    for (int64_t i = 0; i < m->pixels; i++)
      m->simd->dropout_run(&m->key, m->scale, sample, i * groups, 1, 1, x + i * b, advance(a, i * b), y + i * b, b);
  }
}

static void drop_samples(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const mask *m = arg;
  const int64_t count = m->channels * m->pixels, end = cpu_min((task + 1) * m->samples_per_task, m->samples);
  for (int64_t n = task * m->samples_per_task; n < end; n++)
    drop_sample(m, m->first_sample + n, m->x + n * count, advance(m->a, n * count), m->y + n * count);
}

/* Drops elements of x and adds a (unless NULL). Both are in the order of y. */
static brim_status drop(cpu_backend *b, const brim_launch *launch, const float *x, const float *a)
{
  const brim_tensor *y = launch->node->out[0];
  const brim_dropout_attr *attr = &launch->node->attr.dropout;
  const int64_t count = brim_shape_count(&y->shape);
  if (count == 0) return BRIM_OK;
  mask m = {.simd = b->simd, .scale = (float)(1 / (1 - attr->p)), .x = x, .a = a, .y = launch->out[0]};
  m.key = brim_dropout_key_make(launch->step->seed, launch->step->step, attr->stream, attr->p);
  m.first_sample = launch->step->first_sample;
  m.samples = y->shape.dim[0];
  m.channels = y->shape.rank == 4 ? y->shape.dim[1] : count / m.samples;
  m.pixels = count / m.samples / m.channels;
  m.block = y->shape.rank == 4 ? y->channel_block : m.channels;
  if (m.pixels == 1) m.block = m.channels; /* with one pixel all memory orders are equal */
  m.samples_per_task = cpu_max(1, PIECE / (count / m.samples));
  cpu_pool_run(b->pool, cpu_divide_up(m.samples, m.samples_per_task), drop_samples, &m);
  return BRIM_OK;
}

static CPU_RUN(dropout_run)
{
  return drop(self, launch, launch->in[0], NULL);
}

static CPU_RUN(dropout_add_run)
{
  const brim_node *node = launch->node;
  const float *x = cpu_layout_of(self, node->in[1], launch->in[1], node->out[0]->channel_block, launch->workspace);
  return drop(self, launch, x, launch->in[0]);
}

CPU_KERNEL(dropout) = {.op = "dropout", .prepare = cpu_follow_prepare, .run = dropout_run};
CPU_KERNEL(dropout_grad) = {.op = "dropout_grad", .prepare = cpu_follow_prepare, .run = dropout_run};
CPU_KERNEL(dropout_add) = {.op = "dropout+add", .prepare = cpu_binary_prepare, .run = dropout_add_run};
