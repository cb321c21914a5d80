/* linear and its gradients in bfloat16, where the processor multiplies it (gemm16.h): operands are read as they are
 * stored, sums are fp32, and a result is rounded once. Elsewhere small.c widens the tensors for linear.c.
 *
 * A fused activation reads the rounded product, so fusion changes no bit. The sums over samples of the weights'
 * gradient begin anew at each grain, so any micro-batch of whole grains gives the same bits. */
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "half.h"

typedef struct products {
  cpu_backend *backend;
  cpu_gemm16 gemm;
  float *sum;            /* [M,N]: added to; NULL: */
  uint16_t *y, *product; /* [M,N]: the result, and the product before the function unless NULL */
  const uint16_t *bias;  /* [N] or NULL */
  cpu_epilogue epilogue;
  int64_t rows_per_task, row_tasks;
  char *workspace;
} products;

enum {
  COLUMNS = CPU_GEMM16_COLUMNS,
  BLOCK_BYTES = CPU_GEMM16_ROWS * COLUMNS * sizeof(float),
  THREAD_BYTES = BLOCK_BYTES + CPU_GEMM16_SCRATCH * sizeof(uint16_t)
};

/* Sets a row of a block to its first values. */
static void begin_row(const products *p, int64_t m, int64_t n, int64_t count, float *c)
{
  if (p->sum)
    memcpy(c, p->sum + m * p->gemm.n + n, (size_t)count * sizeof *c);
  else if (p->bias)
    cpu_half_of(p->backend->isa, BRIM_DTYPE_BF16)->widen(p->bias + n, c, count);
  else
    memset(c, 0, (size_t)count * sizeof *c);
}

/* Stores a row of a block, of at most COLUMNS values. */
static void end_row(const products *p, int64_t m, int64_t n, int64_t count, float *c)
{
  const cpu_half *half = cpu_half_of(p->backend->isa, BRIM_DTYPE_BF16);
  const int64_t at = m * p->gemm.n + n;
  if (p->sum) {
    memcpy(p->sum + at, c, (size_t)count * sizeof *c);
    return;
  }
  if (p->epilogue.relu) p->backend->simd->relu(c, c, count);
  if (p->epilogue.function) {
    uint16_t rounded[COLUMNS], *product = p->product ? p->product + at : rounded;
    half->round(c, product, count);
    half->widen(product, c, count);
    p->epilogue.function(c, c, count, p->epilogue.factor);
  }
  half->round(c, p->y + at, count);
}

static void multiply_block(void *arg, int64_t task, int32_t thread)
{
  const products *p = arg;
  const int64_t m0 = task % p->row_tasks * p->rows_per_task, n0 = task / p->row_tasks * COLUMNS;
  const int64_t m1 = cpu_min(m0 + p->rows_per_task, p->gemm.m), n1 = cpu_min(n0 + COLUMNS, p->gemm.n);
  float *c = (float *)(void *)(p->workspace + (uint64_t)thread * THREAD_BYTES);
  for (int64_t m = m0; m < m1; m++) begin_row(p, m, n0, n1 - n0, c + (m - m0) * COLUMNS);
  p->backend->gemm16(&p->gemm, m0, m1, n0, n1, c, (uint16_t *)(void *)((char *)c + BLOCK_BYTES));
  for (int64_t m = m0; m < m1; m++) end_row(p, m, n0, n1 - n0, c + (m - m0) * COLUMNS);
}

/* Divides C into blocks: at least one for each thread, if it has enough rows. */
static void multiply(products *p)
{
  const int64_t column_tasks = cpu_divide_up(p->gemm.n, COLUMNS), threads = p->backend->threads;
  const int64_t tiles = cpu_divide_up(p->gemm.m, 2 * CPU_GEMM16_TILE);
  const int64_t tiles_per_task = cpu_divide_up(tiles, cpu_divide_up(threads, column_tasks));
  p->rows_per_task = cpu_min(CPU_GEMM16_ROWS, tiles_per_task * 2 * CPU_GEMM16_TILE);
  p->row_tasks = cpu_divide_up(p->gemm.m, p->rows_per_task);
  cpu_pool_run(p->backend->pool, p->row_tasks * column_tasks, multiply_block, p);
}

static bool is_plain16(const brim_tensor *t)
{
  return t->dtype == BRIM_DTYPE_BF16 && t->channel_block == 1;
}

/* Whether all inputs are in bfloat16, in plain order. */
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
  need->workspace_bytes += (uint64_t)((cpu_backend *)self)->threads * THREAD_BYTES;
  return BRIM_OK;
}

/* With or without a fused activation. */
static CPU_RUN(linear16_run)
{
  const brim_node *n = launch->node;
  const brim_shape *w = &n->in[1]->shape;
  products p = {.backend = self,
                .gemm = {.m = cpu_rows(n->in[0]),
                         .n = w->dim[0],
                         .k = w->dim[1],
                         .unit = w->dim[1],
                         .a = launch->in[0],
                         .lda = w->dim[1],
                         .b = launch->in[1],
                         .ldb = w->dim[1],
                         .b_transposed = true},
                .y = launch->out[0],
                .product = n->out_count > 1 ? launch->out[1] : NULL,
                .bias = n->in_count > 2 ? launch->in[2] : NULL,
                .epilogue = cpu_epilogue_of(self, n),
                .workspace = launch->workspace};
  multiply(&p);
  return BRIM_OK;
}

static CPU_RUN(linear16_grad_input_run)
{
  const brim_shape *w = &launch->node->in[1]->shape;
  products p = {.backend = self,
                .gemm = {.m = cpu_rows(launch->node->in[0]),
                         .n = w->dim[1],
                         .k = w->dim[0],
                         .unit = w->dim[0],
                         .a = launch->in[0],
                         .lda = w->dim[0],
                         .b = launch->in[1],
                         .ldb = w->dim[1]},
                .y = launch->out[0],
                .workspace = launch->workspace};
  multiply(&p);
  return BRIM_OK;
}

/* dbias: a task has some columns, and adds up the rows of each in their order. */
typedef struct column_sums {
  const cpu_backend *backend;
  const uint16_t *dy;
  float *sum;
  int64_t rows, columns;
} column_sums;

enum { COLUMNS_PER_TASK = 256 };

static void sum_columns(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const column_sums *v = arg;
  const int64_t at = task * COLUMNS_PER_TASK, count = cpu_min(COLUMNS_PER_TASK, v->columns - at);
  const cpu_half *half = cpu_half_of(v->backend->isa, BRIM_DTYPE_BF16);
  float row[COLUMNS_PER_TASK];
  for (int64_t n = 0; n < v->rows; n++) {
    half->widen(v->dy + n * v->columns + at, row, count);
    v->backend->simd->add(v->sum + at, row, v->sum + at, count);
  }
}

/* Sets the rows of a grain, at whose multiples sums begin anew. */
static CPU_PREPARE(linear16_grad_weight_prepare)
{
  const int64_t rows = cpu_rows(node->in[0]);
  int64_t *unit = brim_try_calloc(1, sizeof *unit);
  if (!unit) return brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s'", node->name);
  *unit = program->grain > 0 && rows % program->batch == 0 ? rows / program->batch * program->grain : rows;
  *state = unit;
  return linear16_prepare(self, program, node, need, state);
}

static void linear16_grad_weight_release(void *self, void *state)
{
  (void)self;
  free(state);
}

static CPU_RUN(linear16_grad_weight_run)
{
  cpu_backend *b = self;
  const brim_shape *w = &launch->node->out[0]->shape;
  const int64_t rows = cpu_rows(launch->node->in[0]), outputs = w->dim[0];
  column_sums sums = {b, launch->in[1], launch->node->out_count > 1 ? launch->out[1] : NULL, rows, outputs};
  products p = {.backend = b,
                .gemm = {.m = outputs,
                         .n = w->dim[1],
                         .k = rows,
                         .unit = *(const int64_t *)launch->state,
                         .a = launch->in[1],
                         .lda = outputs,
                         .a_transposed = true,
                         .b = launch->in[0],
                         .ldb = w->dim[1]},
                .sum = launch->out[0],
                .workspace = launch->workspace};
  if (sums.sum) cpu_pool_run(b->pool, cpu_divide_up(outputs, COLUMNS_PER_TASK), sum_columns, &sums);
  multiply(&p);
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
CPU_KERNEL16(linear16_grad_input) = {
    {.op = "linear_grad_input", .prepare = linear16_prepare, .run = linear16_grad_input_run}, makes_activation};
CPU_KERNEL16(linear16_grad_weight) = {{.op = "linear_grad_weight",
                                       .prepare = linear16_grad_weight_prepare,
                                       .run = linear16_grad_weight_run,
                                       .release = linear16_grad_weight_release},
                                      adds_to_gradient};
