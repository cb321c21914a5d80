/* Products in bfloat16 on all threads. C is divided as in multiply.c: an element is the same chain of sums in any
 * division. */
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "half.h"

typedef struct product {
  cpu_backend *backend;
  const cpu_products16 *p;
  int64_t rows_per_task, row_tasks;
  char *workspace;
} product;

enum {
  COLUMNS = CPU_GEMM16_COLUMNS,
  BLOCK_BYTES = CPU_GEMM16_ROWS * COLUMNS * sizeof(float),
  THREAD_BYTES = BLOCK_BYTES + CPU_GEMM16_SCRATCH * sizeof(uint16_t)
};

uint64_t cpu_multiply16_bytes(const cpu_backend *b)
{
  return (uint64_t)b->threads * THREAD_BYTES;
}

/* Sets a row of a block to the values that the sums begin with. */
static void begin_row(const cpu_products16 *p, const cpu_half *half, int64_t m, int64_t n, int64_t count, float *c)
{
  if (p->adds && p->sum)
    memcpy(c, p->sum + m * p->ldc + n, (size_t)count * sizeof *c);
  else if (p->adds)
    half->widen(p->y + m * p->ldc + n, c, count);
  else if (p->bias)
    half->widen(p->bias + n, c, count);
  else
    memset(c, 0, (size_t)count * sizeof *c);
}

/* Stores a row of a block, of at most COLUMNS values. */
static void end_row(const product *v, const cpu_half *half, int64_t m, int64_t n, int64_t count, float *c)
{
  const cpu_products16 *p = v->p;
  const int64_t at = m * p->ldc + n;
  if (p->sum) {
    memcpy(p->sum + at, c, (size_t)count * sizeof *c);
    return;
  }
  if (p->epilogue.relu) v->backend->simd->relu(c, c, count);
  if (p->epilogue.function) {
    uint16_t rounded[COLUMNS], *kept = p->kept ? p->kept + at : rounded;
    half->round(c, kept, count);
    half->widen(kept, c, count);
    p->epilogue.function(c, c, count, p->epilogue.factor);
  }
  half->round(c, p->y + at, count);
}

static void multiply_block(void *arg, int64_t task, int32_t thread)
{
  const product *v = arg;
  const cpu_gemm16 *g = &v->p->gemm;
  const cpu_half *half = cpu_half_of(v->backend->isa, BRIM_DTYPE_BF16);
  const int64_t m0 = task % v->row_tasks * v->rows_per_task, n0 = task / v->row_tasks * COLUMNS;
  const int64_t m1 = cpu_min(m0 + v->rows_per_task, g->m), n1 = cpu_min(n0 + COLUMNS, g->n);
  float *c = (float *)(void *)(v->workspace + (uint64_t)thread * THREAD_BYTES);
  for (int64_t m = m0; m < m1; m++) begin_row(v->p, half, m, n0, n1 - n0, c + (m - m0) * COLUMNS);
  v->backend->gemm16(g, m0, m1, n0, n1, c, (uint16_t *)(void *)((char *)c + BLOCK_BYTES));
  for (int64_t m = m0; m < m1; m++) end_row(v, half, m, n0, n1 - n0, c + (m - m0) * COLUMNS);
}

/* Divides C into blocks: at least one for each thread, if it has enough rows. */
void cpu_multiply16(cpu_backend *b, const cpu_products16 *p, void *workspace)
{
  if (p->gemm.m == 0 || p->gemm.n == 0) return;
  product v = {.backend = b, .p = p, .workspace = workspace};
  const int64_t column_tasks = cpu_divide_up(p->gemm.n, COLUMNS), tile_rows = 2 * CPU_GEMM16_TILE;
  const int64_t tiles = cpu_divide_up(p->gemm.m, tile_rows);
  const int64_t tiles_per_task = cpu_divide_up(tiles, cpu_divide_up(b->threads, column_tasks));
  v.rows_per_task = cpu_min(CPU_GEMM16_ROWS, tiles_per_task * tile_rows);
  v.row_tasks = cpu_divide_up(p->gemm.m, v.rows_per_task);
  cpu_pool_run(b->pool, v.row_tasks * column_tasks, multiply_block, &v);
}

float cpu_multiply16_one(cpu_backend *b, const cpu_gemm16 *g, const uint16_t *bias, int32_t thread, void *workspace)
{
  float *c = (float *)(void *)((char *)workspace + (uint64_t)thread * THREAD_BYTES);
  c[0] = 0;
  if (bias) cpu_half_of(b->isa, BRIM_DTYPE_BF16)->widen(bias, c, 1);
  b->gemm16(g, 0, 1, 0, 1, c, (uint16_t *)(void *)((char *)c + BLOCK_BYTES));
  return c[0];
}

CPU_PREPARE(cpu_grain_rows_prepare)
{
  (void)self;
  (void)need;
  const int64_t rows = cpu_rows(node->in[0]);
  int64_t *grain_rows = brim_try_calloc(1, sizeof *grain_rows);
  if (!grain_rows) return brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s'", node->name);
  *grain_rows = program->grain > 0 && rows % program->batch == 0 ? rows / program->batch * program->grain : rows;
  *state = grain_rows;
  return BRIM_OK;
}

void cpu_grain_rows_release(void *self, void *state)
{
  (void)self;
  free(state);
}
