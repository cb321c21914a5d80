/* linear and its gradients: y = x W^T + b, dx = dy W, dW += dy^T x, db += sum of dy, with x [rows,F], W [O,F]; rows are
 * all leading dimensions.
 *
 * Each element of a result adds its products in one fixed order: features for y, outputs for dx, and for dW
 * sample after sample on top of what is there. So a micro-batch of any size, cut into any tasks, gives
 * the same bits, without a second buffer for a grain. */
#include "cpu.h"

typedef struct product {
  cpu_backend *backend;
  cpu_gemm gemm;
  int64_t rows_per_task, columns_per_task, row_tasks;
  char *workspace;
} product;

static void multiply_block(void *arg, int64_t task, int32_t thread)
{
  const product *p = arg;
  const cpu_gemm *g = &p->gemm;
  const cpu_simd *simd = p->backend->simd;
  const int64_t m = task % p->row_tasks * p->rows_per_task, n = task / p->row_tasks * p->columns_per_task;
  float *scratch = (float *)(void *)(p->workspace + (uint64_t)thread * cpu_aligned(simd->gemm_scratch_bytes));
  simd->gemm(g, m, cpu_min(m + p->rows_per_task, g->m), n, cpu_min(n + p->columns_per_task, g->n), scratch);
}

/* Cuts C into blocks of rows that are packed at once and up to eight panels of columns; fewer when there
 * would be too few blocks for the threads. */
static brim_status multiply(cpu_backend *b, const brim_launch *launch, const cpu_gemm *g)
{
  if (g->m == 0 || g->n == 0) return BRIM_OK;
  product p = {.backend = b, .gemm = *g, .workspace = launch->workspace};
  const int64_t panels = cpu_divide_up(g->n, b->simd->gemm_columns);
  p.rows_per_task = b->simd->gemm_rows_max;
  if (panels * cpu_divide_up(g->m, p.rows_per_task) < b->threads) {
    const int64_t tiles = cpu_divide_up(g->m, b->simd->gemm_rows);
    p.rows_per_task = cpu_divide_up(tiles, cpu_divide_up(b->threads, panels)) * b->simd->gemm_rows;
  }
  p.row_tasks = cpu_divide_up(g->m, p.rows_per_task);
  p.columns_per_task = cpu_max(1, cpu_min(8, panels * p.row_tasks / b->threads)) * b->simd->gemm_columns;
  cpu_pool_run(b->pool, p.row_tasks * cpu_divide_up(g->n, p.columns_per_task), multiply_block, &p);
  return BRIM_OK;
}

static CPU_PREPARE(linear_prepare)
{
  (void)program;
  (void)node;
  (void)state;
  const cpu_backend *b = self;
  need->workspace_bytes = (uint64_t)b->threads * cpu_aligned(b->simd->gemm_scratch_bytes);
  return BRIM_OK;
}

static CPU_RUN(linear_run)
{
  const brim_shape *w = &launch->node->in[1]->shape;
  const cpu_gemm g = {.m = cpu_rows(launch->node->in[0]),
                      .n = w->dim[0],
                      .k = w->dim[1],
                      .a = launch->in[0],
                      .lda = w->dim[1],
                      .b = launch->in[1],
                      .ldb = w->dim[1],
                      .b_transposed = true,
                      .c = launch->out[0],
                      .ldc = w->dim[0],
                      .bias = launch->node->in_count > 2 ? launch->in[2] : NULL};
  return multiply(self, launch, &g);
}

static CPU_RUN(linear_grad_input_run)
{
  const brim_shape *w = &launch->node->in[1]->shape;
  const cpu_gemm g = {.m = cpu_rows(launch->node->in[0]),
                      .n = w->dim[1],
                      .k = w->dim[0],
                      .a = launch->in[0],
                      .lda = w->dim[0],
                      .b = launch->in[1],
                      .ldb = w->dim[1],
                      .c = launch->out[0],
                      .ldc = w->dim[1]};
  return multiply(self, launch, &g);
}

static CPU_RUN(linear_grad_weight_run)
{
  const cpu_backend *b = self;
  const brim_shape *w = &launch->node->out[0]->shape;
  const int64_t rows = cpu_rows(launch->node->in[0]), outputs = w->dim[0];
  const float *dy = launch->in[1];
  float *dbias = launch->node->out_count > 1 ? launch->out[1] : NULL;
  const cpu_gemm g = {.m = outputs,
                      .n = w->dim[1],
                      .k = rows,
                      .a = dy,
                      .lda = outputs,
                      .a_transposed = true,
                      .b = launch->in[0],
                      .ldb = w->dim[1],
                      .c = launch->out[0],
                      .ldc = w->dim[1],
                      .accumulate = true};
  for (int64_t n = 0; dbias && n < rows; n++) b->simd->add(dbias, dy + n * outputs, dbias, outputs);
  return multiply(self, launch, &g);
}

BRIM_KERNEL(linear) = {.op = "linear", .prepare = linear_prepare, .run = linear_run};
BRIM_KERNEL(linear_grad_input) = {.op = "linear_grad_input", .prepare = linear_prepare, .run = linear_grad_input_run};
BRIM_KERNEL(linear_grad_weight) = {
    .op = "linear_grad_weight", .prepare = linear_prepare, .run = linear_grad_weight_run};
