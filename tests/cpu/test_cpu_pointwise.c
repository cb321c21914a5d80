/* Tests elementwise operations, sums and softmax on the cpu backend, beyond the conformance suite: on every instruction
 * set of this processor; sums whose small terms fp32 alone would lose; scores that overflow exp(). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/isa.h"
#include "cpu/run.h"

/* Applies all functions one after another, to rows that are not a multiple of a vector, with all operands broadcast. */
static brim_tensor *make_all(bench *b)
{
  brim_graph *g = b->g;
  const brim_shape shape = {3, {b->o.batch, 5, 37}}, row = {1, {37}}, column = {2, {5, 1}};
  brim_tensor *x = bench_input(b, &shape, "x"), *p = bench_parameter(b, "row", &row, 1);
  brim_tensor *y = brim_mul(g, brim_scale(g, x, 3), p);
  y = brim_add(g, brim_gelu(g, y, BRIM_GELU_EXACT), brim_gelu(g, y, BRIM_GELU_TANH));
  y = brim_sub(g, brim_gelu(g, y, BRIM_GELU_QUICK), bench_parameter(b, "column", &column, 1));
  y = brim_div(g, brim_silu(g, y), brim_exp(g, brim_tanh(g, y)));
  y = brim_add(g, brim_leaky_relu(g, y, 0.1), brim_sigmoid(g, y));
  y = brim_add(g, brim_softmax(g, y), brim_log_softmax(g, y));
  return brim_sub(g, y, brim_mean(g, y, 1, (int32_t[]){2}, 1));
}

/* Computes a mean of 100,003 numbers. */
static brim_tensor *make_far(bench *b)
{
  return brim_mean(b->g, bench_input(b, &(brim_shape){2, {b->o.batch, 100003}}, "x"), 1, (int32_t[]){1}, 1);
}

static brim_tensor *make_softmax(bench *b)
{
  return brim_softmax(b->g, bench_input(b, &(brim_shape){2, {b->o.batch, 21}}, "x"));
}

static const bench_row all = {"all", make_all}, far = {"far", make_far}, rows = {"softmax", make_softmax};

static bench_options options_of(const bench_row *row)
{
  return (bench_options){.row = row, .batch = 3};
}
static void start(run *r, const bench_row *row, const char *id, const char *settings)
{
  const bench_options options = options_of(row);
  run_start(r, &options, id, settings);
}

static void test_every_instruction_set_agrees_with_the_reference(void **state)
{
  run expected, got;
  start(&expected, &all, "reference", NULL);
  run_finish(&expected);
  for (size_t i = 0; i < 3; i++) {
    if (!has_isa(isas[i])) continue;
    char settings[32];
    snprintf(settings, sizeof settings, "{isa: %s}", isas[i]);
    start(&got, &all, "cpu", settings);
    run_finish(&got);
    for (size_t t = 0; t < got.b->g->tensor_count; t++) {
      const double error = run_difference(&got, &expected, t, 1e-3);
      if (!(error <= 1e-5)) fail_msg("%s: '%s' error %g", isas[i], got.b->g->tensor[t]->name, error);
    }
    run_stop(&got);
  }
  run_stop(&expected);
}

/* In fp32, 1 + 2^-20 is lost next to a sum of 2^16; in double precision it is not. */
static void test_a_mean_of_many_numbers_keeps_small_parts(void **state)
{
  const float value = 1 + 0x1p-20f;
  run r;
  start(&r, &far, "cpu", NULL);
  const brim_tensor *x = r.b->g->tensor[0];
  for (int64_t i = 0; i < brim_shape_count(&x->shape); i++) ((float *)r.b->memory[x->id])[i] = value;
  run_finish(&r);
  for (int n = 0; n < 3; n++) assert_true(((const float *)r.b->memory[r.b->result->id])[n] == value);
  run_stop(&r);
}

static void test_softmax_takes_scores_of_any_size(void **state)
{
  run r;
  start(&r, &rows, "cpu", NULL);
  float *x = r.b->memory[r.b->g->tensor[0]->id];
  for (int i = 0; i < 63; i++) x[i] = i < 21 ? 3e38f : i < 42 ? -3e38f : -INFINITY; /* a row each */
  x[62] = 5;
  run_finish(&r);
  const float *y = r.b->memory[r.b->result->id];
  for (int i = 0; i < 42; i++) assert_true(fabsf(y[i] - 1 / 21.0f) < 1e-7f);
  for (int i = 42; i < 62; i++) assert_true(y[i] == 0);
  assert_true(y[62] == 1);
  run_stop(&r);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_instruction_set_agrees_with_the_reference),
      cmocka_unit_test(test_a_mean_of_many_numbers_keeps_small_parts),
      cmocka_unit_test(test_softmax_takes_scores_of_any_size),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
