/* Rotary position embedding and its gradient, which turns back. A task has some positions of all samples: the angles'
 * cosines and sines are computed once for each position, in double precision, and used for every sample and head. */
#include <math.h>

#include "brim/rotary.h"
#include "cpu.h"
#include "simd_attention.h"

enum { POSITIONS = 8 }; /* of a task */

typedef struct rotary {
  const cpu_attention_simd *simd;
  const brim_rotary_attr *attr;
  int64_t samples, positions, size; /* N, T, D */
  double direction;
  const float *x;
  float *y;
  char *workspace;
} rotary;

/* A thread's scratch: a cosine and a sine for each pair. */
static uint64_t scratch_bytes(const brim_node *node)
{
  return cpu_aligned((uint64_t)node->attr.rotary.dims * sizeof(float));
}

static CPU_PREPARE(rotary_prepare)
{
  (void)program;
  (void)state;
  const cpu_backend *b = self;
  need->workspace_bytes = (uint64_t)b->threads * scratch_bytes(node);
  return BRIM_OK;
}

static void turn_row(const rotary *v, const float *x, float *y, const float *cosine, const float *sine)
{
  const int64_t dims = v->attr->dims;
  for (int64_t h = 0; h < v->attr->heads; h++, x += v->size, y += v->size) {
    (v->attr->interleaved ? v->simd->turn_interleaved : v->simd->turn)(x, y, cosine, sine, dims);
    if (x != y) memcpy(y + dims, x + dims, (size_t)(v->size - dims) * sizeof *y);
  }
}

static void turn_positions(void *arg, int64_t task, int32_t thread)
{
  const rotary *v = arg;
  const int64_t pairs = v->attr->dims / 2, row = v->attr->heads * v->size;
  const int64_t end = cpu_min((task + 1) * POSITIONS, v->positions);
  float *cosine = (float *)(void *)(v->workspace + (uint64_t)thread * cpu_aligned((uint64_t)pairs * 2 * sizeof(float)));
  float *sine = cosine + pairs;
  for (int64_t t = task * POSITIONS; t < end; t++) {
    for (int64_t i = 0; i < pairs; i++) {
      const double angle = (double)t * brim_rotary_frequency(v->attr, i);
      cosine[i] = (float)(v->attr->amplitude * cos(angle));
      sine[i] = (float)(v->attr->amplitude * v->direction * sin(angle));
    }
    for (int64_t n = 0; n < v->samples; n++) {
      const int64_t at = (n * v->positions + t) * row;
      turn_row(v, v->x + at, v->y + at, cosine, sine);
    }
  }
}

static brim_status turn_all(cpu_backend *b, const brim_launch *launch, double direction)
{
  const brim_shape *x = &launch->node->in[0]->shape;
  rotary v = {.simd = cpu_attention_simd_of(b->isa),
              .attr = &launch->node->attr.rotary,
              .samples = x->dim[0],
              .positions = x->dim[1],
              .size = x->dim[2] / launch->node->attr.rotary.heads,
              .direction = direction,
              .x = launch->in[0],
              .y = launch->out[0],
              .workspace = launch->workspace};
  cpu_pool_run(b->pool, cpu_divide_up(v.positions, POSITIONS), turn_positions, &v);
  return BRIM_OK;
}

static CPU_RUN(rotary_run)
{
  return turn_all(self, launch, 1);
}
static CPU_RUN(rotary_grad_run)
{
  return turn_all(self, launch, -1);
}

CPU_KERNEL(rotary) = {.op = "rotary", .prepare = rotary_prepare, .run = rotary_run};
CPU_KERNEL(rotary_grad) = {.op = "rotary_grad", .prepare = rotary_prepare, .run = rotary_grad_run};
