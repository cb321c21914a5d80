#include "train/relief.h"
#include "base/process.h"

#include "store/checkpoint.h"

brim_status brim_relief_watch(const brim_trainer *t, brim_pressure **out)
{
  const brim_memory_settings *m = &brim_trainer_drive(t)->setup->settings->memory;
  const brim_pressure_options options = {.limits = {m->warn_percent, m->critical_percent},
                                         .interval_seconds = m->check_interval_seconds};
  BRIM_TRY(brim_pressure_open(&options, out));
  brim_relief_aim(t, *out);
  return BRIM_OK;
}

void brim_relief_aim(const brim_trainer *t, brim_pressure *pressure)
{
  const brim_drive *d = t ? brim_trainer_drive(t) : NULL;
  if (!d || brim_policies_follow(
                d->dialogue.policies)) { /* who follows the device itself has just made room for those on it */
    brim_pressure_aim(pressure, NULL);
    return;
  }
  const brim_pressure_device device = {.ops = d->setup->backend_ops,
                                       .backend = d->setup->backend,
                                       .device = d->planner.device,
                                       .own_bytes = brim_trainer_device_bytes(t) + d->planner.device_info.taken_bytes};
  brim_pressure_aim(pressure, &device);
}

void brim_relief_line(const brim_drive *d, const brim_pressure_reading *r, bool acts, int64_t round, brim_text *out)
{
  brim_text_printf(out, "%s at round %lld: RAM at %.1f%%", acts ? "Critical" : "Warning", (long long)round,
                   r->host.ram_percent);
  if (r->device_left_bytes > 0 && d->planner.device_info.on_host)
    brim_text_printf(out, ", %s:%d at %.1f%%", brim_setup_backend_id(d->setup), d->planner.device, r->device_percent);
  else if (r->device_left_bytes > 0)
    brim_text_printf(out, ", GPU at %.1f%%", r->device_percent);
  if (r->host.swap_percent > 0) brim_text_printf(out, ", swap at %.1f%%", r->host.swap_percent);
}

void brim_relief_detail(const brim_pressure_reading *r, brim_text *out)
{
  char used[32], total[32];
  const brim_host_use *h = &r->host;
  brim_text_printf(out, "%s of %s that %s used", brim_format_bytes(used, sizeof used, h->ram_used_bytes),
                   brim_format_bytes(total, sizeof total, h->ram_total_bytes),
                   h->is_grouped ? "the control group has are" : "the machine has are");
  if (h->swap_total_bytes > 0)
    brim_text_printf(out, ", and %s of %s swap", brim_format_bytes(used, sizeof used, h->swap_used_bytes),
                     brim_format_bytes(total, sizeof total, h->swap_total_bytes));
  if (r->device_left_bytes > 0)
    brim_text_printf(out, "; others have %s of the %s of the device that this run leaves them",
                     brim_format_bytes(used, sizeof used, r->device_others_bytes),
                     brim_format_bytes(total, sizeof total, r->device_left_bytes));
  brim_text_printf(out, "; CPU at %.0f%%", r->cpu_percent);
}

/* What the process has, on the host and on the device. */
static uint64_t allocated(const brim_trainer *t)
{
  const bool on_host = brim_trainer_drive(t)->planner.device_info.on_host;
  return brim_rss_bytes() + (on_host ? 0 : brim_trainer_device_bytes(t));
}

void brim_relief_clean(brim_trainer *t, const char *run_dir, enum brim_cleanup cleanup)
{
  if (cleanup == BRIM_CLEAN_NONE) return;
  const uint64_t before = allocated(t);
  const double start = brim_now();
  brim_trainer_clean(t, cleanup);
  if (cleanup == BRIM_CLEAN_HEAVY) brim_checkpoint_drop_cached(run_dir);
  const double seconds = brim_now() - start;
  const uint64_t after = allocated(t);
  brim_log(BRIM_LOG_INFO, "[Memory] Before cleanup: %.2f GB allocated", 1e-9 * (double)before);
  brim_log(BRIM_LOG_INFO, "[Memory] After cleanup: %.2f GB (freed %.2f GB)", 1e-9 * (double)after,
           after < before ? 1e-9 * (double)(before - after) : 0);
  brim_log(BRIM_LOG_DEBUG, "%s cleanup took %.3f ms, of %llu bytes now %llu",
           cleanup == BRIM_CLEAN_HEAVY ? "heavy" : "light", 1e3 * seconds, (unsigned long long)before,
           (unsigned long long)after);
}
