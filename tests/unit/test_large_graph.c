/* A graph of a thousand forward operations: its nodes are counted, its plan is made, valid and tight. How fast that is,
 * tests/bench/bench_plan.c tells. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "brim/brim.h"
#include "graph/plan.h"
#include "large_model.h"

enum { BATCH = 3, KERNELS_MAX = 512 };

static brim_status run_nothing(void *self, const brim_launch *launch)
{
  (void)self;
  (void)launch;
  return BRIM_OK;
}

/* Each node wants scratch of another size, so that no two programs of buffers are alike. */
static brim_status prepare_scratch(void *self, const brim_program_info *program, const brim_node *node,
                                   brim_kernel_need *need, void **state)
{
  (void)self;
  (void)program;
  (void)state;
  need->workspace_bytes = 64 * (node->index * 7919 % 101);
  return BRIM_OK;
}

static brim_plan *make_plan(void)
{
  static brim_kernel kernels[KERNELS_MAX];
  static const brim_kernel *table[KERNELS_MAX];
  static brim_backend_ops backend = {
      .size = sizeof(brim_backend_ops), .real = BRIM_DTYPE_F32, .kernels = table, .alignment = 64};
  assert_true(brim_op_count() <= KERNELS_MAX);
  for (size_t i = 0; i < brim_op_count(); i++) {
    kernels[i] = (brim_kernel){.op = brim_op_at(i)->name, .prepare = prepare_scratch, .run = run_nothing};
    table[i] = &kernels[i];
  }
  backend.kernels_end = table + brim_op_count();
  const brim_plan_request request = {.graph = {.model = &large_model,
                                               .loss_op = "softmax_cross_entropy",
                                               .sample = {2, {LARGE_TOKENS, LARGE_WIDTH}},
                                               .classes = 10,
                                               .real = BRIM_DTYPE_F32},
                                     .backend = &backend,
                                     .update = {.op = "sgd", .state_count = 1},
                                     .shape = {{BRIM_PROGRAM_TRAIN, BATCH}, {BRIM_PROGRAM_EVALUATE, BATCH}},
                                     .shape_count = 2};
  brim_plan *plan = NULL;
  if (brim_plan_create(&request, &plan) != BRIM_OK) fail_msg("%s", brim_error_text());
  return plan;
}

static void test_a_graph_of_a_thousand_operations_is_built_and_differentiated(void **state)
{
  (void)state;
  brim_plan *plan = make_plan();
  const brim_graph *train = plan->program[0].graph, *eval = plan->program[1].graph;
  assert_true(LARGE_OPS >= 1000);
  assert_int_equal(eval->node_count, LARGE_OPS);
  assert_int_equal(train->forward_count, LARGE_OPS);
  assert_true(train->node_count > 2 * LARGE_OPS); /* each forward operation but the metrics has a gradient, most more */
  assert_int_equal(train->parameter_count, 2 + 16 * LARGE_BLOCKS);
  for (size_t i = 0; i < train->parameter_count; i++) { /* each parameter's gradient is computed */
    bool written = false;
    for (size_t n = LARGE_OPS; n < train->node_count && !written; n++)
      for (uint32_t k = 0; k < train->node[n]->out_count; k++)
        written = written || train->node[n]->out[k] == train->parameter[i].gradient;
    assert_true(written);
  }
  brim_plan_free(plan);
}

static void test_the_plan_of_a_thousand_operations_is_valid_and_tight(void **state)
{
  (void)state;
  brim_plan *plan = make_plan();
  assert_int_equal(brim_plan_check(plan), BRIM_OK);
  assert_true(plan->program[0].buffer_count > 2000);
  assert_true((double)plan->peak_bytes <= 1.01 * (double)plan->lower_bound_bytes);
  for (size_t p = 0; p < plan->program_count; p++)
    for (size_t i = 0; i < plan->program[p].graph->node_count; i++)
      assert_string_equal(plan->program[p].kernel[i]->op, plan->program[p].graph->node[i]->op);
  brim_plan_free(plan);
}

static void test_every_operation_is_found_by_its_name(void **state)
{
  (void)state;
  for (size_t i = 0; i < brim_op_count(); i++) assert_ptr_equal(brim_op_find(brim_op_at(i)->name), brim_op_at(i));
  assert_null(brim_op_find("no_such_operation"));
  assert_null(brim_op_find(""));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_graph_of_a_thousand_operations_is_built_and_differentiated),
      cmocka_unit_test(test_the_plan_of_a_thousand_operations_is_valid_and_tight),
      cmocka_unit_test(test_every_operation_is_found_by_its_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
