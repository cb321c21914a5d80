/* Checks that the tested backend has NaN, and infinities for values too large for fp16, where reference has them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/suite.h"

/* ---- NaN ---- */

/* Runs the case with a NaN in one element of the first real input or parameter. */
static bench *run_with_nan(bench_options o, int64_t element)
{
  bench *b = bench_create(&o);
  size_t first = 0;
  while (b->g->tensor[first]->dtype == BRIM_DTYPE_I32) first++;
  const brim_tensor *x = b->g->tensor[first];
  if (element >= brim_shape_count(&x->shape)) element = 0;
  if (x->dtype == BRIM_DTYPE_F32)
    ((float *)b->memory[x->id])[element] = NAN;
  else
    ((double *)b->memory[x->id])[element] = NAN;
  bench_run(b, 0, b->g->node_count);
  return b;
}

/* Every tensor must have its NaNs where the reference has them. */
/* may_spread: more values may be NaN than on the reference, but not fewer. */
static void compare_nans(const bench *got, const bench *expected, const brim_node *n, const brim_tensor *t,
                         bool may_spread)
{
  double *a = bench_values_of(got, t), *b = bench_values_of(expected, expected->g->tensor[t->id]);
  for (int64_t i = 0; i < brim_shape_count(&t->shape); i++)
    if (!isnan(a[i]) != !isnan(b[i]) && !(may_spread && isnan(a[i])))
      problem("element %lld of %s is %g, on reference %g, in %s", (long long)i, t->name, a[i], b[i], describe(got, n));
  free(a);
  free(b);
}

/* On cpu without AVX2, matrix products compute the gradients of most weights; they also multiply NaN by the padding. */
static bool multiplies_padding(void)
{
  const char *limit = getenv("ONEDNN_MAX_CPU_ISA");
  bool has_avx2 = !limit || (strcmp(limit, "SSE41") != 0 && strcmp(limit, "AVX") != 0);
#ifdef __x86_64__
  has_avx2 = has_avx2 && __builtin_cpu_supports("avx2");
#else
  has_avx2 = false;
#endif
  return !has_avx2 && strcmp(tested_id, "cpu") == 0;
}

/* On a device the products of the loss include the rows of ignored labels: they multiply NaN by the gradient of these
 * rows, which is 0. */
static bool multiplies_ignored_rows(const brim_node *n)
{
  return strncmp(n->op, "linear_cross_entropy", 20) == 0 && strcmp(tested_id, "cuda") == 0;
}

static void check_nan(bench_options o, int64_t element, bool is_tested)
{
  o.backend = &reference;
  bench *expected = run_with_nan(o, element);
  const brim_tensor *y = expected->g->node[0]->out[0];
  double *values = bench_values_of(expected, y);
  if (element == 0 && !o.row->skips && !isnan(values[0]))
    problem("NaN became %g in %s", values[0], describe(expected, expected->g->node[0]));
  free(values);
  o.backend = &tested;
  bench *got = is_tested ? run_with_nan(o, element) : NULL;
  const bool spreads = o.row->spreads_nan || multiplies_padding();
  for (size_t i = 0; got && i < got->g->node_count; i++) {
    const brim_node *n = got->g->node[i];
    const bool may_spread = (spreads && strcmp(n->op, "conv2d_grad_weight") == 0) || multiplies_ignored_rows(n);
    for (uint32_t k = 0; k < n->out_count; k++) compare_nans(got, expected, n, n->out[k], may_spread);
  }
  if (got) bench_free(got);
  bench_free(expected);
}

/* The test uses fp32, because in 16 bits a library's attention may spread NaN (brim/ops.h). */
void test_nan_spreads_as_in_the_reference(void **state)
{
  BENCH_EACH_ROW (row) {
    const bool is_tested = tested.ops && offered(row);
    const int cases = !alone || is_tested ? cases_of(row, 16) : 0;
    for (int i = 0; i < cases; i++) {
      bench_options o = case_of(row, i);
      o.first_sample = 0;
      o.evaluate = false;
      check_nan(o, i % 3, is_tested);
    }
  }
  fail_if_problems();
}

/* ---- overflow in fp16 ---- */

/* An overflow must not be stored as the largest number: dynamic loss scaling has to detect it. Here parameters and data
 * are within the type's range, but so large that most sums and products overflow. */
#define LARGE 5e4

static void enlarge_sources(const bench *b)
{
  for (size_t i = 0; i < b->g->tensor_count; i++) {
    const brim_tensor *t = b->g->tensor[i];
    const bool real = t->dtype == BRIM_DTYPE_F32 || t->dtype == BRIM_DTYPE_F64;
    if (!real || t->producer >= 0 || t == b->g->metrics || t == b->g->class_weight || t == b->seed) continue;
    if (t->role != BRIM_ROLE_PARAMETER && t->role != BRIM_ROLE_DATA) continue;
    for (int64_t k = 0; k < brim_shape_count(&t->shape); k++)
      if (t->dtype == BRIM_DTYPE_F32)
        ((float *)b->memory[t->id])[k] *= (float)LARGE;
      else
        ((double *)b->memory[t->id])[k] *= LARGE;
  }
}

/* Inputs that are infinite or NaN are covered by the test of NaN. Attention's scores, and logits that are not stored,
 * are so large here that their logarithm has no fractional digits in fp32, so the recomputed weights are arbitrary. */
static bool is_comparable(const bench *b, const brim_node *n)
{
  static const char *const recomputing[] = {"attention_grad", "attention_qkv_grad", "linear_cross_entropy_grad",
                                            "linear_cross_entropy+grad"};
  bool finite = true;
  for (size_t i = 0; i < sizeof recomputing / sizeof recomputing[0]; i++)
    finite = finite && strcmp(n->op, recomputing[i]) != 0;
  for (uint32_t k = 0; k < n->in_count && finite; k++) {
    double *values = bench_values_of(b, n->in[k]);
    for (int64_t i = 0; i < brim_shape_count(&n->in[k]->shape); i++) finite = finite && isfinite(values[i]);
    free(values);
  }
  return finite;
}

/* True if the result may be 0: some of cuDNN's convolutions store 0 for values below the range of fp16 (brim/ops.h). */
static bool may_lose(const brim_node *n, double value)
{
  return value < 0 && strcmp(tested_id, "cuda") == 0 && strncmp(n->op, "conv2d", strlen("conv2d")) == 0;
}

/* A finite number is an error if the reference has an infinity in its place. Infinities inside a fused operation are
 * not checked. One value in a hundred may be too close to the end of the range to decide. Returns the number of
 * infinities. */
static int64_t find_numbers(const bench *got, const bench *expected, const brim_node *n, const brim_tensor *t)
{
  const int64_t count = brim_shape_count(&t->shape);
  double *a = bench_values_of(got, t), *b = bench_values_of(expected, expected->g->tensor[t->id]);
  int64_t infinite = 0, numbers = 0;
  double number = 0;
  for (int64_t i = 0; i < count; i++)
    if (isinf(b[i])) {
      infinite++;
      if (isfinite(a[i]) && !may_lose(n, b[i])) {
        numbers++;
        number = a[i];
      }
    }
  if (numbers > 1 + infinite / 100)
    problem("%s: %lld of %lld infinite values became numbers, as %g, in %s", t->name, (long long)numbers,
            (long long)infinite, number, describe(got, n));
  free(a);
  free(b);
  return infinite;
}

static int64_t check_large(bench_options o)
{
  int64_t infinite = 0;
  o.activations = BRIM_DTYPE_F16;
  o.backend = &tested;
  bench *got = bench_create(&o);
  o.backend = &reference;
  o.follows = got;
  bench *expected = bench_create(&o);
  enlarge_sources(got);
  enlarge_sources(expected);
  bench_run(got, 0, got->g->node_count);
  bench_run(expected, 0, expected->g->node_count);
  for (size_t i = 0; i < got->g->node_count; i++) {
    const brim_node *n = got->g->node[i];
    for (uint32_t k = 0; is_comparable(got, n) && k < n->out_count; k++)
      if (n->out[k]->dtype == BRIM_DTYPE_F16) infinite += find_numbers(got, expected, n, n->out[k]);
  }
  bench_free(expected);
  bench_free(got);
  return infinite;
}

void test_values_too_large_for_f16_become_infinite(void **state)
{
  int64_t infinite = 0;
  skip_without_tested();
  if (tested.ops->size < sizeof *tested.ops || !(tested.ops->stores & BRIM_STORES(BRIM_DTYPE_F16))) skip();
  BENCH_EACH_ROW (row) {
    const int cases = !row->large && offered(row) ? cases_of(row, 4) : 0;
    for (int i = 0; i < cases; i++) infinite += check_large(case_of(row, i));
  }
  printf("%lld values were too large for fp16\n", (long long)infinite);
  fail_if_problems();
  if (!some_rows()) assert_true(infinite > 0);
}
