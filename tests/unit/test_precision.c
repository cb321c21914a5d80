/* precision=auto depends on the types that the device multiplies and the backend stores; backend.strict=true refuses
 * operations that a device computes slowly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "brim/backend.h"
#include "planner/strict.h"

enum { BF16 = BRIM_STORES(BRIM_DTYPE_BF16), F16 = BRIM_STORES(BRIM_DTYPE_F16) };

typedef struct world {
  brim_settings settings;
  brim_backend_ops ops;
  brim_device_info device;
  brim_setup setup;
} world;

static void make(world *w, int32_t precision, uint32_t stores, uint32_t multiplies, bool on_host)
{
  *w = (world){.settings = {.precision = precision},
               .ops = {.size = sizeof w->ops, .real = BRIM_DTYPE_F32, .stores = stores},
               .device = {.name = "a device", .multiplies = multiplies, .on_host = on_host}};
  w->setup.settings = &w->settings;
  w->setup.backend_ops = &w->ops;
  w->setup.precision = precision < BRIM_PRECISIONS ? precision : BRIM_PRECISION_FP32;
  brim_setup_see_device(&w->setup, &w->device);
}

static void the_device_decides_auto(void **unused)
{
  (void)unused;
  static const struct {
    uint32_t stores, multiplies;
    bool on_host;
    int32_t expected;
  } cases[] = {{BF16 | F16, BF16 | F16, false, BRIM_PRECISION_BF16},
               {BF16 | F16, F16, false, BRIM_PRECISION_FP32}, /* fp16 would need a loss scale */
               {BF16 | F16, 0, false, BRIM_PRECISION_FP32},
               {0, BF16, false, BRIM_PRECISION_FP32},
               {BF16 | F16, BF16, true, BRIM_PRECISION_FP32}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    world w;
    make(&w, BRIM_PRECISION_AUTO, cases[i].stores, cases[i].multiplies, cases[i].on_host);
    assert_int_equal(brim_setup_precision(&w.setup), cases[i].expected);
    make(&w, BRIM_PRECISION_POLICY, cases[i].stores, cases[i].multiplies, cases[i].on_host);
    assert_int_equal(brim_setup_precision(&w.setup), BRIM_PRECISION_FP32);
    make(&w, BRIM_PRECISION_FP16, cases[i].stores, cases[i].multiplies, cases[i].on_host);
    assert_int_equal(brim_setup_precision(&w.setup), BRIM_PRECISION_FP16);
  }
}

static void strict_refuses_a_precision_that_the_device_does_not_multiply(void **unused)
{
  (void)unused;
  world w;
  brim_text text = {0};
  make(&w, BRIM_PRECISION_BF16, BF16, BF16, false);
  w.settings.backend.strict = true;
  assert_int_equal(brim_strict_check_precision(&w.setup, &w.device), BRIM_OK);
  w.device.multiplies = F16;
  assert_int_equal(brim_strict_check_precision(&w.setup, &w.device), BRIM_ECONFIG);
  assert_non_null(strstr(brim_error_text(), "backend.strict=true refuses precision=bf16 on a device\n"));
  assert_non_null(strstr(brim_error_text(), "a step takes the time of fp32 or more"));
  w.settings.backend.strict = false;
  assert_int_equal(brim_strict_check_precision(&w.setup, &w.device), BRIM_OK);
  brim_strict_print_precision(&w.setup, &w.device, &text);
  assert_non_null(strstr(brim_text_str(&text), "precision=bf16: activations are kept in bf16 and computed in fp32"));
  brim_text_release(&text);
}

/* The reference computes everything in double precision. It uses fp32, because it only simulates 16 bits. */
static void fp32_and_double_precision_have_no_slower_way(void **unused)
{
  (void)unused;
  world w;
  make(&w, BRIM_PRECISION_AUTO, BF16, 0, true);
  w.settings.backend.strict = true;
  assert_int_equal(brim_strict_check_precision(&w.setup, &w.device), BRIM_OK);
  make(&w, BRIM_PRECISION_BF16, BF16, 0, true);
  w.settings.backend.strict = true;
  w.ops.real = BRIM_DTYPE_F64;
  assert_int_equal(brim_strict_check_precision(&w.setup, &w.device), BRIM_OK);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_device_decides_auto),
      cmocka_unit_test(strict_refuses_a_precision_that_the_device_does_not_multiply),
      cmocka_unit_test(fp32_and_double_precision_have_no_slower_way),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
