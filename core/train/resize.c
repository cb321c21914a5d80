#include "train/resize.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "session/cuts.h"
#include "session/decide.h"
#include "train/recover.h"

#define ASK_SECONDS 1.0

bool brim_resize_is_due(const brim_resize *r)
{
  return brim_policies_follow(r->session->policies) && brim_now() - r->asked >= ASK_SECONDS;
}

/* ---- what a policy may ask ---- */

static brim_resize *resize_of(const brim_step_view *view)
{
  return view->host;
}

/* That a plan could have in the place of the run's own. */
static uint64_t room_of(const brim_resize *r)
{
  const brim_session *s = r->session;
  const uint64_t own = brim_trainer_device_bytes(r->trainer);
  return brim_session_room_on(s, &s->device_info, s->limit_bytes, s->device_info.free_bytes + own);
}

static brim_status look(const brim_step_view *view, brim_device_view *device, uint64_t *room)
{
  const brim_resize *r = resize_of(view);
  brim_session *s = r->session;
  BRIM_TRY(brim_session_look(s));
  brim_decide_view_device(s, device);
  device->waiting = view->waiting;
  *room = room_of(r);
  return BRIM_OK;
}

/* What the session would plan within, if it had `bytes`. */
static uint64_t budget_of(const brim_session *s, uint64_t bytes)
{
  const uint64_t set = s->settings->memory.recompute_budget_mb << 20;
  return set > 0 && set < bytes ? set : bytes;
}

static brim_status peak_of(const brim_session *s, int64_t batch, int32_t recompute, uint64_t budget, uint64_t *peak)
{
  brim_variant v = brim_session_variant(s, batch);
  brim_plan *plan = NULL;
  v.recompute = recompute;
  v.budget_bytes = budget_of(s, budget);
  BRIM_TRY(brim_session_plan_variant(s, &v, false, &plan));
  *peak = plan->peak_bytes;
  brim_plan_free(plan);
  return BRIM_OK;
}

/* With memory.recompute as it is configured: auto keeps within `bytes`, or if that is 0 within all that it could have;
 * the others do not ask. */
static brim_status plain_peak(brim_resize *r, int64_t batch, uint64_t bytes, uint64_t *peak)
{
  brim_session *s = r->session;
  const int32_t kind = s->settings->memory.recompute;
  size_t i = 0;
  while (i < s->micro_batch_count && s->micro_batch[i] != batch) i++;
  if (i == s->micro_batch_count)
    return brim_fail(BRIM_EINVAL, "the peak of the micro-batch %lld was asked for, which is not in the list",
                     (long long)batch);
  if (kind == BRIM_RECOMPUTE_AUTO) return peak_of(s, batch, kind, bytes > 0 ? bytes : room_of(r), peak);
  if (r->plain[i] == 0) BRIM_TRY(peak_of(s, batch, kind, 0, &r->plain[i]));
  *peak = r->plain[i];
  return BRIM_OK;
}

static bool needs_more_recompute(const brim_session *s, uint64_t peak, uint64_t bytes)
{
  return bytes > 0 && peak > bytes && s->settings->memory.recompute != BRIM_RECOMPUTE_AUTO &&
         brim_session_may_recompute(s);
}

static brim_status peak_within(const brim_step_view *view, int64_t batch, uint64_t bytes, uint64_t *peak)
{
  brim_resize *r = resize_of(view);
  brim_status status = plain_peak(r, batch, bytes, peak);
  if (status == BRIM_OK && needs_more_recompute(r->session, *peak, bytes))
    status = peak_of(r->session, batch, BRIM_RECOMPUTE_AUTO, bytes, peak);
  return status == BRIM_ENOTSUP ? BRIM_ECONFIG : status; /* ENOTSUP would leave it to the next policy */
}

/* ---- asking ---- */

/* A queue that cannot be read is no reason to end a run that needs nothing of it. */
static void look_at_queue(brim_resize *r, brim_step_view *view)
{
  size_t waiting;
  uint64_t bytes;
  const brim_session *s = r->session;
  if (!brim_device_is_shared(&s->device_info)) return;
  if (brim_claims_waiting(brim_decide_device_key(s), &waiting, &bytes) == BRIM_OK) {
    view->waiting = (int32_t)waiting;
    view->waiting_bytes = bytes;
    return;
  }
  if (!r->is_warned) brim_log(BRIM_LOG_WARN, "whether other runs wait for memory is not known: %s", brim_error_text());
  r->is_warned = true;
}

static brim_status ask(brim_resize *r, brim_step_plan *out, const char **who)
{
  brim_session *s = r->session;
  const size_t choices = brim_session_list_micro_batches(s);
  const int64_t share = brim_session_share(s);
  if (choices == 0) return BRIM_ENOTSUP;
  brim_step_view view = {.size = sizeof view,
                         .step = brim_trainer_state(r->trainer)->step,
                         .seconds = brim_now(),
                         .demands = &s->demands,
                         .planned_bytes = brim_trainer_device_bytes(r->trainer),
                         .micro_batch = s->batch,
                         .effective_batch = share > 0 ? share : s->batch,
                         .grain = s->grain,
                         .choice = s->micro_batch,
                         .choice_count = choices,
                         .look = look,
                         .peak_within = peak_within,
                         .host = r};
  look_at_queue(r, &view);
  return brim_policies_on_step(s->policies, &view, out, who);
}

/* ---- doing ---- */

/* What was said, as a way. */
static brim_status find_way(brim_resize *r, const brim_step_plan *plan, brim_way *out)
{
  uint64_t peak;
  const brim_session *s = r->session;
  bool within = s->settings->memory.recompute == BRIM_RECOMPUTE_AUTO && plan->within_bytes > 0;
  if (!within) {
    BRIM_TRY(plain_peak(r, plan->micro_batch, 0, &peak));
    within = needs_more_recompute(s, peak, plan->within_bytes);
  }
  *out = (brim_way){plan->micro_batch, within ? BRIM_RECOMPUTE_AUTO : s->settings->memory.recompute,
                    within ? plan->within_bytes : 0};
  return BRIM_OK;
}

/* "200.0 MiB given back: micro-batch 64 -> 16, as a run waits for cpu:0" */
static void tell(const brim_resize *r, const char *who, const brim_way *to, uint64_t before, uint64_t after,
                 const char *reason)
{
  char choice[64], text[BRIM_REASON_BYTES + 96], bytes[32];
  const bool less = after < before;
  brim_format_bytes(bytes, sizeof bytes, less ? before - after : after - before);
  snprintf(choice, sizeof choice, "%s %s", bytes, less ? "given back" : "taken again");
  snprintf(text, sizeof text, "micro-batch %lld -> %lld%s, %s", (long long)r->session->batch, (long long)to->batch,
           to->within_bytes > 0 ? " with recompute" : "", reason);
  brim_policies_tell(r->session->policies, who, choice, text);
}

/* Nobody waits, and there is room: then it is held. */
static bool may_grow(const brim_resize *r, uint64_t bytes)
{
  brim_session *s = r->session;
  if (!brim_session_hold(s, true)) return false;
  const bool fits = brim_session_look(s) == BRIM_OK && bytes <= room_of(r);
  if (!fits) brim_session_let_go(s);
  return fits;
}

/* If there is no memory for more after all, the run goes on with what it had. */
static brim_status replan(brim_resize *r, const brim_way *to, bool grows)
{
  brim_session *s = r->session;
  const brim_way from = brim_session_way(s);
  brim_session_go(s, to);
  const brim_status status = brim_recover_as_want(s, brim_trainer_replan(r->trainer));
  if (!grows || !brim_status_is_want(status)) return status;
  brim_policies_tell(s->policies, r->who, "back to the plan before", brim_error_text());
  brim_session_go(s, &from);
  return brim_recover_as_want(s, brim_trainer_replan(r->trainer));
}

/* The session is changed when nothing reads samples by it any more, and the values are on the host. */
static brim_status change(brim_resize *r, const brim_way *to, uint64_t before, uint64_t after)
{
  const brim_status parked = brim_trainer_park(r->trainer);
  if (parked != BRIM_OK) {
    brim_session_let_go(r->session);
    if (!brim_status_is_want(parked)) return parked;
    brim_policies_tell(r->session->policies, r->who, "not done", brim_error_text());
    return BRIM_OK;
  }
  tell(r, r->who, to, before, after, r->answer.reason);
  return replan(r, to, after > before);
}

brim_status brim_resize_do(brim_resize *r)
{
  brim_way to;
  uint64_t after;
  const brim_step_plan *plan = &r->answer;
  const uint64_t before = brim_trainer_device_bytes(r->trainer);
  const brim_step_view view = {.host = r};
  BRIM_TRY(find_way(r, plan, &to));
  BRIM_TRY(peak_within(&view, plan->micro_batch, plan->within_bytes, &after));
  return after > before && !may_grow(r, after) ? BRIM_OK : change(r, &to, before, after);
}

brim_status brim_resize_ask(brim_resize *r, bool *changes)
{
  *changes = false;
  r->asked = brim_now();
  const brim_status status = ask(r, &r->answer, &r->who);
  if (status == BRIM_ENOTSUP) return BRIM_OK;
  BRIM_TRY(status);
  *changes = r->answer.micro_batch > 0;
  if (!*changes) brim_policies_tell(r->session->policies, r->who, "keeps its plan", r->answer.reason);
  return BRIM_OK;
}
