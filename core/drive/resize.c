#include "drive/resize.h"

#include <stdio.h>

#include "base/text.h"

bool brim_resize_is_due(const brim_resize *r)
{
  return brim_policies_follow((*r->drive)->dialogue.policies) &&
         brim_drive_now(*r->drive) - r->asked >= BRIM_RESIZE_ASK_SECONDS;
}

/* Prepares the question for the placed plan. */
static void prepare(brim_resize *r)
{
  r->question.dialogue = &(*r->drive)->dialogue;
  r->question.dialogue->choice = (*r->drive)->choice;
  r->question.own_bytes = r->work->placed_bytes(r->work->self);
}

/* Holds the device if no process waits for it and it has room. */
static bool may_grow(const brim_resize *r, uint64_t bytes)
{
  brim_drive *d = *r->drive;
  if (!brim_drive_hold(d, true)) return false;
  const bool fits = brim_planner_look(&d->planner) == BRIM_OK && bytes <= brim_step_plan_room(&r->question);
  if (!fits) brim_drive_end_hold(d);
  return fits;
}

/* Changes the plan. If a larger plan gets no memory, returns to the previous one. */
static brim_status replan(brim_resize *r, const brim_choice *to, bool grows)
{
  brim_drive *d = *r->drive;
  const brim_choice from = d->choice;
  brim_drive_go(d, to);
  const brim_status status = brim_recover_as_want(d, r->work->replan(r->work->self));
  if (!grows || !brim_status_is_want(status)) return status;
  brim_policies_report(d->dialogue.policies, r->policy, "back to the previous plan", brim_error_text());
  brim_drive_go(d, &from);
  return brim_recover_as_want(d, r->work->replan(r->work->self));
}

/* The drive may change only when no thread reads samples through it and the values are on the host. */
static brim_status change(brim_resize *r, const brim_choice *to, uint64_t before, uint64_t after)
{
  const brim_status parked = r->work->park(r->work->self);
  if (parked != BRIM_OK) {
    brim_drive_end_hold(*r->drive);
    if (!brim_status_is_want(parked)) return parked;
    brim_policies_report((*r->drive)->dialogue.policies, r->policy, "not done", brim_error_text());
    return BRIM_OK;
  }
  brim_step_plan_log(&r->question, r->policy, to, after, r->answer.reason);
  return replan(r, to, after > before);
}

brim_status brim_resize_do(brim_resize *r)
{
  brim_choice to;
  uint64_t after;
  prepare(r);
  const uint64_t before = r->question.own_bytes;
  BRIM_TRY(brim_step_plan_choice(&r->question, &r->answer, &to, &after));
  return after > before && !may_grow(r, after) ? BRIM_OK : change(r, &to, before, after);
}

brim_status brim_resize_ask(brim_resize *r, bool *changes)
{
  *changes = false;
  r->asked = brim_drive_now(*r->drive);
  prepare(r);
  const brim_status status =
      brim_step_plan_ask(&r->question, r->work->step(r->work->self), r->asked, &r->answer, &r->policy);
  if (status == BRIM_ENOTSUP) return BRIM_OK;
  BRIM_TRY(status);
  *changes = r->answer.micro_batch > 0;
  if (!*changes) brim_policies_report((*r->drive)->dialogue.policies, r->policy, "keeps its plan", r->answer.reason);
  return BRIM_OK;
}

/* ---- after memory pressure ---- */

static bool is_over(const brim_resize *r, uint64_t more)
{
  const brim_work *w = r->work;
  return w->checks_with_room && r->returns < BRIM_RESIZE_RETURNS_MAX &&
         w->checks_with_room(w->self, more) >= (int64_t)BRIM_RESIZE_CHECKS << r->returns;
}

static void log_return(const brim_resize *r, const brim_choice *to, uint64_t after)
{
  char a[32], b[32], choice[128], change[96];
  const brim_drive *d = *r->drive;
  brim_choice_print_change(&d->choice, to, change, sizeof change);
  snprintf(choice, sizeof choice, "%s, a plan of %s instead of %s", change, brim_format_bytes(a, sizeof a, after),
           brim_format_bytes(b, sizeof b, r->question.own_bytes));
  brim_policies_report_recovery(d->dialogue.policies, "lanes", choice, "memory is free again");
}

brim_status brim_resize_after_pressure(brim_resize *r, brim_recovery *recovery)
{
  brim_drive *d = *r->drive;
  const brim_choice to = recovery->before_pressure;
  uint64_t after;
  if (to.lanes == 0) return BRIM_OK;
  if (!brim_choice_equal(&d->choice, &recovery->under_pressure)) { /* changed for another reason since */
    recovery->before_pressure.lanes = 0;
    return BRIM_OK;
  }
  prepare(r);
  BRIM_TRY(brim_planner_peak(&d->planner, &to, &after));
  if (after <= r->question.own_bytes || !is_over(r, after - r->question.own_bytes) || !may_grow(r, after))
    return BRIM_OK;
  recovery->before_pressure.lanes = 0;
  const brim_status parked = r->work->park(r->work->self);
  if (parked != BRIM_OK) brim_drive_end_hold(d);
  if (brim_status_is_want(parked)) return BRIM_OK; /* the host lacks the memory to change plans */
  BRIM_TRY(parked);
  r->policy = "recovery";
  r->returns++;
  log_return(r, &to, after);
  return replan(r, &to, true);
}
