/* Tests graphs of elementwise operations, sums over axes and softmax: their shapes, the nodes that sum gradients of
 * broadcast operands, and the errors for wrong calls. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "brim/brim.h"
#include "graph/graph.h"

static brim_graph *graph(void)
{
  return brim_graph_create(BRIM_DTYPE_F32, 2, true);
}
static brim_tensor *input(brim_graph *g, int32_t rank)
{
  return brim_graph_tensor(g, BRIM_ROLE_DATA, g->real, &(brim_shape){rank, {g->batch, 6, 5, 4}}, "the.x");
}
static brim_tensor *indices(brim_graph *g)
{
  return brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_I32, &(brim_shape){2, {g->batch, 6}}, "words");
}
static brim_tensor *parameter(brim_graph *g, int32_t rank, const int64_t *dim)
{
  return brim_parameter_new(g, "p", rank, dim, (brim_init){BRIM_INIT_NORMAL, 1});
}

static void assert_shape(const brim_tensor *t, const char *expected)
{
  char text[96];
  assert_non_null(t);
  assert_string_equal(brim_shape_format(text, sizeof text, &t->shape), expected);
}

/* Asserts that the graph failed with this text and names this file; frees the graph. */
static void assert_failed(brim_graph *g, const brim_tensor *result, const char *text)
{
  assert_null(result);
  assert_int_equal(g->status, BRIM_EINVAL);
  if (!strstr(g->error, text)) fail_msg("'%s' is not in: %s", text, g->error);
  assert_non_null(strstr(g->error, "\n  test_pointwise.c:"));
  brim_graph_free(g);
}

static void test_operands_that_do_not_broadcast_are_refused(void **state)
{
  brim_graph *g = graph();
  assert_failed(
      g, brim_mul(g, input(g, 3), parameter(g, 1, (int64_t[]){6})),
      "mul: 'the.x' [2, 6, 5] and 'p' [6] do not broadcast: aligned at the right, dimensions must be equal or 1");
  g = graph();
  assert_failed(g, brim_add(g, input(g, 2), indices(g)), "add: 'words' holds indices (I32), not real numbers");
  g = graph();
  assert_failed(g, brim_sub(g, input(g, 2), NULL), "sub: input 2 of 2 is NULL");
  g = graph(); /* [2, 6] on [3, 2, 6]: N would become the second dimension */
  assert_failed(g, brim_div(g, parameter(g, 3, (int64_t[]){3, 1, 6}), brim_relu(g, input(g, 2))),
                "div: 'relu' [2, 6] has samples in its first dimension, which would not be the first dimension of the "
                "result: give it 3 dimensions with brim_reshape");
}

static void test_invalid_numbers_and_types_are_refused(void **state)
{
  brim_graph *g = graph();
  assert_failed(g, brim_gelu(g, input(g, 2), 3), "gelu: unknown kind 3");
  g = graph();
  assert_failed(g, brim_scale(g, input(g, 2), INFINITY), "scale: factor must be a finite number, got inf");
  g = graph();
  assert_failed(g, brim_leaky_relu(g, input(g, 2), NAN), "leaky_relu: slope must be a finite number");
  g = graph();
  assert_failed(g, brim_silu(g, indices(g)), "silu: 'words' holds indices (I32), not real numbers");
  g = graph();
  assert_failed(g, brim_softmax(g, input(g, 1)), "softmax: input must be [N, ..., F], got [2]");
}

static void test_axes_that_cannot_be_summed_are_refused(void **state)
{
  brim_graph *g = graph();
  assert_failed(g, brim_sum(g, input(g, 3), 2, (int32_t[]){1, -3}, 0),
                "sum: axis 0 of [2, 6, 5] is N, the samples, and cannot be reduced");
  g = graph();
  assert_failed(g, brim_mean(g, input(g, 3), 1, (int32_t[]){3}, 0), "mean: [2, 6, 5] has no axis 3");
  g = graph();
  assert_failed(g, brim_mean(g, input(g, 3), 2, (int32_t[]){2, -1}, 0), "mean: axis 2 of [2, 6, 5] is given twice");
  g = graph();
  assert_failed(g, brim_sum(g, input(g, 3), 0, NULL, 0), "sum: no axis is given");
}

static void test_results_have_the_shape_of_both(void **state)
{
  brim_graph *g = graph();
  brim_tensor *x = input(g, 4), *p = parameter(g, 3, (int64_t[]){6, 1, 1});
  assert_shape(brim_add(g, x, p), "[2, 6, 5, 4]");
  assert_shape(brim_add(g, p, x), "[2, 6, 5, 4]");
  assert_shape(brim_mul(g, brim_mean(g, x, 1, (int32_t[]){2}, 1), brim_sum(g, x, 1, (int32_t[]){3}, 1)),
               "[2, 6, 5, 4]");
  assert_shape(brim_mul(g, p, brim_exp(g, p)), "[6, 1, 1]");
  assert_shape(brim_sum(g, x, 2, (int32_t[]){-1, 1}, 0), "[2, 5]");
  assert_shape(brim_sum(g, x, 2, (int32_t[]){-1, 1}, 1), "[2, 1, 5, 1]");
  brim_graph_free(g);
}

static size_t count_of(const brim_graph *g, const char *op)
{
  size_t count = 0;
  for (size_t i = 0; i < g->node_count; i++) count += strcmp(g->node[i]->op, op) == 0;
  return count;
}

/* sum_to adds directly to the gradient, so the sum is in the order of the samples. */
static void test_a_parameters_gradient_is_added_to_by_sum_to_itself(void **state)
{
  for (int whole = 0; whole < 2; whole++) { /* the second shape equals [1, 6], so nothing is broadcast */
    brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, 1, true);
    brim_tensor *y = brim_add(g, input(g, 2), parameter(g, whole ? 2 : 1, whole ? (int64_t[]){1, 6} : (int64_t[]){6}));
    brim_tensor *seed = brim_graph_tensor(g, BRIM_ROLE_DATA, g->real, &y->shape, "seed");
    assert_int_equal(brim_autodiff_run(g, y, seed), BRIM_OK);
    assert_int_equal(count_of(g, "sum_to"), 1);
    assert_int_equal(count_of(g, "accumulate"), 0);
    assert_ptr_equal(g->node[g->node_count - 1]->out[0], g->parameter[0].gradient);
    brim_graph_free(g);
  }
}

static void test_equal_shapes_pass_the_gradient_as_a_view(void **state)
{
  brim_graph *g = graph();
  brim_tensor *x = input(g, 2), *z = input(g, 2);
  brim_autodiff_want(g, x);
  brim_autodiff_want(g, z);
  brim_tensor *y = brim_add(g, x, z), *seed = brim_graph_tensor(g, BRIM_ROLE_DATA, g->real, &y->shape, "seed");
  assert_int_equal(brim_autodiff_run(g, y, seed), BRIM_OK);
  assert_int_equal(count_of(g, "reshape"), 2);
  assert_int_equal(g->node_count, 3);
  brim_graph_free(g);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_operands_that_do_not_broadcast_are_refused),
      cmocka_unit_test(test_invalid_numbers_and_types_are_refused),
      cmocka_unit_test(test_axes_that_cannot_be_summed_are_refused),
      cmocka_unit_test(test_results_have_the_shape_of_both),
      cmocka_unit_test(test_a_parameters_gradient_is_added_to_by_sum_to_itself),
      cmocka_unit_test(test_equal_shapes_pass_the_gradient_as_a_view),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
