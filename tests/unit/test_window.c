/* Tests convolutions and pooling in models: the shapes of their results, and the errors for invalid calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "graph/graph.h"

static brim_graph *graph;
static brim_tensor *image, *line; /* [2, 6, 8, 10] and [2, 6, 10] */

static int make_graph(void **state)
{
  graph = brim_graph_create(BRIM_DTYPE_F32, 2, true);
  image = brim_graph_tensor(graph, BRIM_ROLE_DATA, BRIM_DTYPE_F32, &(brim_shape){4, {2, 6, 8, 10}}, "image");
  line = brim_graph_tensor(graph, BRIM_ROLE_DATA, BRIM_DTYPE_F32, &(brim_shape){3, {2, 6, 10}}, "line");
  return 0;
}

static int free_graph(void **state)
{
  brim_graph_free(graph);
  return 0;
}

static void assert_shape(const brim_tensor *y, const char *wanted)
{
  char text[96];
  if (!y) fail_msg("wanted %s: %s", wanted, graph->error);
  assert_string_equal(brim_shape_format(text, sizeof text, &y->shape), wanted);
}

static void results_have_the_shapes_of_pytorch(void **state)
{
  assert_shape(brim_conv2d(graph, "a", image, 4, (brim_conv2d_options){.kernel = {3, 3}, .dilation = {2, 3}}),
               "[2, 4, 4, 4]");
  assert_shape(brim_conv2d(graph, "b", image, 4, (brim_conv2d_options){.kernel = {3, 3}, .stride = {2, 3}}),
               "[2, 4, 3, 3]");
  assert_shape(brim_conv1d(graph, "c", line, 9, (brim_conv1d_options){.kernel = 5, .padding = 2, .groups = 3}),
               "[2, 9, 10]");
  assert_shape(brim_conv_transpose2d(
                   graph, "d", image, 4,
                   (brim_conv_transpose2d_options){
                       .kernel = {3, 4}, .stride = {2, 3}, .padding = {1, 2}, .output_padding = {1, 2}, .groups = 2}),
               "[2, 4, 16, 29]");
  assert_shape(brim_conv_transpose1d(graph, "e", line, 9,
                                     (brim_conv_transpose1d_options){.kernel = 3, .dilation = 4, .output_padding = 3}),
               "[2, 9, 21]");
  assert_shape(brim_upsample2d(graph, image, (brim_upsample2d_options){.factor = {3, 0}, .size = {0, 4}}),
               "[2, 6, 24, 4]");
  assert_shape(brim_upsample1d(graph, line, (brim_upsample1d_options){.size = 13, .mode = BRIM_UPSAMPLE_LINEAR}),
               "[2, 6, 13]");
  assert_shape(brim_max_pool2d(graph, image, (brim_pool2d_options){.kernel = {3, 3}, .padding = {1, 1}}),
               "[2, 6, 3, 4]");
  assert_shape(brim_avg_pool2d(graph, image, (brim_pool2d_options){.kernel = {2, 3}, .stride = {1, 0}}),
               "[2, 6, 7, 3]");
  assert_shape(brim_max_pool1d(graph, line, 4, 0, 0), "[2, 6, 2]");
  assert_shape(brim_adaptive_avg_pool2d(graph, image, 3, 20), "[2, 6, 3, 20]");
  assert_shape(brim_global_avg_pool(graph, image), "[2, 6]");
  assert_shape(brim_global_avg_pool(graph, line), "[2, 6]");
}

static void assert_refused(const brim_tensor *y, const char *wanted)
{
  assert_null(y);
  assert_int_equal(graph->status, BRIM_EINVAL);
  if (!strstr(graph->error, wanted)) fail_msg("wanted \"%s\" in \"%s\"", wanted, graph->error);
  assert_non_null(strstr(graph->error, "test_window.c:"));
  free_graph(NULL);
  make_graph(NULL);
}

static void an_impossible_convolution_is_explained(void **state)
{
  assert_refused(brim_conv2d(graph, "c", line, 4, (brim_conv2d_options){.kernel = {3, 3}}),
                 "conv2d 'c': input must be [N, C, H, W], got [2, 6, 10]");
  assert_refused(brim_conv2d(graph, "c", image, 4, (brim_conv2d_options){.kernel = {5, 3}, .dilation = {2, 1}}),
                 "conv2d 'c': kernel 5x3 with dilation 2x1 is larger than the padded input [2, 6, 8, 10]");
  assert_refused(brim_conv2d(graph, "c", image, 4, (brim_conv2d_options){.kernel = {1, 1}, .groups = 4}),
                 "conv2d 'c': groups 4 must divide out_channels 4 and the channels of the input [2, 6, 8, 10]");
  assert_refused(brim_conv2d(graph, "c", image, 4, (brim_conv2d_options){.kernel = {3}}),
                 "conv2d 'c': out_channels 4, kernel 3x0");
  assert_refused(brim_conv2d(graph, "c", image, 4, (brim_conv2d_options){.kernel = {1, 1}, .padding = {INT64_MAX, 0}}),
                 "padding 9223372036854775807x0");
}

static void an_impossible_transposed_convolution_is_explained(void **state)
{
  assert_refused(brim_conv_transpose2d(graph, "c", line, 4, (brim_conv_transpose2d_options){.kernel = {3, 3}}),
                 "conv_transpose2d 'c': input must be [N, C, H, W], got [2, 6, 10]");
  assert_refused(
      brim_conv_transpose2d(
          graph, "c", image, 4,
          (brim_conv_transpose2d_options){.kernel = {3, 3}, .stride = {2, 2}, .output_padding = {1, 2}}),
      "conv_transpose2d 'c': output_padding 1x2 must be at least 0, and less than stride 2x2 or dilation 1x1");
  assert_refused(brim_conv_transpose2d(
                     graph, "c", image, 4,
                     (brim_conv_transpose2d_options){.kernel = {3, 3}, .output_padding = {INT64_MAX, INT64_MIN}}),
                 "output_padding 9223372036854775807x-9223372036854775808 must be at least 0");
  assert_refused(
      brim_conv_transpose2d(graph, "c", image, 4, (brim_conv_transpose2d_options){.kernel = {3, 3}, .padding = {1, 6}}),
      "conv_transpose2d 'c': padding 1x6 removes the whole result of input [2, 6, 8, 10]: the result would be 8x0");
  assert_refused(
      brim_conv_transpose2d(graph, "c", image, 4, (brim_conv_transpose2d_options){.kernel = {1, 1}, .groups = 4}),
      "conv_transpose2d 'c': groups 4 must divide out_channels 4 and the channels of the input [2, 6, 8, 10]");
  assert_refused(
      brim_conv_transpose1d(graph, "c", line, 4, (brim_conv_transpose1d_options){.kernel = 1, .output_padding = 1}),
      "conv_transpose1d 'c': output_padding 1 must be at least 0, and less than stride 1 or dilation 1");
}

static void impossible_upsampling_is_explained(void **state)
{
  assert_refused(brim_upsample2d(graph, line, (brim_upsample2d_options){.factor = {2, 2}}),
                 "upsample2d: input must be [N, C, H, W], got [2, 6, 10]");
  assert_refused(brim_upsample2d(graph, image, (brim_upsample2d_options){.factor = {2}}),
                 "upsample2d: width: either a size or a factor must be in [1,65536], and the other 0; got size 0, "
                 "factor 0");
  assert_refused(brim_upsample2d(graph, image, (brim_upsample2d_options){.factor = {2, 2}, .size = {4}}),
                 "upsample2d: height: either a size or a factor must be in [1,65536], and the other 0; got size 4, "
                 "factor 2");
  assert_refused(brim_upsample1d(graph, line, (brim_upsample1d_options){.size = -1}), "upsample1d: length: either");
  assert_refused(brim_upsample1d(graph, line, (brim_upsample1d_options){.size = 4, .mode = 2}),
                 "upsample1d: mode must be BRIM_UPSAMPLE_NEAREST or BRIM_UPSAMPLE_LINEAR, got 2");
  assert_refused(brim_upsample2d(graph, image, (brim_upsample2d_options){.factor = {2, 2}, .align_corners = 1}),
                 "upsample2d: align_corners needs BRIM_UPSAMPLE_LINEAR");
}

/* The message has only one dimension, like the call. */
static void a_convolution_of_one_dimension_is_explained_as_one(void **state)
{
  assert_refused(brim_conv1d(graph, "c", image, 4, (brim_conv1d_options){.kernel = 3}),
                 "conv1d 'c': input must be [N, C, L], got [2, 6, 8, 10]");
  assert_refused(brim_conv1d(graph, "c", line, 4, (brim_conv1d_options){.kernel = 13, .padding = 1}),
                 "conv1d 'c': kernel 13 is larger than the padded input [2, 6, 10]");
  assert_refused(brim_conv1d(graph, "c", line, 4, (brim_conv1d_options){.kernel = 3, .stride = -1}),
                 "conv1d 'c': out_channels 4, kernel 3, stride -1, dilation 1 and groups 1");
}

static void impossible_pooling_is_explained(void **state)
{
  assert_refused(brim_max_pool2d(graph, image, (brim_pool2d_options){.kernel = {9, 2}}),
                 "max_pool2d: kernel 9x2 is larger than the padded input [2, 6, 8, 10]");
  assert_refused(brim_max_pool2d(graph, image, (brim_pool2d_options){.kernel = {3, 3}, .padding = {2, 1}}),
                 "max_pool2d: kernel 3x3 and stride 3x3 must be at least 1");
  assert_refused(brim_max_pool2d(graph, image, (brim_pool2d_options){.kernel = {16, 17}}),
                 "max_pool2d: kernel 16x17 has more than 256 values");
  assert_refused(brim_max_pool1d(graph, line, 12, 0, 0),
                 "max_pool1d: kernel 12 is larger than the padded input [2, 6, 10]");
  assert_refused(brim_avg_pool2d(graph, line, (brim_pool2d_options){.kernel = {2, 2}}),
                 "avg_pool2d: input must be [N, C, H, W], got [2, 6, 10]");
  assert_refused(brim_adaptive_avg_pool2d(graph, image, 0, 3),
                 "adaptive_avg_pool2d: height 0 and width 3 of the result must be in [1,65536]");
  brim_tensor *row = brim_flatten(graph, line);
  assert_refused(brim_global_avg_pool(graph, row), "global_avg_pool: input must be [N, C, ...], got [2, 60]");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(results_have_the_shapes_of_pytorch, make_graph, free_graph),
      cmocka_unit_test_setup_teardown(an_impossible_convolution_is_explained, make_graph, free_graph),
      cmocka_unit_test_setup_teardown(an_impossible_transposed_convolution_is_explained, make_graph, free_graph),
      cmocka_unit_test_setup_teardown(impossible_upsampling_is_explained, make_graph, free_graph),
      cmocka_unit_test_setup_teardown(a_convolution_of_one_dimension_is_explained_as_one, make_graph, free_graph),
      cmocka_unit_test_setup_teardown(impossible_pooling_is_explained, make_graph, free_graph),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
