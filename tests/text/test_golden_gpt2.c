/* The model gpt2 compared with PyTorch in double precision, through the real plan and execution on the reference
 * backend: logits, losses, every gradient, and 20 steps of AdamW. tests/golden/make_gpt2.py makes and describes the
 * fixture. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "conformance/load.h"
#include "exec/exec.h"
#include "text/golden_tokens.h"

typedef struct trainer {
  loaded model, backend;
  golden_tokens data;
  brim_plan *plan;
  brim_exec *exec;
} trainer;

static void must(brim_status status)
{
  if (status != BRIM_OK) fail_msg("%s", brim_error_text());
}

static void place(trainer *t)
{
  const brim_plan_request r = {.graph = {.model = t->model.plugin->ops,
                                         .model_self = t->model.self,
                                         .task = BRIM_TASK_TOKENS,
                                         .classes = VOCABULARY,
                                         .sample = {1, {LENGTH}},
                                         .loss.op = "softmax_cross_entropy",
                                         .loss.attr = {.ignores = 1, .ignore_index = IGNORED},
                                         .real = BRIM_DTYPE_F64},
                               .backend = t->backend.plugin->ops,
                               .backend_self = t->backend.self,
                               .update = {.op = "adamw", .state_count = 2},
                               .shape = {{BRIM_PROGRAM_TRAIN, BATCH},
                                         {BRIM_PROGRAM_TRAIN, 4},
                                         {BRIM_PROGRAM_TRAIN, 2},
                                         {BRIM_PROGRAM_EVALUATE, BATCH}},
                               .shape_count = 4};
  must(brim_plan_create(&r, &t->plan));
  must(brim_plan_check(t->plan));
  must(brim_exec_open(t->plan, 0, &t->exec));
  const brim_program *p = &t->plan->program[0];
  for (size_t i = 0; i < p->graph->parameter_count; i++) {
    const brim_tensor *value = p->graph->parameter[i].value;
    const golden_tensor *from = golden_find(&t->data.fixture, "parameter.", value->name);
    assert_true(brim_shape_equal(&from->shape, &value->shape));
    must(brim_exec_write(t->exec, p, value, from->value));
  }
}

static int start(void **state)
{
  static trainer t;
  t = (trainer){0};
  golden_tokens_read(&t.data, "gpt2.txt");
  assert_true(load_plugin(&t.model, "model", "gpt2", "{layers: 2, heads: 2, width: 8, context: 9, dropout: 0}"));
  assert_true(load_plugin(&t.backend, "backend", "reference", NULL));
  place(&t);
  *state = &t;
  return 0;
}

static int stop(void **state)
{
  trainer *t = *state;
  brim_exec_close(t->exec);
  brim_plan_free(t->plan);
  unload_plugin(&t->model);
  unload_plugin(&t->backend);
  brim_arena_release(&t->data.fixture.arena);
  return 0;
}

static const brim_program *run_batch(trainer *t, enum brim_program_kind kind, int64_t first, int64_t count)
{
  const brim_program *p = brim_plan_program(t->plan, kind, count);
  const brim_step step = {.first_sample = first, .loss_scale = 1 / t->data.counted};
  must(brim_exec_load(t->exec, p, t->data.tokens[first], t->data.label[first]));
  must(brim_exec_run(t->exec, p, &step, NULL));
  return p;
}

static void check_persistent(trainer *t, const brim_tensor *tensor, const char *prefix, const char *name)
{
  double *value = calloc(1, tensor->bytes);
  must(brim_exec_read(t->exec, &t->plan->program[0], tensor, value));
  golden_check(&t->data.fixture, prefix, name, &tensor->shape, value);
  free(value);
}

static void logits_and_losses_are_pytorchs(void **state)
{
  trainer *t = *state;
  const brim_graph *g = run_batch(t, BRIM_PROGRAM_EVALUATE, 0, BATCH)->graph;
  golden_check(&t->data.fixture, "", "logits", &g->output->shape,
               brim_exec_pointer(t->exec, brim_plan_program(t->plan, BRIM_PROGRAM_EVALUATE, BATCH), g->output));
  golden_check(&t->data.fixture, "", "loss", &g->loss->shape,
               brim_exec_pointer(t->exec, brim_plan_program(t->plan, BRIM_PROGRAM_EVALUATE, BATCH), g->loss));
}

/* Adds the gradients that only the update sums: the tied embedding has two; that of the positions is the sum for their
 * slice, which is the first of them. */
static void add_further(trainer *t, size_t parameter, double *value)
{
  const brim_program *p = &t->plan->program[0];
  const brim_tensor *whole = p->graph->parameter[parameter].gradient;
  double *more = calloc(1, whole->bytes);
  for (size_t i = 0; i < p->graph->further_count; i++) {
    const brim_further *f = &p->graph->further[i];
    const brim_tensor *of = f->of ? p->graph->node[f->of->producer]->in[0] : p->graph->parameter[f->parameter].value;
    if (of != p->graph->parameter[parameter].value) continue;
    must(brim_exec_read(t->exec, p, f->gradient, more));
    for (int64_t k = 0; k < brim_shape_count(&f->gradient->shape); k++) value[k] += more[k];
  }
  free(more);
}

/* The whole batch at once, then in unequal micro-batches. */
static void gradients_match_pytorch(void **state)
{
  trainer *t = *state;
  const brim_graph *g = t->plan->program[0].graph;
  for (int pieces = 1; pieces <= 2; pieces++) {
    must(brim_exec_zero_gradients(t->exec));
    run_batch(t, BRIM_PROGRAM_TRAIN, 0, pieces == 1 ? BATCH : 4);
    if (pieces == 2) run_batch(t, BRIM_PROGRAM_TRAIN, 4, BATCH - 4);
    for (size_t i = 0; i < g->parameter_count; i++) {
      const brim_tensor *gradient = g->parameter[i].gradient;
      double *value = calloc(1, gradient->bytes);
      must(brim_exec_read(t->exec, &t->plan->program[0], gradient, value));
      add_further(t, i, value);
      golden_check(&t->data.fixture, "gradient.", g->parameter[i].value->name, &gradient->shape, value);
      free(value);
    }
  }
  assert_int_equal(t->data.fixture.count, 4 + 3 * g->parameter_count + 1);
}

static void twenty_steps_of_adamw_are_pytorchs(void **state)
{
  trainer *t = *state;
  const brim_program *p = &t->plan->program[0], *update = brim_plan_program(t->plan, BRIM_PROGRAM_UPDATE, 0);
  brim_step step = {.lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  double loss[STEPS], metrics[2];
  for (int i = 0; i < STEPS; i++) {
    must(brim_exec_zero_gradients(t->exec));
    must(brim_exec_zero_metrics(t->exec));
    run_batch(t, BRIM_PROGRAM_TRAIN, 0, BATCH);
    must(brim_exec_metrics(t->exec, p, metrics, 2));
    loss[i] = metrics[0] / t->data.counted;
    step.step = (uint64_t)i;
    step.bias_correction1 = 1 - pow(step.beta1, i + 1);
    step.bias_correction2 = 1 - pow(step.beta2, i + 1);
    must(brim_exec_run(t->exec, update, &step, NULL));
  }
  golden_check(&t->data.fixture, "adamw.", "loss", &(brim_shape){1, {STEPS}}, loss);
  for (size_t i = 0; i < p->graph->parameter_count; i++)
    check_persistent(t, p->graph->parameter[i].value, "adamw.", p->graph->parameter[i].value->name);
}

/* Scalars in all parameters at GPT-2's vocabulary. */
static int64_t count_parameters(const char *settings)
{
  loaded plugin;
  brim_graph *g = NULL;
  int64_t count = 0;
  assert_true(load_plugin(&plugin, "model", "gpt2", settings));
  must(brim_graph_build(&(brim_graph_options){.model = plugin.plugin->ops,
                                              .model_self = plugin.self,
                                              .task = BRIM_TASK_TOKENS,
                                              .sample = {1, {16}},
                                              .classes = 50257,
                                              .loss.op = "softmax_cross_entropy",
                                              .batch = 1,
                                              .real = BRIM_DTYPE_F32},
                        &g));
  for (size_t i = 0; i < g->parameter_count; i++) count += brim_shape_count(&g->parameter[i].value->shape);
  brim_graph_free(g);
  unload_plugin(&plugin);
  return count;
}

static void the_sizes_have_the_parameters_of_openais(void **state)
{
  (void)state;
  assert_int_equal(count_parameters(NULL), 124439808);
  assert_int_equal(count_parameters("{layers: 24, heads: 16, width: 1024}"), 354823168);
  assert_int_equal(count_parameters("{layers: 36, heads: 20, width: 1280}"), 774030080);
  assert_int_equal(count_parameters("{layers: 48, heads: 25, width: 1600}"), 1557611200);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(logits_and_losses_are_pytorchs, start, stop),
      cmocka_unit_test_setup_teardown(gradients_match_pytorch, start, stop),
      cmocka_unit_test_setup_teardown(twenty_steps_of_adamw_are_pytorchs, start, stop),
      cmocka_unit_test(the_sizes_have_the_parameters_of_openais),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
