/* Tests the messages for models and backends that cannot be planned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "plan_models.h"

static brim_status build_too_large_kernel(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_flatten(g, brim_conv2d(g, "big", brim_input(g), 4, (brim_conv2d_options){.kernel = {31, 31}})));
  return BRIM_OK;
}

static brim_status build_linear_on_image(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_linear(g, "fc", brim_input(g), 10));
  return BRIM_OK;
}

static brim_status build_wrong_classes(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_linear(g, "fc", brim_flatten(g, brim_input(g)), 7));
  return BRIM_OK;
}

static brim_status build_without_output(const void *self, brim_graph *g)
{
  (void)self;
  brim_relu(g, brim_input(g));
  return BRIM_OK;
}

static brim_status build_twice_the_same_name(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_linear(g, "fc", brim_flatten(g, brim_input(g)), 10);
  brim_output(g, brim_linear(g, "fc", x, 10));
  return BRIM_OK;
}

static brim_status build_unequal_sum(const void *self, brim_graph *g)
{
  (void)self;
  brim_tensor *x = brim_flatten(g, brim_input(g));
  brim_output(g, brim_add(g, brim_linear(g, "a", x, 10), brim_linear(g, "b", x, 11)));
  return BRIM_OK;
}

static brim_status build_on_null(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_relu(g, NULL));
  return BRIM_OK;
}

/* The product of these dimensions is 0 in 64 bits. */
static brim_status build_overflowing_reshape(const void *self, brim_graph *g)
{
  (void)self;
  const int64_t dim[] = {2, -1, (int64_t)1 << 32, (int64_t)1 << 32};
  brim_output(g, brim_reshape(g, brim_input(g), 4, dim));
  return BRIM_OK;
}

static brim_status build_huge_layer(const void *self, brim_graph *g)
{
  (void)self;
  brim_output(g, brim_linear(g, "fc", brim_flatten(g, brim_input(g)), (int64_t)1 << 61));
  return BRIM_OK;
}

/* An error in a model names the operation, the shapes, and the line of the call. */
static void model_errors_name_operation_shapes_and_line(void **unused)
{
  (void)unused;
  const struct {
    brim_status (*build)(const void *, brim_graph *);
    const char *want;
  } cases[] = {{build_too_large_kernel, "conv2d 'big': kernel 31x31 is larger than the padded input [2, 1, 28, 28]"},
               {build_linear_on_image, "the model's output must be [N, classes] = [2, 10], got [2, 1, 28, 10] (add "
                                       "brim_flatten before the last layer?)"},
               {build_wrong_classes, "the model's output must be [N, classes] = [2, 10], got [2, 7]"},
               {build_without_output, "the model named no output"},
               {build_twice_the_same_name, "parameter 'fc.weight': there is already a parameter of this name"},
               {build_unequal_sum, "add: 'a' [2, 10] and 'b' [2, 11] do not broadcast"},
               {build_on_null, "relu: the input is NULL"},
               {build_overflowing_reshape, "reshape: [2, 1, 28, 28] cannot become"},
               {build_huge_layer, "is too large"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const brim_plan_request request = request_of(cases[i].build, 2);
    brim_plan *plan = NULL;
    assert_int_equal(brim_plan_create(&request, &plan), BRIM_EINVAL);
    assert_null(plan);
    if (!strstr(brim_error_text(), cases[i].want))
      fail_msg("wanted \"%s\" in \"%s\"", cases[i].want, brim_error_text());
    assert_non_null(strstr(brim_error_text(), i == 3 ? "brim_output" : "test_plan_errors.c:"));
  }
}

static void a_backend_without_an_operation_is_named(void **unused)
{
  (void)unused;
  brim_backend_ops poor = mock_backend;
  poor.kernels_end = poor.kernels;
  brim_plan_request request = request_of(build_cnn, 2);
  request.backend = &poor;
  brim_plan *plan = NULL;
  assert_int_equal(brim_plan_create(&request, &plan), BRIM_ENOTSUP);
  assert_non_null(strstr(brim_error_text(), "no operation 'conv2d' (node 'conv1')"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(model_errors_name_operation_shapes_and_line),
      cmocka_unit_test(a_backend_without_an_operation_is_named),
  };
  return cmocka_run_group_tests(tests, make_mock_backend_with_conv, NULL);
}
