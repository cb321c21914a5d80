#include "drive/loop.h"

#include <stdio.h>

static int64_t step_of(const brim_loop *l)
{
  return l->work->step(l->work->self);
}

static const brim_training_settings *training_of(const brim_loop *l)
{
  return &(*l->drive)->setup->settings->training;
}

brim_loop brim_loop_begin(brim_drive **drive, const brim_work *work)
{
  return (brim_loop){.drive = drive,
                     .work = work,
                     .recovery = {.drive = drive, .work = work},
                     .resize = {.drive = drive, .work = work},
                     .checkpoint_step = -1,
                     .round_step = -1};
}

void brim_loop_rewound(brim_loop *l)
{
  const int64_t step = step_of(l);
  l->checkpoint_step = l->round_step = step > 0 ? step : -1;
  l->is_stale = false;
}

/* ---- work due after a commit ---- */

bool brim_loop_is_due(const brim_loop *l, int64_t step, int64_t every_steps)
{
  const brim_order *order = &(*l->drive)->order;
  if (step == 0) return false;
  if (step == order->steps) return true;
  return every_steps > 0 ? step % every_steps == 0 : brim_order_ends_epoch(order, step - 1);
}

static int64_t interval_of(const brim_loop *l, int64_t every_steps)
{
  return every_steps > 0 ? every_steps : (*l->drive)->order.steps_per_epoch;
}

int64_t brim_loop_next_due(const brim_loop *l)
{
  const int64_t each[] = {interval_of(l, training_of(l)->eval_every_steps),
                          interval_of(l, training_of(l)->checkpoint_every_steps)};
  const int64_t step = step_of(l);
  int64_t next = (*l->drive)->order.steps;
  for (size_t i = 0; i < 2; i++)
    if (each[i] - step % each[i] < next - step) next = step + each[i] - step % each[i];
  return next;
}

/* Returns the number of steps between the ends of rounds, in the convention of eval_every_steps: 0 means an epoch. */
static int64_t round_steps(const brim_loop *l)
{
  return brim_setup_is_federated((*l->drive)->setup) ? 1 : training_of(l)->eval_every_steps;
}

int64_t brim_loop_round(const brim_loop *l)
{
  const int64_t length = interval_of(l, round_steps(l)), step = step_of(l);
  return step / length + (step % length > 0);
}

static bool is_end(const brim_loop *l)
{
  return step_of(l) >= (*l->drive)->order.steps || l->work->is_over(l->work->self);
}

static brim_status end_round(brim_loop *l)
{
  enum brim_cleanup cleanup;
  const brim_work *w = l->work;
  const int64_t step = step_of(l);
  if (l->round_step == step) return BRIM_OK;
  l->round_step = step;
  BRIM_TRY(w->end_round(w->self));
  BRIM_TRY(brim_decide_at_boundary(&(*l->drive)->dialogue, step, brim_loop_round(l), is_end(l),
                                   w->placed_bytes(w->self), &cleanup));
  w->clean(w->self, cleanup, true);
  return BRIM_OK;
}

brim_status brim_loop_checkpoint(brim_loop *l)
{
  const int64_t step = step_of(l);
  snprintf(l->doing, sizeof l->doing, "the checkpoint of step %lld", (long long)step);
  BRIM_TRY(l->work->checkpoint(l->work->self));
  l->checkpoint_step = step;
  l->is_stale = false;
  return BRIM_OK;
}

brim_status brim_loop_save(brim_loop *l)
{
  return l->checkpoint_step == step_of(l) && !l->is_stale ? BRIM_OK : brim_loop_checkpoint(l);
}

static brim_status after_commit(brim_loop *l)
{
  const brim_work *w = l->work;
  const int64_t step = step_of(l);
  bool is_new = false;
  if (brim_loop_is_due(l, step, training_of(l)->eval_every_steps)) {
    BRIM_TRY(w->evaluate(w->self, &is_new));
    /* If a run was interrupted in this evaluation, the checkpoint of this step does not contain the result. */
    if (is_new && l->checkpoint_step == step) l->is_stale = true;
  }
  if (brim_loop_is_due(l, step, round_steps(l))) BRIM_TRY(end_round(l));
  return w->is_best(w->self) || brim_loop_is_due(l, step, training_of(l)->checkpoint_every_steps) ? brim_loop_save(l)
                                                                                                  : BRIM_OK;
}

/* ---- between two steps the run may change its plan ---- */

static brim_status heed_pressure(brim_loop *l)
{
  const brim_work *w = l->work;
  bool acts = false;
  uint64_t bytes = 0;
  BRIM_TRY(w->heed_pressure(w->self, &acts, &bytes));
  if (!acts) return BRIM_OK;
  w->clean(w->self, BRIM_CLEAN_HEAVY, true);
  snprintf(l->doing, sizeof l->doing, "%s", "planning smaller");
  return bytes > 0 ? brim_recover_shrink(&l->recovery, bytes, "memory pressure") : BRIM_OK;
}

static brim_status resize(brim_loop *l)
{
  bool changes;
  const brim_work *w = l->work;
  l->resize.question.step_seconds = w->step_seconds(w->self);
  BRIM_TRY(brim_resize_ask(&l->resize, &changes));
  if (!changes) return BRIM_OK;
  snprintf(l->doing, sizeof l->doing, "the plan after step %lld", (long long)step_of(l));
  return brim_resize_do(&l->resize);
}

static brim_status change_plan(brim_loop *l)
{
  const brim_work *w = l->work;
  if (w->is_ahead && w->is_ahead(w->self)) return BRIM_OK;
  BRIM_TRY(heed_pressure(l));
  snprintf(l->doing, sizeof l->doing, "the plan after step %lld", (long long)step_of(l));
  BRIM_TRY(brim_resize_after_pressure(&l->resize, &l->recovery));
  return (w->is_asking ? w->is_asking(w->self) : brim_resize_is_due(&l->resize)) ? resize(l) : BRIM_OK;
}

/* ---- turns ---- */

static brim_status make(brim_loop *l)
{
  const brim_work *w = l->work;
  const int64_t before = step_of(l);
  snprintf(l->doing, sizeof l->doing, "step %lld", (long long)before + 1);
  const brim_status status = w->make(w->self);
  /* The step is committed even if the next step has failed since. */
  if (step_of(l) > before) brim_recover_committed(&l->recovery);
  return status;
}

/* Does the work that is due, then a step. *part: the part of the turn that ran last, also on failure. *done: no step
 * was left. */
static brim_status turn(brim_loop *l, enum brim_turn_part *part, bool *done)
{
  const brim_work *w = l->work;
  *part = BRIM_TURN_DUE;
  BRIM_TRY(after_commit(l));
  *part = BRIM_TURN_STEP;
  *done = is_end(l);
  if (*done) return w->finish(w->self);
  BRIM_TRY(w->check_stop(w->self));
  *part = BRIM_TURN_CHANGE;
  BRIM_TRY(change_plan(l));
  *part = BRIM_TURN_STEP;
  return make(l);
}

brim_status brim_loop_run(brim_loop *l)
{
  const brim_work *w = l->work;
  for (bool done = false; !done;) {
    enum brim_turn_part part;
    if (w->begin_turn) w->begin_turn(w->self);
    const brim_status status = turn(l, &part, &done);
    if (status == BRIM_OK) continue;
    BRIM_TRY(w->failed(w->self, part, status));
    done = false;
  }
  return BRIM_OK;
}

brim_status brim_loop_recover(brim_loop *l, brim_status failure, bool *rewound)
{
  const brim_status status = brim_recover(&l->recovery, failure, l->doing, rewound);
  if (l->recovery.is_remade) l->resize = (brim_resize){.drive = l->drive, .work = l->work};
  if (status == BRIM_OK && *rewound) brim_loop_rewound(l);
  return status;
}
