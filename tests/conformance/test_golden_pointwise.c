/* Compares elementwise functions, softmax, operations on tensors that broadcast and sums over axes, on the reference
 * backend, with PyTorch in double precision, forward and backward. tests/golden/make_pointwise.py makes and describes
 * the fixture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/golden_case.h"
#include "graph/fuse.h"

const char golden_case_fixture[] = "pointwise.txt";

/* Functions of x, by the name of the case. */
static brim_tensor *make_gelu(bench *b)
{
  return brim_gelu(b->g, golden_case_input(b, "x"), golden_case_prefix()[4] - '0');
}
static brim_tensor *make_leaky_relu(bench *b)
{
  return brim_leaky_relu(b->g, golden_case_input(b, "x"), 0.2);
}
static brim_tensor *make_silu(bench *b)
{
  return brim_silu(b->g, golden_case_input(b, "x"));
}
static brim_tensor *make_sigmoid(bench *b)
{
  return brim_sigmoid(b->g, golden_case_input(b, "x"));
}
static brim_tensor *make_tanh(bench *b)
{
  return brim_tanh(b->g, golden_case_input(b, "x"));
}
static brim_tensor *make_exp(bench *b)
{
  return brim_exp(b->g, golden_case_input(b, "x"));
}
static brim_tensor *make_scale(bench *b)
{
  return brim_scale(b->g, golden_case_input(b, "x"), -1.5);
}
static brim_tensor *make_softplus(bench *b)
{
  return brim_softplus(b->g, golden_case_input(b, "x"));
}
static brim_tensor *make_mish(bench *b)
{
  return brim_mish(b->g, golden_case_input(b, "x"));
}
static brim_tensor *make_hardswish(bench *b)
{
  return brim_hardswish(b->g, golden_case_input(b, "x"));
}
static brim_tensor *make_maximum(bench *b)
{
  return brim_elementwise(b->g, "y = max(min(x, z), n)", BRIM_ELEMENTS("x", golden_case_input(b, "x")),
                          BRIM_ELEMENTS("z", golden_case_input(b, "z")), BRIM_NUMBER("n", 0));
}
/* relu and dropout as one node. */
static brim_tensor *make_relu_dropout(bench *b)
{
  const double p = (golden_case_prefix()[strlen("relu_dropout")] - '0') / 10.0;
  brim_tensor *y = brim_dropout(b->g, brim_relu(b->g, golden_case_input(b, "x")), p);
  brim_graph_fuse(b->g, BRIM_FUSE_ALL, NULL, NULL);
  assert_int_equal(b->g->node_count, 1);
  return y;
}
static brim_tensor *make_softmax(bench *b)
{
  return brim_softmax(b->g, golden_case_input(b, "x"));
}
static brim_tensor *make_log_softmax(bench *b)
{
  return brim_log_softmax(b->g, golden_case_input(b, "x"));
}

static brim_tensor *make_affine(bench *b)
{
  brim_tensor *scaled = brim_mul(b->g, golden_case_input(b, "x"), golden_case_parameter(b, "p_scale"));
  return brim_add(b->g, scaled, golden_case_parameter(b, "p_shift"));
}
static brim_tensor *make_turned(bench *b)
{
  brim_tensor *x = golden_case_input(b, "x"), *difference = brim_sub(b->g, golden_case_parameter(b, "p_a"), x);
  return brim_div(b->g, difference, golden_case_parameter(b, "p_b"));
}
static brim_tensor *make_outer(bench *b)
{
  brim_tensor *x = golden_case_input(b, "x");
  return brim_div(b->g, x, golden_case_input(b, "z"));
}
static brim_tensor *make_table(bench *b)
{
  brim_tensor *x = golden_case_input(b, "x"), *row = golden_case_parameter(b, "p_row");
  return brim_add(b->g, x, brim_mul(b->g, row, golden_case_parameter(b, "p_column")));
}
static brim_tensor *make_square(bench *b)
{
  brim_tensor *x = golden_case_input(b, "x");
  return brim_sub(b->g, brim_mul(b->g, x, x), x);
}
static brim_tensor *make_sum(bench *b)
{
  return brim_sum(b->g, golden_case_input(b, "x"), 1, (int32_t[]){-1}, 0);
}
static brim_tensor *make_mean(bench *b)
{
  return brim_mean(b->g, golden_case_input(b, "x"), 2, (int32_t[]){3, 1}, 1);
}

static void test_functions_match_pytorch(void **state)
{
  golden_case_check("gelu0.", make_gelu);
  golden_case_check("gelu1.", make_gelu);
  golden_case_check("gelu2.", make_gelu);
  golden_case_check("leaky_relu.", make_leaky_relu);
  golden_case_check("silu.", make_silu);
  golden_case_check("sigmoid.", make_sigmoid);
  golden_case_check("tanh.", make_tanh);
  golden_case_check("exp.", make_exp);
  golden_case_check("scale.", make_scale);
  golden_case_check("softplus.", make_softplus);
  golden_case_check("mish.", make_mish);
  golden_case_check("hardswish.", make_hardswish);
  golden_case_check("maximum.", make_maximum);
  golden_case_check("softmax.", make_softmax);
  golden_case_check("log_softmax.", make_log_softmax);
}

static void test_relu_and_dropout_match_pytorch_as_one_node(void **state)
{
  for (int tenths = 1; tenths <= 9; tenths++) {
    char name[32];
    snprintf(name, sizeof name, "relu_dropout%d.", tenths);
    golden_case_check(name, make_relu_dropout);
  }
}

static void test_broadcasting_and_its_gradients_match_pytorch(void **state)
{
  golden_case_check("affine.", make_affine);
  golden_case_check("turned.", make_turned);
  golden_case_check("outer.", make_outer);
  golden_case_check("table.", make_table);
  golden_case_check("square.", make_square);
}

static void test_sums_over_axes_match_pytorch(void **state)
{
  golden_case_check("sum.", make_sum);
  golden_case_check("mean.", make_mean);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_functions_match_pytorch),
      cmocka_unit_test(test_relu_and_dropout_match_pytorch_as_one_node),
      cmocka_unit_test(test_broadcasting_and_its_gradients_match_pytorch),
      cmocka_unit_test(test_sums_over_axes_match_pytorch),
  };
  return cmocka_run_group_tests(tests, golden_case_set_up, golden_case_tear_down);
}
