#include "session/placement.h"

#include "planner/footprint.h"
#include "planner/room.h"
#include "session/decide.h"

typedef struct placement {
  brim_session *session;
  const brim_evaluation_wish *wish;
  brim_plan *plan;
  brim_exec *exec;
} placement;

static brim_status make_plan(placement *p)
{
  const brim_planner *planner = &p->session->planner;
  brim_plan_free(p->plan);
  p->plan = NULL;
  if (!p->wish) return brim_planner_plan(planner, &p->session->choice, false, &p->plan);
  return brim_planner_plan_evaluation(planner, &p->session->choice, p->wish, &p->plan);
}

/* To the device that was claimed, if it is another. */
static brim_status move(placement *p, int device)
{
  if (device != p->session->planner.device) {
    brim_plan_free(p->plan);
    p->plan = NULL;
    BRIM_TRY(brim_session_move(p->session, device));
    BRIM_TRY(make_plan(p));
  }
  brim_session_tell_device(p->session);
  return BRIM_OK;
}

/* On the device that the run has and holds. *placed is false if the memory went to somebody who does not queue: then it
 * is claimed as a new run's. */
static brim_status open_held(placement *p, bool *placed)
{
  *placed = false;
  if (!p->session->held) return BRIM_OK;
  const brim_status status = brim_exec_open(p->plan, p->session->planner.device, &p->exec);
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
    brim_claim *claim;
    if (!p->plan) BRIM_TRY(make_plan(p)); /* it was given up for another device, which then could not be had */
    BRIM_TRY(brim_planner_check(&p->session->planner, &p->session->choice, p->plan));
    BRIM_TRY(open_held(p, &placed));
    if (placed) return BRIM_OK;
    BRIM_TRY(brim_session_claim(p->session, p->plan, &claim, &device));
    const bool queues = claim && p->session->planner.waits;
    brim_status status = move(p, device);
    if (status == BRIM_OK) status = brim_exec_open(p->plan, p->session->planner.device, &p->exec);
    brim_claim_release(claim);
    if (status != BRIM_ENOMEM_DEVICE || !queues) return status;
    brim_log(BRIM_LOG_INFO, "the memory was taken meanwhile by somebody who does not queue: %s", brim_error_text());
  }
}

/* Would the process fit the host? That is said before data are read and devices are waited for. */
static brim_status foresee(placement *p)
{
  BRIM_TRY(brim_planner_foresee(&p->session->planner, p->plan, p->session->choice.micro_batch));
  return brim_planner_check(&p->session->planner, &p->session->choice, p->plan);
}

static brim_status place(placement *p)
{
  for (;;) {
    BRIM_TRY(make_plan(p));
    brim_status status = foresee(p);
    if (status == BRIM_OK) BRIM_TRY(brim_session_start(p->session));
    if (status == BRIM_OK) status = claim_and_open(p);
    if (status == BRIM_OK || p->wish || !brim_decide_is_want(p->session, status) || !p->plan) return status;
    const uint64_t needed = p->plan->peak_bytes;
    brim_plan_free(p->plan); /* plans are of the device that they were made for */
    p->plan = NULL;
    BRIM_TRY(brim_decide_after_oom(p->session, status, needed));
  }
}

brim_status brim_placement_open(brim_session *session, const brim_evaluation_wish *wish, brim_plan **plan,
                                brim_exec **exec)
{
  placement p = {.session = session, .wish = wish};
  const brim_status status = place(&p);
  if (status != BRIM_OK) {
    brim_plan_free(p.plan);
    return status;
  }
  session->planner.besides_bytes = 0;
  brim_exec_join(p.exec, session->setup->options.dist);
  *plan = p.plan;
  *exec = p.exec;
  return BRIM_OK;
}

/* The plan of a session as it is, if it does not fit its device: `needed` bytes. */
static brim_status check(brim_session *s, uint64_t *needed)
{
  brim_plan *plan = NULL;
  BRIM_TRY(brim_planner_plan(&s->planner, &s->choice, false, &plan));
  *needed = plan->peak_bytes;
  brim_status status = brim_planner_foresee(&s->planner, plan, s->choice.micro_batch);
  if (status == BRIM_OK) status = brim_planner_check(&s->planner, &s->choice, plan);
  brim_plan_free(plan);
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
