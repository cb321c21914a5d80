/* LSTM on the reference backend compared with torch.nn.LSTM in double precision: y and all gradients of one layer, and
 * of two bidirectional ones. Fixture: tests/golden/make_lstm.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/bench.h"
#include "conformance/golden.h"
#include "conformance/load.h"

static golden fixture;
static loaded plugin;
static backend reference;

static brim_tensor *make_one(bench *b)
{
  brim_tensor *x = bench_input(b, &golden_find(&fixture, "one.", "x")->shape, "x");
  return brim_lstm(b->g, "lstm", x, 4, (brim_lstm_options){0});
}
BENCH_ROW(one) = {"one", make_one};

static brim_tensor *make_both(bench *b)
{
  brim_tensor *x = bench_input(b, &golden_find(&fixture, "both.", "x")->shape, "x");
  return brim_lstm(b->g, "lstm", x, 2, (brim_lstm_options){.layers = 2, .bidirectional = 1});
}
BENCH_ROW(both) = {"both", make_both};

/* The expected value of a tensor is "<row>.<prefix><name>". */
static void check(const bench *b, const char *prefix, const char *name, const brim_tensor *t)
{
  char full[64];
  snprintf(full, sizeof full, "%s.%s", b->o.row->name, prefix);
  double *values = bench_values_of(b, t);
  golden_check(&fixture, full, name, &t->shape, values);
  free(values);
}

static void fill(bench *b, const brim_tensor *t)
{
  char prefix[32];
  snprintf(prefix, sizeof prefix, "%s.", b->o.row->name);
  const golden_tensor *from = golden_find(&fixture, prefix, t->name);
  assert_int_equal(brim_shape_count(&from->shape), brim_shape_count(&t->shape));
  memcpy(b->memory[t->id], from->value, t->bytes);
}

static void check_row(const bench_row *row)
{
  bench *b = bench_create(
      &(bench_options){.backend = &reference, .row = row, .seed = 1, .batch = 2, .gradients_at_zero = true});
  fill(b, b->g->tensor[0]);
  fill(b, b->seed);
  for (size_t i = 0; i < b->g->parameter_count; i++) fill(b, b->g->parameter[i].value);
  bench_run(b, 0, b->g->node_count);
  check(b, "", "y", b->result);
  check(b, "gradient.", "x", brim_autodiff_gradient(b->g, b->g->tensor[0]));
  for (size_t i = 0; i < b->g->parameter_count; i++)
    check(b, "gradient.", b->g->parameter[i].value->name, b->g->parameter[i].gradient);
  bench_free(b);
}

static void test_one_layer_matches_pytorch(void **state)
{
  (void)state;
  check_row(&row_one);
}

static void test_two_bidirectional_layers_match_pytorch(void **state)
{
  (void)state;
  check_row(&row_both);
}

static void test_parameters_are_named_and_ordered_as_pytorchs(void **state)
{
  (void)state;
  static const char *const expected[] = {
      "lstm.weight_ih_l0",         "lstm.weight_hh_l0",         "lstm.bias_ih_l0",         "lstm.bias_hh_l0",
      "lstm.weight_ih_l0_reverse", "lstm.weight_hh_l0_reverse", "lstm.bias_ih_l0_reverse", "lstm.bias_hh_l0_reverse",
      "lstm.weight_ih_l1",         "lstm.weight_hh_l1"};
  bench *b = bench_create(&(bench_options){.backend = &reference, .row = &row_both, .seed = 1, .batch = 2});
  assert_int_equal(b->g->parameter_count, 16);
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
    assert_string_equal(b->g->parameter[i].value->name, expected[i]);
  bench_free(b);
}

static void test_wrong_calls_are_explained(void **state)
{
  (void)state;
  static const struct {
    brim_shape shape;
    int64_t hidden;
    brim_lstm_options options;
    const char *text;
  } cases[] = {{{2, {2, 3}}, 4, {0}, "input must be [N, T, F] of real numbers, got 'x' F64 [2, 3]"},
               {{3, {2, 5, 3}}, 0, {0}, "hidden must be in [1,16777216], got 0"},
               {{3, {2, 5, 3}}, 4, {.layers = -1}, "layers must be at least 1 (0 means 1), got -1"},
               {{3, {2, 5, 3}}, 4, {.dropout = 1}, "dropout must be in [0,1), got 1"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_graph *g = brim_graph_create(BRIM_DTYPE_F64, 2, true);
    brim_tensor *x = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &cases[i].shape, "x");
    assert_null(brim_lstm(g, "memory", x, cases[i].hidden, cases[i].options));
    assert_non_null(strstr(g->error, cases[i].text));
    assert_non_null(strstr(g->error, "lstm 'memory'"));
    assert_non_null(strstr(g->error, "test_golden_lstm.c:"));
    brim_graph_free(g);
  }
}

static int set_up(void **state)
{
  (void)state;
  golden_read(&fixture, "lstm.txt");
  if (!load_plugin(&plugin, "backend", "reference", NULL)) return -1;
  reference = (backend){"reference", plugin.plugin->ops, plugin.self};
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  unload_plugin(&plugin);
  brim_arena_release(&fixture.arena);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_layer_matches_pytorch),
      cmocka_unit_test(test_two_bidirectional_layers_match_pytorch),
      cmocka_unit_test(test_parameters_are_named_and_ordered_as_pytorchs),
      cmocka_unit_test(test_wrong_calls_are_explained),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
