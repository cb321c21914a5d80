/* Tests the gradients in a plan of parameters that a model uses several times, or in parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "plan_models.h"

/* Builds three layers with the same weight. */
static brim_status build_tied(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_linear(g, "first", brim_flatten(g, brim_input(g)), 24);
  brim_tensor *weight = brim_parameter_new(g, "tied", 2, (int64_t[]){24, 24}, (brim_init){BRIM_INIT_UNIFORM, 0.1});
  for (int i = 0; i < 3; i++) x = brim_linear_with(g, "again", x, weight, NULL);
  brim_output(g, brim_linear(g, "last", x, brim_classes(g)));
  return BRIM_OK;
}

static const brim_tensor *find_tensor(const brim_program *p, const char *name)
{
  for (size_t i = 0; i < p->graph->tensor_count; i++)
    if (strcmp(p->graph->tensor[i]->name, name) == 0) return p->graph->tensor[i];
  fail_msg("no %s", name);
  return NULL;
}

/* All these gradients lie in the range that a step sets to zero, and the update adds them up before anything reads the
 * sum. */
static void each_further_use_of_a_parameter_has_a_gradient_of_its_own(void **unused)
{
  (void)unused;
  brim_plan *plan = plan_of(build_tied, 4, BRIM_FUSE_ALL);
  const brim_program *training = &plan->program[0], *update = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0);
  static const char *const names[] = {"tied.grad", "tied.grad.2", "tied.grad.3"};
  for (size_t i = 0; i < 3; i++) {
    const brim_tensor *a = find_tensor(training, names[i]), *b = find_tensor(update, names[i]);
    const uint64_t at = training->tensor_offset[a->id];
    assert_int_equal(a->role, BRIM_ROLE_GRADIENT);
    assert_int_equal(at, update->tensor_offset[b->id]);
    assert_true(at >= plan->gradient_offset && at + a->bytes <= plan->gradient_offset + plan->gradient_bytes);
    if (i == 0) continue;
    const brim_node *sum = update->graph->node[i - 1];
    assert_string_equal(sum->op, "accumulate");
    assert_string_equal(sum->in[0]->name, names[i]);
    assert_string_equal(sum->out[0]->name, names[0]);
  }
  assert_true(update->graph->first_update >= 2);
  assert_int_equal(plan->gradient_bytes - plan->class_bytes[BRIM_ROLE_PARAMETER], 2 * 24 * 24 * sizeof(float));
  brim_plan_free(plan);
}

/* Builds a model that uses a row of a table, and the product of two of its rows. */
static brim_status build_slice(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_linear(g, "first", brim_flatten(g, brim_input(g)), 24);
  brim_tensor *table = brim_parameter_new(g, "table", 2, (int64_t[]){9, 24}, (brim_init){BRIM_INIT_UNIFORM, 0.1});
  brim_tensor *row = brim_slice(g, table, 0, 4, 1);
  brim_tensor *product = brim_mul(g, row, brim_slice(g, table, 0, 5, 1));
  brim_output(g, brim_linear(g, "last", brim_add(g, brim_add(g, x, row), product), brim_classes(g)));
  return BRIM_OK;
}

/* The gradients of the slice and the product are sums over a step: they are persistent, keep the wide type, and are
 * passed on to the parameter once a step. */
static void a_slice_of_a_parameter_sums_the_gradients_of_its_uses(void **unused)
{
  (void)unused;
  brim_plan_request request = request_of(build_slice, 4);
  request.graph.activations = BRIM_DTYPE_BF16;
  brim_plan *plan = NULL;
  assert_int_equal(brim_plan_create(&request, &plan), BRIM_OK);
  const brim_program *training = &plan->program[0], *update = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0);
  const brim_graph *g = training->graph, *u = update->graph;
  assert_int_equal(g->further_count, 2);
  for (size_t i = 0; i < 2; i++) {
    const brim_tensor *a = g->further[i].gradient, *b = u->further[i].gradient;
    const uint64_t at = training->tensor_offset[a->id];
    assert_int_equal(a->dtype, BRIM_DTYPE_F32);
    assert_int_equal(brim_shape_count(&a->shape), 24);
    assert_int_equal(at, update->tensor_offset[b->id]);
    assert_true(at >= plan->gradient_offset && at + a->bytes <= plan->gradient_offset + plan->gradient_bytes);
    assert_false(brim_graph_has_samples(g, g->further[i].of));
    assert_int_equal(g->further[i].of->dtype, BRIM_DTYPE_F32);
  }
  assert_int_equal(count_ops(training, "pad"), 0);
  assert_int_equal(count_ops(update, "pad"), 2);
  assert_int_equal(count_ops(update, "slice"), 2); /* the product's gradient needs the slices, not the product */
  assert_int_equal(count_ops(update, "cast"), 0);
  brim_plan_free(plan);
}

/* Builds a model in which the number of gradients of the tied weight differs between programs. */
static brim_status build_tied_by_batch(const void *self, brim_graph *g)
{
  brim_tensor *x = brim_flatten(g, brim_input(g));
  if (brim_shape_of(x).dim[0] > 4) return build_tied(self, g);
  x = brim_linear(g, "first", x, 24);
  brim_tensor *weight = brim_parameter_new(g, "tied", 2, (int64_t[]){24, 24}, (brim_init){BRIM_INIT_UNIFORM, 0.1});
  brim_output(g, brim_linear(g, "last", brim_linear_with(g, "again", x, weight, NULL), brim_classes(g)));
  return BRIM_OK;
}

/* Builds a model with the same number of uses in all programs, but of other rows. */
static brim_status build_slice_by_batch(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_linear(g, "first", brim_flatten(g, brim_input(g)), 24);
  brim_tensor *table = brim_parameter_new(g, "table", 2, (int64_t[]){9, 24}, (brim_init){BRIM_INIT_UNIFORM, 0.1});
  x = brim_add(g, x, brim_slice(g, table, 0, brim_shape_of(x).dim[0], 1));
  brim_output(g, brim_linear(g, "last", x, brim_classes(g)));
  return BRIM_OK;
}

static void expect_other_uses(brim_status (*build)(const void *self, brim_graph *g))
{
  brim_plan_request request = request_of(build, 8);
  request.shape[1] = (brim_batch_shape){BRIM_PROGRAM_TRAIN, 4};
  request.shape_count = 2;
  brim_plan *plan = NULL;
  assert_int_equal(brim_plan_create(&request, &plan), BRIM_EINVAL);
  assert_non_null(strstr(brim_error_text(), "uses its parameters differently for N = 4 and N = 8"));
}

static void the_uses_of_parameters_may_not_depend_on_the_batch(void **unused)
{
  (void)unused;
  expect_other_uses(build_tied_by_batch);
  expect_other_uses(build_slice_by_batch);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_further_use_of_a_parameter_has_a_gradient_of_its_own),
      cmocka_unit_test(a_slice_of_a_parameter_sums_the_gradients_of_its_uses),
      cmocka_unit_test(the_uses_of_parameters_may_not_depend_on_the_batch),
  };
  return cmocka_run_group_tests(tests, make_mock_backend_with_conv, NULL);
}
