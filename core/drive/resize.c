#include "drive/resize.h"

#include "base/text.h"
#include "drive/recover.h"

bool brim_resize_is_due(const brim_resize *r)
{
  return brim_policies_follow((*r->session)->policies) &&
         brim_session_now(*r->session) - r->asked >= BRIM_RESIZE_ASK_SECONDS;
}

/* Nobody waits, and there is room: then it is held. */
static bool may_grow(const brim_resize *r, uint64_t bytes)
{
  brim_session *s = *r->session;
  if (!brim_session_hold(s, true)) return false;
  const bool fits = brim_planner_look(&s->planner) == BRIM_OK && bytes <= brim_step_plan_room(&r->question);
  if (!fits) brim_session_let_go(s);
  return fits;
}

/* If there is no memory for more after all, the run goes on with what it had. */
static brim_status replan(brim_resize *r, const brim_choice *to, bool grows)
{
  brim_session *s = *r->session;
  const brim_choice from = s->choice;
  brim_session_go(s, to);
  const brim_status status = brim_recover_as_want(s, r->work->replan(r->work->self));
  if (!grows || !brim_status_is_want(status)) return status;
  brim_policies_tell(s->policies, r->who, "back to the plan before", brim_error_text());
  brim_session_go(s, &from);
  return brim_recover_as_want(s, r->work->replan(r->work->self));
}

/* The session is changed when nothing reads samples by it any more, and the values are on the host. */
static brim_status change(brim_resize *r, const brim_choice *to, uint64_t before, uint64_t after)
{
  const brim_status parked = r->work->park(r->work->self);
  if (parked != BRIM_OK) {
    brim_session_let_go(*r->session);
    if (!brim_status_is_want(parked)) return parked;
    brim_policies_tell((*r->session)->policies, r->who, "not done", brim_error_text());
    return BRIM_OK;
  }
  brim_step_plan_tell(&r->question, r->who, to, after, r->answer.reason);
  return replan(r, to, after > before);
}

brim_status brim_resize_do(brim_resize *r)
{
  brim_choice to;
  uint64_t after;
  const uint64_t before = r->question.own_bytes = r->work->placed_bytes(r->work->self);
  BRIM_TRY(brim_step_plan_choice(&r->question, &r->answer, &to, &after));
  return after > before && !may_grow(r, after) ? BRIM_OK : change(r, &to, before, after);
}

brim_status brim_resize_ask(brim_resize *r, bool *changes)
{
  *changes = false;
  r->asked = brim_session_now(*r->session);
  if (r->question.session != *r->session)
    r->question = (brim_step_question){.session = *r->session, .step_seconds = r->question.step_seconds};
  r->question.own_bytes = r->work->placed_bytes(r->work->self);
  const brim_status status =
      brim_step_plan_ask(&r->question, r->work->step(r->work->self), r->asked, &r->answer, &r->who);
  if (status == BRIM_ENOTSUP) return BRIM_OK;
  BRIM_TRY(status);
  *changes = r->answer.micro_batch > 0;
  if (!*changes) brim_policies_tell((*r->session)->policies, r->who, "keeps its plan", r->answer.reason);
  return BRIM_OK;
}
