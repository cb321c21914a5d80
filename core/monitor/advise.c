/* Makes advice for the user. There is a rule for each kind of finding, the most useful first, and each gives at most
 * one line of advice. A rule only reads the look, gives advice about the user's own runs or about devices, and has no
 * other effect. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "brim/backend.h"
#include "monitor/look.h"

#define LOADER_SHARE 0.2   /* fraction of a step from which more loader threads are worthwhile */
#define BUSY_PERCENT 80    /* a GPU with a higher load does not wait for samples */
#define SLOWER_FACTOR 1.3  /* a step that takes this many times the predicted time is reported */
#define IDLE_SECONDS 600.0 /* seconds for a device whose memory is in use */
#define IDLE_SHARE 0.1     /* part of the device's memory */
#define SILENT_SECONDS 60  /* seconds without a step */

static void advise(brim_look *look, const char *text, const char *command)
{
  look->advice[look->advices++] = (brim_look_advice){text, command};
}

static bool accepts(const brim_look_ticket *t, size_t device)
{
  for (size_t i = 0; i < t->accept_count; i++)
    if (t->accepts[i] == device) return true;
  return false;
}

/* Whether an earlier ticket would get the device first. */
static bool is_wanted(const brim_look *look, const brim_look_ticket *ticket, size_t device)
{
  for (const brim_look_ticket *t = look->ticket; t < ticket; t++)
    if (t->device == device || (t->device == BRIM_LOOK_NONE && accepts(t, device))) return true;
  return false;
}

static const char *name_of(const brim_look *look, const brim_look_ticket *t)
{
  if (t->run != BRIM_LOOK_NONE && look->run[t->run].name[0]) return look->run[t->run].name;
  return NULL;
}

static const char *ticket_name(brim_look *look, const brim_look_ticket *t)
{
  const char *name = name_of(look, t);
  return name ? name : brim_arena_printf(&look->arena, "pid %" PRId64, t->pid);
}

static bool is_own_waiting(const brim_look_ticket *t)
{
  return t->is_mine && t->device == BRIM_LOOK_NONE;
}

/* ---- the rules; each returns whether it has given advice ---- */

/* The user's run waits for one device, and another device of its backend has room now. */
static bool another_device(brim_look *look)
{
  char bytes[32];
  for (size_t i = 0; i < look->tickets; i++) {
    const brim_look_ticket *t = &look->ticket[i];
    const size_t backend = strlen(t->backend);
    for (size_t d = 0; is_own_waiting(t) && d < look->devices; d++) {
      const brim_look_device *device = &look->device[d];
      const bool is_same = strncmp(device->label, t->backend, backend) == 0 && device->label[backend] == ':';
      if (device->host != t->host || !is_same || accepts(t, d) || is_wanted(look, t, d)) continue;
      if (device->free_bytes == BRIM_BYTES_UNKNOWN || device->free_bytes < t->need_bytes) continue;
      advise(look,
             brim_arena_printf(&look->arena, "%s (%s) fits on %s now", ticket_name(look, t),
                               brim_format_bytes(bytes, sizeof bytes, t->need_bytes), device->label),
             brim_arena_printf(&look->arena, "kill -INT %" PRId64 "  # then start it with device=%s", t->pid,
                               device->label));
      return true;
    }
  }
  return false;
}

/* A run of the user could give a waiting run enough room if it used a smaller micro-batch. */
static bool smaller_micro_batch(brim_look *look)
{
  char bytes[32];
  for (size_t i = 0; i < look->tickets; i++) {
    const brim_look_ticket *t = &look->ticket[i];
    for (size_t r = 0; t->device == BRIM_LOOK_NONE && r < look->runs; r++) {
      const brim_look_run *run = &look->run[r];
      if (!run->is_mine || run->is_elastic || run->state == BRIM_LOOK_WAITING || !run->folder[0]) continue;
      if (run->device == BRIM_LOOK_NONE || !accepts(t, run->device) || is_wanted(look, t, run->device)) continue;
      if (run->smaller_micro_batch < 1 || run->device_bytes == BRIM_BYTES_UNKNOWN) continue;
      if (run->smaller_bytes >= run->device_bytes) continue;
      const uint64_t room = look->device[run->device].free_bytes;
      if (room == BRIM_BYTES_UNKNOWN || room + (run->device_bytes - run->smaller_bytes) < t->need_bytes) continue;
      advise(look,
             brim_arena_printf(&look->arena, "%s at micro-batch %" PRId64 " needs %s: then %s fits too", run->name,
                               run->smaller_micro_batch, brim_format_bytes(bytes, sizeof bytes, run->smaller_bytes),
                               ticket_name(look, t)),
             brim_arena_printf(&look->arena, "kill -INT %" PRId64 "  # then brim train --resume %s policy+=elastic",
                               run->pid, BRIM_QUOTED(run->folder)));
      return true;
    }
  }
  return false;
}

/* A process has memory on a GPU that has been idle for long. */
static bool idle_device(brim_look *look)
{
  char bytes[32], time[32];
  for (size_t i = 0; i < look->devices; i++) {
    const brim_look_device *d = &look->device[i];
    const brim_look_owner *o = d->owner;
    if (!(d->idle_seconds >= IDLE_SECONDS) || d->owners == 0 || o->bytes == BRIM_BYTES_UNKNOWN) continue;
    if (d->total_bytes == BRIM_BYTES_UNKNOWN || (double)o->bytes < IDLE_SHARE * (double)d->total_bytes) continue;
    advise(look,
           brim_arena_printf(&look->arena, "%s has had no load for %s, and pid %" PRId64 " holds %s", d->label,
                             brim_format_seconds(time, sizeof time, d->idle_seconds), o->pid,
                             brim_format_bytes(bytes, sizeof bytes, o->bytes)),
           brim_arena_printf(&look->arena, "ps -o user,pid,etime,args -p %" PRId64, o->pid));
    return true;
  }
  return false;
}

/* A run of the user makes no step: it was stopped, or waits for a file system or another process. */
static bool silent_run(brim_look *look)
{
  char time[32];
  for (size_t i = 0; i < look->runs; i++) {
    const brim_look_run *run = &look->run[i];
    const bool is_long = run->silent_seconds >= SILENT_SECONDS;
    if (!run->is_mine || !brim_look_is_live(run->state) || !(run->is_stopped || is_long)) continue;
    if (run->is_stopped)
      advise(look, brim_arena_printf(&look->arena, "%s is stopped, as by Ctrl-Z, and keeps its memory", run->name),
             brim_arena_printf(&look->arena, "kill -CONT %" PRId64, run->pid));
    else
      advise(look,
             brim_arena_printf(&look->arena, "%s has made no step for %s", run->name,
                               brim_format_seconds(time, sizeof time, run->silent_seconds)),
             brim_arena_printf(&look->arena, "ps -o stat,wchan:20,etime,args -p %" PRId64, run->pid));
    return true;
  }
  return false;
}

/* Whether a GPU is busy: its run may then wait for samples without losing time. */
static bool is_busy_gpu(const brim_look *look, size_t device)
{
  return device != BRIM_LOOK_NONE && look->device[device].uuid[0] && look->device[device].load >= BUSY_PERCENT;
}

/* A run of the user waits for its samples. */
static bool slow_loader(brim_look *look)
{
  for (size_t i = 0; i < look->runs; i++) {
    const brim_look_run *run = &look->run[i];
    if (!run->is_mine || !brim_look_is_live(run->state) || !(run->loader_share >= LOADER_SHARE)) continue;
    if (!run->folder[0] || is_busy_gpu(look, run->device)) continue;
    advise(
        look,
        brim_arena_printf(&look->arena, "%s waits for samples %.0f %% of the step", run->name, 100 * run->loader_share),
        brim_arena_printf(&look->arena,
                          "kill -INT %" PRId64 "  # then brim train --resume %s training.num_workers=%" PRId64,
                          run->pid, BRIM_QUOTED(run->folder), run->workers + 2));
    return true;
  }
  return false;
}

/* Steps take longer than the device profile predicts. */
static bool slower_than_predicted(brim_look *look)
{
  for (size_t i = 0; i < look->runs; i++) {
    const brim_look_run *run = &look->run[i];
    if (!run->is_mine || !brim_look_is_live(run->state) || !(run->predicted_step_seconds > 0)) continue;
    if (!(run->step_seconds >= SLOWER_FACTOR * run->predicted_step_seconds)) continue;
    advise(look,
           brim_arena_printf(&look->arena, "a step of %s takes %.3g ms, the device profile says %.3g ms", run->name,
                             1e3 * run->step_seconds, 1e3 * run->predicted_step_seconds),
           "brim devices --forget-times  # the next run measures again");
    return true;
  }
  return false;
}

void brim_look_advise(brim_look *look)
{
  static bool (*const rules[])(brim_look * look) = {another_device, smaller_micro_batch, silent_run,
                                                    idle_device,    slow_loader,         slower_than_predicted};
  look->advices = 0;
  for (size_t i = 0; i < sizeof rules / sizeof rules[0] && look->advices < BRIM_LOOK_ADVICE_MAX; i++)
    (void)rules[i](look);
}
