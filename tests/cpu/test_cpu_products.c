/* Matrix products are computed in one of several ways, depending on their shapes. Every way must give the same bits for
 * an element, since a linear layer's bits must not depend on the micro-batch: the test compares a product computed in
 * one call with the same product computed some rows at a time, and some of K at a time, on every instruction set of
 * this processor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cpu/isa.h"
#include "simd.h"

enum { M = 70, N = 203, K = 1500, MOST = K * N };

typedef struct matrices {
  float a[M * K], b[MOST], bias[N], whole[M * N], parts[M * N];
} matrices;

static const cpu_simd *const tables[] = {CPU_OF_ISAS(&, cpu_simd)};

static void fill(float *to, size_t count, unsigned seed)
{
  for (size_t i = 0; i < count; i++) {
    seed = seed * 1664525u + 1013904223u;
    to[i] = (float)(int32_t)seed / 2147483648.0f;
  }
}

static uint32_t bits_of(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static void same(const matrices *v, const char *isa, int64_t rows)
{
  for (int i = 0; i < M * N; i++)
    if (bits_of(v->whole[i]) != bits_of(v->parts[i]))
      fail_msg("%s, %lld rows: element %d is %.9g, and %.9g", isa, (long long)rows, i, (double)v->whole[i],
               (double)v->parts[i]);
}

static void test_few_rows_have_the_bits_of_many(void **state)
{
  matrices *v = *state;
  for (size_t i = 0; i < 3; i++)
    for (int way = 0; has_isa(isas[i]) && way < 4; way++)
      for (int64_t rows = 1; rows < M; rows += 4) {
        float *scratch = aligned_alloc(64, (tables[i]->gemm_scratch_bytes + 63) / 64 * 64);
        cpu_gemm g = {.m = M,
                      .n = N,
                      .k = K,
                      .a = v->a,
                      .lda = K,
                      .b = v->b,
                      .b_transposed = way % 2,
                      .ldb = way % 2 ? K : N,
                      .ldc = N,
                      .bias = v->bias,
                      .relu = way / 2};
        g.c = v->whole;
        tables[i]->gemm(&g, 0, M, 0, N, scratch);
        g.c = v->parts;
        for (int64_t m = 0; m < M; m += rows) tables[i]->gemm(&g, m, m + rows < M ? m + rows : M, 0, N, scratch);
        free(scratch);
        same(v, tables[i]->name, rows);
      }
}

/* Computes a gradient of weights as a sum over samples, a few samples at a time. */
static void test_a_small_sum_continues_where_the_one_before_ended(void **state)
{
  matrices *v = *state;
  for (size_t i = 0; i < 3; i++)
    for (int64_t rows = 1; has_isa(isas[i]) && rows < 45; rows += 3) {
      float *scratch = aligned_alloc(64, (tables[i]->gemm_scratch_bytes + 63) / 64 * 64);
      cpu_gemm g = {.m = M, .n = N, .a_transposed = true, .lda = M, .ldb = N, .ldc = N, .accumulate = true};
      const int64_t all = 100;
      fill(v->whole, M * N, 4);
      fill(v->parts, M * N, 4);
      g.a = v->a, g.b = v->b, g.c = v->whole, g.k = all;
      tables[i]->gemm(&g, 0, M, 0, N, scratch);
      g.c = v->parts;
      for (int64_t k = 0; k < all; k += rows) {
        g.a = v->a + k * M, g.b = v->b + k * N, g.k = k + rows < all ? rows : all - k;
        tables[i]->gemm(&g, 0, M, 0, N, scratch);
      }
      free(scratch);
      same(v, tables[i]->name, rows);
    }
}

static int setup(void **state)
{
  matrices *v = *state = calloc(1, sizeof *v);
  if (!v) return -1;
  fill(v->a, M * K, 1);
  fill(v->b, MOST, 2);
  fill(v->bias, N, 3);
  return 0;
}

static int teardown(void **state)
{
  free(*state);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_few_rows_have_the_bits_of_many),
      cmocka_unit_test(test_a_small_sum_continues_where_the_one_before_ended),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
