/* Compares the model gpt2 with PyTorch in double precision, through the real plan and execution on the reference
 * backend: logits, losses, every gradient, and 20 steps of AdamW. tests/golden/make_gpt2.py makes and describes the
 * fixture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "brim/dataset.h"
#include "conformance/golden_run.h"
#include "must.h"

#define VOCABULARY 11

static int start(void **state)
{
  static golden_run r;
  r = (golden_run){0};
  assert_true(load_plugin(&r.model, "model", "gpt2", "{layers: 2, heads: 2, width: 8, context: 9, dropout: 0}"));
  assert_true(load_plugin(&r.backend, "backend", "reference", NULL));
  golden_run_read(&r, "gpt2.txt");
  assert_true(r.counted < (double)brim_shape_count(&golden_find(&r.fixture, "", "label")->shape));
  golden_run_plan(&r, (brim_graph_options){.task = BRIM_TASK_TOKENS, .classes = VOCABULARY}, "adamw");
  golden_run_place(&r);
  *state = &r;
  return 0;
}

static int stop(void **state)
{
  golden_run_close(*state);
  return 0;
}

static void logits_and_losses_are_pytorchs(void **state)
{
  golden_run_check_forward(*state);
}

static void gradients_match_pytorch(void **state)
{
  golden_run *r = *state;
  const size_t checked = golden_run_check_gradients(r, 0);
  assert_int_equal(checked, r->plan->program[0].graph->parameter_count);
  assert_int_equal(r->fixture.count, 4 + 3 * checked + 1);
}

static void twenty_steps_of_adamw_are_pytorchs(void **state)
{
  golden_run_check_training(*state, golden_adamw(), "adamw.");
}

/* Returns the number of scalars in all parameters, with GPT-2's vocabulary. */
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
