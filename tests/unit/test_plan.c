/* Memory plans: their sizes, their programs and the places of their buffers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "plan_models.h"

static void cnn_has_the_parameters_of_pytorch_example(void **unused)
{
  (void)unused;
  brim_plan *plan = plan_of(build_cnn, 4, 0);
  const brim_graph *g = plan->program[0].graph;
  int64_t count = 0;
  for (size_t i = 0; i < g->parameter_count; i++) count += brim_shape_count(&g->parameter[i].value->shape);
  assert_int_equal(count, 1199882);
  assert_string_equal(g->parameter[0].value->name, "conv1.weight");
  assert_string_equal(g->parameter[7].value->name, "fc2.bias");
  brim_plan_free(plan);
}

/* No two buffers that live at the same time overlap, for many batch sizes; and the placement is near the bound. */
static void buffers_never_overlap_in_life_and_place(void **unused)
{
  (void)unused;
  brim_status (*const builds[])(const void *, brim_graph *) = {build_cnn, build_residual};
  for (int b = 0; b < 2; b++)
    for (int64_t batch = 1; batch <= 300; batch = batch * 2 + 1) {
      brim_plan *plan = plan_of(builds[b], batch, 0);
      assert_int_equal(brim_plan_check(plan), BRIM_OK);
      assert_true(plan->peak_bytes >= plan->lower_bound_bytes);
      assert_true((double)plan->peak_bytes <= 1.03 * (double)plan->lower_bound_bytes);
      brim_plan_free(plan);
    }
}

/* The numbers in the plan add up, and the persistent part has the right size. */
static void classes_add_up_to_the_lower_bound(void **unused)
{
  (void)unused;
  brim_plan *plan = plan_of(build_cnn, 32, 0);
  uint64_t sum = 0;
  for (uint32_t r = 0; r < BRIM_ROLE_COUNT; r++) sum += plan->class_bytes[r];
  assert_int_equal(sum, plan->lower_bound_bytes);
  assert_int_equal(plan->class_bytes[BRIM_ROLE_PARAMETER], plan->class_bytes[BRIM_ROLE_GRADIENT]);
  assert_int_equal(2 * plan->class_bytes[BRIM_ROLE_PARAMETER], plan->class_bytes[BRIM_ROLE_OPTIMIZER]);
  assert_true(plan->class_bytes[BRIM_ROLE_PARAMETER] >= 4 * 1199882);
  brim_plan_free(plan);
}

/* The parameters lie at the same place in every program of a plan. */
static void programs_share_the_persistent_part(void **unused)
{
  (void)unused;
  brim_plan *plan = plan_of(build_residual, 5, 0);
  assert_int_equal(plan->program_count, 3);
  const brim_program *train = &plan->program[0];
  for (size_t p = 1; p < plan->program_count; p++) {
    const brim_program *other = &plan->program[p];
    for (size_t i = 0; i < train->graph->parameter_count; i++) {
      const brim_parameter *a = &train->graph->parameter[i], *b = &other->graph->parameter[i];
      assert_string_equal(a->value->name, b->value->name);
      assert_true(train->tensor_offset[a->value->id] == other->tensor_offset[b->value->id]);
      if (b->gradient) assert_true(train->tensor_offset[a->gradient->id] == other->tensor_offset[b->gradient->id]);
    }
  }
  brim_plan_free(plan);
}

static void the_plan_is_a_function_of_its_request(void **unused)
{
  (void)unused;
  brim_plan *a = plan_of(build_residual, 17, 0), *b = plan_of(build_residual, 17, 0);
  for (size_t p = 0; p < a->program_count; p++)
    assert_memory_equal(a->program[p].tensor_offset, b->program[p].tensor_offset,
                        a->program[p].graph->tensor_count * sizeof(uint64_t));
  brim_plan_free(a);
  brim_plan_free(b);
}

static void a_plan_for_evaluation_holds_no_gradients_and_no_optimizer(void **unused)
{
  (void)unused;
  brim_plan_request request = request_of(build_cnn, 16);
  brim_plan *training = plan_of(build_cnn, 16, 0), *evaluation = NULL;
  request.shape[0] = (brim_batch_shape){BRIM_PROGRAM_EVALUATE, 16};
  request.shape_count = 1;
  assert_int_equal(brim_plan_create(&request, &evaluation), BRIM_OK);
  assert_null(brim_plan_program(evaluation, BRIM_PROGRAM_UPDATE, 0));
  assert_int_equal(evaluation->class_bytes[BRIM_ROLE_PARAMETER], training->class_bytes[BRIM_ROLE_PARAMETER]);
  assert_int_equal(evaluation->class_bytes[BRIM_ROLE_GRADIENT], 0);
  assert_int_equal(evaluation->class_bytes[BRIM_ROLE_OPTIMIZER], 0);
  assert_true(evaluation->persistent_bytes + training->class_bytes[BRIM_ROLE_GRADIENT] * 3 <=
              training->persistent_bytes);
  assert_true(evaluation->peak_bytes < training->peak_bytes - training->class_bytes[BRIM_ROLE_GRADIENT] * 3);
  brim_plan_free(training);
  brim_plan_free(evaluation);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cnn_has_the_parameters_of_pytorch_example),
      cmocka_unit_test(buffers_never_overlap_in_life_and_place),
      cmocka_unit_test(classes_add_up_to_the_lower_bound),
      cmocka_unit_test(programs_share_the_persistent_part),
      cmocka_unit_test(the_plan_is_a_function_of_its_request),
      cmocka_unit_test(a_plan_for_evaluation_holds_no_gradients_and_no_optimizer),
  };
  return cmocka_run_group_tests(tests, make_mock_backend_with_conv, NULL);
}
