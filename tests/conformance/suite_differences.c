/* Compares reference with itself: gradients by the real autodiff with central differences of the forward pass. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/suite.h"

#define ERROR_MAX 1e-6
#define SEEDS 44 /* for each row */
#define DIRECTIONS 4
/* A step that crosses a kink, as of relu, gives another derivative. A shorter one probably does not cross it. */
#define STEP 1e-5
#define STEP_SHORT 1e-6

static double objective(bench *b)
{
  bench_run(b, 0, b->g->forward_count);
  const double *y = b->memory[b->result->id], *r = b->seed ? b->memory[b->seed->id] : NULL;
  double sum = 0;
  for (int64_t i = 0; i < brim_shape_count(&b->result->shape); i++) sum += y[i] * (r ? r[i] : b->step.loss_scale);
  return sum;
}

/* Returns the derivative of the objective along a random direction, in which each element of x moves by between h / 2
 * and h. *got: the same derivative by the gradient of the backward pass. */
static double derivative(bench *b, const brim_tensor *x, const double *gradient, double h, double *got)
{
  const int64_t count = brim_shape_count(&x->shape), parts = 1 << 20;
  const size_t bytes = (size_t)count * sizeof(double);
  double *value = b->memory[x->id], *at = brim_xmalloc(bytes), *step = brim_xmalloc(bytes), sum[2];
  memcpy(at, value, bytes);
  *got = 0;
  for (int64_t i = 0; i < count; i++) {
    const int64_t drawn = bench_pick(b, -parts, parts - 1);
    step[i] = (drawn < 0 ? -0.5 : 0.5) + 0.5 * (double)drawn / (double)parts;
    *got += step[i] * gradient[i];
  }
  for (int k = 0; k < 2; k++) {
    for (int64_t i = 0; i < count; i++) value[i] = at[i] + (k ? h : -h) * step[i];
    sum[k] = objective(b);
  }
  memcpy(value, at, bytes);
  free(at);
  free(step);
  return (sum[1] - sum[0]) / (2 * h);
}

/* Compares the derivatives along a few random directions with those of the backward pass: an error in any element
 * changes them. */
static double differences_error(bench *b, const brim_tensor *x, const double *gradient, double h)
{
  double expected[DIRECTIONS], got[DIRECTIONS], norm = 0;
  for (int i = 0; i < DIRECTIONS; i++) {
    expected[i] = derivative(b, x, gradient, h, &got[i]);
    norm += expected[i] * expected[i];
  }
  return relative_error(got, expected, DIRECTIONS) * (sqrt(norm) < 1e-4 ? sqrt(norm) : 1);
}

/* Returns the sum of the gradients of x; a parameter has one gradient for each use. */
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

/* Returns the gradient of x after the backward pass: for a parameter, the difference from its initial value. */
static double *gradient_of(const bench *b, const brim_tensor *x, const brim_tensor *gradient, const double *start)
{
  double *values = gradients_of(b, x, gradient);
  if (x->role == BRIM_ROLE_PARAMETER)
    for (int64_t i = 0; i < brim_shape_count(&x->shape); i++) values[i] -= start[i];
  return values;
}

/* Compares the gradient of x, given its sum before the backward pass. */
static void check_gradient(bench *b, brim_tensor *x, brim_tensor *gradient, const double *start)
{
  double *values = gradient_of(b, x, gradient, start);
  double error = differences_error(b, x, values, STEP);
  if (!(error <= ERROR_MAX)) error = differences_error(b, x, values, STEP_SHORT);
  const brim_node *by = b->g->node[gradient->producer];
  count_case(tally_for(b->o.row, by->op), BY_DIFFERENCES, error);
  if (!(error <= ERROR_MAX)) problem("gradient of %s: error %g in %s", x->name, error, describe(b, by));
  free(values);
}

static bool has_gradient(const brim_parameter *p)
{
  return p->gradient && !p->is_buffer;
}

/* Compares all gradients. The forward passes after the backward pass change no gradient. */
static void check_differences(bench *b)
{
  brim_graph *g = b->g;
  double **start = brim_xcalloc(g->parameter_count + 1, sizeof *start);
  for (size_t i = 0; i < g->parameter_count; i++)
    if (has_gradient(&g->parameter[i])) start[i] = gradients_of(b, g->parameter[i].value, g->parameter[i].gradient);
  bench_begin_step(b);
  bench_run(b, 0, g->node_count);
  for (size_t i = 0; i < g->parameter_count; i++) {
    if (start[i]) check_gradient(b, g->parameter[i].value, g->parameter[i].gradient, start[i]);
    free(start[i]);
  }
  free(start);
  for (size_t i = 0; i < g->gradient_count && i < g->want_count; i++) {
    if (!g->want[i]) continue; /* a constant, such as a target */
    brim_tensor *gradient = brim_autodiff_gradient(g, g->tensor[i]);
    assert_non_null(gradient);
    check_gradient(b, g->tensor[i], gradient, NULL);
  }
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
      if (b->result) check_differences(b);
      bench_free(b);
    }
  fail_if_problems();
}
