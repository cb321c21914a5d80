/* relu and its gradient: flat loops over memory in any order, in pieces of a fixed size. */
#include "cpu.h"

enum { PIECE = 32768 }; /* elements per task: 128 KiB of each tensor */

typedef struct flat {
  const cpu_simd *simd;
  const float *a, *b;
  float *y;
  int64_t count;
} flat;

static void relu_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const flat *v = arg;
  const int64_t at = task * PIECE;
  v->simd->relu(v->a + at, v->y + at, cpu_min(PIECE, v->count - at));
}

static void relu_grad_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const flat *v = arg;
  const int64_t at = task * PIECE;
  v->simd->relu_grad(v->a + at, v->b + at, v->y + at, cpu_min(PIECE, v->count - at));
}

CPU_PREPARE(cpu_follow_prepare)
{
  (void)self;
  (void)program;
  (void)need;
  (void)state;
  for (uint32_t i = 0; i < node->out_count; i++) cpu_layout_set(node->out[i], node->in[0]->channel_block);
  return BRIM_OK;
}

CPU_PREPARE(cpu_binary_prepare)
{
  BRIM_TRY(cpu_follow_prepare(self, program, node, need, state));
  need->workspace_bytes = cpu_layout_bytes(node->in[1], node->in[0]->channel_block);
  return BRIM_OK;
}

static brim_status run_flat(cpu_backend *b, const brim_launch *launch, cpu_task_fn piece)
{
  const brim_node *node = launch->node;
  flat v = {.simd = b->simd, .a = launch->in[0], .y = launch->out[0]};
  v.count = brim_shape_count(&node->out[0]->shape);
  if (node->in_count > 1)
    v.b = cpu_layout_of(b, node->in[1], launch->in[1], node->in[0]->channel_block, launch->workspace);
  cpu_pool_run(b->pool, cpu_divide_up(v.count, PIECE), piece, &v);
  return BRIM_OK;
}

static CPU_RUN(relu_run)
{
  return run_flat(self, launch, relu_piece);
}

static CPU_RUN(relu_grad_run)
{
  return run_flat(self, launch, relu_grad_piece);
}

CPU_KERNEL(relu) = {.op = "relu", .prepare = cpu_follow_prepare, .run = relu_run};
CPU_KERNEL(relu_grad) = {.op = "relu_grad", .prepare = cpu_binary_prepare, .run = relu_grad_run};
