/* Tests that a loss scale adapts to applied and skipped steps like torch.amp.GradScaler. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "setup/loss_scale.h"

static brim_settings settings_of(int64_t init_scale, int64_t interval)
{
  return (brim_settings){.precision = BRIM_PRECISION_FP16,
                         .loss_scale = {.dynamic = true,
                                        .init_scale = init_scale,
                                        .growth_factor = 2,
                                        .growth_interval = interval,
                                        .backoff_factor = 0.5}};
}

static brim_train_state started(const brim_settings *s)
{
  brim_train_state state = {0};
  brim_loss_scale_start(s, &state);
  return state;
}

static void it_is_on_in_fp16_only(void **unused)
{
  (void)unused;
  brim_settings s = settings_of(65536, 2000);
  assert_true(started(&s).loss_scale == 65536);
  for (int32_t precision = 0; precision < BRIM_PRECISIONS; precision++) {
    s.precision = precision;
    assert_int_equal(brim_loss_scale_is_on(&s), precision == BRIM_PRECISION_FP16);
    brim_train_state state = {0}, before = {0};
    if (precision == BRIM_PRECISION_FP16) continue;
    brim_loss_scale_start(&s, &state);
    brim_loss_scale_keep(&s, &state);
    assert_memory_equal(&state, &before, sizeof state);
  }
}

static void a_resumed_run_keeps_its_scale(void **unused)
{
  (void)unused;
  const brim_settings s = settings_of(65536, 2000);
  brim_train_state state = {.loss_scale = 8};
  brim_loss_scale_start(&s, &state);
  assert_true(state.loss_scale == 8);
}

/* The test compares with the scales of GradScaler(init_scale=8, growth_interval=3) for the same steps. k: applied, s:
 * skipped. */
static void it_follows_steps_as_grad_scaler_does(void **unused)
{
  (void)unused;
  static const char steps[] = "kkkkkskkskkkkk";
  static const double expected[] = {8, 8, 16, 16, 16, 8, 8, 8, 4, 4, 4, 8, 8, 8};
  const brim_settings s = settings_of(8, 3);
  brim_train_state state = started(&s);
  for (size_t i = 0; steps[i]; i++) {
    if (steps[i] == 'k')
      brim_loss_scale_keep(&s, &state);
    else
      assert_true(brim_loss_scale_skip(&s, &state));
    assert_true(state.loss_scale == expected[i]);
  }
  assert_int_equal(state.skipped_steps, 2);
  assert_int_equal(state.skipped_in_a_row, 0);
  assert_int_equal(state.loss_scale_steps, 2);
}

static void a_scale_that_stays_is_neither_raised_nor_lowered(void **unused)
{
  (void)unused;
  brim_settings s = settings_of(8, 1);
  s.loss_scale.dynamic = false;
  brim_train_state state = started(&s);
  for (int i = 0; i < 10; i++) brim_loss_scale_keep(&s, &state);
  for (int i = 0; i < 8; i++) assert_true(brim_loss_scale_skip(&s, &state));
  assert_true(state.loss_scale == 8);
  assert_false(brim_loss_scale_skip(&s, &state));
}

/* The scale never falls below 1. Consecutive failing steps end the run only at a scale of 1. */
static void it_ends_where_it_cannot_be_lowered(void **unused)
{
  (void)unused;
  brim_settings s = settings_of(1024, 2000);
  s.loss_scale.backoff_factor = 0.0625;
  brim_train_state state = started(&s);
  for (int i = 0; i < 8; i++) assert_true(brim_loss_scale_skip(&s, &state));
  assert_true(state.loss_scale == 1);
  brim_loss_scale_keep(&s, &state);
  for (int i = 0; i < 8; i++) assert_true(brim_loss_scale_skip(&s, &state));
  assert_false(brim_loss_scale_skip(&s, &state));
  s = settings_of((int64_t)1 << 40, 2000);
  state = started(&s);
  for (int i = 0; i < 40; i++) assert_true(brim_loss_scale_skip(&s, &state));
  assert_true(state.loss_scale == 1);
  assert_false(brim_loss_scale_skip(&s, &state));
}

static void all_its_numbers_are_powers_of_two(void **unused)
{
  (void)unused;
  brim_settings s = settings_of(65536, 2000);
  assert_int_equal(brim_loss_scale_check(&s), BRIM_OK);
  s.loss_scale.init_scale = 65537;
  assert_int_equal(brim_loss_scale_check(&s), BRIM_ECONFIG);
  assert_non_null(strstr(brim_error_text(), "loss_scale.init_scale is 65537, which is not a power of two"));
  s = settings_of(1, 1);
  s.loss_scale.growth_factor = 1;
  assert_int_equal(brim_loss_scale_check(&s), BRIM_OK);
  s.loss_scale.backoff_factor = 0.3;
  assert_int_equal(brim_loss_scale_check(&s), BRIM_ECONFIG);
  assert_non_null(strstr(brim_error_text(), "set 0.25 or 0.5"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_is_on_in_fp16_only),
      cmocka_unit_test(a_resumed_run_keeps_its_scale),
      cmocka_unit_test(it_follows_steps_as_grad_scaler_does),
      cmocka_unit_test(a_scale_that_stays_is_neither_raised_nor_lowered),
      cmocka_unit_test(it_ends_where_it_cannot_be_lowered),
      cmocka_unit_test(all_its_numbers_are_powers_of_two),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
