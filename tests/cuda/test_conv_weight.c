/* The type in which a library computes the gradient of a convolution's weight from bf16: fp32 by its own engines, else
 * bf16, and only then by engines that it compiles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/machine.h"

static brim_tensor *make_data(brim_graph *g, int64_t channels, const char *name)
{
  const brim_shape shape = {4, {2, channels, 5, 5}};
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
  brim_tensor *const in[] = {make_data(g, 3, "x"), make_data(g, 4, "dy")};
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

static void test_compiled_engines_come_after_those_that_the_library_brings(void **state)
{
  (void)state;
  assert_true(computes_in_bf16("none", ""));
  assert_false(computes_in_bf16("own", ""));
  assert_true(computes_in_bf16("compiled", ""));
  assert_false(computes_in_bf16("compiled", "narrow"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_compiled_engines_come_after_those_that_the_library_brings),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
