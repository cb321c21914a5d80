/* Low-rank adapters of a frozen model compared with PyTorch in double precision, through the real plan and execution on
 * the reference backend: logits, losses, all gradients, and 20 steps of AdamW. tests/golden/make_lora.py makes and
 * describes the fixture. Also checks what a plan has and lacks for frozen parameters. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/align.h"
#include "conformance/golden.h"
#include "conformance/load.h"
#include "exec/exec.h"

#define STEPS 20
#define BATCH 6
#define VIT "{patch: 2, depth: 2, width: 6, heads: 2, mlp_ratio: 2}"
#define LORA "{lora_r: 3, lora_alpha: 5, lora_dropout: 0, lora_targets: ['attn.qkv:q', attn.proj, mlp.fc1]}"

typedef struct trainer {
  loaded model, backbone, backend;
  golden fixture;
  brim_plan *plan;
  brim_exec *exec;
  int32_t label[BATCH];
} trainer;

static void must(brim_status status)
{
  if (status != BRIM_OK) fail_msg("%s", brim_error_text());
}

/* The class Norm of make_lora.py. */
static brim_status build_norm(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_linear(g, "fc", brim_flatten(g, brim_input(g)), 5);
  x = brim_relu(g, brim_batch_norm(g, "bn", x, 1e-5, 0.1));
  brim_output(g, brim_linear(g, "head", brim_features(g, x), brim_classes(g)));
  return BRIM_OK;
}
static const brim_model_ops norm = {.size = sizeof norm, .build = build_norm};

/* own: the backbone; NULL: vit. */
static void plan(trainer *t, const char *model, const char *settings, const brim_model_ops *own, const char *backend,
                 uint32_t frozen_type)
{
  golden_read(&t->fixture, own ? "lora_norm.txt" : "lora.txt");
  assert_true(load_plugin(&t->model, "model", model, settings));
  assert_true(load_plugin(&t->backbone, "model", "vit", VIT));
  assert_true(load_plugin(&t->backend, "backend", backend, NULL));
  const brim_backend_ops *ops = t->backend.plugin->ops;
  const brim_plan_request r = {.graph = {.model = t->model.plugin->ops,
                                         .model_self = t->model.self,
                                         .backbone = own ? own : t->backbone.plugin->ops,
                                         .backbone_self = t->backbone.self,
                                         .backbone_id = "vit",
                                         .frozen_type = frozen_type,
                                         .classes = 4,
                                         .loss.op = "softmax_cross_entropy",
                                         .sample = {3, {2, 4, 6}},
                                         .real = ops->real},
                               .backend = ops,
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

static void start(trainer *t, const char *settings, const brim_model_ops *own, uint32_t frozen_type)
{
  plan(t, "lora", settings, own, "reference", frozen_type);
  const golden_tensor *label = golden_find(&t->fixture, "", "label");
  for (int n = 0; n < BATCH; n++) t->label[n] = (int32_t)label->value[n];
  must(brim_exec_open(t->plan, 0, &t->exec));
  const brim_program *p = &t->plan->program[0];
  for (size_t i = 0; i < p->graph->parameter_count; i++) {
    const brim_tensor *value = p->graph->parameter[i].value;
    must(brim_exec_write(t->exec, p, value, golden_find(&t->fixture, "parameter.", value->name)->value));
  }
}

static void stop(trainer *t)
{
  brim_exec_close(t->exec);
  brim_plan_free(t->plan);
  unload_plugin(&t->model);
  unload_plugin(&t->backbone);
  unload_plugin(&t->backend);
  brim_arena_release(&t->fixture.arena);
}

static void run_batch(trainer *t, enum brim_program_kind kind, int64_t first, int64_t batch)
{
  const golden_tensor *input = golden_find(&t->fixture, "", "input");
  const brim_program *p = brim_plan_program(t->plan, kind, batch);
  const brim_step step = {.first_sample = first, .loss_scale = 1.0 / BATCH};
  must(brim_exec_load(t->exec, p, input->value + first * brim_shape_count(&input->shape) / BATCH, t->label + first));
  must(brim_exec_run(t->exec, p, &step, NULL));
}

static void check_persistent(trainer *t, const brim_tensor *tensor, const char *prefix, const char *name)
{
  double *value = brim_xmalloc(tensor->bytes);
  must(brim_exec_read(t->exec, &t->plan->program[0], tensor, value));
  golden_check(&t->fixture, prefix, name, &tensor->shape, value);
  free(value);
}

static void check_unchanged(trainer *t, const brim_tensor *tensor)
{
  double *value = brim_xmalloc(tensor->bytes);
  must(brim_exec_read(t->exec, &t->plan->program[0], tensor, value));
  assert_memory_equal(value, golden_find(&t->fixture, "parameter.", tensor->name)->value, tensor->bytes);
  free(value);
}

/* The whole batch at once, then in unequal micro-batches. */
static void check_gradients(trainer *t)
{
  const brim_graph *g = t->plan->program[0].graph;
  for (int pieces = 1; pieces <= 2; pieces++) {
    must(brim_exec_zero_gradients(t->exec));
    run_batch(t, BRIM_PROGRAM_TRAIN, 0, pieces == 1 ? BATCH : 4);
    if (pieces == 2) run_batch(t, BRIM_PROGRAM_TRAIN, 4, BATCH - 4);
    for (size_t i = 0; i < g->parameter_count; i++)
      if (!g->parameter[i].is_frozen)
        check_persistent(t, g->parameter[i].gradient, "gradient.", g->parameter[i].value->name);
  }
}

static void train(trainer *t, double loss[STEPS])
{
  brim_step step = {.lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  for (int i = 0; i < STEPS; i++) {
    double metrics[2];
    must(brim_exec_zero_gradients(t->exec));
    must(brim_exec_zero_metrics(t->exec));
    run_batch(t, BRIM_PROGRAM_TRAIN, 0, BATCH);
    must(brim_exec_metrics(t->exec, &t->plan->program[0], metrics, 2));
    loss[i] = metrics[0] / BATCH;
    step.step = (uint64_t)i;
    step.bias_correction1 = 1 - pow(step.beta1, i + 1);
    step.bias_correction2 = 1 - pow(step.beta2, i + 1);
    must(brim_exec_run(t->exec, brim_plan_program(t->plan, BRIM_PROGRAM_UPDATE, 0), &step, NULL));
  }
}

static void check_all(const char *settings, const brim_model_ops *own)
{
  trainer t = {0};
  double loss[STEPS];
  start(&t, settings, own, 0);
  run_batch(&t, BRIM_PROGRAM_EVALUATE, 0, BATCH);
  const brim_program *p = brim_plan_program(t.plan, BRIM_PROGRAM_EVALUATE, BATCH);
  golden_check(&t.fixture, "", "logits", &p->graph->output->shape, brim_exec_pointer(t.exec, p, p->graph->output));
  golden_check(&t.fixture, "", "loss", &p->graph->loss->shape, brim_exec_pointer(t.exec, p, p->graph->loss));
  check_gradients(&t);
  train(&t, loss);
  golden_check(&t.fixture, "adamw.", "loss", &(brim_shape){1, {STEPS}}, loss);
  const brim_graph *g = t.plan->program[0].graph;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->parameter[i].is_frozen)
      check_unchanged(&t, g->parameter[i].value);
    else
      check_persistent(&t, g->parameter[i].value, "adamw.", g->parameter[i].value->name);
  stop(&t);
}

static void low_rank_adapters_match_pytorch(void **state)
{
  (void)state;
  check_all(LORA, NULL);
}

static void frozen_batch_norm_passes_gradients_with_running_statistics(void **state)
{
  (void)state;
  check_all("{lora_r: 3, lora_alpha: 5, lora_dropout: 0, lora_targets: [fc]}", &norm);
}

/* Rounded weights give slightly different results, and are not written. */
static void frozen_weights_in_bf16_are_rounded_where_they_are_read(void **state)
{
  (void)state;
  trainer t = {0};
  double loss[STEPS];
  start(&t, LORA, NULL, BRIM_DTYPE_BF16);
  train(&t, loss);
  const golden_tensor *expected = golden_find(&t.fixture, "adamw.", "loss");
  assert_true(loss[0] != expected->value[0]);
  assert_true(fabs(loss[0] - expected->value[0]) < 0.02);
  for (size_t i = 0; i < t.plan->program[0].graph->parameter_count; i++)
    if (t.plan->program[0].graph->parameter[i].is_frozen)
      check_unchanged(&t, t.plan->program[0].graph->parameter[i].value);
  stop(&t);
}

/* ---- plans ---- */

typedef struct sums {
  uint64_t trained, frozen, matrices; /* bytes, each tensor rounded up to the alignment; of frozen matrices in fp32 */
} sums;

static sums add_up(const brim_plan *p)
{
  sums out = {0};
  const brim_graph *g = p->program[0].graph;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_tensor *t = g->parameter[i].value;
    const uint64_t bytes = brim_round_up(t->bytes, p->request.backend->alignment);
    if (g->parameter[i].is_frozen) {
      assert_null(g->parameter[i].gradient);
      out.frozen += bytes;
      if (t->shape.rank >= 2) out.matrices += t->bytes;
    } else {
      out.trained += bytes;
    }
  }
  return out;
}

static void plans_have_no_gradient_and_no_state_for_frozen_parameters(void **state)
{
  (void)state;
  trainer t = {0};
  plan(&t, "lora", LORA, NULL, "reference", 0);
  const sums s = add_up(t.plan);
  assert_true(s.trained > 0 && s.frozen > s.trained);
  assert_int_equal(t.plan->parameter_offset - t.plan->frozen_offset, s.frozen);
  assert_int_equal(t.plan->class_bytes[BRIM_ROLE_PARAMETER], s.frozen + s.trained);
  assert_int_equal(t.plan->gradient_bytes, s.trained);
  assert_int_equal(t.plan->class_bytes[BRIM_ROLE_OPTIMIZER], 2 * s.trained);
  /* each block: 3 * (6 + 6), 3 * (6 + 6) and 3 * (6 + 12); the head: 6 * 4 + 4 */
  assert_int_equal(brim_plan_trained(t.plan), 2 * (36 + 36 + 54) + 28);
  stop(&t);
}

static void no_gradient_flows_below_the_first_adapter(void **state)
{
  (void)state;
  trainer t = {0};
  plan(&t, "lora", "{lora_targets: [blocks.1.attn.proj]}", NULL, "reference", 0);
  const brim_graph *g = t.plan->program[0].graph;
  for (size_t i = g->forward_count; i < g->node_count; i++) {
    assert_null(strstr(g->node[i]->name, "blocks.0."));
    assert_null(strstr(g->node[i]->name, "qkv"));
  }
  stop(&t);
}

static void a_probe_has_a_backward_pass_of_its_head_only(void **state)
{
  (void)state;
  trainer t = {0};
  plan(&t, "linear_probe", NULL, NULL, "reference", 0);
  const brim_graph *g = t.plan->program[0].graph;
  assert_int_equal(brim_plan_trained(t.plan), 28);
  assert_int_equal(g->node_count - g->forward_count, 2); /* of the loss, and of the weight */
  stop(&t);
}

static void bf16_halves_frozen_matrices(void **state)
{
  (void)state;
  trainer wide = {0}, small = {0};
  plan(&wide, "lora", LORA, NULL, "cpu", 0);
  plan(&small, "lora", LORA, NULL, "cpu", BRIM_DTYPE_BF16);
  assert_int_equal(2 * add_up(small.plan).matrices, add_up(wide.plan).matrices);
  assert_true(small.plan->persistent_bytes < wide.plan->persistent_bytes);
  /* copies in fp32 live only while they are read, also in the backward pass */
  const brim_program *p = &small.plan->program[0];
  for (size_t i = 0; i < p->graph->tensor_count; i++) {
    const int32_t b = p->tensor_buffer[i], producer = p->graph->tensor[i]->producer;
    if (b < 0 || producer < 0 || strcmp(p->graph->node[producer]->op, "cast") != 0) continue;
    assert_true(p->buffer[b].last - p->buffer[b].first <= 1);
  }
  stop(&wide);
  stop(&small);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(low_rank_adapters_match_pytorch),
      cmocka_unit_test(frozen_batch_norm_passes_gradients_with_running_statistics),
      cmocka_unit_test(frozen_weights_in_bf16_are_rounded_where_they_are_read),
      cmocka_unit_test(plans_have_no_gradient_and_no_state_for_frozen_parameters),
      cmocka_unit_test(no_gradient_flows_below_the_first_adapter),
      cmocka_unit_test(a_probe_has_a_backward_pass_of_its_head_only),
      cmocka_unit_test(bf16_halves_frozen_matrices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
