/* Compares LSTM on the reference backend with torch.nn.LSTM in double precision: y and all gradients of one layer, and
 * of two bidirectional ones. Fixture: tests/golden/make_lstm.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/golden_case.h"

const char golden_case_fixture[] = "lstm.txt";

static brim_tensor *make_one(bench *b)
{
  return brim_lstm(b->g, "lstm", golden_case_input(b, "x"), 4, (brim_lstm_options){0});
}

static brim_tensor *make_both(bench *b)
{
  brim_tensor *x = golden_case_input(b, "x");
  return brim_lstm(b->g, "lstm", x, 2, (brim_lstm_options){.layers = 2, .bidirectional = 1});
}

static void test_one_layer_matches_pytorch(void **state)
{
  golden_case_check("one.", make_one);
}

static void test_two_bidirectional_layers_match_pytorch(void **state)
{
  golden_case_check("both.", make_both);
}

static void test_parameters_are_named_and_ordered_as_pytorchs(void **state)
{
  static const char *const expected[] = {
      "lstm.weight_ih_l0",         "lstm.weight_hh_l0",         "lstm.bias_ih_l0",         "lstm.bias_hh_l0",
      "lstm.weight_ih_l0_reverse", "lstm.weight_hh_l0_reverse", "lstm.bias_ih_l0_reverse", "lstm.bias_hh_l0_reverse",
      "lstm.weight_ih_l1",         "lstm.weight_hh_l1"};
  const bench_row row = {"both.", make_both};
  bench *b = golden_case_create(&row, false);
  assert_int_equal(b->g->parameter_count, 16);
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
    assert_string_equal(b->g->parameter[i].value->name, expected[i]);
  bench_free(b);
}

static void test_wrong_calls_are_explained(void **state)
{
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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_layer_matches_pytorch),
      cmocka_unit_test(test_two_bidirectional_layers_match_pytorch),
      cmocka_unit_test(test_parameters_are_named_and_ordered_as_pytorchs),
      cmocka_unit_test(test_wrong_calls_are_explained),
  };
  return cmocka_run_group_tests(tests, golden_case_set_up, golden_case_tear_down);
}
