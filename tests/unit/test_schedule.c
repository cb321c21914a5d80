/* Learning-rate schedules and what optimizers bring to a step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "builtin/builtin.h"
#include "plugin/registry.h"

/* The layout of the schedules' parameters, as their tables describe it. */
typedef struct schedule {
  double warmup_fraction;
  int64_t warmup_steps;
  double final_factor;
} schedule;

static double factor_of(const brim_plugin *plugin, schedule s, int64_t step, int64_t steps)
{
  const brim_schedule_ops *ops = plugin->ops;
  return ops->factor(&s, step, steps);
}

static void warm_up_rises_in_a_line_to_one(void **unused)
{
  (void)unused;
  const brim_plugin *all[] = {&brim_schedule_constant, &brim_schedule_cosine, &brim_schedule_linear};
  for (int i = 0; i < 3; i++) {
    const schedule by_steps = {.warmup_steps = 4}, by_fraction = {.warmup_fraction = 0.4};
    for (int64_t step = 0; step < 4; step++) {
      assert_true(fabs(factor_of(all[i], by_steps, step, 10) - (double)(step + 1) / 5) < 1e-15);
      assert_true(factor_of(all[i], by_steps, step, 10) == factor_of(all[i], by_fraction, step, 10));
    }
    assert_true(factor_of(all[i], by_steps, 4, 10) == 1);
  }
}

/* Of every share in hundredths, though most have no exact double. */
static void a_share_of_the_steps_is_whole_steps(void **unused)
{
  (void)unused;
  for (int64_t percent = 1; percent < 100; percent++)
    for (int64_t steps = 100; steps <= 100000; steps *= 10) {
      const schedule by_steps = {.warmup_steps = percent * steps / 100},
                     by_share = {.warmup_fraction = (double)percent / 100};
      assert_true(factor_of(&brim_schedule_constant, by_share, 0, steps) ==
                  factor_of(&brim_schedule_constant, by_steps, 0, steps));
    }
  const schedule almost = {.warmup_fraction = 0.2899999}, below = {.warmup_steps = 28};
  assert_true(factor_of(&brim_schedule_constant, almost, 0, 100) == factor_of(&brim_schedule_constant, below, 0, 100));
}

static void decays_go_down_to_the_final_factor(void **unused)
{
  (void)unused;
  const schedule s = {.final_factor = 0.1};
  assert_true(factor_of(&brim_schedule_constant, s, 99, 100) == 1);
  assert_true(fabs(factor_of(&brim_schedule_cosine, s, 50, 100) - 0.55) < 1e-12);
  assert_true(fabs(factor_of(&brim_schedule_linear, s, 50, 100) - 0.55) < 1e-12);
  assert_true(fabs(factor_of(&brim_schedule_linear, s, 25, 100) - 0.775) < 1e-12);
  for (int64_t step = 1; step < 100; step++) {
    assert_true(factor_of(&brim_schedule_cosine, s, step, 100) < factor_of(&brim_schedule_cosine, s, step - 1, 100));
    assert_true(factor_of(&brim_schedule_cosine, s, step, 100) > 0.1);
  }
}

static void a_warm_up_longer_than_the_run_is_cut(void **unused)
{
  (void)unused;
  const schedule s = {.warmup_steps = 1000};
  assert_true(factor_of(&brim_schedule_cosine, s, 9, 10) < 1);
  assert_true(factor_of(&brim_schedule_cosine, s, 9, 10) > factor_of(&brim_schedule_cosine, s, 8, 10));
}

/* AdamW's bias corrections belong to step t = 1 for the first step. */
static void adamw_counts_its_steps_from_one(void **unused)
{
  (void)unused;
  const struct {
    double lr, weight_decay, beta1, beta2, eps;
    const char *no_decay;
    bool bias_correction;
  } params = {1e-3, 0.01, 0.9, 0.999, 1e-8, "", true};
  brim_step step = {.step = 0};
  assert_int_equal(brim_optimizer_fill(&brim_optimizer_adamw, &params, 0.5, &step), BRIM_OK);
  assert_true(step.lr == 0.5e-3);
  assert_true(fabs(step.bias_correction1 - 0.1) < 1e-15);
  assert_true(fabs(step.bias_correction2 - 0.001) < 1e-15);
  step.step = 9;
  assert_int_equal(brim_optimizer_fill(&brim_optimizer_adamw, &params, 1, &step), BRIM_OK);
  assert_true(fabs(step.bias_correction1 - (1 - pow(0.9, 10))) < 1e-15);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(warm_up_rises_in_a_line_to_one), cmocka_unit_test(a_share_of_the_steps_is_whole_steps),
      cmocka_unit_test(decays_go_down_to_the_final_factor), cmocka_unit_test(a_warm_up_longer_than_the_run_is_cut),
      cmocka_unit_test(adamw_counts_its_steps_from_one)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
