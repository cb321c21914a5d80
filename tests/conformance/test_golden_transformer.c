/* Compares the tiny transformer on the reference backend with PyTorch in double precision: logits, losses and the
 * gradients of all parameters. tests/golden/make_transformer.py makes and describes the fixtures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/bench.h"
#include "conformance/golden.h"
#include "conformance/load.h"
#include "conformance/transformer.h"

static golden fixture;
static transformer_options options;
static brim_tensor *logits;

/* The model's input is x [N,T,F] or tokens [N,T]; tensor 0. */
static brim_tensor *make(bench *b)
{
  const brim_shape *shape = &golden_find(&fixture, "", "input")->shape;
  brim_tensor *x =
      options.vocabulary ? bench_indices(b, shape, options.vocabulary, "input") : bench_input(b, shape, "input");
  brim_tensor *label = bench_labels(b, options.classes);
  logits = transformer_build(b->g, x, options);
  brim_tensor *const in[] = {logits, label};
  return brim_graph_apply(b->g, "softmax_cross_entropy", "loss", in, 2, NULL);
}

static void fill(bench *b, const brim_tensor *t, const char *prefix)
{
  const golden_tensor *from = golden_find(&fixture, prefix, t->name);
  assert_true(brim_shape_equal(&from->shape, &t->shape));
  for (int64_t i = 0; i < brim_shape_count(&t->shape); i++)
    if (t->dtype == BRIM_DTYPE_I32)
      ((int32_t *)b->memory[t->id])[i] = (int32_t)from->value[i];
    else
      ((double *)b->memory[t->id])[i] = from->value[i];
}

static void check(const bench *b, const brim_tensor *t, const char *prefix, const char *name)
{
  double *values = bench_values_of(b, t);
  golden_check(&fixture, prefix, name, &t->shape, values);
  free(values);
}

static void check_model(const char *file, transformer_options o)
{
  loaded plugin;
  golden_read(&fixture, file);
  assert_true(load_plugin(&plugin, "backend", "reference", NULL));
  options = o;
  const backend reference = {"reference", plugin.plugin->ops, plugin.self};
  const bench_row row = {file, make, .is_loss = true};
  const int64_t samples = golden_find(&fixture, "", "label")->shape.dim[0];
  bench *b = bench_create(
      &(bench_options){.backend = &reference, .row = &row, .seed = 1, .batch = samples, .gradients_at_zero = true});
  b->step.loss_scale = 1 / (double)samples;
  fill(b, b->g->tensor[0], "");
  fill(b, b->g->label, "");
  for (size_t i = 0; i < b->g->parameter_count; i++) fill(b, b->g->parameter[i].value, "parameter.");
  bench_run(b, 0, b->g->node_count);
  check(b, logits, "", "logits");
  check(b, b->result, "", "loss");
  for (size_t i = 0; i < b->g->parameter_count; i++)
    check(b, b->g->parameter[i].gradient, "gradient.", b->g->parameter[i].value->name);
  assert_int_equal(fixture.count, 4 + 2 * b->g->parameter_count);
  bench_free(b);
  unload_plugin(&plugin);
  brim_arena_release(&fixture.arena);
}

static void test_a_transformer_of_tokens_matches_pytorch(void **state)
{
  check_model("transformer_tokens.txt", (transformer_options){.vocabulary = 7,
                                                              .width = 8,
                                                              .heads = 4,
                                                              .kv_heads = 2,
                                                              .layers = 2,
                                                              .classes = 3,
                                                              .causal = 1,
                                                              .rotary = 1,
                                                              .approximate = BRIM_GELU_TANH});
}

static void test_a_transformer_of_patches_matches_pytorch(void **state)
{
  check_model("transformer_patches.txt",
              (transformer_options){
                  .width = 6, .heads = 2, .kv_heads = 2, .layers = 2, .classes = 4, .approximate = BRIM_GELU_EXACT});
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_transformer_of_tokens_matches_pytorch),
      cmocka_unit_test(test_a_transformer_of_patches_matches_pytorch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
