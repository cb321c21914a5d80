#include "train/recover.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "session/cuts.h"
#include "session/decide.h"

#define ERROR_ROOM 4096
#define REASON_ROOM 512

/* A failure that the ladder is about. */
typedef struct failure {
  brim_status status;
  char text[ERROR_ROOM];
  const char *what;
} failure;

static void take_error(failure *f, brim_status status)
{
  f->status = status;
  snprintf(f->text, sizeof f->text, "%s", brim_error_text());
}

BRIM_PRINTF(3, 4)
static void tell(const brim_recovery *r, const failure *f, const char *format, ...)
{
  char choice[REASON_ROOM], reason[REASON_ROOM];
  va_list list;
  va_start(list, format);
  vsnprintf(choice, sizeof choice, format, list);
  va_end(list);
  snprintf(reason, sizeof reason, "%s%s%.*s", f->what, f->text[0] ? ": " : "", (int)strcspn(f->text, "\n"), f->text);
  brim_policies_tell((*r->session)->policies, "recovery", choice, reason);
}

static int64_t retries_max(const brim_recovery *r)
{
  return (*r->session)->settings->max_retries;
}

/* ---- the rungs: each changes something, or has nothing (more) to change: ENOTSUP ---- */

static brim_status clean(brim_recovery *r, const failure *f)
{
  const bool light = r->tries == 0;
  if (r->tries >= retries_max(r)) return BRIM_ENOTSUP;
  brim_trainer_clean(r->trainer, light ? BRIM_CLEAN_LIGHT : BRIM_CLEAN_HEAVY);
  tell(r, f, "%s cleanup, %lld of %lld", light ? "light" : "heavy", (long long)r->tries + 1, (long long)retries_max(r));
  return BRIM_OK;
}

/* The peak of the session's plan as it is now. */
static brim_status peak_of(const brim_session *s, uint64_t *bytes)
{
  brim_plan *plan = NULL;
  BRIM_TRY(brim_session_plan(s, s->batch, &plan));
  *bytes = plan->peak_bytes;
  brim_plan_free(plan);
  return BRIM_OK;
}

/* As much recompute as makes a plan of *bytes, or of as little as there is, which *bytes is then. ENOTSUP, and nothing
 * changed, if recompute is fixed, or that is not less than the last plan. */
static brim_status recompute_within(const brim_recovery *r, uint64_t *bytes)
{
  brim_session *s = *r->session;
  const brim_way before = brim_session_way(s);
  if (!brim_session_may_recompute(s)) return BRIM_ENOTSUP;
  brim_session_recompute_within(s, *bytes);
  const brim_status status = peak_of(s, bytes);
  if (status == BRIM_OK && *bytes < r->needed_bytes) return BRIM_OK;
  brim_session_go(s, &before);
  return status != BRIM_OK ? status : BRIM_ENOTSUP;
}

/* A quarter less than the last plan, or as much as there is room for if that is less. */
static brim_status recompute_more(brim_recovery *r, const failure *f)
{
  char a[32], b[32];
  const uint64_t room = brim_session_room(*r->session, true);
  uint64_t bytes = r->needed_bytes - r->needed_bytes / 4;
  if (room > 0 && room < bytes) bytes = room;
  if (r->tries >= retries_max(r) || bytes == 0) return BRIM_ENOTSUP;
  BRIM_TRY(recompute_within(r, &bytes));
  tell(r, f, "more recompute, %lld of %lld: a plan of %s in the place of %s", (long long)r->tries + 1,
       (long long)retries_max(r), brim_format_bytes(a, sizeof a, bytes),
       brim_format_bytes(b, sizeof b, r->needed_bytes));
  return BRIM_OK;
}

/* They bound themselves, by what they are told of retries and devices. */
static brim_status ask_policies(brim_recovery *r, const failure *f)
{
  (void)brim_fail(f->status, "%s", f->text);
  const brim_status status = brim_decide_after_oom(*r->session, f->status, r->needed_bytes);
  if (status == f->status) return BRIM_ENOTSUP;
  if (status != BRIM_ENODEVICE || (*r->session)->again.count > 0) return status;
  tell(r, f, "not done: %.*s", (int)strcspn(brim_error_text(), "\n"), brim_error_text());
  return BRIM_ENOTSUP;
}

/* The largest of at most half, of those that change no bit; 0: none. */
static int64_t find_half(brim_session *s)
{
  const size_t count = brim_session_list_micro_batches(s);
  if (s->grain == 0 || brim_session_rounds(s, s->batch)) return 0;
  for (size_t i = 0; i < count; i++)
    if (s->micro_batch[i] <= s->batch / 2 && s->micro_batch[i] % s->grain == 0) return s->micro_batch[i];
  return 0;
}

static brim_status halve(brim_recovery *r, const failure *f)
{
  brim_session *s = *r->session;
  char cut[BRIM_CUT_ROOM];
  const int64_t half = find_half(s);
  if (r->tries >= retries_max(r)) return BRIM_ENOTSUP;
  if (half == 0) {
    tell(r, f, "no smaller micro-batch than %lld%s", (long long)s->batch,
         s->grain == 0 ? " by itself: without training.grain results would differ by rounding, which a policy may "
                         "choose (policy+=robust)"
                       : " gives the same bits");
    return BRIM_ENOTSUP;
  }
  brim_session_cut(s, half);
  tell(r, f, "micro-batch %s, %lld of %lld", brim_session_format_cut(s, half, cut, sizeof cut), (long long)r->tries + 1,
       (long long)retries_max(r));
  return BRIM_OK;
}

static const struct {
  brim_status (*act)(brim_recovery *r, const failure *f);
  bool replans;
} ladder[] = {{clean, false}, {recompute_more, true}, {ask_policies, true}, {halve, true}};
#define RUNGS ((int32_t)(sizeof ladder / sizeof ladder[0]))

/* ---- going on ---- */

/* What --resume does, in this process. */
static brim_status rewind_to_checkpoint(brim_recovery *r, const failure *f)
{
  char newest[4096] = "";
  bool found = false;
  if (!r->checkpoint) BRIM_TRY(brim_checkpoint_find(r->run_dir, newest, sizeof newest, &found));
  const char *checkpoint = r->checkpoint ? r->checkpoint : found ? newest : "";
  BRIM_TRY(brim_trainer_restart(r->trainer, checkpoint[0] ? checkpoint : NULL));
  tell(r, f, "back to step %lld", (long long)brim_trainer_state(r->trainer)->step);
  return BRIM_OK;
}

/* The values that belong to the state, in the plan that is due. */
static brim_status make_whole(brim_recovery *r, const failure *f, bool replans, bool *rewound)
{
  const bool is_placed = brim_trainer_plan(r->trainer) != NULL;
  if (brim_trainer_has_values(r->trainer)) return is_placed && !replans ? BRIM_OK : brim_trainer_replan(r->trainer);
  *rewound = true;
  return rewind_to_checkpoint(r, f);
}

/* Did a plan not get its memory, or was there none to make it? Then the ladder goes on. */
static bool is_want(brim_status status)
{
  return brim_status_is_want(status) || status == BRIM_EBUDGET || status == BRIM_ENODEVICE;
}

/* In another configuration, which a policy asks for: the host's processors. */
static brim_status remake(brim_recovery *r)
{
  brim_status status = brim_session_remake(r->session);
  if (status == BRIM_OK) status = brim_session_settle(r->session);
  r->is_remade = true;
  r->is_over = status != BRIM_OK;
  brim_trainer_follow(r->trainer, *r->session);
  return status;
}

/* On from what a rung, or placing, has come to. */
static brim_status go_on(brim_recovery *r, const failure *f, brim_status status, bool *rewound)
{
  if (status == BRIM_OK) status = make_whole(r, f, ladder[r->rung].replans, rewound);
  if ((*r->session)->options.dist)
    (*r->session)->again.count = 0; /* all ranks keep the configuration they began with */
  while (status != BRIM_OK && !r->is_over && (*r->session)->again.count > 0) {
    status = remake(r);
    if (status == BRIM_OK) status = make_whole(r, f, true, rewound);
  }
  return status;
}

static brim_status give_up(const brim_recovery *r, const failure *f)
{
  tell(r, f, "gives up after step %lld", (long long)brim_trainer_state(r->trainer)->step);
  return brim_fail(f->status, "%s\nin %s, and nothing that may be done for it has helped", f->text, f->what);
}

/* Before the session is changed: samples are read by its order, and its device may become another; then the device is
 * seen as it is without the arena. */
static brim_status prepare(const brim_recovery *r)
{
  BRIM_TRY(brim_trainer_park(r->trainer));
  return brim_session_look(*r->session);
}

static brim_status climb(brim_recovery *r, failure *f, bool *rewound)
{
  while (r->rung < RUNGS) {
    const brim_plan *plan = brim_trainer_plan(r->trainer);
    if (plan) r->needed_bytes = plan->peak_bytes;
    brim_status status = ladder[r->rung].replans ? prepare(r) : BRIM_OK;
    status = status == BRIM_OK ? ladder[r->rung].act(r, f) : BRIM_ENOTSUP;
    if (status == BRIM_ENOTSUP) {
      r->rung++;
      r->tries = 0;
      continue;
    }
    r->tries++;
    status = go_on(r, f, status, rewound);
    if (!is_want(status) || r->is_over) return status;
    take_error(f, status);
  }
  return give_up(r, f);
}

brim_status brim_recover(brim_recovery *r, brim_status status, const char *what, bool *rewound)
{
  failure f = {.what = what};
  const int64_t step = brim_trainer_state(r->trainer)->step;
  *rewound = false;
  take_error(&f, status);
  if (step > r->step) r->step = step;
  return climb(r, &f, rewound);
}

brim_status brim_recover_follow(brim_recovery *r, const char *what, bool *rewound)
{
  failure f = {.what = what};
  take_error(&f, BRIM_EPEER);
  *rewound = true;
  return rewind_to_checkpoint(r, &f);
}

/* Changes the session so that its plan is of at most `bytes`, or as small as it gets. */
static brim_status make_smaller(brim_recovery *r, uint64_t bytes, uint64_t *peak)
{
  for (;;) {
    *peak = bytes;
    const brim_status status = recompute_within(r, peak);
    if (status == BRIM_ENOTSUP) {
      BRIM_TRY(peak_of(*r->session, peak));
    } else if (status != BRIM_OK) {
      return status;
    }
    const int64_t half = *peak > bytes ? find_half(*r->session) : 0;
    if (half == 0) return BRIM_OK;
    brim_session_cut(*r->session, half);
  }
}

brim_status brim_recover_as_want(brim_session *s, brim_status status)
{
  char text[ERROR_ROOM];
  if (status != BRIM_ENODEVICE && status != BRIM_EBUDGET) return status;
  snprintf(text, sizeof text, "%s", brim_error_text());
  s->again.count = 0;
  return brim_fail(BRIM_ENOMEM_DEVICE, "%s", text);
}

/* The session is changed for good only when the values are on the host. */
brim_status brim_recover_shrink(brim_recovery *r, uint64_t bytes, const char *why)
{
  char a[32], b[32], cut[BRIM_CUT_ROOM];
  uint64_t peak = 0;
  brim_session *s = *r->session;
  const brim_way before = brim_session_way(s);
  const failure f = {.what = why};
  r->needed_bytes = brim_trainer_plan(r->trainer)->peak_bytes;
  const brim_status status = make_smaller(r, bytes, &peak);
  const brim_way to = brim_session_way(s);
  brim_session_go(s, &before);
  BRIM_TRY(status);
  if (peak >= r->needed_bytes) { /* the plan that is placed goes on */
    tell(r, &f, "no smaller plan than %s", brim_format_bytes(a, sizeof a, r->needed_bytes));
    return BRIM_OK;
  }
  BRIM_TRY(brim_trainer_park(r->trainer));
  brim_session_go(s, &to);
  tell(r, &f, "micro-batch %s%s, a plan of %s in the place of %s",
       brim_session_format_cut(s, to.batch, cut, sizeof cut),
       to.recompute == BRIM_RECOMPUTE_AUTO ? ", memory.recompute=auto" : "", brim_format_bytes(a, sizeof a, peak),
       brim_format_bytes(b, sizeof b, r->needed_bytes));
  return brim_recover_as_want(s, brim_trainer_replan(r->trainer));
}

void brim_recover_committed(brim_recovery *r)
{
  brim_session *s = *r->session;
  if (brim_trainer_state(r->trainer)->step <= r->step) return; /* it is on its way to where it failed */
  r->rung = 0;
  r->tries = 0;
  s->retries = s->asked = 0;
  s->tried = 0;
}
