/* A run's histograms. See run_parts.h. */
#include "base/log.h"
#include "train/run_parts.h"

/* Handles the result of making histograms: after a failure, warns and makes no more of them. */
static void heed(brim_running *r, brim_status status)
{
  if (status == BRIM_OK) return;
  if (r->histograms.log.fd >= 0) brim_log(BRIM_LOG_WARN, "the run continues without histograms: %s", brim_error_text());
  brim_histograms_mute(&r->histograms);
}

brim_status brim_running_open_insight(brim_running *r)
{
  if (!r->settings->observe.histograms || !r->settings->federate.train) return BRIM_OK;
  const char *dir = brim_running_prints(r) ? r->dir : NULL;
  const brim_status status = brim_histograms_open(&r->histograms, r->trainer, dir, r->state->step);
  if (status == BRIM_ECOMM) return status;
  if (status != BRIM_OK && dir) brim_log(BRIM_LOG_WARN, "the run has no histograms: %s", brim_error_text());
  return BRIM_OK;
}

bool brim_running_has_histograms(const brim_running *r, int64_t step)
{
  const int64_t every = r->settings->training.eval_every_steps, steps = r->drive->order.steps;
  const int64_t interval = every > 0 ? every : r->drive->order.steps_per_epoch;
  const int64_t stride = steps / interval / BRIM_HISTOGRAMS_TIMES + 1;
  if (!r->histograms.on || !brim_loop_is_due(&r->loop, step, every)) return false;
  return step == steps || step / interval % stride == 0;
}

void brim_running_before_step(brim_running *r)
{
  if (!brim_running_has_histograms(r, r->state->step + 1) || brim_trainer_is_ahead(r->trainer)) return;
  heed(r, brim_histograms_before(&r->histograms, r->trainer, r->state->step + 1));
}

brim_status brim_running_after_step(brim_running *r)
{
  if (!brim_running_has_histograms(r, r->state->step)) return BRIM_OK;
  if (brim_trainer_plan(r->trainer)->shards) /* ranks exchange their parts only if all have committed */
    BRIM_TRY(brim_trainer_meet(r->trainer, BRIM_MEET_CHECK, BRIM_OK));
  const brim_status status = brim_histograms_after(&r->histograms, r->trainer, r->state->step,
                                                   r->tensorboard.fd >= 0 ? &r->tensorboard : NULL);
  if (status == BRIM_ECOMM) return status;
  heed(r, status);
  return BRIM_OK;
}
