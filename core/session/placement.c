#include "session/placement.h"

#include "planner/footprint.h"
#include "planner/room.h"
#include "session/decide.h"

/* ---- whatever is placed ---- */

typedef struct placement {
  const brim_placing *what;
  brim_session *session;
  uint64_t peak;
  bool is_planned;
} placement;

static void drop(placement *p)
{
  p->is_planned = false;
  if (p->what->drop) p->what->drop(p->what->self);
}

static brim_status make_plan(placement *p)
{
  drop(p);
  BRIM_TRY(p->what->plan(p->what->self, &p->peak));
  p->is_planned = true;
  return BRIM_OK;
}

/* To the device that was claimed, if it is another. Plans are of the device that they were made for. */
static brim_status move(placement *p, int device)
{
  if (device != p->session->planner.device) {
    drop(p);
    BRIM_TRY(brim_session_move(p->session, device));
    BRIM_TRY(make_plan(p));
  }
  if (!p->session->place) brim_session_tell_device(p->session);
  return BRIM_OK;
}

/* On the device that the run has and holds. *placed is false if the memory went to somebody who does not queue: then it
 * is claimed as a new run's. */
static brim_status open_held(placement *p, bool *placed)
{
  *placed = false;
  if (!p->session->held) return BRIM_OK;
  const brim_status status = p->what->open(p->what->self);
  brim_session_let_go(p->session);
  *placed = status == BRIM_OK;
  return status == BRIM_ENOMEM_DEVICE ? BRIM_OK : status;
}

/* Waits for a device if it must, and places. Who is not in the queue may have taken the memory meanwhile: then the run
 * queues again. */
static brim_status claim_and_open(placement *p)
{
  for (;;) {
    int device;
    bool placed;
    void *claim;
    brim_session *s = p->session;
    if (!p->is_planned) BRIM_TRY(make_plan(p)); /* it was given up for another device, which then could not be had */
    BRIM_TRY(p->what->check(p->what->self));
    BRIM_TRY(open_held(p, &placed));
    if (placed) return BRIM_OK;
    BRIM_TRY(brim_session_claim(s, p->peak, &claim, &device));
    const bool queues = claim && s->planner.waits;
    brim_status status = move(p, device);
    if (status == BRIM_OK) status = p->what->open(p->what->self);
    s->env->release(s->env->self, claim);
    if (status != BRIM_ENOMEM_DEVICE || !queues) return status;
    brim_log(BRIM_LOG_INFO, "the memory was taken meanwhile by somebody who does not queue: %s", brim_error_text());
  }
}

brim_status brim_placement_do(const brim_placing *placing)
{
  placement p = {.what = placing, .session = placing->session};
  for (;;) {
    BRIM_TRY(make_plan(&p));
    brim_status status = placing->check(placing->self); /* before data are read and devices are waited for */
    if (status == BRIM_OK) BRIM_TRY(brim_session_start(p.session));
    if (status == BRIM_OK) status = claim_and_open(&p);
    const bool is_want = brim_decide_is_want(p.session, status) && p.is_planned;
    if (status == BRIM_OK || !placing->trains || !is_want) return status;
    drop(&p);
    BRIM_TRY(brim_decide_after_oom(p.session, status, p.peak));
  }
}

/* ---- plans of a model ---- */

typedef struct model_placing {
  brim_session *session;
  const brim_evaluation_wish *wish;
  brim_plan *plan;
  brim_exec *exec;
} model_placing;

static void drop_plan(void *self)
{
  model_placing *p = self;
  brim_plan_free(p->plan);
  p->plan = NULL;
}

static brim_status plan_model(void *self, uint64_t *peak)
{
  model_placing *p = self;
  const brim_planner *planner = &p->session->planner;
  const brim_choice *choice = &p->session->choice;
  BRIM_TRY(p->wish ? brim_planner_plan_evaluation(planner, choice, p->wish, &p->plan)
                   : brim_planner_plan(planner, choice, false, &p->plan));
  *peak = p->plan->peak_bytes;
  return BRIM_OK;
}

/* Also: would the process fit the host? */
static brim_status check_plan(void *self)
{
  model_placing *p = self;
  brim_session *s = p->session;
  BRIM_TRY(brim_planner_foresee(&s->planner, p->plan, s->choice.micro_batch));
  return brim_planner_check(&s->planner, &s->choice, p->plan);
}

static brim_status open_plan(void *self)
{
  model_placing *p = self;
  return brim_exec_open(p->plan, p->session->planner.device, &p->exec);
}

brim_status brim_placement_open(brim_session *session, const brim_evaluation_wish *wish, brim_plan **plan,
                                brim_exec **exec)
{
  model_placing p = {.session = session, .wish = wish};
  const brim_placing what = {.self = &p,
                             .session = session,
                             .trains = !wish,
                             .plan = plan_model,
                             .drop = drop_plan,
                             .check = check_plan,
                             .open = open_plan};
  const brim_status status = brim_placement_do(&what);
  if (status != BRIM_OK) {
    drop_plan(&p);
    return status;
  }
  session->planner.besides_bytes = 0;
  brim_exec_join(p.exec, session->setup->options.dist);
  *plan = p.plan;
  *exec = p.exec;
  return BRIM_OK;
}

/* ---- without placing ---- */

/* The plan of a session as it is, if it does not fit its device: `needed` bytes. */
static brim_status check(brim_session *s, uint64_t *needed)
{
  model_placing p = {.session = s};
  BRIM_TRY(plan_model(&p, needed));
  const brim_status status = check_plan(&p);
  drop_plan(&p);
  return status;
}

brim_status brim_placement_try(brim_session **session)
{
  BRIM_TRY(brim_session_settle(session));
  for (;;) {
    brim_session *s = *session;
    uint64_t needed = 0;
    brim_status status = check(s, &needed);
    if (!brim_decide_is_want(s, status)) return status;
    status = brim_decide_after_oom(s, status, needed);
    if (brim_session_asks(s)) {
      BRIM_TRY(brim_session_remake(session));
      BRIM_TRY(brim_session_settle(session));
    } else if (status != BRIM_OK) {
      return brim_decide_is_want(s, status) ? BRIM_OK : status;
    }
  }
}
