/* Tests activations in a smaller type: the affected tensors, the places of the casts, and that gradients of parameters
 * stay wide. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "graph/lower.h"

static const brim_node *node_named(const brim_graph *g, const char *op, size_t which)
{
  for (size_t i = 0; i < g->node_count; i++)
    if (strcmp(g->node[i]->op, op) == 0 && which-- == 0) return g->node[i];
  fail_msg("there is no such %s", op);
  return NULL;
}

static size_t count_of(const brim_graph *g, const char *op)
{
  size_t count = 0;
  for (size_t i = 0; i < g->node_count; i++) count += strcmp(g->node[i]->op, op) == 0;
  return count;
}

/* Builds two layers with the same weight, a norm between them, and a loss. */
static brim_graph *make(uint32_t real, uint32_t activations)
{
  brim_graph *g = brim_graph_create(real, 4, true);
  g->classes = 8;
  g->input = brim_graph_tensor(g, BRIM_ROLE_DATA, real, &(brim_shape){2, {4, 8}}, "input");
  g->label = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_I32, &(brim_shape){1, {4}}, "label");
  const int64_t dim[] = {8, 8};
  brim_tensor *weight = brim_parameter_new(g, "weight", 2, dim, (brim_init){BRIM_INIT_UNIFORM, 1});
  brim_tensor *x = brim_linear_with(g, "first", g->input, weight, NULL);
  x = brim_layer_norm(g, "norm", x, 1e-5);
  x = brim_linear_with(g, "second", x, weight, NULL);
  brim_tensor *const in[] = {x, g->label};
  g->loss = brim_graph_apply(g, "softmax_cross_entropy", "loss", in, 2, NULL);
  if (activations) brim_graph_lower(g, activations);
  assert_int_equal(brim_autodiff_run(g, g->loss, NULL), BRIM_OK);
  return g;
}

static void check_types(uint32_t small)
{
  brim_graph *g = make(BRIM_DTYPE_F32, small);
  const brim_node *norm = node_named(g, "layer_norm", 0), *loss = node_named(g, "softmax_cross_entropy", 0);
  assert_int_equal(norm->in[0]->dtype, small);
  assert_int_equal(norm->in[1]->dtype, BRIM_DTYPE_F32);
  assert_ptr_equal(norm->in[1], g->parameter[1].value);
  assert_int_equal(norm->out[0]->dtype, small);
  assert_int_equal(norm->out[0]->bytes, 4 * 8 * 2);
  assert_int_equal(norm->out[1]->dtype, BRIM_DTYPE_F32);
  assert_int_equal(loss->in[0]->dtype, small);
  assert_int_equal(loss->out[0]->dtype, BRIM_DTYPE_F32);
  for (size_t i = 0; i < g->parameter_count; i++) {
    assert_int_equal(g->parameter[i].value->dtype, BRIM_DTYPE_F32);
    assert_int_equal(g->parameter[i].gradient->dtype, BRIM_DTYPE_F32);
  }
  for (size_t i = g->forward_count; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->node[i]->out_count; k++)
      if (g->node[i]->out[k]->role == BRIM_ROLE_ACTIVATION) assert_int_equal(g->node[i]->out[k]->dtype, small);
  brim_graph_free(g);
}

static void activations_are_small_and_sums_are_wide(void **state)
{
  check_types(BRIM_DTYPE_BF16);
  check_types(BRIM_DTYPE_F16);
}

/* There is one cast of the data and one of the weight, even if it is used several times, each right before its first
 * reader. */
static void each_source_is_cast_once_before_its_first_reader(void **state)
{
  brim_graph *g = make(BRIM_DTYPE_F32, BRIM_DTYPE_BF16);
  assert_int_equal(count_of(g, "cast"), 2);
  const brim_node *first = node_named(g, "linear", 0), *second = node_named(g, "linear", 1);
  assert_ptr_equal(g->node[0]->in[0], g->input);
  assert_ptr_equal(g->node[1]->in[0], g->parameter[0].value);
  assert_ptr_equal(g->node[2], first);
  assert_ptr_equal(first->in[0], g->node[0]->out[0]);
  assert_ptr_equal(first->in[1], g->node[1]->out[0]);
  assert_ptr_equal(second->in[1], g->node[1]->out[0]);
  for (size_t i = 0; i < g->node_count; i++) {
    assert_int_equal(g->node[i]->index, i);
    for (uint32_t k = 0; k < g->node[i]->in_count; k++) assert_true(g->node[i]->in[k]->producer < (int32_t)i);
  }
  brim_graph_free(g);
}

/* Each use of the weight has a separate gradient, as without casts. */
static void gradients_of_weights_go_past_their_casts(void **state)
{
  brim_graph *g = make(BRIM_DTYPE_F32, BRIM_DTYPE_BF16), *wide = make(BRIM_DTYPE_F32, 0);
  const brim_node *last = node_named(g, "linear_grad_weight", 0), *before = node_named(g, "linear_grad_weight", 1);
  assert_ptr_equal(last->out[0], g->parameter[0].gradient);
  assert_int_equal(g->further_count, 1);
  assert_ptr_equal(before->out[0], g->further[0].gradient);
  assert_int_equal(before->out[0]->dtype, BRIM_DTYPE_F32);
  assert_int_equal(g->node_count, wide->node_count + 2);
  assert_int_equal(brim_graph_hash(g), brim_graph_hash(wide));
  brim_graph_free(g);
  brim_graph_free(wide);
}

/* Checks that both types give the same nodes, so that a backend in double precision can be the reference for one with a
 * smaller type. */
static void check_same_nodes(uint32_t small)
{
  brim_graph *reference = make(BRIM_DTYPE_F64, small), *g = make(BRIM_DTYPE_F32, small);
  assert_int_equal(reference->node_count, g->node_count);
  assert_int_equal(reference->tensor_count, g->tensor_count);
  for (size_t i = 0; i < g->node_count; i++) assert_string_equal(reference->node[i]->op, g->node[i]->op);
  for (size_t i = 0; i < reference->tensor_count; i++) assert_int_not_equal(reference->tensor[i]->dtype, small);
  assert_int_equal(reference->node[0]->attr.cast.rounds_to, small);
  brim_graph_free(reference);
  brim_graph_free(g);
}

static void in_double_precision_the_graph_is_the_same_and_nothing_is_stored_small(void **state)
{
  check_same_nodes(BRIM_DTYPE_BF16);
  check_same_nodes(BRIM_DTYPE_F16);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(activations_are_small_and_sums_are_wide),
      cmocka_unit_test(each_source_is_cast_once_before_its_first_reader),
      cmocka_unit_test(gradients_of_weights_go_past_their_casts),
      cmocka_unit_test(in_double_precision_the_graph_is_the_same_and_nothing_is_stored_small),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
