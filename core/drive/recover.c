#include "drive/recover.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "decide/decide.h"
#include "decide/dialogue.h"
#include "planner/room.h"

#define REASON_ROOM 512

/* A failure that recovery handles. */
typedef struct failure {
  brim_status status;
  brim_error error;
  const char *what; /* the work that failed: "step 3" */
} failure;

/* Copies the thread's error text. */
static void take_failure(failure *f, brim_status status)
{
  f->status = status;
  brim_error_take(&f->error);
}

/* Logs an action of the ladder as an event by "recovery"; action: see brim_decision. */
static void log_recovery(const brim_recovery *r, const failure *f, const char *action, const char *format, ...)
    BRIM_PRINTF(4, 5);
static void log_recovery(const brim_recovery *r, const failure *f, const char *action, const char *format, ...)
{
  char choice[REASON_ROOM], reason[REASON_ROOM];
  va_list list;
  va_start(list, format);
  vsnprintf(choice, sizeof choice, format, list);
  va_end(list);
  snprintf(reason, sizeof reason, "%s%s%.*s", f->what, f->error.text[0] ? ": " : "", (int)strcspn(f->error.text, "\n"),
           f->error.text);
  brim_policies_report_recovery((*r->drive)->dialogue.policies, action, choice, reason);
}

static int64_t retries_max(const brim_recovery *r)
{
  return (*r->drive)->setup->settings->max_retries;
}

/* ---- rungs: each changes something, or returns ENOTSUP if it cannot change anything (more) ---- */

static brim_status clean(brim_recovery *r, const failure *f)
{
  const bool light = r->tries == 0;
  if (r->tries >= retries_max(r)) return BRIM_ENOTSUP;
  r->work->clean(r->work->self, light ? BRIM_CLEAN_LIGHT : BRIM_CLEAN_HEAVY, false);
  log_recovery(r, f, "cleanup", "%s cleanup, %lld of %lld", light ? "light" : "heavy", (long long)r->tries + 1,
               (long long)retries_max(r));
  return BRIM_OK;
}

/* Adds recompute until the plan needs at most *bytes, or as little as possible; *bytes becomes its peak. ENOTSUP, with
 * nothing changed, if recompute is fixed or the peak is not less than the last plan's. */
static brim_status recompute_within(const brim_recovery *r, brim_choice *choice, uint64_t *bytes)
{
  const brim_drive *d = *r->drive;
  brim_choice c = *choice;
  if (!brim_setup_may_recompute(d->setup)) return BRIM_ENOTSUP;
  c.recompute = BRIM_RECOMPUTE_AUTO;
  c.within_bytes = brim_planner_within(&d->planner, *bytes);
  BRIM_TRY(brim_planner_peak(&d->planner, &c, bytes));
  if (*bytes >= r->needed_bytes) return BRIM_ENOTSUP;
  *choice = c;
  return BRIM_OK;
}

/* Recomputes more, for a plan of three quarters of the last one, or of the free memory if that is less. */
static brim_status recompute_more(brim_recovery *r, const failure *f)
{
  char a[32], b[32];
  const uint64_t room = brim_planner_room(&(*r->drive)->planner, true);
  uint64_t bytes = r->needed_bytes - r->needed_bytes / 4;
  if (room > 0 && room < bytes) bytes = room;
  if (r->tries >= retries_max(r) || bytes == 0) return BRIM_ENOTSUP;
  BRIM_TRY(recompute_within(r, &(*r->drive)->choice, &bytes));
  log_recovery(r, f, "recompute", "more recompute, %lld of %lld: a plan of %s instead of %s", (long long)r->tries + 1,
               (long long)retries_max(r), brim_format_bytes(a, sizeof a, bytes),
               brim_format_bytes(b, sizeof b, r->needed_bytes));
  return BRIM_OK;
}

/* Halves the number of clients that a federation trains at a time, which changes no bit of the results. */
static brim_status fewer_lanes(brim_recovery *r, const failure *f)
{
  brim_drive *d = *r->drive;
  brim_choice to = d->choice;
  const int32_t before = to.lanes;
  if (before <= 1) return BRIM_ENOTSUP;
  to.lanes /= 2;
  brim_drive_go(d, &to);
  log_recovery(r, f, "lanes", "%d client%s at a time instead of %d", (int)to.lanes, brim_plural(to.lanes), (int)before);
  return BRIM_OK;
}

/* Asks the policies without a limit, because they see the number of retries and the devices that were tried, and can
 * give up themselves. */
static brim_status ask_policies(brim_recovery *r, const failure *f)
{
  brim_error_put(&f->error);
  const brim_status status = brim_drive_after_oom(*r->drive, f->status, r->needed_bytes);
  if (status == f->status) return BRIM_ENOTSUP;
  if (status != BRIM_ENODEVICE || (*r->drive)->dialogue.again.count > 0) return status;
  log_recovery(r, f, NULL, "not done: %.*s", (int)strcspn(brim_error_text(), "\n"), brim_error_text());
  return BRIM_ENOTSUP;
}

/* Returns the largest micro-batch of at most half the size that changes no bit of the results; 0: all of them change
 * bits. */
static int64_t find_half(brim_drive *d, int64_t batch)
{
  const size_t count = brim_planner_list_cuts(&d->planner);
  if (d->setup->grain == 0 || brim_setup_rounds(d->setup, batch)) return 0;
  for (size_t i = 0; i < count; i++)
    if (d->planner.micro_batch[i] <= batch / 2 && d->planner.micro_batch[i] % d->setup->grain == 0)
      return d->planner.micro_batch[i];
  return 0;
}

static brim_status halve(brim_recovery *r, const failure *f)
{
  brim_drive *d = *r->drive;
  char cut[BRIM_CUT_ROOM];
  const int64_t half = find_half(d, d->choice.micro_batch);
  if (r->tries >= retries_max(r)) return BRIM_ENOTSUP;
  if (half == 0) {
    log_recovery(r, f, NULL, "cannot halve the micro-batch of %lld%s", (long long)d->choice.micro_batch,
                 d->setup->grain == 0 ? " automatically: without training.grain the results would differ by rounding, "
                                        "which a policy may accept (policy+=robust)"
                                      : " without changing the results");
    return BRIM_ENOTSUP;
  }
  brim_drive_cut(d, half);
  log_recovery(r, f, "halve", "micro-batch %s, %lld of %lld", brim_setup_format_cut(d->setup, half, cut, sizeof cut),
               (long long)r->tries + 1, (long long)retries_max(r));
  return BRIM_OK;
}

/* ---- continuing ---- */

static brim_status rewind_work(brim_recovery *r, const failure *f)
{
  BRIM_TRY(r->work->rewind(r->work->self));
  log_recovery(r, f, "rewind", "back to step %lld", (long long)r->work->step(r->work->self));
  return BRIM_OK;
}

/* Restores the values of the last commit, in a new plan if `replans`. */
static brim_status restore_values(brim_recovery *r, const failure *f, bool replans)
{
  const brim_work *w = r->work;
  const bool is_placed = w->placed_bytes(w->self) > 0;
  if (w->has_values(w->self)) return is_placed && !replans ? BRIM_OK : w->replan(w->self);
  r->is_rewound = true;
  return rewind_work(r, f);
}

/* Continues from `status`, which the rung returned, and then from the result of placing. `replans`: place the run's
 * current plan. OK: the failed work may be repeated. */
static brim_status continue_run(brim_recovery *r, const failure *f, bool replans, brim_status status)
{
  if (status == BRIM_OK) status = restore_values(r, f, replans);
  if ((*r->drive)->setup->options.dist)
    (*r->drive)->dialogue.again.count = 0; /* all ranks keep their first configuration */
  while (status != BRIM_OK && !r->is_over && brim_drive_asks(*r->drive)) {
    status = brim_drive_remake(r->drive);
    if (status == BRIM_OK) status = brim_drive_settle(r->drive);
    r->is_remade = true;
    r->is_over = status != BRIM_OK;
    if (r->work->follow) r->work->follow(r->work->self, *r->drive);
    if (status == BRIM_OK) status = restore_values(r, f, true);
  }
  return status;
}

/* ---- climbing ---- */

static const struct {
  brim_status (*act)(brim_recovery *r, const failure *f);
  bool replans;
} ladder[] = {{clean, false}, {recompute_more, true}, {fewer_lanes, true}, {ask_policies, true}, {halve, true}};
#define RUNGS ((int32_t)(sizeof ladder / sizeof ladder[0]))

/* Whether a plan got no memory, or could not be made for lack of memory: then the ladder continues. */
static bool lacks_memory(brim_status status)
{
  return brim_status_is_want(status) || status == BRIM_EBUDGET || status == BRIM_ENODEVICE;
}

/* Tries the rungs from the current one on until one helps, and returns OK. */
static brim_status climb(brim_recovery *r, failure *f)
{
  while (r->rung < RUNGS) {
    const bool replans = ladder[r->rung].replans;
    const uint64_t placed = r->work->placed_bytes(r->work->self);
    if (placed > 0) r->needed_bytes = placed;
    /* Before the plan changes, the values are parked and the device is examined again, because samples are read in the
     * drive's order, and the drive's device may change. */
    brim_status status = replans ? r->work->park(r->work->self) : BRIM_OK;
    if (replans && status == BRIM_OK) status = brim_planner_look(&(*r->drive)->planner);
    status = status == BRIM_OK ? ladder[r->rung].act(r, f) : BRIM_ENOTSUP;
    if (status == BRIM_ENOTSUP) {
      r->rung++;
      r->tries = 0;
      continue;
    }
    r->tries++;
    status = continue_run(r, f, replans, status);
    if (!lacks_memory(status) || r->is_over) return status;
    take_failure(f, status);
  }
  log_recovery(r, f, NULL, "gives up after step %lld", (long long)r->work->step(r->work->self));
  return brim_fail(f->status, "%s\nin %s; no recovery measure helped", f->error.text, f->what);
}

brim_status brim_recover(brim_recovery *r, brim_status status, const char *what, bool *rewound)
{
  failure f = {.what = what};
  const int64_t step = r->work->step(r->work->self);
  take_failure(&f, status);
  if (step > r->step) r->step = step;
  r->before_pressure.lanes = 0;
  r->is_rewound = r->is_remade = false;
  const brim_status climbed = climb(r, &f);
  *rewound = r->is_rewound;
  return climbed;
}

brim_status brim_recover_follow(brim_recovery *r, const char *what)
{
  failure f = {.what = what};
  take_failure(&f, BRIM_EPEER);
  return rewind_work(r, &f);
}

void brim_recover_committed(brim_recovery *r)
{
  if (r->work->step(r->work->self) <= r->step) return; /* the run has not passed the failed step yet */
  r->rung = 0;
  r->tries = 0;
  brim_dialogue_forget_failures(&(*r->drive)->dialogue);
}

/* ---- before memory runs out ---- */

/* Bytes to free so that `used` falls to `percent` of `total`. */
static double excess(double used, double total, double percent)
{
  const double wanted = percent / 100 * total;
  return used > wanted ? used - wanted : 0;
}

uint64_t brim_recover_target(const brim_memory_settings *settings, bool on_host, uint64_t arena_bytes,
                             const brim_pressure_reading *reading)
{
  const brim_pressure_limits limits = {settings->warn_percent, settings->critical_percent};
  const double percent = brim_pressure_lower(&limits);
  const double arena = (double)arena_bytes;
  double much = 0;
  if (on_host && reading->host.ram_percent >= settings->critical_percent)
    much = excess((double)reading->host.ram_used_bytes, (double)reading->host.ram_total_bytes, percent);
  if (reading->device_grew && reading->device_percent >= settings->critical_percent) {
    /* the aim is that other processes use only `percent` of the memory that the run leaves */
    const double left = 100 / percent * (double)reading->device_others_bytes,
                 more = left - (double)reading->device_left_bytes;
    if (more > much) much = more;
  }
  return much > 0 ? (uint64_t)(much < arena / 2 ? arena - much : arena / 2) : 0;
}

brim_status brim_recover_as_want(brim_drive *d, brim_status status)
{
  if (status != BRIM_ENODEVICE && status != BRIM_EBUDGET) return status;
  d->dialogue.again.count = 0;
  return BRIM_ENOMEM_DEVICE;
}

/* Finds the next smaller choice that changes no bit of the results: fewer clients of a federation at a time, or else a
 * smaller micro-batch. Returns false if every smaller choice changes bits. */
static bool make_smaller(brim_drive *d, brim_choice *choice)
{
  const int64_t half = choice->lanes > 1 ? 0 : find_half(d, choice->micro_batch);
  if (choice->lanes > 1)
    choice->lanes /= 2;
  else if (half > 0)
    choice->micro_batch = half;
  else
    return false;
  return true;
}

/* Logs the new plan before changing to it. */
static void log_smaller(brim_recovery *r, const failure *f, const brim_choice *to, uint64_t peak)
{
  char a[32], b[32], cut[BRIM_CUT_ROOM], lanes[48] = "";
  const brim_drive *d = *r->drive;
  if (to->lanes != d->choice.lanes)
    snprintf(lanes, sizeof lanes, "%d client%s at a time, ", (int)to->lanes, brim_plural(to->lanes));
  log_recovery(r, f, lanes[0] ? "lanes" : NULL, "%smicro-batch %s%s, a plan of %s instead of %s", lanes,
               brim_setup_format_cut(d->setup, to->micro_batch, cut, sizeof cut),
               to->recompute == BRIM_RECOMPUTE_AUTO ? ", memory.recompute=auto" : "",
               brim_format_bytes(a, sizeof a, peak), brim_format_bytes(b, sizeof b, r->needed_bytes));
}

brim_status brim_recover_shrink(brim_recovery *r, uint64_t bytes, const char *why)
{
  char b[32];
  brim_drive *d = *r->drive;
  brim_choice to = d->choice;
  uint64_t peak = 0;
  const failure f = {.what = why};
  r->needed_bytes = r->work->placed_bytes(r->work->self);
  do {
    peak = bytes;
    const brim_status status = recompute_within(r, &to, &peak);
    BRIM_TRY(status == BRIM_ENOTSUP ? brim_planner_peak(&d->planner, &to, &peak) : status);
  } while (peak > bytes && make_smaller(d, &to));
  if (peak >= r->needed_bytes) {
    log_recovery(r, &f, NULL, "no smaller plan than %s", brim_format_bytes(b, sizeof b, r->needed_bytes));
    return BRIM_OK; /* the placed plan stays */
  }
  BRIM_TRY(r->work->park(r->work->self)); /* the choice may change only when the values are on the host */
  log_smaller(r, &f, &to, peak);
  if (r->before_pressure.lanes == 0 || !brim_choice_equal(&r->under_pressure, &d->choice))
    r->before_pressure = d->choice;
  brim_drive_go(d, &to);
  r->under_pressure = d->choice;
  if (to.recompute != BRIM_RECOMPUTE_AUTO) brim_dialogue_show_plan(&d->dialogue, "pressure", to.micro_batch, peak);
  return brim_recover_as_want(d, r->work->replan(r->work->self));
}
