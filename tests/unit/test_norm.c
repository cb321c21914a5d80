/* Tests graphs of normalisations: parameters and buffers with PyTorch's names and initial values, batch norm's groups
 * of samples, and the errors for wrong calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "brim/brim.h"
#include "graph/graph.h"

static brim_tensor *input(brim_graph *g, int32_t rank)
{
  return brim_graph_tensor(g, BRIM_ROLE_DATA, g->real, &(brim_shape){rank, {g->batch, 6, 5, 4}}, "the.x");
}

static brim_tensor *indices(brim_graph *g)
{
  return brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_I32, &(brim_shape){2, {g->batch, 6}}, "words");
}

/* Asserts that the graph failed with this text and names this file; frees the graph. */
static void assert_failed(brim_graph *g, const brim_tensor *result, const char *text)
{
  assert_null(result);
  assert_int_equal(g->status, BRIM_EINVAL);
  if (!strstr(g->error, text)) fail_msg("'%s' is not in: %s", text, g->error);
  assert_non_null(strstr(g->error, "\n  test_norm.c:"));
  brim_graph_free(g);
}

static brim_graph *graph(void)
{
  return brim_graph_create(BRIM_DTYPE_F32, 2, true);
}

static void test_errors_name_the_mismatch(void **state)
{
  brim_graph *g = graph();
  assert_failed(g, brim_layer_norm(g, "ln", input(g, 1), 1e-5), "layer_norm 'ln': input must be [N, ..., F], got [2]");
  g = graph();
  assert_failed(g, brim_rms_norm(g, "rms", input(g, 2), 0), "rms_norm 'rms': eps must be greater than 0, got 0");
  g = graph();
  assert_failed(g, brim_group_norm(g, "gn", input(g, 4), 4, 1e-5),
                "group_norm 'gn': the 6 channels of input [2, 6, 5, 4] cannot be cut into 4 equal groups");
  g = graph();
  assert_failed(g, brim_group_norm(g, "gn", input(g, 4), 0, 1e-5), "into 0 equal groups");
  g = graph();
  assert_failed(g, brim_batch_norm(g, "bn", input(g, 1), 1e-5, 0.1),
                "batch_norm 'bn': input must be [N, C, ...], got [2]");
  g = graph();
  assert_failed(g, brim_batch_norm(g, "bn", input(g, 2), -1, 0.1), "eps must be greater than 0, got -1");
  g = graph();
  assert_failed(g, brim_batch_norm(g, "bn", input(g, 2), 1e-5, 1.5), "momentum must be in [0,1], got 1.5");
  g = graph();
  assert_failed(g, brim_batch_norm(g, "bn", NULL, 1e-5, 0.1), "batch_norm 'bn': the input is NULL");
  g = graph();
  assert_failed(g, brim_batch_norm(g, "bn", indices(g), 1e-5, 0.1),
                "batch_norm 'bn': 'words' holds indices (I32), not real numbers");
  g = graph();
  assert_failed(g, brim_rms_norm(g, "rms", indices(g), 1e-5),
                "rms_norm 'rms': 'words' holds indices (I32), not real numbers");
  g = graph();
  brim_layer_norm(g, "twice", input(g, 3), 1e-5);
  assert_failed(g, brim_layer_norm(g, "twice", input(g, 3), 1e-5),
                "'twice.weight': there is already a parameter of this name");
}

static void assert_parameter(const brim_graph *g, size_t i, const char *name, double start, bool is_buffer)
{
  const brim_parameter *p = &g->parameter[i];
  assert_string_equal(p->value->name, name);
  assert_int_equal(p->value->shape.rank, 1);
  assert_int_equal(p->value->shape.dim[0], 6);
  assert_int_equal(p->init.kind, BRIM_INIT_CONSTANT);
  assert_true(p->init.value == start);
  assert_true(p->is_buffer == is_buffer);
}

static void test_batch_norm_has_pytorchs_parameters_and_buffers(void **state)
{
  for (int training = 0; training < 2; training++) {
    brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, 2, training);
    assert_non_null(brim_batch_norm(g, "bn", input(g, 4), 1e-5, 0.25));
    assert_int_equal(g->parameter_count, 4);
    assert_parameter(g, 0, "bn.weight", 1, false);
    assert_parameter(g, 1, "bn.bias", 0, false);
    assert_parameter(g, 2, "bn.running_mean", 0, true);
    assert_parameter(g, 3, "bn.running_var", 1, true);
    assert_true(g->parameter[2].momentum == 0.25 && g->parameter[3].momentum == 0.25);
    assert_true(g->uses_norm_group);
    assert_string_equal(g->node[0]->op, training ? "batch_norm" : "batch_norm_inference");
    brim_graph_free(g);
  }
}

static void test_other_norms_ignore_groups_of_samples(void **state)
{
  brim_graph *g = graph();
  brim_tensor *x = brim_group_norm(g, "gn", input(g, 3), 2, 1e-5);
  x = brim_rms_norm(g, "rms", brim_layer_norm(g, "ln", x, 1e-5), 1e-6);
  assert_non_null(x);
  assert_false(g->uses_norm_group);
  static const char *const names[] = {"gn.weight", "gn.bias", "ln.weight", "ln.bias", "rms.weight"};
  assert_int_equal(g->parameter_count, 5);
  for (int i = 0; i < 5; i++) assert_string_equal(g->parameter[i].value->name, names[i]);
  brim_graph_free(g);
}

/* The statistics have one row for each whole group of samples; a shorter rest has no row. */
static void test_batch_norm_has_statistics_for_each_whole_group(void **state)
{
  static const int64_t cases[][3] = {{16, 16, 1}, {15, 16, 1}, {1, 16, 1}, {31, 16, 1},
                                     {32, 16, 2}, {40, 16, 2}, {5, 1, 5},  {7, 3, 2}}; /* N, group, groups */
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, cases[i][0], true);
    g->norm_group = cases[i][1];
    assert_non_null(brim_batch_norm(g, "bn", input(g, 2), 1e-5, 0.1));
    const brim_node *n = g->node[0];
    assert_int_equal(n->out_count, 5);
    for (int k = 1; k < 3; k++) assert_int_equal(n->out[k]->shape.dim[0], cases[i][2]);
    assert_ptr_equal(n->out[3], g->parameter[2].gradient);
    assert_ptr_equal(n->out[4], g->parameter[3].gradient);
    brim_graph_free(g);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_errors_name_the_mismatch),
      cmocka_unit_test(test_batch_norm_has_pytorchs_parameters_and_buffers),
      cmocka_unit_test(test_other_norms_ignore_groups_of_samples),
      cmocka_unit_test(test_batch_norm_has_statistics_for_each_whole_group),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
