/* Tests learning-rate schedules, and the numbers that optimizers compute for a step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "brim/random.h"
#include "builtin/builtin.h"
#include "plugin/registry.h"

/* The layout of the schedules' parameters, as in their tables. */
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

/* The test uses every hundredth as a fraction; a double represents most of them only approximately. */
static void a_fraction_of_the_steps_is_rounded_to_whole_steps(void **unused)
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

/* The layout of all parameters, for schedules that have them. */
typedef struct all {
  double warmup_fraction;
  int64_t warmup_steps;
  double final_factor, power, gamma, every_fraction;
  int64_t every_steps;
  double decay_fraction;
  int64_t decay_steps;
  int32_t shape;
  double cycle_fraction, growth;
  int64_t cycle_steps;
} all;

static double drawn(uint32_t *draws)
{
  return brim_philox4x32((*draws)++, 0, 0, 0, 1, 2).v[0] / 4294967296.0;
}

/* The expected values are those of transformers.get_wsd_schedule, but there the warm-up begins at 0. */
static double wsd_of_transformers(int64_t step, int64_t warmup, int64_t stable, int64_t decay, int shape, double least)
{
  if (step < warmup + stable) return 1;
  const double x = (double)(step - warmup - stable) / (double)decay;
  const double left = shape == 0 ? 1 - x : shape == 1 ? 0.5 * (1 + cos(acos(-1.0) * x)) : 1 - sqrt(x);
  return left * (1 - least) + least;
}

static void wsd_is_that_of_transformers(void **unused)
{
  (void)unused;
  uint32_t draws = 0;
  for (int i = 0; i < 300; i++) {
    const int64_t steps = 2 + (int64_t)(drawn(&draws) * 500), warmup = (int64_t)(drawn(&draws) * (double)steps / 2);
    const int64_t decay = 1 + (int64_t)(drawn(&draws) * (double)(steps - warmup - 1));
    const all s = {.warmup_steps = warmup, .decay_steps = decay, .shape = i % 3, .final_factor = drawn(&draws)};
    for (int64_t step = s.warmup_steps; step < steps; step++) {
      const double expected = wsd_of_transformers(step, warmup, steps - warmup - decay, decay, s.shape, s.final_factor);
      const double got = ((const brim_schedule_ops *)brim_schedule_wsd.ops)->factor(&s, step, steps);
      if (!(fabs(got - expected) < 1e-12)) fail_msg("step %d of %d: %g, not %g", (int)step, (int)steps, got, expected);
    }
  }
}

/* Computes T_cur and T_i of torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(T_0, T_mult) step by step. */
static void restarts_are_those_of_pytorch(void **unused)
{
  (void)unused;
  uint32_t draws = 1000000;
  for (int i = 0; i < 300; i++) {
    const int64_t first = 1 + (int64_t)(drawn(&draws) * 40), times = 1 + (int64_t)(drawn(&draws) * 3);
    const all s = {.cycle_steps = first, .growth = (double)times, .shape = 1, .final_factor = drawn(&draws)};
    int64_t at = 0, cycle = first;
    for (int64_t step = 0; step < 400; step++) {
      const double expected =
          s.final_factor + (1 - s.final_factor) * (1 + cos(acos(-1.0) * (double)at / (double)cycle)) / 2;
      const double got = ((const brim_schedule_ops *)brim_schedule_restarts.ops)->factor(&s, step, 400);
      if (!(fabs(got - expected) < 1e-12)) fail_msg("step %d: %g, not %g", (int)step, got, expected);
      if (++at < cycle) continue;
      at -= cycle;
      cycle *= times;
    }
  }
  const all polynomial = {.cycle_steps = 10, .growth = 1, .power = 2, .final_factor = 0.5};
  const brim_schedule_ops *ops = brim_schedule_restarts.ops;
  assert_true(fabs(ops->factor(&polynomial, 25, 100) - 0.625) < 1e-15);
}

/* In the first step, AdamW's bias corrections are those of t = 1. */
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(warm_up_rises_in_a_line_to_one),
                                     cmocka_unit_test(a_fraction_of_the_steps_is_rounded_to_whole_steps),
                                     cmocka_unit_test(decays_go_down_to_the_final_factor),
                                     cmocka_unit_test(a_warm_up_longer_than_the_run_is_cut),
                                     cmocka_unit_test(wsd_is_that_of_transformers),
                                     cmocka_unit_test(restarts_are_those_of_pytorch),
                                     cmocka_unit_test(adamw_counts_its_steps_from_one)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
