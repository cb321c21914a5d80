/* Rotary position embedding and its gradient, which turns in the opposite direction. The cosine and sine of each angle
 * are computed once for each position, in double precision, and used for all samples and heads: a task has some
 * positions of all samples. If the node has places, a table of cosines and sines for the places 0 to T - 1 is computed
 * first, and a task has some rows. Places beyond the table occur only with a cache of keys; the task then computes
 * their angles itself. */
#include <math.h>

#include "brim/rotary.h"
#include "cpu.h"
#include "simd_attention.h"

enum { POSITIONS = 8 }; /* positions per task */

typedef struct rotary {
  const cpu_attention_simd *simd;
  const brim_rotary_attr *attr;
  int64_t samples, positions, size; /* N, T, D */
  double direction;
  const float *x;
  const int32_t *places; /* [N,T], or NULL */
  float *y;
  double *frequency;      /* the frequency of each pair */
  float *table, *scratch; /* cosines and sines of all pairs: table for each place, scratch for each thread */
} rotary;

static bool has_places(const brim_node *node)
{
  return node->in_count > 1;
}
static uint64_t frequency_bytes(const brim_node *node)
{
  return cpu_aligned((uint64_t)node->attr.rotary.dims / 2 * sizeof(double));
}
/* Returns the bytes of a cosine and a sine for each pair, at `count` positions. */
static uint64_t turn_bytes(const brim_node *node, int64_t count)
{
  return (uint64_t)count * cpu_aligned((uint64_t)node->attr.rotary.dims * sizeof(float));
}

static CPU_PREPARE(rotary_prepare)
{
  (void)program;
  (void)state;
  const cpu_backend *b = self;
  need->workspace_bytes = frequency_bytes(node) + turn_bytes(node, b->threads);
  if (has_places(node)) need->workspace_bytes += turn_bytes(node, node->in[0]->shape.dim[1]);
  return BRIM_OK;
}

/* Returns the cosines of an entry of `of`; the sines follow them. */
static float *turn_at(const rotary *v, float *of, int64_t index)
{
  return of + (uint64_t)index * (cpu_aligned((uint64_t)v->attr->dims * sizeof(float)) / sizeof(float));
}

static void find_turn(const rotary *v, int64_t place, float *turn)
{
  const int64_t pairs = v->attr->dims / 2;
  for (int64_t i = 0; i < pairs; i++) {
    const double angle = (double)place * v->frequency[i];
    turn[i] = (float)(v->attr->amplitude * cos(angle));
    turn[pairs + i] = (float)(v->attr->amplitude * v->direction * sin(angle));
  }
}

static void turn_row(const rotary *v, int64_t row, const float *turn)
{
  const int64_t dims = v->attr->dims, at = row * v->attr->heads * v->size;
  const int64_t turned = v->attr->turned > 0 ? v->attr->turned : v->attr->heads;
  const float *x = v->x + at;
  float *y = v->y + at;
  for (int64_t h = 0; h < turned; h++, x += v->size, y += v->size) {
    (v->attr->interleaved ? v->simd->turn_interleaved : v->simd->turn)(x, y, turn, turn + dims / 2, dims);
    if (x != y) memcpy(y + dims, x + dims, (size_t)(v->size - dims) * sizeof *y);
  }
  if (x != y) memcpy(y, x, (size_t)((v->attr->heads - turned) * v->size) * sizeof *y);
}

static void turn_positions(void *arg, int64_t task, int32_t thread)
{
  const rotary *v = arg;
  const int64_t end = cpu_min((task + 1) * POSITIONS, v->positions);
  float *turn = turn_at(v, v->scratch, thread);
  for (int64_t t = task * POSITIONS; t < end; t++) {
    find_turn(v, t, turn);
    for (int64_t n = 0; n < v->samples; n++) turn_row(v, n * v->positions + t, turn);
  }
}

static void fill_table(void *arg, int64_t task, int32_t thread)
{
  const rotary *v = arg;
  const int64_t end = cpu_min((task + 1) * POSITIONS, v->positions);
  (void)thread;
  for (int64_t p = task * POSITIONS; p < end; p++) find_turn(v, p, turn_at(v, v->table, p));
}

static void turn_places(void *arg, int64_t task, int32_t thread)
{
  const rotary *v = arg;
  const int64_t end = cpu_min((task + 1) * POSITIONS, v->samples * v->positions);
  for (int64_t row = task * POSITIONS; row < end; row++) {
    const int64_t place = v->places[row];
    const bool is_in = place >= 0 && place < v->positions;
    float *turn = is_in ? turn_at(v, v->table, place) : turn_at(v, v->scratch, thread);
    if (!is_in) find_turn(v, place, turn);
    turn_row(v, row, turn);
  }
}

static brim_status turn_all(cpu_backend *b, const brim_launch *launch, double direction)
{
  const brim_node *node = launch->node;
  const brim_shape *x = &node->in[0]->shape;
  char *workspace = launch->workspace;
  rotary v = {.simd = cpu_attention_simd_of(b->isa),
              .attr = &node->attr.rotary,
              .samples = x->dim[0],
              .positions = x->dim[1],
              .size = x->dim[2] / node->attr.rotary.heads,
              .direction = direction,
              .x = launch->in[0],
              .places = has_places(node) ? launch->in[1] : NULL,
              .y = launch->out[0],
              .frequency = (double *)(void *)workspace,
              .scratch = (float *)(void *)(workspace + frequency_bytes(node)),
              .table = (float *)(void *)(workspace + frequency_bytes(node) + turn_bytes(node, b->threads))};
  for (int64_t i = 0; i < v.attr->dims / 2; i++) v.frequency[i] = brim_rotary_frequency(v.attr, i);
  if (v.places) {
    cpu_pool_run(b->pool, cpu_divide_up(v.positions, POSITIONS), fill_table, &v);
    cpu_pool_run(b->pool, cpu_divide_up(v.samples * v.positions, POSITIONS), turn_places, &v);
  } else {
    cpu_pool_run(b->pool, cpu_divide_up(v.positions, POSITIONS), turn_positions, &v);
  }
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
