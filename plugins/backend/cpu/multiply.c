/* Products of matrices on all threads, for several operations, and matmul.
 *
 * A product is divided into blocks of C. An element of C is the same chain of sums in any division, so the division may
 * depend on the number of threads. */
#include "cpu.h"

/* Applies the fused function to a block of C right after the block is computed, while it is in the cache. */
static void apply_epilogue(const cpu_products *p, int64_t m0, int64_t m1, int64_t n0, int64_t n1)
{
  const int64_t step = p->gemm.ldc;
  for (int64_t m = m0; m < m1; m++) p->function(p->gemm.c + m * step + n0, p->y + m * step + n0, n1 - n0, p->factor);
}

typedef struct product {
  cpu_backend *backend;
  cpu_products products;
  int64_t rows_per_task, columns_per_task, row_tasks, tasks; /* tasks: blocks of one product */
  char *workspace;
} product;

static void multiply_block(void *arg, int64_t task, int32_t thread)
{
  const product *p = arg;
  const cpu_simd *simd = p->backend->simd;
  const int64_t entry = task / p->tasks, block = task % p->tasks;
  cpu_gemm g = p->products.gemm;
  g.a += entry * p->products.step_a;
  g.b += entry * p->products.step_b;
  g.c += entry * p->products.step_c;
  const int64_t m = block % p->row_tasks * p->rows_per_task, n = block / p->row_tasks * p->columns_per_task;
  float *scratch = (float *)(void *)(p->workspace + (uint64_t)thread * cpu_aligned(simd->gemm_scratch_bytes));
  const int64_t m_end = cpu_min(m + p->rows_per_task, g.m), n_end = cpu_min(n + p->columns_per_task, g.n);
  simd->gemm(&g, m, m_end, n, n_end, scratch);
  if (p->products.function) apply_epilogue(&p->products, m, m_end, n, n_end);
}

uint64_t cpu_multiply_bytes(const cpu_backend *b)
{
  return (uint64_t)b->threads * cpu_aligned(b->simd->gemm_scratch_bytes);
}

enum {
  PANELS_MAX = 24,   /* maximum width of a block, in panels */
  PACKED_ROW = 32,   /* packing an element of A takes as long as multiplying it with 32 columns */
  PACKED_COLUMN = 12 /* packing an element of B takes as long as multiplying it with 12 rows */
};

/* Returns the columns of a block for which the product should take the least time. Wide blocks pack A less often. Many
 * blocks divide the work more evenly: at the end, threads wait for at most one block. */
static int64_t best_columns(const cpu_gemm *g, int64_t rows, int64_t row_tasks, int64_t threads, int64_t panel)
{
  const int64_t panels = cpu_divide_up(g->n, panel);
  int64_t best = panel, least = INT64_MAX;
  for (int64_t columns = panel; columns <= panel * cpu_min(PANELS_MAX, panels); columns += panel) {
    const int64_t tasks = row_tasks * cpu_divide_up(g->n, columns);
    const int64_t block = rows * columns + PACKED_ROW * rows + PACKED_COLUMN * columns;
    /* The time in quarters of a block's time. The 1 stands for the wait for the last blocks. */
    const int64_t time = (4 * cpu_divide_up(tasks, threads) + 1) * block;
    if (time > least) continue;
    least = time;
    best = columns;
  }
  return best;
}

/* Divides C into blocks of nearly the same number of rows, each of at most as many rows as gemm() packs at once. */
void cpu_multiply(cpu_backend *b, const cpu_products *products, void *workspace)
{
  const cpu_gemm *g = &products->gemm;
  if (g->m == 0 || g->n == 0 || products->count == 0) return;
  product p = {.backend = b, .products = *products, .workspace = workspace};
  const int64_t panels = cpu_divide_up(g->n, b->simd->gemm_columns), tiles = cpu_divide_up(g->m, b->simd->gemm_rows);
  const int64_t threads = cpu_divide_up(b->threads, products->count); /* threads for each product */
  p.row_tasks = cpu_max(cpu_divide_up(g->m, b->simd->gemm_rows_max), cpu_divide_up(threads, panels));
  p.rows_per_task = cpu_divide_up(tiles, p.row_tasks) * b->simd->gemm_rows;
  p.row_tasks = cpu_divide_up(g->m, p.rows_per_task);
  p.columns_per_task = best_columns(g, p.rows_per_task, p.row_tasks, threads, b->simd->gemm_columns);
  p.tasks = p.row_tasks * cpu_divide_up(g->n, p.columns_per_task);
  cpu_pool_run(b->pool, products->count * p.tasks, multiply_block, &p);
}

static CPU_PREPARE(matmul_prepare)
{
  BRIM_TRY(cpu_plain_prepare(self, program, node, need, state));
  need->workspace_bytes += cpu_multiply_bytes(self);
  return BRIM_OK;
}

static CPU_RUN(matmul_run)
{
  const brim_shape *a = &launch->node->in[0]->shape, *y = &launch->node->out[0]->shape;
  const bool transpose_a = launch->node->attr.matmul.transpose_a, transpose_b = launch->node->attr.matmul.transpose_b;
  const int64_t m = y->dim[y->rank - 2], n = y->dim[y->rank - 1], k = a->dim[a->rank - (transpose_a ? 2 : 1)];
  const cpu_products products = {.gemm = {.m = m,
                                          .n = n,
                                          .k = k,
                                          .a = cpu_plain_input(self, launch, 0),
                                          .lda = transpose_a ? m : k,
                                          .a_transposed = transpose_a,
                                          .b = cpu_plain_input(self, launch, 1),
                                          .ldb = transpose_b ? k : n,
                                          .b_transposed = transpose_b,
                                          .c = launch->out[0],
                                          .ldc = n},
                                 .count = brim_shape_count(y) / (m * n),
                                 .step_a = m * k,
                                 .step_b = k * n,
                                 .step_c = m * n};
  cpu_multiply(self, &products, cpu_plain_end(launch));
  return BRIM_OK;
}

CPU_KERNEL(matmul) = {.op = "matmul", .prepare = matmul_prepare, .run = matmul_run};
