/* Results overwrite memory in a plan only if it has no later readers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "plan_models.h"

/* A relu overwrites the convolution's result, which has no other reader; dropout overwrites pooling's result, but not a
 * relu's, which the backward pass reads. */
static void results_overwrite_memory_without_later_readers(void **unused)
{
  (void)unused;
  brim_plan *plan = plan_of(build_cnn, 4, 0);
  const brim_program *p = &plan->program[0];
  for (size_t i = 0; i < p->graph->forward_count; i++) {
    const brim_node *n = p->graph->node[i];
    if (strcmp(n->op, "relu") != 0 && strcmp(n->op, "dropout") != 0) continue;
    const bool kept = n->in[0]->producer >= 0 && strcmp(p->graph->node[n->in[0]->producer]->op, "relu") == 0;
    assert_int_equal(p->tensor_offset[n->in[0]->id] == p->tensor_offset[n->out[0]->id], !kept);
  }
  brim_plan_free(plan);
}

/* The logits are read after the program has ended, so nothing may overwrite them. */
static void a_kept_output_is_not_overwritten(void **unused)
{
  (void)unused;
  brim_plan_request request = request_of(build_residual, 6);
  request.graph.keep_output = true;
  brim_plan *plan = NULL;
  assert_int_equal(brim_plan_create(&request, &plan), BRIM_OK);
  assert_int_equal(brim_plan_check(plan), BRIM_OK);
  for (int i = 0; i < 2; i++) { /* in training the loss's gradient could overwrite the output; then evaluation */
    const brim_program *p = &plan->program[i];
    const brim_tensor *output = p->graph->output;
    const int32_t own = p->tensor_buffer[output->id];
    const uint64_t begin = p->buffer[own].offset, end = begin + output->bytes;
    for (size_t t = 0; t < p->graph->tensor_count; t++) {
      const brim_tensor *other = p->graph->tensor[t];
      if (other == output || other->producer <= output->producer || p->tensor_buffer[t] < 0) continue;
      const uint64_t at = p->tensor_offset[t];
      if (at < end && begin < at + other->bytes) fail_msg("'%s' lies on the output", other->name);
    }
    assert_int_equal(p->buffer[own].last, p->graph->node_count);
  }
  brim_plan_free(plan);
}

/* Checks that nothing else writes to a tensor's bytes between its producer and its last reader. */
static void check_lives(const brim_plan *plan)
{
  for (size_t p = 0; p < plan->program_count; p++) {
    const brim_graph *g = plan->program[p].graph;
    const uint64_t *offset = plan->program[p].tensor_offset;
    for (size_t i = 0; i < g->node_count; i++)
      for (uint32_t k = 0; k < g->node[i]->in_count; k++) {
        const brim_tensor *t = g->node[i]->in[k];
        for (int32_t j = t->producer + 1; t->producer >= 0 && j < (int32_t)i; j++)
          for (uint32_t o = 0; o < g->node[j]->out_count; o++) {
            const brim_tensor *w = g->node[j]->out[o];
            const bool overlap = offset[w->id] < offset[t->id] + t->bytes && offset[t->id] < offset[w->id] + w->bytes;
            const bool view = strcmp(g->node[j]->op, "reshape") == 0 && offset[w->id] == offset[t->id];
            if (overlap && !view)
              fail_msg("'%s' (node %d) overwrites '%s' before node %zu reads it", w->name, j, t->name, i);
          }
      }
  }
}

static void nothing_is_overwritten_before_its_last_use(void **unused)
{
  (void)unused;
  for (uint64_t fusions = 0; fusions <= BRIM_FUSE_ALL; fusions += BRIM_FUSE_ALL) {
    brim_plan *residual = plan_of(build_residual, 3, fusions), *blocks = plan_of(build_blocks, 3, fusions);
    check_lives(residual);
    check_lives(blocks);
    brim_plan_free(residual);
    brim_plan_free(blocks);
  }
}

/* In "a + b", the next layer also reads a, so the sum overwrites b. */
static brim_status build_sum(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_flatten(g, brim_input(g));
  brim_tensor *a = brim_linear(g, "a", x, 32), *b = brim_linear(g, "b", x, 32);
  x = brim_add(g, a, b);
  brim_output(g, brim_add(g, brim_linear(g, "c", x, brim_classes(g)), brim_linear(g, "d", a, brim_classes(g))));
  return BRIM_OK;
}

/* In the norm of "a + b", neither a nor b is read later: sum and norm overwrite both. */
static brim_status build_normalised_sum(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_flatten(g, brim_input(g));
  brim_tensor *a = brim_linear(g, "a", x, 32), *b = brim_linear(g, "b", x, 32);
  brim_output(g, brim_linear(g, "c", brim_layer_norm(g, "norm", brim_add(g, a, b), 1e-5), brim_classes(g)));
  return BRIM_OK;
}

static void a_sum_overwrites_the_operand_without_later_readers(void **unused)
{
  (void)unused;
  brim_plan *plan = plan_of(build_sum, 4, 0);
  const brim_program *p = &plan->program[0];
  const brim_node *sum = find_node(p, "add");
  assert_true(p->tensor_offset[sum->out[0]->id] != p->tensor_offset[sum->in[0]->id]);
  assert_true(p->tensor_offset[sum->out[0]->id] == p->tensor_offset[sum->in[1]->id]);
  brim_plan_free(plan);

  plan = plan_of(build_normalised_sum, 4, BRIM_FUSE_ALL);
  p = &plan->program[0];
  sum = find_node(p, "add+layer_norm");
  for (uint32_t k = 0; k < 2; k++) assert_true(p->tensor_offset[sum->out[k]->id] == p->tensor_offset[sum->in[k]->id]);
  brim_plan_free(plan);
}

/* Builds two layers with the same input, and one whose input is also added to its result. */
static brim_status build_readers(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_relu(g, brim_linear(g, "in", brim_flatten(g, brim_input(g)), 32));
  brim_tensor *a = brim_linear(g, "a", x, 16), *b = brim_linear(g, "b", x, 16);
  brim_output(g, brim_linear(g, "out", brim_mul(g, a, b), brim_classes(g)));
  return BRIM_OK;
}

static brim_status build_summand(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_relu(g, brim_linear(g, "in", brim_flatten(g, brim_input(g)), 32));
  brim_output(g, brim_linear(g, "out", brim_add(g, x, brim_linear(g, "a", x, 32)), brim_classes(g)));
  return BRIM_OK;
}

/* In the second graph, the gradient to which the layer adds is the gradient of its own result, which the product still
 * reads. */
static void a_layer_adds_to_its_inputs_gradient_in_place_unless_it_reads_that(void **unused)
{
  (void)unused;
  static brim_status (*const builds[])(const void *, brim_graph *) = {build_readers, build_summand};
  for (size_t i = 0; i < 2; i++) {
    brim_plan *plan = plan_of(builds[i], 4, 0);
    const brim_program *p = &plan->program[0];
    const brim_node *n = find_node(p, "linear_grad_input+add");
    const uint64_t a = p->tensor_offset[n->in[0]->id], dy = p->tensor_offset[n->in[1]->id];
    assert_int_equal(count_ops(p, "linear_grad_input+add"), 1);
    assert_string_equal(n->name, "a");
    assert_true((a == dy) == (i == 1));
    assert_true((p->tensor_offset[n->out[0]->id] == a) == (i == 0));
    brim_plan_free(plan);
  }
}

/* Loaded data must not be overwritten, not even through a view, unlike other inputs without later readers. */
static brim_status build_on_view(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_relu(g, brim_flatten(g, brim_input(g)));
  brim_output(g, brim_linear(g, "fc", brim_dropout(g, x, 0.5), brim_classes(g)));
  return BRIM_OK;
}

static void an_input_stays_as_it_was_loaded(void **unused)
{
  (void)unused;
  brim_plan *plan = plan_of(build_on_view, 4, 0);
  const brim_program *p = &plan->program[1]; /* evaluation */
  const brim_node *relu = find_node(p, "relu");
  assert_true(p->tensor_offset[relu->in[0]->id] == p->tensor_offset[p->graph->input->id]);
  assert_true(p->tensor_offset[relu->out[0]->id] != p->tensor_offset[p->graph->input->id]);
  brim_plan_free(plan);
}

/* In "norm(a + b)", the next layer also reads a: if the sum has no other reader, sum and norm share b's place. */
static brim_status build_kept_operand(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_flatten(g, brim_input(g));
  brim_tensor *a = brim_linear(g, "a", x, 3200), *b = brim_linear(g, "b", x, 3200);
  brim_tensor *y = brim_layer_norm(g, "norm", brim_add(g, a, b), 1e-5);
  brim_output(g, brim_linear(g, "c", brim_mul(g, a, y), brim_classes(g)));
  return BRIM_OK;
}

static void a_norm_takes_the_place_of_an_unread_sum(void **unused)
{
  (void)unused;
  brim_plan *plain = plan_of(build_kept_operand, 64, 0);
  brim_plan *plan = plan_of(build_kept_operand, 64, BRIM_FUSE_ALL);
  const brim_program *p = &plan->program[1]; /* evaluation: no gradient reads the sum */
  const brim_node *both = find_node(p, "add+layer_norm");
  assert_true(p->tensor_offset[both->out[0]->id] == p->tensor_offset[both->out[1]->id]);
  assert_true(p->tensor_offset[both->out[1]->id] == p->tensor_offset[both->in[1]->id]);
  for (size_t i = 0; i < 2; i++) assert_true(plan->program[i].transient_bytes <= plain->program[i].transient_bytes);
  both = find_node(&plan->program[0], "add+layer_norm");
  assert_true(plan->program[0].tensor_offset[both->out[0]->id] != plan->program[0].tensor_offset[both->out[1]->id]);
  brim_plan_free(plan);
  brim_plan_free(plain);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(results_overwrite_memory_without_later_readers),
      cmocka_unit_test(a_kept_output_is_not_overwritten),
      cmocka_unit_test(nothing_is_overwritten_before_its_last_use),
      cmocka_unit_test(a_sum_overwrites_the_operand_without_later_readers),
      cmocka_unit_test(a_layer_adds_to_its_inputs_gradient_in_place_unless_it_reads_that),
      cmocka_unit_test(an_input_stays_as_it_was_loaded),
      cmocka_unit_test(a_norm_takes_the_place_of_an_unread_sum),
  };
  return cmocka_run_group_tests(tests, make_mock_backend_with_conv, NULL);
}
