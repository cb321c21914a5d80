/* Low-rank adapters of a frozen gpt2 compared with PyTorch in double precision, through the real plan and execution on
 * the reference backend: logits by the embedding, losses, all gradients, and 20 steps of AdamW; on cpu the first
 * gradients. tests/golden/make_gpt2_lora.py makes and describes the fixture. Also checks the plan of a frozen language
 * model. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/load.h"
#include "exec/exec.h"
#include "graph/fuse.h"
#include "text/golden_tokens.h"

#define GPT2 "{layers: 2, heads: 2, width: 8, context: 9, dropout: 0.5}" /* dropout is off in frozen parts */
#define LORA "{lora_r: 3, lora_alpha: 5, lora_dropout: 0, lora_targets: [c_attn, c_fc]}"

typedef struct trainer {
  loaded model, backbone, backend;
  golden_tokens data;
  brim_plan *plan;
  brim_exec *exec;
  uint32_t real;
} trainer;

static void must(brim_status status)
{
  if (status != BRIM_OK) fail_msg("%s", brim_error_text());
}

static brim_graph_options options_of(const trainer *t, uint32_t frozen_type)
{
  return (brim_graph_options){.model = t->model.plugin->ops,
                              .model_self = t->model.self,
                              .backbone = t->backbone.plugin->ops,
                              .backbone_self = t->backbone.self,
                              .backbone_id = "gpt2",
                              .frozen_type = frozen_type,
                              .task = BRIM_TASK_TOKENS,
                              .classes = VOCABULARY,
                              .sample = {1, {LENGTH}},
                              .loss.op = "softmax_cross_entropy",
                              .loss.attr = {.ignores = 1, .ignore_index = IGNORED},
                              .real = t->real};
}

static void plan(trainer *t, uint32_t frozen_type)
{
  const brim_plan_request r = {.graph = options_of(t, frozen_type),
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
}

static bool is_double(const trainer *t)
{
  return t->real == BRIM_DTYPE_F64;
}

static void write_tensor(trainer *t, const brim_tensor *to)
{
  const golden_tensor *from = golden_find(&t->data.fixture, "parameter.", to->name);
  assert_true(brim_shape_equal(&from->shape, &to->shape));
  float *narrow = calloc((size_t)brim_shape_count(&to->shape), sizeof *narrow);
  for (int64_t i = 0; i < brim_shape_count(&to->shape); i++) narrow[i] = (float)from->value[i];
  must(brim_exec_write(t->exec, &t->plan->program[0], to, is_double(t) ? (void *)from->value : narrow));
  free(narrow);
}

/* The caller frees it. */
static double *read_tensor(trainer *t, const brim_tensor *from)
{
  const int64_t count = brim_shape_count(&from->shape);
  double *value = calloc((size_t)count, sizeof *value);
  must(brim_exec_read(t->exec, &t->plan->program[0], from, value));
  for (int64_t i = count - 1; i >= 0 && !is_double(t); i--) value[i] = ((float *)value)[i];
  return value;
}

/* false: the backend does not exist. */
static bool load(trainer *t, const char *backend, const char *lora)
{
  *t = (trainer){0};
  if (!load_plugin(&t->backend, "backend", backend, NULL)) return false;
  t->real = ((const brim_backend_ops *)t->backend.plugin->ops)->real;
  assert_true(load_plugin(&t->model, "model", "lora", lora));
  assert_true(load_plugin(&t->backbone, "model", "gpt2", GPT2));
  golden_tokens_read(&t->data, "gpt2_lora.txt");
  return true;
}

static bool start(trainer *t, const char *backend, uint32_t frozen_type)
{
  if (!load(t, backend, LORA)) return false;
  plan(t, frozen_type);
  must(brim_exec_open(t->plan, 0, &t->exec));
  const brim_graph *g = t->plan->program[0].graph;
  for (size_t i = 0; i < g->parameter_count; i++) write_tensor(t, g->parameter[i].value);
  return true;
}

static void stop(trainer *t)
{
  if (t->exec) brim_exec_close(t->exec);
  if (t->plan) brim_plan_free(t->plan);
  unload_plugin(&t->model);
  unload_plugin(&t->backbone);
  unload_plugin(&t->backend);
  brim_arena_release(&t->data.fixture.arena);
}

static const brim_program *run_batch(trainer *t, enum brim_program_kind kind, int64_t first, int64_t count)
{
  const brim_program *p = brim_plan_program(t->plan, kind, count);
  const brim_step step = {.first_sample = first, .loss_scale = 1 / t->data.counted};
  must(brim_exec_load(t->exec, p, t->data.tokens[first], t->data.label[first]));
  must(brim_exec_run(t->exec, p, &step, NULL));
  return p;
}

/* ---- against PyTorch ---- */

static void logits_and_losses_are_pytorchs(void **state)
{
  (void)state;
  trainer t;
  assert_true(start(&t, "reference", 0));
  const brim_program *p = run_batch(&t, BRIM_PROGRAM_EVALUATE, 0, BATCH);
  const brim_tensor *logits = p->graph->output, *loss = p->graph->loss;
  golden_check(&t.data.fixture, "", "logits", &logits->shape, brim_exec_pointer(t.exec, p, logits));
  golden_check(&t.data.fixture, "", "loss", &loss->shape, brim_exec_pointer(t.exec, p, loss));
  stop(&t);
}

static void check_persistent(trainer *t, const brim_tensor *tensor, const char *prefix, const char *name)
{
  double *value = read_tensor(t, tensor);
  golden_check(&t->data.fixture, prefix, name, &tensor->shape, value);
  free(value);
}

/* The whole batch at once, then in unequal micro-batches. */
static void gradients_match_pytorch_and_belong_to_adapters_only(void **state)
{
  (void)state;
  trainer t;
  assert_true(start(&t, "reference", 0));
  const brim_graph *g = t.plan->program[0].graph;
  for (int pieces = 1; pieces <= 2; pieces++) {
    size_t trained = 0;
    must(brim_exec_zero_gradients(t.exec));
    run_batch(&t, BRIM_PROGRAM_TRAIN, 0, pieces == 1 ? BATCH : 4);
    if (pieces == 2) run_batch(&t, BRIM_PROGRAM_TRAIN, 4, BATCH - 4);
    for (size_t i = 0; i < g->parameter_count; i++) {
      if (g->parameter[i].is_frozen) continue;
      check_persistent(&t, g->parameter[i].gradient, "gradient.", g->parameter[i].value->name);
      trained++;
    }
    assert_int_equal(trained, 2 * 2 * 2); /* A and B of two layers of two blocks */
    assert_int_equal(t.data.fixture.count, 4 + g->parameter_count + 2 * trained + 1);
  }
  stop(&t);
}

static void train(trainer *t, double loss[STEPS])
{
  const brim_program *p = &t->plan->program[0], *update = brim_plan_program(t->plan, BRIM_PROGRAM_UPDATE, 0);
  brim_step step = {.lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  double metrics[2];
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
}

static void twenty_steps_of_adamw_are_pytorchs_and_leave_the_model(void **state)
{
  (void)state;
  trainer t;
  double loss[STEPS];
  assert_true(start(&t, "reference", 0));
  train(&t, loss);
  golden_check(&t.data.fixture, "adamw.", "loss", &(brim_shape){1, {STEPS}}, loss);
  const brim_graph *g = t.plan->program[0].graph;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_tensor *value = g->parameter[i].value;
    check_persistent(&t, value, g->parameter[i].is_frozen ? "parameter." : "adamw.", value->name);
  }
  stop(&t);
}

static double gradient_norm(const golden *fixture)
{
  double norm = 0;
  for (size_t i = 0; i < fixture->count; i++) {
    const golden_tensor *of = &fixture->tensor[i];
    if (strncmp(of->name, "gradient.", 9) != 0) continue;
    for (int64_t k = 0; k < brim_shape_count(&of->shape); k++) norm = hypot(norm, of->value[k]);
  }
  return norm;
}

/* For tensor t with the gradient g_t, and all gradients g: at most 1e-5 max(||g_t||, 1e-2 ||g||), as in
 * golden_model.h. */
static void first_gradients_on_cpu_are_within_the_bound_of_single_precision(void **state)
{
  (void)state;
  trainer t;
  if (!start(&t, "cpu", 0)) {
    printf("SKIPPED: backend cpu was not built\n");
    return;
  }
  const double all = gradient_norm(&t.data.fixture);
  const brim_graph *g = t.plan->program[0].graph;
  must(brim_exec_zero_gradients(t.exec));
  run_batch(&t, BRIM_PROGRAM_TRAIN, 0, BATCH);
  for (size_t i = 0; i < g->parameter_count; i++) {
    if (g->parameter[i].is_frozen) continue;
    const golden_tensor *expected = golden_find(&t.data.fixture, "gradient.", g->parameter[i].value->name);
    double *got = read_tensor(&t, g->parameter[i].gradient), norm = 0, error = 0;
    for (int64_t k = 0; k < brim_shape_count(&expected->shape); k++) {
      norm = hypot(norm, expected->value[k]);
      error = hypot(error, got[k] - expected->value[k]);
    }
    if (!(error <= 1e-5 * fmax(norm, 1e-2 * all))) fail_msg("%s: error %g of %g", expected->name, error, norm);
    free(got);
  }
  stop(&t);
}

/* Rounded weights, including the embedding, give slightly different losses. */
static void frozen_weights_in_bf16_are_rounded_where_they_are_read(void **state)
{
  (void)state;
  trainer t;
  double loss[STEPS];
  assert_true(start(&t, "reference", BRIM_DTYPE_BF16));
  train(&t, loss);
  const double *expected = golden_find(&t.data.fixture, "adamw.", "loss")->value;
  assert_true(loss[0] != expected[0]);
  assert_true(fabs(loss[0] - expected[0]) < 0.02);
  stop(&t);
}

/* ---- plans ---- */

/* By default only c_attn is adapted, as a whole. */
static void the_defaults_are_pefts(void **state)
{
  (void)state;
  trainer t;
  int64_t trained = 0;
  assert_true(load(&t, "reference", NULL));
  plan(&t, 0);
  const brim_graph *g = t.plan->program[0].graph;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_parameter *p = &g->parameter[i];
    if (p->is_frozen) continue;
    assert_non_null(strstr(p->value->name, ".attn.c_attn.lora_"));
    trained += brim_shape_count(&p->value->shape);
  }
  assert_int_equal(trained, 2 * (8 * 8 + 8 * 24)); /* of rank 8: 8 values in, 24 out */
  stop(&t);
}

/* With a vocabulary of GPT-2's size, neither the logits nor a gradient of the embedding ever exist. */
static void a_frozen_embedding_has_no_gradient_anywhere(void **state)
{
  (void)state;
  trainer t;
  brim_graph *g = NULL;
  bool inside = false;
  assert_true(load(&t, "reference", NULL));
  brim_graph_options o = options_of(&t, 0);
  o.classes = 50257;
  o.batch = BATCH;
  o.training = true;
  o.fuse = BRIM_FUSE_ALL;
  must(brim_graph_build(&o, &g));
  for (size_t i = 0; i < g->node_count; i++)
    inside = inside || strcmp(g->node[i]->op, "linear_cross_entropy_grad") == 0;
  assert_true(inside);
  for (size_t i = 0; i < g->tensor_count; i++) {
    const brim_tensor *x = g->tensor[i];
    for (int32_t d = 0; d < x->shape.rank; d++)
      if (x->shape.dim[d] == o.classes) assert_string_equal(x->name, "transformer.wte.weight");
  }
  brim_graph_free(g);
  stop(&t);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(logits_and_losses_are_pytorchs),
      cmocka_unit_test(gradients_match_pytorch_and_belong_to_adapters_only),
      cmocka_unit_test(twenty_steps_of_adamw_are_pytorchs_and_leave_the_model),
      cmocka_unit_test(first_gradients_on_cpu_are_within_the_bound_of_single_precision),
      cmocka_unit_test(frozen_weights_in_bf16_are_rounded_where_they_are_read),
      cmocka_unit_test(the_defaults_are_pefts),
      cmocka_unit_test(a_frozen_embedding_has_no_gradient_anywhere),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
