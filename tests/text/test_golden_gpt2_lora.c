/* Compares low-rank adapters of a frozen gpt2 with PyTorch in double precision, through the real plan and execution on
 * the reference backend: logits by the embedding, losses, all gradients, and 20 steps of AdamW; on cpu the first
 * gradients. tests/golden/make_gpt2_lora.py makes and describes the fixture. Also checks the plan of a frozen language
 * model. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "brim/dataset.h"
#include "conformance/golden_run.h"
#include "graph/fuse.h"
#include "must.h"

#define VOCABULARY 11
#define GPT2 "{layers: 2, heads: 2, width: 8, context: 9, dropout: 0.5}" /* dropout is off in frozen parts */
#define LORA "{lora_r: 3, lora_alpha: 5, lora_dropout: 0, lora_targets: [c_attn, c_fc]}"

static brim_graph_options options_of(const golden_run *r, uint32_t frozen_type)
{
  return golden_run_graph(
      r, (brim_graph_options){.frozen_type = frozen_type, .task = BRIM_TASK_TOKENS, .classes = VOCABULARY});
}

/* Loads the plugins and the fixture; returns false if the backend was not built. */
static bool load(golden_run *r, const char *backend, const char *lora)
{
  *r = (golden_run){0};
  if (!load_plugin(&r->backend, "backend", backend, NULL)) return false;
  assert_true(load_plugin(&r->model, "model", "lora", lora));
  assert_true(load_plugin(&r->backbone, "model", "gpt2", GPT2));
  golden_run_read(r, "gpt2_lora.txt");
  return true;
}

static bool start(golden_run *r, const char *backend, uint32_t frozen_type)
{
  if (!load(r, backend, LORA)) return false;
  golden_run_plan(r, options_of(r, frozen_type), "adamw");
  golden_run_place(r);
  return true;
}

/* ---- against PyTorch ---- */

static void logits_and_losses_are_pytorchs(void **state)
{
  golden_run r;
  assert_true(start(&r, "reference", 0));
  golden_run_check_forward(&r);
  golden_run_close(&r);
}

static void gradients_match_pytorch_and_belong_to_adapters_only(void **state)
{
  golden_run r;
  assert_true(start(&r, "reference", 0));
  const size_t trained = golden_run_check_gradients(&r, 0);
  assert_int_equal(trained, 2 * 2 * 2); /* A and B of two layers of two blocks */
  assert_int_equal(r.fixture.count, 4 + r.plan->program[0].graph->parameter_count + 2 * trained + 1);
  golden_run_close(&r);
}

static void twenty_steps_of_adamw_are_pytorchs_and_leave_the_model(void **state)
{
  golden_run r;
  assert_true(start(&r, "reference", 0));
  golden_run_check_training(&r, golden_adamw(), "adamw.");
  golden_run_close(&r);
}

static void first_gradients_on_cpu_are_within_the_bound_of_single_precision(void **state)
{
  golden_run r;
  if (!start(&r, "cpu", 0)) {
    printf("SKIPPED: backend cpu was not built\n");
    return;
  }
  golden_run_check_single(&r);
  golden_run_close(&r);
}

/* Rounded weights, including the embedding, give slightly different losses. */
static void frozen_weights_in_bf16_are_rounded_where_they_are_read(void **state)
{
  golden_run r;
  double loss[GOLDEN_STEPS];
  assert_true(start(&r, "reference", BRIM_DTYPE_BF16));
  golden_run_train(&r, golden_adamw(), loss);
  const double *expected = golden_find(&r.fixture, "adamw.", "loss")->value;
  assert_true(loss[0] != expected[0]);
  assert_true(fabs(loss[0] - expected[0]) < 0.02);
  golden_run_close(&r);
}

/* ---- plans ---- */

/* By default only c_attn is adapted, as a whole. */
static void the_defaults_are_pefts(void **state)
{
  golden_run t;
  int64_t trained = 0;
  assert_true(load(&t, "reference", NULL));
  golden_run_plan(&t, options_of(&t, 0), "adamw");
  const brim_graph *g = t.plan->program[0].graph;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_parameter *p = &g->parameter[i];
    if (p->is_frozen) continue;
    assert_non_null(strstr(p->value->name, ".attn.c_attn.lora_"));
    trained += brim_shape_count(&p->value->shape);
  }
  assert_int_equal(trained, 2 * (8 * 8 + 8 * 24)); /* rank 8, with 8 values in and 24 out */
  golden_run_close(&t);
}

/* With a vocabulary of GPT-2's size, neither the logits nor a gradient of the embedding ever exist. */
static void a_frozen_embedding_has_no_gradient_anywhere(void **state)
{
  golden_run t;
  brim_graph *g = NULL;
  bool inside = false;
  assert_true(load(&t, "reference", NULL));
  brim_graph_options o = options_of(&t, 0);
  o.classes = 50257;
  o.batch = t.batch;
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
  golden_run_close(&t);
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
