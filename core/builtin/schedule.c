/* Learning-rate schedules: a linear warm-up to 1, then constant, a half cosine, a straight line or a polynomial down to
 * `final_factor`, or drops by a factor at regular intervals (PyTorch's PolynomialLR and StepLR, counted in steps).
 * Cosine with a warm-up of 0.3 has the shape of the one-cycle policy (Smith and Topin, 2018). wsd is constant up to a
 * decay at the end (Hu et al., MiniCPM, 2024); restarts decays repeatedly, in cycles that may grow (Loshchilov and
 * Hutter, SGDR, ICLR 2017, as PyTorch's CosineAnnealingWarmRestarts). */
#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "builtin/builtin.h"

typedef struct schedule {
  double warmup_fraction;
  int64_t warmup_steps;
  double final_factor, power, gamma, every_fraction;
  int64_t every_steps;
  double decay_fraction;
  int64_t decay_steps;
  int32_t shape;
  double cycle_fraction, growth;
  int64_t cycle_steps;
} schedule;

enum shape { LINEAR, COSINE, ONE_MINUS_SQRT };

#define WARMUP_ROWS                                                                                                    \
  BRIM_PARAM(F64, schedule, warmup_fraction, "0", "[0,1]", "warm-up as a share of all steps, if warmup_steps is 0"),   \
      BRIM_PARAM(I64, schedule, warmup_steps, "0", "[0,inf)", "number of warm-up steps; 0: warmup_fraction applies")
static const brim_param constant_table[] = {WARMUP_ROWS, BRIM_PARAMS_END};
static const brim_param decay_table[] = {
    WARMUP_ROWS, BRIM_PARAM(F64, schedule, final_factor, "0", "[0,1]", "factor at the end of the run"),
    BRIM_PARAMS_END};
static const brim_param polynomial_table[] = {
    WARMUP_ROWS, BRIM_PARAM(F64, schedule, power, "1", "(0,inf)", "exponent of the share of remaining steps"),
    BRIM_PARAM(F64, schedule, final_factor, "0", "[0,1]", "factor at the end of the run"), BRIM_PARAMS_END};
static const brim_param step_table[] = {
    WARMUP_ROWS, BRIM_PARAM(F64, schedule, gamma, "0.1", "(0,1]", "factor of each drop"),
    BRIM_PARAM(F64, schedule, every_fraction, "0.3", "(0,1]",
               "interval between drops as a share of the steps after the warm-up, if every_steps is 0"),
    BRIM_PARAM(I64, schedule, every_steps, "0", "[0,inf)", "steps between drops; 0: every_fraction applies"),
    BRIM_PARAMS_END};

static const brim_param wsd_table[] = {
    WARMUP_ROWS,
    BRIM_PARAM(F64, schedule, decay_fraction, "0.1", "[0,1]",
               "decay as a share of all steps, at the end, if decay_steps is 0"),
    BRIM_PARAM(I64, schedule, decay_steps, "0", "[0,inf)", "number of decay steps; 0: decay_fraction applies"),
    BRIM_PARAM(ENUM, schedule, shape, "one_minus_sqrt", "linear|cosine|one_minus_sqrt", "shape of the decay"),
    BRIM_PARAM(F64, schedule, final_factor, "0", "[0,1]", "factor at the end of the run"),
    BRIM_PARAMS_END};
static const brim_param restarts_table[] = {
    WARMUP_ROWS,
    BRIM_PARAM(F64, schedule, cycle_fraction, "0.1", "(0,1]",
               "first cycle as a share of the steps after the warm-up, if cycle_steps is 0"),
    BRIM_PARAM(I64, schedule, cycle_steps, "0", "[0,inf)", "steps of the first cycle; 0: cycle_fraction applies"),
    BRIM_PARAM(F64, schedule, growth, "1", "[1,100]", "ratio of the lengths of a cycle and the one before"),
    BRIM_PARAM(ENUM, schedule, shape, "cosine", "linear|cosine",
               "shape of a cycle; linear: a polynomial with exponent power"),
    BRIM_PARAM(F64, schedule, power, "1", "(0,inf)", "exponent of the share of a cycle that remains, for shape=linear"),
    BRIM_PARAM(F64, schedule, final_factor, "0", "[0,1]", "factor at the end of a cycle"),
    BRIM_PARAMS_END};

/* The number of whole steps in a fraction of all steps. The fraction is a rounded decimal number, and the product is
 * rounded again: 0.29 of 100 steps must be 29. */
static double whole_steps(double share, double steps)
{
  return floor(share * steps * (1 + 4 * DBL_EPSILON));
}

/* The number of warm-up steps, at most `steps`. */
static double warmup_of(const schedule *s, int64_t steps)
{
  const double warmup = s->warmup_steps > 0 ? (double)s->warmup_steps : whole_steps(s->warmup_fraction, (double)steps);
  return warmup < (double)steps ? warmup : (double)steps;
}

/* The progress of the decay at a step, from 0 to 1; negative during the warm-up, in which *factor is set. */
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

/* Falls from 1 to 0 as x goes from 0 to 1. */
static double down(enum shape shape, double x)
{
  if (shape == COSINE) return 0.5 * (1 + cos(acos(-1.0) * x));
  return shape == LINEAR ? 1 - x : 1 - sqrt(x);
}

static double factor_wsd(const void *params, int64_t step, int64_t steps)
{
  const schedule *s = params;
  double factor = 1;
  if (progress(s, step, steps, &factor) < 0) return factor;
  const double rest = (double)steps - warmup_of(s, steps);
  const double wanted = s->decay_steps > 0 ? (double)s->decay_steps : whole_steps(s->decay_fraction, (double)steps);
  const double decay = fmin(wanted, rest), begun = (double)step - ((double)steps - decay);
  if (begun <= 0) return 1;
  return s->final_factor + (1 - s->final_factor) * down((enum shape)s->shape, begun / decay);
}

static double factor_restarts(const void *params, int64_t step, int64_t steps)
{
  const schedule *s = params;
  double factor = 1;
  if (progress(s, step, steps, &factor) < 0) return factor;
  const double rest = (double)steps - warmup_of(s, steps), share = whole_steps(s->cycle_fraction, rest);
  double cycle = s->cycle_steps > 0 ? (double)s->cycle_steps : fmax(1, share);
  double at = (double)step - warmup_of(s, steps);
  if (s->growth > 1) {
    for (; at >= cycle; cycle *= s->growth) at -= cycle;
  } else {
    at = fmod(at, cycle);
  }
  const double left = s->shape == COSINE ? down(COSINE, at / cycle) : pow(1 - at / cycle, s->power);
  return s->final_factor + (1 - s->final_factor) * left;
}

/* ---- queries of a run ---- */

#define CHECKED_STEPS 10000 /* in a longer run, only a sample of the steps is checked */

brim_status brim_schedule_factor(const brim_plugin *plugin, const void *self, int64_t step, int64_t steps, double *out)
{
  const double factor = ((const brim_schedule_ops *)plugin->ops)->factor(self, step, steps);
  *out = factor;
  if (factor >= 0 && factor <= DBL_MAX) return BRIM_OK;
  return brim_fail(BRIM_ENUMERIC,
                   "schedule '%s': the factor of step %" PRId64 " of %" PRId64
                   " is %g: it must be finite and not negative",
                   plugin->id, step, steps, factor);
}

brim_status brim_schedule_check(const brim_plugin *plugin, const void *self, int64_t steps)
{
  const int64_t stride = steps / CHECKED_STEPS + 1;
  double factor;
  for (int64_t step = 0; step < steps; step += stride)
    BRIM_TRY(brim_schedule_factor(plugin, self, step, steps, &factor));
  return steps > 0 ? brim_schedule_factor(plugin, self, steps - 1, steps, &factor) : BRIM_OK;
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
SCHEDULE(constant, constant_table, "a warm-up, then a constant learning rate");
SCHEDULE(cosine, decay_table, "a warm-up, then half a cosine down to final_factor");
SCHEDULE(linear, decay_table, "a warm-up, then a straight line down to final_factor");
SCHEDULE(polynomial, polynomial_table, "a warm-up, then a polynomial down to final_factor");
SCHEDULE(step, step_table, "a warm-up, then a drop by gamma at regular intervals");
SCHEDULE(wsd, wsd_table, "warm-up, stable, decay: a constant learning rate with a decay at the end (Hu et al., 2024)");
SCHEDULE(restarts, restarts_table, "a warm-up, then cycles down to final_factor (Loshchilov and Hutter, 2017)");
