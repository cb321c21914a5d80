/* Sums, differences, products and quotients of shapes that broadcast to each other; and repeat, the gradient of sums
 * over axes, a product of a number and a repeated operand.
 *
 * Equal shapes keep the memory order of the first operand; otherwise all tensors are plain. The result is processed in
 * rows, as long as possible, along which each operand either advances or is constant. */
#include "cpu.h"

#include "broadcast.h"

enum { PIECE = 16384 }; /* elements of a task: 64 KiB of each tensor */

typedef struct combination {
  cpu_walk walk;
  cpu_binary row;
  const float *operand[2];
  float *y;
  int64_t rows_per_task, pieces; /* a task is some rows, or a piece of one */
} combination;

static void combine_piece(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const combination *c = arg;
  const int64_t length = c->walk.length, at = task % c->pieces * PIECE;
  const int64_t first = task / c->pieces * c->rows_per_task, end = cpu_min(first + c->rows_per_task, c->walk.rows);
  for (int64_t r = first; r < end; r++) {
    int64_t offset[2];
    cpu_walk_offsets(&c->walk, r, offset);
    const float *a = c->operand[0] + offset[0] + (c->walk.advances[0] ? at : 0);
    const float *b = c->operand[1] + offset[1] + (c->walk.advances[1] ? at : 0);
    c->row(a, b, c->y + r * length + at, cpu_min(PIECE, length - at));
  }
}

static void combine(cpu_backend *b, combination *c, enum cpu_binary_op op)
{
  c->row = cpu_broadcast_table(b)->binary[op][!c->walk.advances[0]][!c->walk.advances[1]];
  c->pieces = cpu_divide_up(c->walk.length, PIECE);
  c->rows_per_task = cpu_max(1, PIECE / c->walk.length);
  cpu_pool_run(b->pool, cpu_divide_up(c->walk.rows, c->rows_per_task) * c->pieces, combine_piece, c);
}

static bool is_flat(const brim_node *node)
{
  return brim_shape_equal(&node->in[0]->shape, &node->in[1]->shape);
}

static CPU_PREPARE(combine_prepare)
{
  return is_flat(node) ? cpu_binary_prepare(self, program, node, need, state)
                       : cpu_plain_prepare(self, program, node, need, state);
}

static brim_status run(cpu_backend *b, const brim_launch *launch, enum cpu_binary_op op)
{
  const brim_node *node = launch->node;
  combination c = {.y = launch->out[0]};
  cpu_walk_init(&c.walk, &node->out[0]->shape, &node->in[0]->shape, &node->in[1]->shape);
  if (is_flat(node)) {
    c.operand[0] = launch->in[0];
    c.operand[1] = cpu_layout_of(b, node->in[1], launch->in[1], node->in[0]->channel_block, launch->workspace);
  } else {
    for (uint32_t i = 0; i < 2; i++) c.operand[i] = cpu_plain_input(b, launch, i);
  }
  combine(b, &c, op);
  return BRIM_OK;
}

static CPU_RUN(add_run)
{
  return run(self, launch, CPU_ADD);
}
CPU_KERNEL(add) = {.op = "add", .prepare = combine_prepare, .run = add_run};

static CPU_RUN(sub_run)
{
  return run(self, launch, CPU_SUB);
}
CPU_KERNEL(sub) = {.op = "sub", .prepare = combine_prepare, .run = sub_run};

static CPU_RUN(mul_run)
{
  return run(self, launch, CPU_MUL);
}
CPU_KERNEL(mul) = {.op = "mul", .prepare = combine_prepare, .run = mul_run};

static CPU_RUN(div_run)
{
  return run(self, launch, CPU_DIV);
}
CPU_KERNEL(div) = {.op = "div", .prepare = combine_prepare, .run = div_run};

static brim_status repeat(cpu_backend *b, const brim_launch *launch, bool is_mean)
{
  const brim_shape *x = &launch->node->out[0]->shape, one = {0};
  const brim_shape dy = cpu_reduced_shape(x, launch->node->attr.reduce.axes);
  const float factor = is_mean ? (float)(1 / ((double)brim_shape_count(x) / (double)brim_shape_count(&dy))) : 1;
  combination c = {.operand = {&factor, cpu_plain_input(b, launch, 0)}, .y = launch->out[0]};
  cpu_walk_init(&c.walk, x, &one, &dy);
  combine(b, &c, CPU_MUL);
  return BRIM_OK;
}

static CPU_RUN(sum_grad_run)
{
  return repeat(self, launch, false);
}
CPU_KERNEL(sum_grad) = {.op = "sum_grad", .prepare = cpu_plain_prepare, .run = sum_grad_run};

static CPU_RUN(mean_grad_run)
{
  return repeat(self, launch, true);
}
CPU_KERNEL(mean_grad) = {.op = "mean_grad", .prepare = cpu_plain_prepare, .run = mean_grad_run};
