/* Products in bfloat16: drawn shapes, transposed or not, in units of K, against sums in double precision; and an
 * element has the same bits in any block of rows and columns. On processors that have AMX tiles or AVX512_BF16. */
#include <cpuid.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gemm16.h"
#include "half.h"

enum { M_MOST = 150, N_MOST = 128, K_MOST = 700, STRIDE = CPU_GEMM16_COLUMNS, CASES = 200 };

typedef struct matrices {
  uint16_t a[M_MOST * K_MOST], b[K_MOST * N_MOST], scratch[CPU_GEMM16_SCRATCH];
  float wide[M_MOST * K_MOST], whole[(M_MOST + 32) * STRIDE], part[(M_MOST + 32) * STRIDE];
} matrices;

static unsigned drawn = 1;

static int64_t draw(int64_t from, int64_t to)
{
  drawn = drawn * 1664525u + 1013904223u;
  return from + (int64_t)(drawn >> 8) % (to - from + 1);
}

/* Draws numbers in [-1, 1) with all of their 24 digits; `small` gets them rounded. */
static void fill(float *wide, uint16_t *small, int64_t count)
{
  for (int64_t i = 0; i < count; i++) {
    const float x = (float)draw(-8388608, 8388607) / 8388608.0f;
    if (wide) wide[i] = x;
    small[i] = cpu_bf16_round(x);
  }
}

static double product_of(const cpu_gemm16 *g, const uint16_t *a, int64_t m, int64_t n, double *size)
{
  const uint16_t *b = g->b;
  double sum = *size = 0;
  for (int64_t k = 0; k < g->k; k++) {
    const double x = (double)cpu_bf16_widen(a[g->a_transposed ? k * g->lda + m : m * g->lda + k]);
    const double y = (double)cpu_bf16_widen(b[g->b_transposed ? n * g->ldb + k : k * g->ldb + n]);
    sum += x * y;
    *size += fabs(x * y);
  }
  return sum;
}

/* Adds the product to a matrix of ones, and compares it with a sum in double precision; then does the same for a part
 * of the matrix, and compares that with the whole. */
static void check(cpu_gemm16_block block, const cpu_gemm16 *g, matrices *v)
{
  for (int64_t i = 0; i < (M_MOST + 32) * STRIDE; i++) v->whole[i] = 1;
  block(g, 0, g->m, 0, g->n, v->whole, v->scratch);
  for (int64_t m = 0; m < g->m; m++)
    for (int64_t n = 0; n < g->n; n++) {
      double size;
      const double sum = 1 + product_of(g, v->a, m, n, &size), got = (double)v->whole[m * STRIDE + n];
      if (!(fabs(got - sum) <= (1 + size) * 1e-6))
        fail_msg("%lld, %lld: %.9g, not %.9g", (long long)m, (long long)n, got, sum);
    }
  const int64_t m0 = draw(0, g->m - 1), m1 = draw(m0 + 1, g->m), n0 = draw(0, g->n - 1), n1 = draw(n0 + 1, g->n);
  for (int64_t i = 0; i < (M_MOST + 32) * STRIDE; i++) v->part[i] = 1;
  block(g, m0, m1, n0, n1, v->part, v->scratch);
  for (int64_t m = m0; m < m1; m++)
    assert_memory_equal(v->part + (m - m0) * STRIDE, v->whole + m * STRIDE + n0, (size_t)(n1 - n0) * sizeof(float));
}

static void check_drawn(cpu_gemm16_block block, matrices *v)
{
  for (int i = 0; i < CASES; i++) {
    int64_t ends[8] = {0}, m = draw(1, M_MOST), n = draw(1, N_MOST), k = draw(1, K_MOST);
    cpu_gemm16 g = {.m = m, .n = n, .k = k, .unit = draw(0, 1) ? k : draw(1, k), .b = v->b};
    g.a_transposed = draw(0, 1);
    g.b_transposed = draw(0, 1);
    g.a_wide = draw(0, 1);
    g.a = g.a_wide ? (const void *)v->wide : v->a;
    g.lda = g.a_transposed ? m : k;
    g.ldb = g.b_transposed ? k : n;
    for (int e = 0; e < 7; e++) ends[e] = draw(e > 0 ? ends[e - 1] : 1, k);
    ends[7] = k;
    if (draw(0, 1)) g.ends = ends;
    fill(v->wide, v->a, m * k);
    fill(NULL, v->b, k * n);
    check(block, &g, v);
  }
}

/* CPUID 7: bit 22 of EDX is AMX-BF16, bit 24 AMX-TILE. */
static bool has_tiles(void)
{
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 22 & 1 && d >> 24 & 1;
}

static void drawn_products_are_right_and_the_same_in_blocks(void **unused)
{
  (void)unused;
  if (!__builtin_cpu_supports("avx512bf16")) skip();
  matrices *v = aligned_alloc(64, (sizeof(matrices) + 63) / 64 * 64);
  check_drawn(cpu_gemm16_vectors(), v);
  const cpu_gemm16_block tiles = has_tiles() ? cpu_gemm16_tiles() : NULL;
  if (tiles) check_drawn(tiles, v);
  free(v);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(drawn_products_are_right_and_the_same_in_blocks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
