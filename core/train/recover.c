#include "train/recover.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "planner/cuts.h"
#include "session/decide.h"

#define ERROR_ROOM 4096

/* ---- going on ---- */

/* What --resume does, in this process. */
static brim_status rewind_to_checkpoint(brim_recovery *r, const brim_failure *f)
{
  char newest[4096] = "";
  bool found = false;
  if (!r->checkpoint) BRIM_TRY(brim_checkpoint_find(r->run_dir, newest, sizeof newest, &found));
  const char *checkpoint = r->checkpoint ? r->checkpoint : found ? newest : "";
  BRIM_TRY(brim_trainer_restart(r->trainer, checkpoint[0] ? checkpoint : NULL));
  brim_ladder_tell(&r->ladder, f, "back to step %lld", (long long)brim_trainer_state(r->trainer)->step);
  return BRIM_OK;
}

/* The values that belong to the state, in the plan that is due. */
static brim_status make_whole(brim_recovery *r, const brim_failure *f, bool replans)
{
  const bool is_placed = brim_trainer_plan(r->trainer) != NULL;
  if (brim_trainer_has_values(r->trainer)) return is_placed && !replans ? BRIM_OK : brim_trainer_replan(r->trainer);
  r->is_rewound = true;
  return rewind_to_checkpoint(r, f);
}

/* In another configuration, which a policy asks for: the host's processors. */
static brim_status remake(brim_recovery *r)
{
  brim_status status = brim_session_remake(r->session);
  if (status == BRIM_OK) status = brim_session_settle(r->session);
  r->is_remade = true;
  r->ladder.is_over = status != BRIM_OK;
  brim_trainer_follow(r->trainer, *r->session);
  return status;
}

/* ---- what the ladder asks for ---- */

static void clean(void *self, enum brim_cleanup cleanup)
{
  brim_recovery *r = self;
  brim_trainer_clean(r->trainer, cleanup);
}

/* Samples are read by the session's order, and its device may become another. */
static brim_status prepare(void *self)
{
  brim_recovery *r = self;
  BRIM_TRY(brim_trainer_park(r->trainer));
  return brim_planner_look(&(*r->session)->planner);
}

/* Also from what placing has come to. */
static brim_status go_on(void *self, const brim_failure *f, bool replans, brim_status status)
{
  brim_recovery *r = self;
  if (status == BRIM_OK) status = make_whole(r, f, replans);
  if ((*r->session)->setup->options.dist)
    (*r->session)->again.count = 0; /* all ranks keep the configuration they began with */
  while (status != BRIM_OK && !r->ladder.is_over && brim_session_asks(*r->session)) {
    status = remake(r);
    if (status == BRIM_OK) status = make_whole(r, f, true);
  }
  return status;
}

static uint64_t placed_bytes(void *self)
{
  const brim_recovery *r = self;
  const brim_plan *plan = brim_trainer_plan(r->trainer);
  return plan ? plan->peak_bytes : 0;
}

static int64_t step_of(void *self)
{
  const brim_recovery *r = self;
  return brim_trainer_state(r->trainer)->step;
}

static const brim_ladder_ops ops = {
    .clean = clean, .prepare = prepare, .go_on = go_on, .placed_bytes = placed_bytes, .step = step_of};

/* ---- recovering ---- */

static brim_ladder *ladder_of(brim_recovery *r)
{
  r->ladder.session = r->session;
  r->ladder.ops = &ops;
  r->ladder.self = r;
  return &r->ladder;
}

brim_status brim_recover(brim_recovery *r, brim_status failure, const char *what, bool *rewound)
{
  brim_failure f = {.what = what};
  const int64_t step = brim_trainer_state(r->trainer)->step;
  brim_failure_take(&f, failure);
  if (step > r->step) r->step = step;
  r->is_rewound = false;
  const brim_status status = brim_ladder_climb(ladder_of(r), &f);
  *rewound = r->is_rewound;
  return status;
}

brim_status brim_recover_follow(brim_recovery *r, const char *what, bool *rewound)
{
  brim_failure f = {.what = what};
  brim_failure_take(&f, BRIM_EPEER);
  *rewound = true;
  (void)ladder_of(r);
  return rewind_to_checkpoint(r, &f);
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
  uint64_t peak = 0;
  brim_session *s = *r->session;
  brim_ladder *l = ladder_of(r);
  const brim_choice before = s->choice;
  l->needed_bytes = placed_bytes(r);
  const brim_status status = brim_ladder_make_smaller(l, bytes, &peak);
  const brim_choice to = s->choice;
  brim_session_go(s, &before);
  BRIM_TRY(status);
  if (peak < l->needed_bytes) BRIM_TRY(brim_trainer_park(r->trainer));
  if (!brim_ladder_take_smaller(l, &to, peak, why)) return BRIM_OK; /* the plan that is placed goes on */
  return brim_recover_as_want(s, brim_trainer_replan(r->trainer));
}

void brim_recover_committed(brim_recovery *r)
{
  if (brim_trainer_state(r->trainer)->step <= r->step) return; /* it is on its way to where it failed */
  brim_ladder_begin_again(ladder_of(r));
}
