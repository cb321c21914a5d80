/* A run's reactions to memory pressure: a message, then a checkpoint, cleanup, and a smaller plan. */
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "train/run_parts.h"

brim_status brim_running_watch_memory(brim_running *r)
{
  const brim_memory_settings *m = &r->drive->setup->settings->memory;
  const brim_pressure_options options = {.limits = {m->warn_percent, m->critical_percent},
                                         .interval_seconds = m->check_interval_seconds};
  BRIM_TRY(brim_pressure_open(&options, &r->pressure));
  brim_running_aim(r);
  return BRIM_OK;
}

/* Does not watch the device if a policy does so at each step (`elastic`), because other processes may then use the
 * memory that the run gives back. */
void brim_running_aim(brim_running *r)
{
  const brim_drive *d = r->drive;
  const brim_pressure_device device = {.ops = d->setup->backend_ops,
                                       .backend = d->setup->backend,
                                       .device = d->planner.device,
                                       .own_bytes = brim_trainer_device_bytes(r->trainer) +
                                                    d->planner.device_info.taken_bytes + d->planner.comm_bytes};
  brim_pressure_aim(r->pressure, brim_policies_follow(d->dialogue.policies) ? NULL : &device);
}

/* The memory that the process has allocated, on the host and on the device. */
static uint64_t allocated(const brim_running *r)
{
  return brim_rss_bytes() + (r->drive->planner.device_info.on_host ? 0 : brim_trainer_device_bytes(r->trainer));
}

void brim_running_clean(const brim_running *r, enum brim_cleanup cleanup)
{
  if (cleanup == BRIM_CLEAN_NONE) return;
  const uint64_t before = allocated(r);
  const double start = brim_now();
  brim_trainer_clean(r->trainer, cleanup);
  if (cleanup == BRIM_CLEAN_HEAVY) brim_checkpoint_drop_cached(r->dir);
  const double seconds = brim_now() - start;
  const uint64_t after = allocated(r);
  brim_log(BRIM_LOG_INFO, "[Memory] Before cleanup: %.2f GB allocated", 1e-9 * (double)before);
  brim_log(BRIM_LOG_INFO, "[Memory] After cleanup: %.2f GB (freed %.2f GB)", 1e-9 * (double)after,
           after < before ? 1e-9 * (double)(before - after) : 0);
  brim_log(BRIM_LOG_DEBUG, "%s cleanup took %.3f ms: %llu bytes allocated before, %llu after",
           cleanup == BRIM_CLEAN_HEAVY ? "heavy" : "light", 1e3 * seconds, (unsigned long long)before,
           (unsigned long long)after);
}

/* Returns the size to which the arena should shrink, or 0. */
static uint64_t target_of(const brim_running *r, const brim_pressure_reading *reading)
{
  return brim_recover_target(&r->settings->memory, r->drive->planner.device_info.on_host,
                             brim_trainer_device_bytes(r->trainer), reading);
}

/* Logs "Warning at round 30: RAM at 87.3%, GPU at 91.2%"; the event also has all readings, with bytes. */
static void report_pressure(brim_running *r, const brim_pressure_reading *reading, bool acts)
{
  char used[32], total[32];
  const brim_drive *d = r->drive;
  const brim_host_use *h = &reading->host;
  brim_text line = {0};
  brim_text_printf(&line, "%s at round %lld: RAM at %.1f%%", acts ? "Critical" : "Warning",
                   (long long)brim_loop_round(&r->loop), h->ram_percent);
  if (reading->device_left_bytes > 0 && d->planner.device_info.on_host)
    brim_text_printf(&line, ", %s:%d at %.1f%%", brim_setup_backend_id(d->setup), d->planner.device,
                     reading->device_percent);
  else if (reading->device_left_bytes > 0)
    brim_text_printf(&line, ", GPU at %.1f%%", reading->device_percent);
  if (h->swap_percent > 0) brim_text_printf(&line, ", swap at %.1f%%", h->swap_percent);
  brim_log(BRIM_LOG_WARN, "%s", brim_text_str(&line));

  brim_text_printf(&line, " (%s of %s that %s used", brim_format_bytes(used, sizeof used, h->ram_used_bytes),
                   brim_format_bytes(total, sizeof total, h->ram_total_bytes),
                   h->is_grouped ? "the control group has are" : "the machine has are");
  if (h->swap_total_bytes > 0)
    brim_text_printf(&line, ", and %s of %s swap", brim_format_bytes(used, sizeof used, h->swap_used_bytes),
                     brim_format_bytes(total, sizeof total, h->swap_total_bytes));
  if (reading->device_left_bytes > 0)
    brim_text_printf(&line, "; other processes use %s of the %s that this run leaves free on the device",
                     brim_format_bytes(used, sizeof used, reading->device_others_bytes),
                     brim_format_bytes(total, sizeof total, reading->device_left_bytes));
  brim_text_printf(&line, "; CPU at %.0f%%)", reading->cpu_percent);
  brim_report_pressure(&r->events, acts, r->state->step, brim_text_str(&line), acts ? target_of(r, reading) : 0);
  brim_text_release(&line);
}

/* Writes a checkpoint in case the kernel kills the process. A disk error in it does not end the run. */
static brim_status save(brim_running *r)
{
  const brim_status status = brim_loop_save(&r->loop);
  const bool of_disk =
      status == BRIM_EIO || (status == BRIM_EPEER && brim_trainer_verdict(r->trainer)->status == BRIM_EIO);
  if (!of_disk) return status;
  if (status == BRIM_EIO) brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  brim_trainer_clear_failure(r->trainer);
  return BRIM_OK;
}

/* In a job of several ranks, all ranks write the checkpoint when all know that one rank requests it. */
brim_status brim_running_heed_pressure(void *running, bool *acts, uint64_t *bytes)
{
  brim_running *r = running;
  brim_pressure_reading reading;
  const enum brim_pressure_level level = r->acts ? BRIM_PRESSURE_CALM : brim_pressure_take(r->pressure, &reading);
  if (level != BRIM_PRESSURE_CALM) report_pressure(r, &reading, level == BRIM_PRESSURE_ACTS);
  if (level == BRIM_PRESSURE_ACTS) { /* stays set until the run has acted */
    r->reading = reading;
    r->acts = true;
  }
  const bool is_agreed = r->options->dist ? (brim_trainer_verdict(r->trainer)->wishes & BRIM_WISH_PAUSE) != 0 : r->acts;
  if (!is_agreed) return BRIM_OK;
  BRIM_TRY(save(r));
  *acts = r->acts;
  if (!r->acts) return BRIM_OK;
  *bytes = target_of(r, &r->reading);
  r->acts = false;
  brim_running_aim(
      r); /* the run reacts to other processes' current use only once; from now on, only an increase counts */
  brim_running_wish(r); /* the other ranks need not pause for this again */
  return BRIM_OK;
}

int64_t brim_running_checks_with_room(void *running, uint64_t more)
{
  const brim_running *r = running;
  return brim_pressure_checks_with_room(r->pressure, more, r->drive->planner.device_info.on_host);
}
