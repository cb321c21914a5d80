#include "train/ladder.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "planner/cuts.h"
#include "planner/room.h"
#include "session/decide.h"

#define REASON_ROOM 512

void brim_failure_take(brim_failure *f, brim_status status)
{
  f->status = status;
  snprintf(f->text, sizeof f->text, "%s", brim_error_text());
}

void brim_ladder_tell(const brim_ladder *l, const brim_failure *f, const char *format, ...)
{
  char choice[REASON_ROOM], reason[REASON_ROOM];
  va_list list;
  va_start(list, format);
  vsnprintf(choice, sizeof choice, format, list);
  va_end(list);
  snprintf(reason, sizeof reason, "%s%s%.*s", f->what, f->text[0] ? ": " : "", (int)strcspn(f->text, "\n"), f->text);
  brim_policies_tell((*l->session)->policies, "recovery", choice, reason);
}

static int64_t retries_max(const brim_ladder *l)
{
  return (*l->session)->setup->settings->max_retries;
}

/* ---- the rungs: each changes something, or has nothing (more) to change: ENOTSUP ---- */

static brim_status clean(brim_ladder *l, const brim_failure *f)
{
  const bool light = l->tries == 0;
  if (l->tries >= retries_max(l)) return BRIM_ENOTSUP;
  l->ops->clean(l->self, light ? BRIM_CLEAN_LIGHT : BRIM_CLEAN_HEAVY);
  brim_ladder_tell(l, f, "%s cleanup, %lld of %lld", light ? "light" : "heavy", (long long)l->tries + 1,
                   (long long)retries_max(l));
  return BRIM_OK;
}

/* The peak of the session's plan as it is now. */
static brim_status peak_of(const brim_session *s, uint64_t *bytes)
{
  const brim_choice v = s->choice;
  return brim_planner_peak(&s->planner, &v, bytes);
}

/* As much recompute as makes a plan of *bytes, or of as little as there is, which *bytes is then. ENOTSUP, and nothing
 * changed, if recompute is fixed, or that is not less than the last plan. */
static brim_status recompute_within(const brim_ladder *l, uint64_t *bytes)
{
  brim_session *s = *l->session;
  const brim_choice before = s->choice;
  if (!brim_setup_may_recompute(s->setup)) return BRIM_ENOTSUP;
  s->choice.recompute = BRIM_RECOMPUTE_AUTO;
  s->choice.within_bytes = brim_planner_within(&s->planner, *bytes);
  const brim_status status = peak_of(s, bytes);
  if (status == BRIM_OK && *bytes < l->needed_bytes) return BRIM_OK;
  brim_session_go(s, &before);
  return status != BRIM_OK ? status : BRIM_ENOTSUP;
}

/* A quarter less than the last plan, or as much as there is room for if that is less. */
static brim_status recompute_more(brim_ladder *l, const brim_failure *f)
{
  char a[32], b[32];
  const uint64_t room = brim_planner_room(&(*l->session)->planner, true);
  uint64_t bytes = l->needed_bytes - l->needed_bytes / 4;
  if (room > 0 && room < bytes) bytes = room;
  if (l->tries >= retries_max(l) || bytes == 0) return BRIM_ENOTSUP;
  BRIM_TRY(recompute_within(l, &bytes));
  brim_ladder_tell(l, f, "more recompute, %lld of %lld: a plan of %s in the place of %s", (long long)l->tries + 1,
                   (long long)retries_max(l), brim_format_bytes(a, sizeof a, bytes),
                   brim_format_bytes(b, sizeof b, l->needed_bytes));
  return BRIM_OK;
}

/* They bound themselves, by what they are told of retries and devices. */
static brim_status ask_policies(brim_ladder *l, const brim_failure *f)
{
  (void)brim_fail(f->status, "%s", f->text);
  const brim_status status = brim_decide_after_oom(*l->session, f->status, l->needed_bytes);
  if (status == f->status) return BRIM_ENOTSUP;
  if (status != BRIM_ENODEVICE || (*l->session)->again.count > 0) return status;
  brim_ladder_tell(l, f, "not done: %.*s", (int)strcspn(brim_error_text(), "\n"), brim_error_text());
  return BRIM_ENOTSUP;
}

/* The largest of at most half, of those that change no bit; 0: none. */
static int64_t find_half(brim_session *s)
{
  const size_t count = brim_planner_list_cuts(&s->planner);
  if (s->setup->grain == 0 || brim_setup_rounds(s->setup, s->choice.micro_batch)) return 0;
  for (size_t i = 0; i < count; i++)
    if (s->planner.micro_batch[i] <= s->choice.micro_batch / 2 && s->planner.micro_batch[i] % s->setup->grain == 0)
      return s->planner.micro_batch[i];
  return 0;
}

static brim_status halve(brim_ladder *l, const brim_failure *f)
{
  brim_session *s = *l->session;
  char cut[BRIM_CUT_ROOM];
  const int64_t half = find_half(s);
  if (l->tries >= retries_max(l)) return BRIM_ENOTSUP;
  if (half == 0) {
    brim_ladder_tell(l, f, "no smaller micro-batch than %lld%s", (long long)s->choice.micro_batch,
                     s->setup->grain == 0
                         ? " by itself: without training.grain results would differ by rounding, which a "
                           "policy may choose (policy+=robust)"
                         : " gives the same bits");
    return BRIM_ENOTSUP;
  }
  brim_session_cut(s, half);
  brim_ladder_tell(l, f, "micro-batch %s, %lld of %lld", brim_setup_format_cut(s->setup, half, cut, sizeof cut),
                   (long long)l->tries + 1, (long long)retries_max(l));
  return BRIM_OK;
}

static const struct {
  brim_status (*act)(brim_ladder *l, const brim_failure *f);
  bool replans;
} ladder[] = {{clean, false}, {recompute_more, true}, {ask_policies, true}, {halve, true}};
#define RUNGS ((int32_t)(sizeof ladder / sizeof ladder[0]))

/* ---- climbing ---- */

/* Did a plan not get its memory, or was there none to make it? Then the ladder goes on. */
static bool is_want(brim_status status)
{
  return brim_status_is_want(status) || status == BRIM_EBUDGET || status == BRIM_ENODEVICE;
}

static brim_status give_up(const brim_ladder *l, const brim_failure *f)
{
  brim_ladder_tell(l, f, "gives up after step %lld", (long long)l->ops->step(l->self));
  return brim_fail(f->status, "%s\nin %s, and nothing that may be done for it has helped", f->text, f->what);
}

brim_status brim_ladder_climb(brim_ladder *l, brim_failure *f)
{
  while (l->rung < RUNGS) {
    const bool replans = ladder[l->rung].replans;
    const uint64_t placed = l->ops->placed_bytes(l->self);
    if (placed > 0) l->needed_bytes = placed;
    brim_status status = replans ? l->ops->prepare(l->self) : BRIM_OK;
    status = status == BRIM_OK ? ladder[l->rung].act(l, f) : BRIM_ENOTSUP;
    if (status == BRIM_ENOTSUP) {
      l->rung++;
      l->tries = 0;
      continue;
    }
    l->tries++;
    status = l->ops->go_on(l->self, f, replans, status);
    if (!is_want(status) || l->is_over) return status;
    brim_failure_take(f, status);
  }
  return give_up(l, f);
}

void brim_ladder_begin_again(brim_ladder *l)
{
  brim_session *s = *l->session;
  l->rung = 0;
  l->tries = 0;
  s->retries = s->asked = 0;
  s->tried = 0;
}

brim_status brim_ladder_make_smaller(const brim_ladder *l, uint64_t bytes, uint64_t *peak)
{
  for (;;) {
    *peak = bytes;
    const brim_status status = recompute_within(l, peak);
    if (status == BRIM_ENOTSUP) {
      BRIM_TRY(peak_of(*l->session, peak));
    } else if (status != BRIM_OK) {
      return status;
    }
    const int64_t half = *peak > bytes ? find_half(*l->session) : 0;
    if (half == 0) return BRIM_OK;
    brim_session_cut(*l->session, half);
  }
}

bool brim_ladder_take_smaller(const brim_ladder *l, const brim_choice *to, uint64_t peak, const char *why)
{
  char a[32], b[32], cut[BRIM_CUT_ROOM];
  brim_session *s = *l->session;
  const brim_failure f = {.what = why};
  brim_format_bytes(b, sizeof b, l->needed_bytes);
  if (peak >= l->needed_bytes) {
    brim_ladder_tell(l, &f, "no smaller plan than %s", b);
    return false;
  }
  brim_session_go(s, to);
  brim_ladder_tell(l, &f, "micro-batch %s%s, a plan of %s in the place of %s",
                   brim_setup_format_cut(s->setup, to->micro_batch, cut, sizeof cut),
                   to->recompute == BRIM_RECOMPUTE_AUTO ? ", memory.recompute=auto" : "",
                   brim_format_bytes(a, sizeof a, peak), b);
  return true;
}
