/* The models mlp, cnn and vit against PyTorch in double precision, through the real plan and execution on the reference
 * backend: logits, losses and gradients of one batch, and 20 steps of AdamW and of SGD with momentum. The fixtures and
 * what is in them: tests/golden/make_models.py. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/golden.h"
#include "conformance/load.h"
#include "exec/exec.h"

#define STEPS 20
#define LOSS "softmax_cross_entropy"

/* ---- a model, placed ---- */

typedef struct trainer {
  loaded model, backend;
  golden fixture;
  brim_plan *plan;
  brim_exec *exec;
  int64_t batch;
  int32_t label[16];
} trainer;

static void must(brim_status status)
{
  if (status != BRIM_OK) fail_msg("%s", brim_error_text());
}

static void start(trainer *t, const char *model, const char *settings, int64_t classes, const char *optimizer)
{
  char name[32];
  snprintf(name, sizeof name, "%s.txt", model);
  golden_read(&t->fixture, name);
  assert_true(load_plugin(&t->model, "model", model, settings));
  assert_true(load_plugin(&t->backend, "backend", "reference", NULL));
  const golden_tensor *input = golden_find(&t->fixture, "", "input"), *label = golden_find(&t->fixture, "", "label");
  t->batch = input->shape.dim[0];
  assert_in_range(t->batch, 1, 16);
  for (int64_t n = 0; n < t->batch; n++) t->label[n] = (int32_t)label->value[n];
  brim_plan_request r = {.graph = {.model = t->model.plugin->ops,
                                   .model_self = t->model.self,
                                   .classes = classes,
                                   .loss_op = LOSS,
                                   .real = BRIM_DTYPE_F64},
                         .backend = t->backend.plugin->ops,
                         .backend_self = t->backend.self,
                         .update = {.op = optimizer, .state_count = strcmp(optimizer, "adamw") == 0 ? 2 : 1},
                         .shape = {{BRIM_PROGRAM_TRAIN, t->batch},
                                   {BRIM_PROGRAM_TRAIN, 4},
                                   {BRIM_PROGRAM_TRAIN, 2},
                                   {BRIM_PROGRAM_EVALUATE, t->batch}},
                         .shape_count = 4};
  r.graph.sample.rank = input->shape.rank - 1;
  for (int32_t d = 1; d < input->shape.rank; d++) r.graph.sample.dim[d - 1] = input->shape.dim[d];
  must(brim_plan_create(&r, &t->plan));
  must(brim_plan_check(t->plan));
  must(brim_exec_open(t->plan, 0, &t->exec));
  const brim_program *p = &t->plan->program[0];
  for (size_t i = 0; i < p->graph->parameter_count; i++) {
    const brim_tensor *value = p->graph->parameter[i].value;
    const golden_tensor *from = golden_find(&t->fixture, "parameter.", value->name);
    assert_int_equal(brim_shape_count(&from->shape), brim_shape_count(&value->shape));
    must(brim_exec_write(t->exec, p, value, from->value));
  }
}

static void stop(trainer *t)
{
  brim_exec_close(t->exec);
  brim_plan_free(t->plan);
  unload_plugin(&t->model);
  unload_plugin(&t->backend);
  brim_arena_release(&t->fixture.arena);
}

/* Forward and backward of samples [first, first + batch). */
static void run_batch(trainer *t, enum brim_program_kind kind, int64_t first, int64_t batch)
{
  const golden_tensor *input = golden_find(&t->fixture, "", "input");
  const brim_program *p = brim_plan_program(t->plan, kind, batch);
  assert_non_null(p);
  const int64_t size = brim_shape_count(&input->shape) / t->batch;
  const brim_step step = {.first_sample = first, .loss_scale = 1 / (double)t->batch};
  must(brim_exec_load(t->exec, p, input->value + first * size, t->label + first));
  must(brim_exec_run(t->exec, p, &step));
}

static void assert_persistent(trainer *t, const brim_program *p, const brim_tensor *tensor, const char *prefix,
                              const char *name)
{
  double *value = brim_xmalloc(tensor->bytes);
  must(brim_exec_read(t->exec, p, tensor, value));
  golden_check(&t->fixture, prefix, name, &tensor->shape, value);
  free(value);
}

/* ---- what is checked ---- */

static void check_forward(trainer *t)
{
  run_batch(t, BRIM_PROGRAM_EVALUATE, 0, t->batch);
  const brim_program *p = brim_plan_program(t->plan, BRIM_PROGRAM_EVALUATE, t->batch);
  const brim_tensor *logits = p->graph->output, *loss = p->graph->loss;
  golden_check(&t->fixture, "", "logits", &logits->shape, brim_exec_pointer(t->exec, p, logits));
  golden_check(&t->fixture, "", "loss", &loss->shape, brim_exec_pointer(t->exec, p, loss));
}

/* The whole batch at once, then in unequal micro-batches. */
static void check_gradients(trainer *t)
{
  const brim_program *p = &t->plan->program[0];
  for (int pieces = 1; pieces <= 2; pieces++) {
    must(brim_exec_zero_gradients(t->exec));
    run_batch(t, BRIM_PROGRAM_TRAIN, 0, pieces == 1 ? t->batch : 4);
    if (pieces == 2) run_batch(t, BRIM_PROGRAM_TRAIN, 4, t->batch - 4);
    for (size_t i = 0; i < p->graph->parameter_count; i++)
      assert_persistent(t, p, p->graph->parameter[i].gradient, "gradient.", p->graph->parameter[i].value->name);
  }
}

static void check_training(trainer *t, const char *optimizer, brim_step step)
{
  const brim_program *p = &t->plan->program[0], *update = brim_plan_program(t->plan, BRIM_PROGRAM_UPDATE, 0);
  double loss[STEPS], metrics[2];
  char prefix[32];
  snprintf(prefix, sizeof prefix, "%s.", optimizer);
  for (int i = 0; i < STEPS; i++) {
    must(brim_exec_zero_gradients(t->exec));
    must(brim_exec_zero_metrics(t->exec));
    run_batch(t, BRIM_PROGRAM_TRAIN, 0, t->batch);
    must(brim_exec_metrics(t->exec, p, metrics, 2));
    loss[i] = metrics[0] / (double)t->batch;
    step.step = (uint64_t)i;
    step.bias_correction1 = 1 - pow(step.beta1, i + 1);
    step.bias_correction2 = 1 - pow(step.beta2, i + 1);
    must(brim_exec_run(t->exec, update, &step));
  }
  golden_check(&t->fixture, prefix, "loss", &(brim_shape){1, {STEPS}}, loss);
  for (size_t i = 0; i < p->graph->parameter_count; i++)
    assert_persistent(t, p, p->graph->parameter[i].value, prefix, p->graph->parameter[i].value->name);
}

static void check_model(const char *model, const char *settings, int64_t classes)
{
  const brim_step adamw = {.lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  const brim_step sgd = {.lr = 0.05, .weight_decay = 0.01, .momentum = 0.9};
  trainer t = {0};
  start(&t, model, settings, classes, "adamw");
  check_forward(&t);
  check_gradients(&t);
  check_training(&t, "adamw", adamw);
  stop(&t);
  t = (trainer){0};
  start(&t, model, settings, classes, "sgd");
  check_training(&t, "sgd", sgd);
  stop(&t);
}

static void test_mlp_is_what_pytorch_computes(void **state)
{
  (void)state;
  check_model("mlp", "{hidden: [10, 7], dropout: 0}", 5);
}

static void test_cnn_is_what_pytorch_computes(void **state)
{
  (void)state;
  check_model("cnn", "{width: 3, dropout1: 0, dropout2: 0}", 4);
}

static void test_vit_is_what_pytorch_computes(void **state)
{
  (void)state;
  check_model("vit", "{patch: 2, depth: 2, width: 6, heads: 2, mlp_ratio: 2}", 4);
}

/* Scalars of all parameters of a model as it comes, on 1x28x28 and 10 classes. */
static int64_t count_parameters(const char *model, const char *settings)
{
  loaded plugin;
  brim_graph *g = NULL;
  int64_t count = 0;
  assert_true(load_plugin(&plugin, "model", model, settings));
  must(brim_graph_build(&(brim_graph_options){.model = plugin.plugin->ops,
                                              .model_self = plugin.self,
                                              .sample = {3, {1, 28, 28}},
                                              .classes = 10,
                                              .loss_op = LOSS,
                                              .batch = 2,
                                              .real = BRIM_DTYPE_F32,
                                              .training = true},
                        &g));
  for (size_t i = 0; i < g->parameter_count; i++) count += brim_shape_count(&g->parameter[i].value->shape);
  brim_graph_free(g);
  unload_plugin(&plugin);
  return count;
}

static void test_cnn_has_the_parameters_of_pytorchs_example(void **state)
{
  (void)state;
  assert_int_equal(count_parameters("cnn", NULL), 1199882);
}

static void test_mlp_has_the_layers_asked_for(void **state)
{
  (void)state;
  assert_int_equal(count_parameters("mlp", NULL), 784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10);
  assert_int_equal(count_parameters("mlp", "{hidden: [3]}"), 784 * 3 + 3 + 3 * 10 + 10);
  assert_int_equal(count_parameters("mlp", "{hidden: []}"), 784 * 10 + 10);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mlp_is_what_pytorch_computes),
      cmocka_unit_test(test_cnn_is_what_pytorch_computes),
      cmocka_unit_test(test_vit_is_what_pytorch_computes),
      cmocka_unit_test(test_cnn_has_the_parameters_of_pytorchs_example),
      cmocka_unit_test(test_mlp_has_the_layers_asked_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
