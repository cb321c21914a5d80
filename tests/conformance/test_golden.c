/* Compares the models mlp, cnn, vit and the example unet with PyTorch in double precision, through the real plan and
 * execution on the reference backend: logits, losses and gradients of one batch, and 20 steps of AdamW and of SGD with
 * momentum. tests/golden/make_models.py makes and describes the fixtures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "conformance/golden_model.h"
#include "conformance/load.h"
#include "graph/graph.h"

static void test_mlp_matches_pytorch(void **state)
{
  golden_model_check("mlp.txt", "mlp", "{hidden: [10, 7], dropout: 0}", 5);
}

static void test_cnn_matches_pytorch(void **state)
{
  golden_model_check("cnn.txt", "cnn", "{width: 3, dropout1: 0, dropout2: 0}", 4);
}

static void test_vit_matches_pytorch(void **state)
{
  golden_model_check("vit.txt", "vit", "{patch: 2, depth: 2, width: 6, heads: 2, mlp_ratio: 2}", 4);
}

/* The unet has transposed convolutions and upsampling. */
static void test_unet_matches_pytorch(void **state)
{
  golden_model_check("unet.txt", "unet", "{width: 2, levels: 2}", 4);
}

/* Returns the number of scalars in all parameters of a model with default settings, on 1x28x28 and 10 classes. */
static int64_t count_parameters(const char *model, const char *settings)
{
  loaded plugin;
  brim_graph *g = NULL;
  int64_t count = 0;
  assert_true(load_plugin(&plugin, "model", model, settings));
  const brim_graph_options options = {.model = plugin.plugin->ops,
                                      .model_self = plugin.self,
                                      .sample = {3, {1, 28, 28}},
                                      .classes = 10,
                                      .loss.op = "softmax_cross_entropy",
                                      .batch = 2,
                                      .real = BRIM_DTYPE_F32,
                                      .training = true};
  if (brim_graph_build(&options, &g) != BRIM_OK) fail_msg("%s", brim_error_text());
  for (size_t i = 0; i < g->parameter_count; i++) count += brim_shape_count(&g->parameter[i].value->shape);
  brim_graph_free(g);
  unload_plugin(&plugin);
  return count;
}

static void test_cnn_has_the_parameters_of_pytorchs_example(void **state)
{
  assert_int_equal(count_parameters("cnn", NULL), 1199882);
}

static void test_mlp_has_the_configured_layers(void **state)
{
  assert_int_equal(count_parameters("mlp", NULL), 784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10);
  assert_int_equal(count_parameters("mlp", "{hidden: [3]}"), 784 * 3 + 3 + 3 * 10 + 10);
  assert_int_equal(count_parameters("mlp", "{hidden: []}"), 784 * 10 + 10);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mlp_matches_pytorch),
      cmocka_unit_test(test_cnn_matches_pytorch),
      cmocka_unit_test(test_vit_matches_pytorch),
      cmocka_unit_test(test_unet_matches_pytorch),
      cmocka_unit_test(test_cnn_has_the_parameters_of_pytorchs_example),
      cmocka_unit_test(test_mlp_has_the_configured_layers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
