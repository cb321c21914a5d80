/* Learning-rate schedules: a linear warm-up to 1, then constant, a half cosine, a straight line or a polynomial down to
 * `final_factor`, or drops by a factor every so many steps (PyTorch's PolynomialLR and StepLR, counted in steps).
 * Cosine with a warm-up of 0.3 is the shape of the one-cycle policy (Smith and Topin, 2018). */
#include <float.h>
#include <math.h>

#include "builtin/builtin.h"

typedef struct schedule {
  double warmup_fraction;
  int64_t warmup_steps;
  double final_factor, power, gamma, every_fraction;
  int64_t every_steps;
} schedule;

#define WARMUP_ROWS                                                                                                    \
  BRIM_PARAM(F64, schedule, warmup_fraction, "0", "[0,1]", "share of all steps that warms up; warmup_steps wins"),     \
      BRIM_PARAM(I64, schedule, warmup_steps, "0", "[0,inf)", "steps that warm up; 0: by warmup_fraction")
static const brim_param constant_table[] = {WARMUP_ROWS, BRIM_PARAMS_END};
static const brim_param decay_table[] = {
    WARMUP_ROWS, BRIM_PARAM(F64, schedule, final_factor, "0", "[0,1]", "factor that the last step approaches"),
    BRIM_PARAMS_END};
static const brim_param polynomial_table[] = {
    WARMUP_ROWS, BRIM_PARAM(F64, schedule, power, "1", "(0,inf)", "of the share of steps that is left"),
    BRIM_PARAM(F64, schedule, final_factor, "0", "[0,1]", "factor that the last step approaches"), BRIM_PARAMS_END};
static const brim_param step_table[] = {
    WARMUP_ROWS, BRIM_PARAM(F64, schedule, gamma, "0.1", "(0,1]", "factor of each drop"),
    BRIM_PARAM(F64, schedule, every_fraction, "0.3", "(0,1]",
               "share of the steps after the warm-up between drops; every_steps wins"),
    BRIM_PARAM(I64, schedule, every_steps, "0", "[0,inf)", "steps between drops; 0: by every_fraction"),
    BRIM_PARAMS_END};

/* Whole steps of a share of them. The share is a decimal number that was rounded, and the product is rounded again:
 * 0.29 of 100 steps are 29. */
static double whole_steps(double share, double steps)
{
  return floor(share * steps * (1 + 4 * DBL_EPSILON));
}

/* The number of warm-up steps, at most all. */
static double warmup_of(const schedule *s, int64_t steps)
{
  const double warmup = s->warmup_steps > 0 ? (double)s->warmup_steps : whole_steps(s->warmup_fraction, (double)steps);
  return warmup < (double)steps ? warmup : (double)steps;
}

/* Where a step stands: negative while warming up (then *factor is set), else from 0 to 1 in the decay. */
static double progress(const schedule *s, int64_t step, int64_t steps, double *factor)
{
  const double warmup = warmup_of(s, steps);
  if ((double)step < warmup) {
    *factor = ((double)step + 1) / (warmup + 1);
    return -1;
  }
  const double rest = (double)steps - warmup;
  return rest > 0 ? ((double)step - warmup) / rest : 0;
}

static double factor_constant(const void *params, int64_t step, int64_t steps)
{
  double factor = 1;
  progress(params, step, steps, &factor);
  return factor;
}

static double factor_cosine(const void *params, int64_t step, int64_t steps)
{
  const schedule *s = params;
  double factor = 1;
  const double x = progress(s, step, steps, &factor);
  if (x < 0) return factor;
  return s->final_factor + (1 - s->final_factor) * 0.5 * (1 + cos(acos(-1.0) * x));
}

static double factor_linear(const void *params, int64_t step, int64_t steps)
{
  const schedule *s = params;
  double factor = 1;
  const double x = progress(s, step, steps, &factor);
  if (x < 0) return factor;
  return 1 + (s->final_factor - 1) * x;
}

static double factor_polynomial(const void *params, int64_t step, int64_t steps)
{
  const schedule *s = params;
  double factor = 1;
  const double x = progress(s, step, steps, &factor);
  if (x < 0) return factor;
  return s->final_factor + (1 - s->final_factor) * pow(1 - x, s->power);
}

static double factor_step(const void *params, int64_t step, int64_t steps)
{
  const schedule *s = params;
  double factor = 1;
  if (progress(s, step, steps, &factor) < 0) return factor;
  const double warmup = warmup_of(s, steps);
  const double share = fmax(1, whole_steps(s->every_fraction, (double)steps - warmup));
  const double every = s->every_steps > 0 ? (double)s->every_steps : share;
  return pow(s->gamma, floor(((double)step - warmup) / every));
}

#define SCHEDULE(name, table, text)                                                                                    \
  static const brim_schedule_ops name##_ops = {sizeof(brim_schedule_ops), factor_##name};                              \
  const brim_plugin brim_schedule_##name = {.size = sizeof(brim_plugin),                                               \
                                            .kind = BRIM_SCHEDULE,                                                     \
                                            .id = #name,                                                               \
                                            .help = text,                                                              \
                                            .params_size = sizeof(schedule),                                           \
                                            .params = table,                                                           \
                                            .ops = &name##_ops}
SCHEDULE(constant, constant_table, "a warm-up, then the full learning rate");
SCHEDULE(cosine, decay_table, "a warm-up, then half a cosine down to final_factor");
SCHEDULE(linear, decay_table, "a warm-up, then a straight line down to final_factor");
SCHEDULE(polynomial, polynomial_table, "a warm-up, then a polynomial down to final_factor");
SCHEDULE(step, step_table, "a warm-up, then a drop by gamma every so many steps");
