/* Compares the tested backend with reference: relative L2 of every tensor, over random shapes, sizes, contexts and
 * layouts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/suite.h"

#define BACKEND_ERROR_MAX 1e-5
/* For results that are rounded to 8 or 11 bits when stored: a small arithmetic error may change the rounding, by at
 * most 2^-7 or 2^-10. In a tensor of one element this is the whole error. */
#define BF16_ERROR_MAX 8e-3
#define F16_ERROR_MAX 1e-3

static double norm_of(const double *values, int64_t count)
{
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += values[i] * values[i];
  return sqrt(sum);
}

/* Returns the norm of all gradients together. The error of a small gradient within a network is relative to it. */
static double gradient_norm(const bench *b)
{
  double sum = 0;
  for (size_t i = 0; i < b->g->parameter_count; i++) {
    if (!b->g->parameter[i].gradient) continue; /* frozen */
    double *values = bench_values_of(b, b->g->parameter[i].gradient);
    const double norm = norm_of(values, brim_shape_count(&b->g->parameter[i].gradient->shape));
    sum += norm * norm;
    free(values);
  }
  return sqrt(sum);
}

/* Returns the norm that an error is relative to. A gradient is a sum over samples whose terms may cancel. So the norm
 * is at least a hundredth of the norm of all gradients and, for a single operation, at least a tenth of the square root
 * of the number of terms: the norm of that many products of numbers in [-1, 1) is about three times as large. */
static double scale_of(const bench *b, const brim_tensor *t, const double *values, int64_t count)
{
  double scale = fmax(norm_of(values, count), fmax(1e-30, b->o.row->terms * sqrt((double)count)));
  if (t->role != BRIM_ROLE_GRADIENT) return scale;
  scale = fmax(scale, 1e-2 * gradient_norm(b));
  return b->o.row->composite ? scale : fmax(scale, 0.1 * sqrt((double)(b->o.batch * count)));
}

static enum oracle oracle_in(uint32_t activations)
{
  if (activations == 0) return BY_REFERENCE;
  return activations == BRIM_DTYPE_BF16 ? BY_REFERENCE_BF16 : BY_REFERENCE_F16;
}

static void compare_tensor(const bench *got, const bench *expected, const brim_node *n, const brim_tensor *t)
{
  const brim_tensor *twin = expected->g->tensor[t->id];
  const int64_t count = brim_shape_count(&t->shape);
  double *a = bench_values_of(got, t), *b = bench_values_of(expected, twin);
  const double error =
      relative_error(a, b, count) * fmax(norm_of(b, count), 1e-30) / scale_of(expected, twin, b, count);
  const enum oracle oracle = oracle_in(got->o.activations);
  count_case(tally_for(got->o.row, n->op), oracle, error);
  tensors_by_layout[t->channel_block == 1 ? 0 : t->channel_block < t->shape.dim[1] ? 1 : 2]++;
  const bench_row *row = got->o.row;
  const double error_max = oracle == BY_REFERENCE_BF16  ? BF16_ERROR_MAX
                           : oracle == BY_REFERENCE_F16 ? F16_ERROR_MAX
                           : row->error_max > 0         ? row->error_max
                                                        : BACKEND_ERROR_MAX;
  if (!(error <= error_max)) problem("%s: error %g in %s", t->name, error, describe(got, n));
  free(a);
  free(b);
}

static void compare_backends(bench_options o)
{
  o.backend = &tested;
  bench *got = bench_create(&o);
  o.backend = &reference;
  if (o.activations) o.follows = got;
  bench *expected = bench_create(&o);
  assert_int_equal(expected->g->node_count, got->g->node_count);
  bench_run(got, 0, got->g->node_count);
  bench_run(expected, 0, expected->g->node_count);
  bench_check_sources(expected);
  bench_check_sources(got);
  for (size_t i = 0; i < got->g->node_count; i++)
    for (uint32_t k = 0; k < got->g->node[i]->out_count; k++)
      compare_tensor(got, expected, got->g->node[i], got->g->node[i]->out[k]);
  bench_free(expected);
  bench_free(got);
}

void test_backend_agrees_with_reference(void **state)
{
  skip_without_tested();
  BENCH_EACH_ROW (row) {
    const int cases = offered(row) ? cases_of(row, CASES) : 0;
    for (int i = 0; i < cases; i++) compare_backends(case_of(row, i));
  }
  fail_if_problems();
}

static void compare_in(uint32_t activations)
{
  skip_without_tested();
  if (!stores(activations)) skip();
  BENCH_EACH_ROW (row) {
    const int cases = offered(row) ? cases_of(row, CASES / 2) : 0;
    for (int i = 0; i < cases; i++) {
      bench_options o = case_of(row, i);
      o.activations = activations;
      compare_backends(o);
    }
  }
  fail_if_problems();
}

void test_backend_agrees_in_bf16(void **state)
{
  compare_in(BRIM_DTYPE_BF16);
}

void test_backend_agrees_in_f16(void **state)
{
  compare_in(BRIM_DTYPE_F16);
}
