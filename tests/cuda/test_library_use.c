/* Tests the backend's choice among several library calls. */
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

/* The results differ slightly, because a separate kernel reads its input rounded to bf16. */
static void test_gelu_runs_in_the_product_or_in_a_kernel(void **state)
{
  float within[8 * 12], after[8 * 12];
  const uint64_t kernels = kernels_of_gelu(NULL, within);
  assert_int_equal(kernels_of_gelu("{gelu_epilogue: false}", after), kernels + 1);
  for (int i = 0; i < 8 * 12; i++) assert_float_equal(within[i], after[i], 0.05);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gelu_runs_in_the_product_or_in_a_kernel),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
