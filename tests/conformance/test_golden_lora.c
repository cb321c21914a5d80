/* Compares low-rank adapters of a frozen model with PyTorch in double precision, through the real plan and execution on
 * the reference backend: logits, losses, all gradients, and 20 steps of AdamW. tests/golden/make_lora.py makes and
 * describes the fixture. Also checks that a plan has no gradients and states of frozen parameters. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/align.h"
#include "conformance/golden_run.h"

#define VIT "{patch: 2, depth: 2, width: 6, heads: 2, mlp_ratio: 2}"
#define LORA "{lora_r: 3, lora_alpha: 5, lora_dropout: 0, lora_targets: ['attn.qkv:q', attn.proj, mlp.fc1]}"

/* Builds the class Norm of make_lora.py. */
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
static golden_run plan(const char *model, const char *settings, const brim_model_ops *own, const char *backend,
                       uint32_t frozen_type)
{
  golden_run r = {0};
  assert_true(load_plugin(&r.model, "model", model, settings));
  assert_true(load_plugin(&r.backbone, "model", "vit", VIT));
  assert_true(load_plugin(&r.backend, "backend", backend, NULL));
  golden_run_read(&r, own ? "lora_norm.txt" : "lora.txt");
  golden_run_plan(&r, (brim_graph_options){.backbone = own, .frozen_type = frozen_type, .classes = 4}, "adamw");
  return r;
}

static void check_all(const char *settings, const brim_model_ops *own)
{
  golden_run r = plan("lora", settings, own, "reference", 0);
  golden_run_place(&r);
  golden_run_check_forward(&r);
  golden_run_check_gradients(&r, 0);
  golden_run_check_training(&r, golden_adamw(), "adamw.");
  golden_run_close(&r);
}

static void low_rank_adapters_match_pytorch(void **state)
{
  check_all(LORA, NULL);
}

static void frozen_batch_norm_passes_gradients_with_running_statistics(void **state)
{
  check_all("{lora_r: 3, lora_alpha: 5, lora_dropout: 0, lora_targets: [fc]}", &norm);
}

/* Rounded weights give slightly different results, and are not written. */
static void frozen_weights_in_bf16_are_rounded_where_they_are_read(void **state)
{
  golden_run r = plan("lora", LORA, NULL, "reference", BRIM_DTYPE_BF16);
  double loss[GOLDEN_STEPS];
  golden_run_place(&r);
  golden_run_train(&r, golden_adamw(), loss);
  const golden_tensor *expected = golden_find(&r.fixture, "adamw.", "loss");
  assert_true(loss[0] != expected->value[0]);
  assert_true(fabs(loss[0] - expected->value[0]) < 0.02);
  golden_run_check_frozen(&r);
  golden_run_close(&r);
}

/* ---- plans ---- */

typedef struct sums {
  uint64_t trained, frozen, matrices; /* bytes; matrices: frozen ones, not rounded up to the alignment */
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
  golden_run t = plan("lora", LORA, NULL, "reference", 0);
  const sums s = add_up(t.plan);
  assert_true(s.trained > 0 && s.frozen > s.trained);
  assert_int_equal(t.plan->parameter_offset - t.plan->frozen_offset, s.frozen);
  assert_int_equal(t.plan->class_bytes[BRIM_ROLE_PARAMETER], s.frozen + s.trained);
  assert_int_equal(t.plan->gradient_bytes, s.trained);
  assert_int_equal(t.plan->class_bytes[BRIM_ROLE_OPTIMIZER], 2 * s.trained);
  /* each block: 3 * (6 + 6), 3 * (6 + 6) and 3 * (6 + 12); the head: 6 * 4 + 4 */
  assert_int_equal(brim_plan_trained(t.plan), 2 * (36 + 36 + 54) + 28);
  golden_run_close(&t);
}

static void no_gradient_flows_below_the_first_adapter(void **state)
{
  golden_run t = plan("lora", "{lora_targets: [blocks.1.attn.proj]}", NULL, "reference", 0);
  const brim_graph *g = t.plan->program[0].graph;
  for (size_t i = g->forward_count; i < g->node_count; i++) {
    assert_null(strstr(g->node[i]->name, "blocks.0."));
    assert_null(strstr(g->node[i]->name, "qkv"));
  }
  golden_run_close(&t);
}

static void a_probe_has_a_backward_pass_of_its_head_only(void **state)
{
  golden_run t = plan("linear_probe", NULL, NULL, "reference", 0);
  const brim_graph *g = t.plan->program[0].graph;
  assert_int_equal(brim_plan_trained(t.plan), 28);
  assert_int_equal(g->node_count - g->forward_count, 2); /* the gradients of the loss and of the weight */
  golden_run_close(&t);
}

static void bf16_halves_frozen_matrices(void **state)
{
  golden_run wide = plan("lora", LORA, NULL, "cpu", 0), small = plan("lora", LORA, NULL, "cpu", BRIM_DTYPE_BF16);
  assert_int_equal(2 * add_up(small.plan).matrices, add_up(wide.plan).matrices);
  assert_true(small.plan->persistent_bytes < wide.plan->persistent_bytes);
  /* fp32 copies exist only while a node reads them, also in the backward pass */
  const brim_program *p = &small.plan->program[0];
  for (size_t i = 0; i < p->graph->tensor_count; i++) {
    const int32_t b = p->tensor_buffer[i], producer = p->graph->tensor[i]->producer;
    if (b < 0 || producer < 0 || strcmp(p->graph->node[producer]->op, "cast") != 0) continue;
    assert_true(p->buffer[b].last - p->buffer[b].first <= 1);
  }
  golden_run_close(&wide);
  golden_run_close(&small);
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
