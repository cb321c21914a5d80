/* Which of several ways the backend asks the libraries for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/machine.h"

static brim_tensor *make_data(brim_graph *g, brim_shape shape, const char *name)
{
  return brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_BF16, &shape, name);
}

static void write_bf16(machine *m, const brim_tensor *t)
{
  uint16_t *values = calloc(t->bytes, 1);
  for (uint64_t i = 0; i < t->bytes / sizeof *values; i++) {
    const float value = value_of(t, i);
    memcpy(&values[i], (const char *)&value + 2, sizeof *values);
  }
  write_tensor(m, t, values);
  free(values);
}

/* ---- the type of a convolution's weight's gradient from bf16 ---- */

/* Has every value of the gradient, which was 0, the digits of bf16 only? */
static bool is_narrow(machine *m, const brim_tensor *gradient)
{
  uint32_t *bits = read_tensor(m, gradient), low = 0, any = 0;
  for (uint64_t i = 0; i < gradient->bytes / sizeof *bits; i++) {
    low |= bits[i] & 0xFFFF;
    any |= bits[i];
  }
  assert_int_not_equal(any, 0);
  free(bits);
  return low == 0;
}

/* EMULATED_WIDE and EMULATED_REFUSES as in emulated_dnn.cpp. */
static bool computes_in_bf16(const char *wide, const char *refuses)
{
  const brim_shape shape = {4, {4, 3, 3, 3}};
  const brim_attr attr = {.conv2d = {{3, 3}, {1, 1}, {1, 1}, {1, 1}, 1}};
  machine m;
  brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, 2, true);
  brim_tensor *const in[] = {make_data(g, (brim_shape){4, {2, 3, 5, 5}}, "x"),
                             make_data(g, (brim_shape){4, {2, 4, 5, 5}}, "dy")};
  brim_tensor *const out = brim_graph_tensor(g, BRIM_ROLE_GRADIENT, BRIM_DTYPE_F32, &shape, "dweight");
  brim_graph_node_into(g, "conv2d_grad_weight", "conv", in, 2, &out, 1, &attr);
  setenv("EMULATED_WIDE", wide, 1);
  setenv("EMULATED_REFUSES", refuses, 1);
  open_machine(&m, g, NULL, 0);
  unsetenv("EMULATED_WIDE");
  unsetenv("EMULATED_REFUSES");
  const float zero[4 * 3 * 3 * 3] = {0};
  write_tensor(&m, out, zero);
  write_bf16(&m, in[0]);
  write_bf16(&m, in[1]);
  run_nodes(&m, make_step(0));
  const bool narrow = is_narrow(&m, out);
  close_machine(&m);
  return narrow;
}

/* fp32 by the library's own engines, else bf16 by them, and only then by engines that it compiles. */
static void test_compiled_engines_come_after_those_that_the_library_brings(void **state)
{
  (void)state;
  assert_true(computes_in_bf16("none", ""));
  assert_false(computes_in_bf16("own", ""));
  assert_true(computes_in_bf16("compiled", ""));
  assert_false(computes_in_bf16("compiled", "narrow"));
}

/* ---- gelu after a product ---- */

static uint64_t kernels_of_gelu(const char *settings, float values[8 * 12])
{
  const brim_attr attr = {.fused.activation = {.approximate = BRIM_GELU_TANH}};
  machine m;
  brim_graph *g = brim_graph_create(BRIM_DTYPE_F32, 8, false);
  brim_tensor *const in[] = {make_data(g, (brim_shape){2, {8, 16}}, "x"),
                             make_data(g, (brim_shape){2, {12, 16}}, "weight")};
  brim_tensor *const out = make_data(g, (brim_shape){2, {8, 12}}, "y");
  brim_graph_node_into(g, "linear+gelu", "linear", in, 2, &out, 1, &attr);
  open_machine(&m, g, settings, 0);
  write_bf16(&m, in[0]);
  write_bf16(&m, in[1]);
  OK(m.ops->synchronize(m.self));
  const uint64_t before = kernels_run();
  run_nodes(&m, make_step(0));
  const uint64_t kernels = kernels_run() - before;
  uint16_t *y = read_tensor(&m, out);
  for (int i = 0; i < 8 * 12; i++) {
    const uint32_t bits = (uint32_t)y[i] << 16;
    memcpy(&values[i], &bits, sizeof bits);
  }
  free(y);
  close_machine(&m);
  return kernels;
}

/* A kernel rounds what it reads to bf16 first. */
static void test_gelu_is_the_product_s_or_a_kernel_s(void **state)
{
  float within[8 * 12], after[8 * 12];
  (void)state;
  const uint64_t kernels = kernels_of_gelu(NULL, within);
  assert_int_equal(kernels_of_gelu("{gelu_epilogue: false}", after), kernels + 1);
  for (int i = 0; i < 8 * 12; i++) assert_float_equal(within[i], after[i], 0.05);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_compiled_engines_come_after_those_that_the_library_brings),
      cmocka_unit_test(test_gelu_is_the_product_s_or_a_kernel_s),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
