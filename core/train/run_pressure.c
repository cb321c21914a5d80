/* What a run does under memory pressure: a line, then a checkpoint, cleanup, and a smaller plan. */
#include <stdio.h>

#include "train/run_parts.h"

/* What the arena should shrink to; 0: it should not. */
static uint64_t target_of(const brim_running *r, const brim_pressure_reading *reading)
{
  return brim_recover_target(&r->settings->memory, r->drive->planner.device_info.on_host,
                             brim_trainer_device_bytes(r->trainer), reading);
}

static void tell(brim_running *r, const brim_pressure_reading *reading, bool acts)
{
  brim_text line = {0}, detail = {0};
  brim_relief_line(r->drive, reading, acts, brim_loop_round(&r->loop), &line);
  brim_relief_detail(reading, &detail);
  brim_log(BRIM_LOG_WARN, "%s", brim_text_str(&line));
  brim_text_printf(&line, " (%s)", brim_text_str(&detail));
  brim_report_pressure(&r->events, acts, r->state->step, brim_text_str(&line), acts ? target_of(r, reading) : 0);
  brim_text_release(&line);
  brim_text_release(&detail);
}

/* So that nothing is lost if the kernel ends the process; trouble with the disk is none of memory's, and no reason to
 * end it now. */
static brim_status save(brim_running *r)
{
  const brim_status status = r->loop.checkpoint_step == r->state->step ? BRIM_OK : brim_loop_checkpoint(&r->loop);
  const bool of_disk =
      status == BRIM_EIO || (status == BRIM_EPEER && brim_trainer_verdict(r->trainer)->status == BRIM_EIO);
  if (!of_disk) return status;
  if (status == BRIM_EIO) brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  brim_trainer_forgive(r->trainer);
  return BRIM_OK;
}

/* Has something come up that asks for acting? Then it does so until it is done. */
static void look(brim_running *r)
{
  brim_pressure_reading reading;
  const enum brim_pressure_level level = brim_pressure_take(r->pressure, &reading);
  if (level == BRIM_PRESSURE_CALM) return;
  tell(r, &reading, level == BRIM_PRESSURE_ACTS);
  if (level != BRIM_PRESSURE_ACTS) return;
  r->reading = reading;
  r->acts = true;
}

/* In a job of several ranks all write the checkpoint, when all know that one asks for it. */
brim_status brim_running_heed_pressure(void *running, bool *acts, uint64_t *bytes)
{
  brim_running *r = running;
  if (!r->acts) look(r);
  const bool is_agreed = r->options->dist ? (brim_trainer_verdict(r->trainer)->wishes & BRIM_WISH_PAUSE) != 0 : r->acts;
  if (!is_agreed) return BRIM_OK;
  BRIM_TRY(save(r));
  *acts = r->acts;
  if (!r->acts) return BRIM_OK;
  *bytes = target_of(r, &r->reading);
  r->acts = false;
  brim_running_wish(r); /* the others need not pause for it again */
  return BRIM_OK;
}
