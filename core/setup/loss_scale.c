/* See loss_scale.h. */
#include "setup/loss_scale.h"

#include <math.h>

#define SCALE_MIN 1.0
/* Limit for consecutive steps that are skipped at the lowest scale. Non-finite values then do not come from the scale,
 * and usually do not disappear. */
#define SKIPS_MAX 8

bool brim_loss_scale_is_on(const brim_settings *settings)
{
  return settings->precision == BRIM_PRECISION_FP16;
}

brim_status brim_loss_scale_check(const brim_settings *settings)
{
  const brim_loss_scale_settings *s = &settings->loss_scale;
  const struct {
    const char *key;
    double value;
  } powers[] = {{"init_scale", (double)s->init_scale},
                {"growth_factor", (double)s->growth_factor},
                {"backoff_factor", s->backoff_factor}};
  for (size_t i = 0; i < sizeof powers / sizeof powers[0]; i++) {
    int exponent;
    if (frexp(powers[i].value, &exponent) == 0.5) continue;
    return brim_fail(
        BRIM_ECONFIG,
        "loss_scale.%s is %g, which is not a power of two; other scales would add rounding errors\nset %g or %g",
        powers[i].key, powers[i].value, ldexp(1, exponent - 1), ldexp(1, exponent));
  }
  return BRIM_OK;
}

void brim_loss_scale_start(const brim_settings *settings, brim_train_state *state)
{
  if (brim_loss_scale_is_on(settings) && state->loss_scale == 0)
    state->loss_scale = (double)settings->loss_scale.init_scale;
}

void brim_loss_scale_keep(const brim_settings *settings, brim_train_state *state)
{
  const brim_loss_scale_settings *s = &settings->loss_scale;
  if (!brim_loss_scale_is_on(settings)) return;
  state->skipped_in_a_row = 0;
  if (++state->loss_scale_steps < s->growth_interval || !s->dynamic) return;
  state->loss_scale *= (double)s->growth_factor;
  state->loss_scale_steps = 0;
}

bool brim_loss_scale_skip(const brim_settings *settings, brim_train_state *state)
{
  const brim_loss_scale_settings *s = &settings->loss_scale;
  const double lower = fmax(state->loss_scale * s->backoff_factor, SCALE_MIN);
  const bool lowers = s->dynamic && lower < state->loss_scale;
  state->skipped_steps++;
  state->loss_scale_steps = 0;
  if (++state->skipped_in_a_row > SKIPS_MAX && !lowers) return false;
  if (lowers) state->loss_scale = lower;
  return true;
}
