/* Tests memory plans: their sizes, their programs and the places of their buffers. */
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

/* For many batch sizes, buffers that live at the same time do not overlap, and the peak is near the lower bound. */
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

static brim_status run_no_program(void *self, const brim_program_run *run)
{
  (void)self;
  (void)run;
  return BRIM_ENOTSUP;
}

/* Counts the casts of parameters before the first other node. */
static size_t count_leading_casts(const brim_program *p)
{
  size_t count = 0;
  while (strcmp(p->graph->node[count]->op, "cast") == 0 && p->graph->node[count]->in[0]->role == BRIM_ROLE_PARAMETER)
    count++;
  return count;
}

static void check_casts_come_first(brim_status (*build)(const void *self, brim_graph *g), size_t casts)
{
  brim_backend_ops recording = mock_backend;
  recording.run_program = run_no_program;
  brim_plan_request request = request_of(build, 64);
  request.graph.activations = BRIM_DTYPE_BF16;
  brim_plan *plain = NULL, *recorded = NULL;
  assert_int_equal(brim_plan_create(&request, &plain), BRIM_OK);
  request.backend = &recording;
  assert_int_equal(brim_plan_create(&request, &recorded), BRIM_OK);
  const brim_program *p = &recorded->program[0];
  assert_true(count_leading_casts(&plain->program[0]) <= 2);
  assert_int_equal(count_leading_casts(p), casts);
  assert_int_equal(p->graph->node_count, plain->program[0].graph->node_count);
  assert_true(recorded->peak_bytes <= plain->peak_bytes);
  assert_int_equal(recorded->lower_bound_bytes, plain->lower_bound_bytes);
  assert_int_equal(brim_plan_check(recorded), BRIM_OK);
  for (size_t i = 0; i < p->graph->node_count; i++) {
    const brim_node *n = p->graph->node[i];
    assert_int_equal(n->index, i);
    assert_string_equal(p->kernel[i]->op, n->op);
    for (uint32_t k = 0; k < n->in_count; k++) assert_true(n->in[k]->producer < (int32_t)i);
    if (p->workspace_buffer[i] >= 0) assert_int_equal(p->buffer[p->workspace_buffer[i]].last, i);
  }
  brim_plan_free(plain);
  brim_plan_free(recorded);
}

/* A backend that records programs computes these casts in one launch; for others a cast comes right before its first
 * reader. */
static void casts_of_parameters_come_first_in_recorded_programs(void **unused)
{
  (void)unused;
  check_casts_come_first(build_cnn, 8);
  check_casts_come_first(build_blocks, 28);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cnn_has_the_parameters_of_pytorch_example),
      cmocka_unit_test(buffers_never_overlap_in_life_and_place),
      cmocka_unit_test(classes_add_up_to_the_lower_bound),
      cmocka_unit_test(programs_share_the_persistent_part),
      cmocka_unit_test(the_plan_is_a_function_of_its_request),
      cmocka_unit_test(casts_of_parameters_come_first_in_recorded_programs),
      cmocka_unit_test(a_plan_for_evaluation_holds_no_gradients_and_no_optimizer),
  };
  return cmocka_run_group_tests(tests, make_mock_backend_with_conv, NULL);
}
