/* reference against itself: gradients and central differences of the forward pass, through the real autodiff. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "conformance/suite.h"

#define ERROR_MAX 1e-6
#define SEEDS 44 /* for each row */

static double objective(bench *b)
{
  bench_run(b, 0, b->g->forward_count);
  const double *y = b->memory[b->result->id], *r = b->seed ? b->memory[b->seed->id] : NULL;
  double sum = 0;
  for (int64_t i = 0; i < brim_shape_count(&b->result->shape); i++) sum += y[i] * (r ? r[i] : b->step.loss_scale);
  return sum;
}

/* Compares up to 24 elements of x: their central differences and the gradient of the backward pass. */
static double differences_error(bench *b, brim_tensor *x, const double *gradient)
{
  const double h = 1e-5;
  const int64_t count = brim_shape_count(&x->shape);
  double *value = b->memory[x->id], expected[24], got[24];
  int64_t n = 0;
  for (; n < 24 && n < count; n++) {
    const int64_t i = count <= 24 ? n : bench_pick(b, 0, count - 1);
    const double at = value[i];
    value[i] = at + h;
    const double above = objective(b);
    value[i] = at - h;
    const double below = objective(b);
    value[i] = at;
    expected[n] = (above - below) / (2 * h);
    got[n] = gradient[i];
  }
  double norm = 0;
  for (int64_t i = 0; i < n; i++) norm += expected[i] * expected[i];
  return sqrt(norm) < 1e-4 ? relative_error(got, expected, n) * sqrt(norm) : relative_error(got, expected, n);
}

/* The sum of the gradients of x; a parameter has one for each use. */
static double *gradients_of(const bench *b, const brim_tensor *x, const brim_tensor *gradient)
{
  double *values = bench_values_of(b, gradient);
  for (size_t k = 0; k < b->g->further_count; k++) {
    if (b->g->further[k].of || b->g->parameter[b->g->further[k].parameter].value != x) continue;
    double *more = bench_values_of(b, b->g->further[k].gradient);
    for (int64_t i = 0; i < brim_shape_count(&x->shape); i++) values[i] += more[i];
    free(more);
  }
  return values;
}

/* The gradient of x after the backward pass: for a parameter, the difference from its initial value. */
static double *gradient_of(const bench *b, const brim_tensor *x, const brim_tensor *gradient, const double *start)
{
  double *values = gradients_of(b, x, gradient);
  if (x->role == BRIM_ROLE_PARAMETER)
    for (int64_t i = 0; i < brim_shape_count(&x->shape); i++) values[i] -= start[i];
  return values;
}

static void check_differences(bench *b, brim_tensor *x, brim_tensor *gradient)
{
  double *start = gradients_of(b, x, gradient);
  bench_begin_step(b);
  bench_run(b, 0, b->g->node_count);
  double *values = gradient_of(b, x, gradient, start);
  const double error = differences_error(b, x, values);
  const brim_node *by = b->g->node[gradient->producer];
  count_case(tally_for(b->o.row, by->op), BY_DIFFERENCES, error);
  if (!(error <= ERROR_MAX)) problem("gradient of %s: error %g in %s", x->name, error, describe(b, by));
  free(start);
  free(values);
}

void test_reference_gradients_match_finite_differences(void **state)
{
  BENCH_EACH_ROW (row)
    for (uint64_t seed = 1; !row->large && !row->keeps_logits && seed <= SEEDS / BENCH_SHARE; seed++) {
      bench *b = bench_create(&(bench_options){.backend = &reference,
                                               .row = row,
                                               .seed = seed,
                                               .batch = 1 + (int64_t)seed % 3,
                                               .size = seed % 8 == 0 ? SIZE_ONE : SIZE_SMALL,
                                               .values = VALUES_DISTINCT});
      for (size_t i = 0; b->result && i < b->g->parameter_count; i++)
        if (b->g->parameter[i].gradient && !b->g->parameter[i].is_buffer)
          check_differences(b, b->g->parameter[i].value, b->g->parameter[i].gradient);
      for (size_t i = 0; b->result && i < b->g->gradient_count; i++) {
        brim_tensor *x = b->g->tensor[i];
        if (i >= b->g->want_count || !b->g->want[i]) continue; /* a constant, such as a target */
        brim_tensor *gradient = brim_autodiff_gradient(b->g, x);
        assert_non_null(gradient);
        check_differences(b, x, gradient);
      }
      bench_free(b);
    }
  fail_if_problems();
}
