/* linear and its gradients in bfloat16, on processors that multiply it (gemm16.h). Operands are read as they are
 * stored, and a result is rounded once. On other processors small.c converts the tensors to fp32 for linear.c.
 *
 * A fused activation reads the rounded product, so fusion changes no bit. In linear+add and linear_grad_input+add each
 * sum begins with the value to add to, and only the total is rounded. For the weights' gradient, the sum over samples
 * starts anew at each grain, so any micro-batch of whole grains gives the same bits. */
#include <string.h>

#include "cpu.h"

static bool is_plain16(const brim_tensor *t)
{
  return t->dtype == BRIM_DTYPE_BF16 && t->channel_block == 1;
}

/* Returns whether all inputs are in bfloat16 and in plain order. */
static bool serves(const cpu_backend *b, const brim_node *n)
{
  for (uint32_t i = 0; i < n->in_count; i++)
    if (!is_plain16(n->in[i])) return false;
  return b->gemm16 != NULL;
}
static bool makes_activation(const cpu_backend *b, const brim_node *n)
{
  return serves(b, n) && is_plain16(n->out[0]);
}
static bool adds_to_gradient(const cpu_backend *b, const brim_node *n)
{
  return serves(b, n) && n->out[0]->dtype == BRIM_DTYPE_F32;
}

static CPU_PREPARE(linear16_prepare)
{
  (void)program;
  (void)node;
  (void)state;
  need->workspace_bytes += cpu_multiply16_bytes(self);
  return BRIM_OK;
}

/* Runs linear with or without a fused activation. */
static CPU_RUN(linear16_run)
{
  const brim_node *n = launch->node;
  const brim_shape *w = &n->in[1]->shape;
  cpu_products16 p = {.gemm = {.m = cpu_rows(n->in[0]),
                               .n = w->dim[0],
                               .k = w->dim[1],
                               .unit = w->dim[1],
                               .a = launch->in[0],
                               .lda = w->dim[1],
                               .b = launch->in[1],
                               .ldb = w->dim[1],
                               .b_transposed = true},
                      .y = launch->out[0],
                      .ldc = w->dim[0],
                      .kept = n->out_count > 1 ? launch->out[1] : NULL,
                      .bias = n->in_count > 2 ? launch->in[2] : NULL,
                      .epilogue = cpu_epilogue_of(self, n)};
  cpu_multiply16(self, &p, launch->workspace);
  return BRIM_OK;
}

/* Copies in[0] to the result, unless they share memory; the product is then added to it. */
static void copy_first(const brim_launch *launch)
{
  if (launch->in[0] != launch->out[0]) memcpy(launch->out[0], launch->in[0], launch->node->out[0]->bytes);
}

static CPU_RUN(linear16_add_run)
{
  const brim_node *n = launch->node;
  const brim_shape *w = &n->in[2]->shape, *y = &n->out[0]->shape;
  cpu_products16 p = {.gemm = {.m = cpu_rows(n->in[1]),
                               .n = w->dim[0],
                               .k = w->dim[1],
                               .unit = w->dim[1],
                               .a = launch->in[1],
                               .lda = w->dim[1],
                               .b = launch->in[2],
                               .ldb = w->dim[1],
                               .b_transposed = true},
                      .y = (uint16_t *)launch->out[0] + n->attr.linear.first,
                      .adds = true,
                      .ldc = y->dim[y->rank - 1]};
  copy_first(launch);
  cpu_multiply16(self, &p, launch->workspace);
  return BRIM_OK;
}

/* The inputs from `first` on are dy and weight. With `adds`, the sums of dx begin with in[0]. */
static brim_status find_dx(cpu_backend *b, const brim_launch *launch, uint32_t first, bool adds)
{
  const brim_shape *w = &launch->node->in[first + 1]->shape;
  cpu_products16 p = {.gemm = {.m = cpu_rows(launch->node->in[first]),
                               .n = w->dim[1],
                               .k = w->dim[0],
                               .unit = w->dim[0],
                               .a = launch->in[first],
                               .lda = w->dim[0],
                               .b = launch->in[first + 1],
                               .ldb = w->dim[1]},
                      .y = launch->out[0],
                      .adds = adds,
                      .ldc = w->dim[1]};
  if (adds) copy_first(launch);
  cpu_multiply16(b, &p, launch->workspace);
  return BRIM_OK;
}

static CPU_RUN(linear16_grad_input_run)
{
  return find_dx(self, launch, 0, false);
}

static CPU_RUN(linear16_grad_input_add_run)
{
  return find_dx(self, launch, 1, true);
}

static CPU_PREPARE(linear16_grad_weight_prepare)
{
  need->workspace_bytes += cpu_multiply16_bytes(self);
  need->overwrites = 1;
  return cpu_grain_rows_prepare(self, program, node, need, state);
}

static CPU_RUN(linear16_grad_weight_run)
{
  cpu_backend *b = self;
  const brim_shape *w = &launch->node->out[0]->shape;
  const int64_t rows = cpu_rows(launch->node->in[0]), outputs = w->dim[0];
  cpu_products16 p = {.gemm = {.m = outputs,
                               .n = w->dim[1],
                               .k = rows,
                               .unit = *(const int64_t *)launch->state,
                               .a = launch->in[1],
                               .lda = outputs,
                               .a_transposed = true,
                               .b = launch->in[0],
                               .ldb = w->dim[1]},
                      .sum = launch->out[0],
                      .adds = cpu_adds(launch, 0),
                      .ldc = w->dim[1]};
  if (launch->node->out_count > 1) {
    cpu_begin_sum(launch, 1);
    cpu_add_rows(b, true, launch->in[1], rows, outputs, launch->out[1]);
  }
  cpu_multiply16(b, &p, launch->workspace);
  return BRIM_OK;
}

#define LINEAR16(id, name)                                                                                             \
  CPU_KERNEL16(id) = {{.op = name, .prepare = linear16_prepare, .run = linear16_run}, makes_activation}
LINEAR16(linear16, "linear");
LINEAR16(linear16_relu, "linear+relu");
LINEAR16(linear16_leaky_relu, "linear+leaky_relu");
LINEAR16(linear16_sigmoid, "linear+sigmoid");
LINEAR16(linear16_tanh, "linear+tanh");
LINEAR16(linear16_gelu, "linear+gelu");
LINEAR16(linear16_silu, "linear+silu");
CPU_KERNEL16(linear16_add) = {{.op = "linear+add", .prepare = linear16_prepare, .run = linear16_add_run},
                              makes_activation};
CPU_KERNEL16(linear16_grad_input_add) = {
    {.op = "linear_grad_input+add", .prepare = linear16_prepare, .run = linear16_grad_input_add_run}, makes_activation};
CPU_KERNEL16(linear16_grad_input) = {
    {.op = "linear_grad_input", .prepare = linear16_prepare, .run = linear16_grad_input_run}, makes_activation};
CPU_KERNEL16(linear16_grad_weight) = {{.op = "linear_grad_weight",
                                       .prepare = linear16_grad_weight_prepare,
                                       .run = linear16_grad_weight_run,
                                       .release = cpu_grain_rows_release},
                                      adds_to_gradient};
