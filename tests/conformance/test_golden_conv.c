/* Compares convolutions with groups, dilation and without bias, transposed ones, pooling and upsampling, on the
 * reference backend, with PyTorch in double precision, forward and backward; also tests the names and shapes of a
 * convolution's parameters, which are PyTorch's. tests/golden/make_conv.py makes and describes the fixture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/golden_case.h"
#include "graph/fuse.h"

const char golden_case_fixture[] = "conv.txt";

static brim_tensor *input(bench *b)
{
  return golden_case_input(b, "x");
}

/* ---- operations ---- */

static brim_tensor *make_dilated(bench *b)
{
  return brim_conv2d(b->g, "conv", input(b), 4,
                     (brim_conv2d_options){.kernel = {3, 2}, .padding = {2, 1}, .dilation = {2, 3}, .no_bias = 1});
}
static brim_tensor *make_grouped(bench *b)
{
  return brim_conv2d(b->g, "conv", input(b), 9,
                     (brim_conv2d_options){.kernel = {2, 3}, .stride = {1, 2}, .padding = {0, 1}, .groups = 3});
}
static brim_tensor *make_depthwise(bench *b)
{
  return brim_conv2d(b->g, "conv", input(b), 5,
                     (brim_conv2d_options){.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .groups = 5});
}
static brim_tensor *make_multiplied(bench *b)
{
  return brim_conv2d(b->g, "conv", input(b), 6,
                     (brim_conv2d_options){.kernel = {3, 1}, .dilation = {2, 2}, .groups = 3, .no_bias = 1});
}
static brim_tensor *make_conv1d(bench *b)
{
  return brim_conv1d(b->g, "conv", input(b), 6,
                     (brim_conv1d_options){.kernel = 3, .stride = 2, .padding = 2, .dilation = 2});
}
static brim_tensor *make_conv1d_grouped(bench *b)
{
  return brim_conv1d(b->g, "conv", input(b), 4, (brim_conv1d_options){.kernel = 4, .groups = 2, .no_bias = 1});
}
static brim_tensor *make_up(bench *b)
{
  return brim_conv_transpose2d(
      b->g, "conv", input(b), 2,
      (brim_conv_transpose2d_options){
          .kernel = {3, 4}, .stride = {2, 3}, .padding = {1, 2}, .output_padding = {1, 2}, .dilation = {2, 1}});
}
static brim_tensor *make_up_grouped(bench *b)
{
  return brim_conv_transpose2d(
      b->g, "conv", input(b), 6,
      (brim_conv_transpose2d_options){.kernel = {2, 3}, .stride = {1, 2}, .groups = 2, .no_bias = 1});
}
/* The output padding is larger than a stride. */
static brim_tensor *make_up_dilated(bench *b)
{
  return brim_conv_transpose2d(
      b->g, "conv", input(b), 2,
      (brim_conv_transpose2d_options){
          .kernel = {2, 3}, .stride = {1, 2}, .padding = {1, 1}, .output_padding = {2, 2}, .dilation = {3, 3}});
}
static brim_tensor *make_up1d(bench *b)
{
  return brim_conv_transpose1d(
      b->g, "conv", input(b), 6,
      (brim_conv_transpose1d_options){
          .kernel = 3, .stride = 3, .padding = 1, .output_padding = 1, .dilation = 2, .groups = 2});
}
static brim_tensor *make_nearest(bench *b)
{
  return brim_upsample2d(b->g, input(b), (brim_upsample2d_options){.size = {7, 6}});
}
static brim_tensor *make_bilinear(bench *b)
{
  return brim_upsample2d(b->g, input(b), (brim_upsample2d_options){.factor = {3, 2}, .mode = BRIM_UPSAMPLE_LINEAR});
}
static brim_tensor *make_bilinear_down(bench *b)
{
  return brim_upsample2d(b->g, input(b), (brim_upsample2d_options){.size = {3, 7}, .mode = BRIM_UPSAMPLE_LINEAR});
}
static brim_tensor *make_bilinear_aligned(bench *b)
{
  return brim_upsample2d(
      b->g, input(b),
      (brim_upsample2d_options){.size = {7}, .factor = {0, 3}, .mode = BRIM_UPSAMPLE_LINEAR, .align_corners = 1});
}
static brim_tensor *make_nearest1d(bench *b)
{
  return brim_upsample1d(b->g, input(b), (brim_upsample1d_options){.factor = 2});
}
static brim_tensor *make_linear1d(bench *b)
{
  return brim_upsample1d(b->g, input(b), (brim_upsample1d_options){.size = 8, .mode = BRIM_UPSAMPLE_LINEAR});
}
static brim_tensor *make_max(bench *b)
{
  return brim_max_pool2d(b->g, input(b), (brim_pool2d_options){.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}});
}
static brim_tensor *make_max1d(bench *b)
{
  return brim_max_pool1d(b->g, input(b), 3, 2, 1);
}
/* relu and max pooling as one node. */
static brim_tensor *make_relu_max(bench *b)
{
  const double *o = golden_case_find("options")->value;
  const brim_pool2d_options options = {.kernel = {(int64_t)o[0], (int64_t)o[1]},
                                       .stride = {(int64_t)o[2], (int64_t)o[3]},
                                       .padding = {(int64_t)o[4], (int64_t)o[5]}};
  brim_tensor *y = brim_max_pool2d(b->g, brim_relu(b->g, input(b)), options);
  brim_graph_fuse(b->g, BRIM_FUSE_ALL, NULL, NULL);
  assert_int_equal(b->g->node_count, 1);
  return y;
}
static brim_tensor *make_avg(bench *b)
{
  return brim_avg_pool2d(b->g, input(b), (brim_pool2d_options){.kernel = {3, 4}, .stride = {2, 3}, .padding = {1, 2}});
}
static brim_tensor *make_avg_inside(bench *b)
{
  return brim_avg_pool2d(
      b->g, input(b),
      (brim_pool2d_options){.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .exclude_padding = 1});
}
static brim_tensor *make_adaptive(bench *b)
{
  return brim_adaptive_avg_pool2d(b->g, input(b), 3, 4);
}
static brim_tensor *make_adaptive_up(bench *b)
{
  return brim_adaptive_avg_pool2d(b->g, input(b), 5, 2);
}
static brim_tensor *make_global(bench *b)
{
  return brim_global_avg_pool(b->g, input(b));
}

/* ---- tests ---- */

static void test_convolutions_match_pytorch(void **state)
{
  golden_case_check("dilated.", make_dilated);
  golden_case_check("grouped.", make_grouped);
  golden_case_check("depthwise.", make_depthwise);
  golden_case_check("multiplied.", make_multiplied);
  golden_case_check("conv1d.", make_conv1d);
  golden_case_check("conv1d_grouped.", make_conv1d_grouped);
}

static void test_transposed_convolutions_match_pytorch(void **state)
{
  golden_case_check("up.", make_up);
  golden_case_check("up_grouped.", make_up_grouped);
  golden_case_check("up_dilated.", make_up_dilated);
  golden_case_check("up1d.", make_up1d);
}

static void test_upsampling_matches_pytorch(void **state)
{
  golden_case_check("nearest.", make_nearest);
  golden_case_check("bilinear.", make_bilinear);
  golden_case_check("bilinear_down.", make_bilinear_down);
  golden_case_check("bilinear_aligned.", make_bilinear_aligned);
  golden_case_check("nearest1d.", make_nearest1d);
  golden_case_check("linear1d.", make_linear1d);
}

static void test_pooling_matches_pytorch(void **state)
{
  golden_case_check("max.", make_max);
  golden_case_check("max1d.", make_max1d);
  golden_case_check("avg.", make_avg);
  golden_case_check("avg_inside.", make_avg_inside);
  golden_case_check("adaptive.", make_adaptive);
  golden_case_check("adaptive_up.", make_adaptive_up);
  golden_case_check("global.", make_global);
  golden_case_check("global1d.", make_global);
}

static void test_relu_and_max_pooling_match_pytorch_as_one_node(void **state)
{
  for (int i = 0; i < 6; i++) {
    char name[24];
    snprintf(name, sizeof name, "relu_max%d.", i);
    golden_case_check(name, make_relu_max);
  }
}

/* The weight has the shape [K,C/groups,S] as in a state_dict of torch.nn.Conv1d; conv2d accepts it as a weight of
 * height 1. */
static void test_conv1d_has_the_parameters_of_pytorchs_module(void **state)
{
  const bench_row row = {"conv1d.", make_conv1d};
  bench *b = golden_case_create(&row, false);
  const brim_tensor *weight = b->g->parameter[0].value, *bias = b->g->parameter[1].value;
  assert_int_equal(b->g->parameter_count, 2);
  assert_string_equal(weight->name, "conv.weight");
  assert_true(brim_shape_equal(&weight->shape, &(brim_shape){3, {6, 4, 3}}));
  assert_string_equal(bias->name, "conv.bias");
  bench_free(b);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_convolutions_match_pytorch),
      cmocka_unit_test(test_transposed_convolutions_match_pytorch),
      cmocka_unit_test(test_upsampling_matches_pytorch),
      cmocka_unit_test(test_pooling_matches_pytorch),
      cmocka_unit_test(test_relu_and_max_pooling_match_pytorch_as_one_node),
      cmocka_unit_test(test_conv1d_has_the_parameters_of_pytorchs_module),
  };
  return cmocka_run_group_tests(tests, golden_case_set_up, golden_case_tear_down);
}
