/* Operations of a federated round, in pieces of fixed size, on all threads. plugins/backend/reference/federate.c
 * defines the operations; the vector code is in simd_federate.c. */
#include <string.h>

#include "cpu.h"
#include "simd_federate.h"

enum { PIECE = 16384 }; /* elements per task: 64 KiB of an fp32 tensor */

typedef struct federated {
  const cpu_federate_simd *simd;
  const brim_launch *launch;
  int64_t count;
} federated;

static brim_status run_pieces(cpu_backend *b, const brim_launch *launch, cpu_task_fn piece)
{
  static const cpu_federate_simd *const tables[] = {CPU_OF_ISAS(&, cpu_federate)};
  federated f = {tables[b->isa], launch, brim_shape_count(&launch->node->in[0]->shape)};
  cpu_pool_run(b->pool, cpu_divide_up(f.count, PIECE), piece, &f);
  return BRIM_OK;
}

static void adopt_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const federated *f = arg;
  const int64_t at = task * PIECE;
  memcpy((float *)f->launch->out[0] + at, (const float *)f->launch->in[0] + at,
         (size_t)cpu_min(PIECE, f->count - at) * sizeof(float));
}

static CPU_RUN(adopt_run)
{
  return run_pieces(self, launch, adopt_piece);
}

/* Writes the sum and the maximum of each piece to the workspace. */
static void distance_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const federated *f = arg;
  const int64_t at = task * PIECE;
  f->simd->distance((const float *)f->launch->in[0] + at, (const float *)f->launch->in[1] + at,
                    (double *)f->launch->workspace + 2 * task, cpu_min(PIECE, f->count - at));
}

static CPU_PREPARE(distance_prepare)
{
  (void)self, (void)program, (void)state;
  const int64_t pieces = cpu_divide_up(brim_shape_count(&node->in[0]->shape), PIECE);
  need->workspace_bytes = (uint64_t)pieces * 2 * sizeof(double);
  return BRIM_OK;
}

static CPU_RUN(distance_run)
{
  const double *before = launch->node->in_count > 2 ? launch->in[2] : (const double[]){0, 0};
  const double *piece = launch->workspace;
  double sum = before[0], largest = before[1], *out = launch->out[0];
  BRIM_TRY(run_pieces(self, launch, distance_piece));
  for (int64_t i = 0; i < cpu_divide_up(brim_shape_count(&launch->node->in[0]->shape), PIECE); i++) {
    sum += piece[2 * i];
    if (piece[2 * i + 1] > largest) largest = piece[2 * i + 1];
  }
  out[0] = sum;
  out[1] = largest;
  return BRIM_OK;
}

static void steer_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const federated *f = arg;
  const brim_launch *l = f->launch;
  const int64_t at = task * PIECE;
  const float *w = (const float *)l->in[0] + at, *g = (const float *)l->in[1] + at, *old = (const float *)l->in[2] + at;
  float *gradient = (float *)l->out[0] + at;
  if (l->node->in_count == 3)
    f->simd->steer(l->step->federated, w, g, old, gradient, cpu_min(PIECE, f->count - at));
  else
    f->simd->steer_by(l->step->federated, l->step->control, w, g, old, (const float *)l->in[3] + at, gradient,
                      cpu_min(PIECE, f->count - at));
}

static CPU_RUN(steer_run)
{
  return run_pieces(self, launch, steer_piece);
}

static void fold_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const federated *f = arg;
  const brim_launch *l = f->launch;
  const int64_t at = task * PIECE;
  f->simd->fold(l->step->federated, (const float *)l->in[0] + at, (const float *)l->in[1] + at,
                (const double *)l->in[2] + at, (double *)l->out[0] + at, cpu_min(PIECE, f->count - at));
}

static CPU_RUN(fold_run)
{
  return run_pieces(self, launch, fold_piece);
}

static void serve_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const federated *f = arg;
  const brim_launch *l = f->launch;
  const int64_t at = task * PIECE;
  f->simd->serve(l->step->federated, (const double *)l->in[0] + at,
                 l->node->in_count > 1 ? (const float *)l->in[1] + at : NULL, (float *)l->out[0] + at,
                 cpu_min(PIECE, f->count - at));
}

static CPU_RUN(serve_run)
{
  return run_pieces(self, launch, serve_piece);
}

CPU_KERNEL(adopt) = {.op = "adopt", .run = adopt_run};
CPU_KERNEL(distance) = {.op = "distance", .prepare = distance_prepare, .run = distance_run};
CPU_KERNEL(steer) = {.op = "steer", .run = steer_run};
CPU_KERNEL(fold) = {.op = "fold", .run = fold_run};
CPU_KERNEL(serve) = {.op = "serve", .run = serve_run};
