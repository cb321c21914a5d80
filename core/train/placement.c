#include "train/placement.h"

#include "train/decide.h"

typedef struct placement {
  brim_session *session;
  const brim_placement_wish *wish;
  brim_plan *plan;
  brim_exec *exec;
} placement;

static brim_status make_plan(placement *p)
{
  const brim_placement_wish *w = p->wish;
  brim_plan_free(p->plan);
  p->plan = NULL;
  if (w->count == 0) return brim_session_plan(p->session, p->session->batch, &p->plan);
  return brim_session_plan_evaluation(p->session, w->count, w->batch, w->keep_output, &p->plan);
}

/* To the device that was claimed, if it is another. */
static brim_status move(placement *p, int device)
{
  if (device != p->session->device) {
    brim_plan_free(p->plan);
    p->plan = NULL;
    BRIM_TRY(brim_session_move(p->session, device));
    BRIM_TRY(make_plan(p));
  }
  brim_session_tell_device(p->session);
  return BRIM_OK;
}

/* Waits for a device if it must, and places. Who is not in the queue may have taken the memory meanwhile: then the run
 * queues again. */
static brim_status claim_and_open(placement *p)
{
  for (;;) {
    int device;
    brim_claim *claim;
    BRIM_TRY(brim_session_check_budget(p->session, p->plan));
    BRIM_TRY(brim_session_claim(p->session, p->plan, &claim, &device));
    const bool queues = claim && p->session->wait;
    brim_status status = move(p, device);
    if (status == BRIM_OK) status = brim_exec_open(p->plan, p->session->device, &p->exec);
    brim_claim_release(claim);
    if (status != BRIM_ENOMEM_DEVICE || !queues) return status;
    brim_log(BRIM_LOG_INFO, "the memory was taken meanwhile by somebody who does not queue: %s", brim_error_text());
  }
}

/* Is it want of memory that another plan or device may have? A run that may wait has had all its time. */
static bool is_want(const placement *p, brim_status status)
{
  return status == BRIM_ENOMEM_DEVICE || status == BRIM_EBUDGET || (status == BRIM_ENODEVICE && !p->session->wait);
}

static brim_status place(placement *p)
{
  for (;;) {
    BRIM_TRY(make_plan(p));
    BRIM_TRY(brim_session_start(p->session));
    const brim_status status = claim_and_open(p);
    if (status == BRIM_OK || p->wish->count > 0 || !is_want(p, status) || !p->plan) return status;
    const uint64_t needed = p->plan->peak_bytes;
    brim_plan_free(p->plan); /* plans are of the device that they were made for */
    p->plan = NULL;
    BRIM_TRY(brim_decide_after_oom(p->session, status, needed));
  }
}

brim_status brim_placement_open(brim_session *session, const brim_placement_wish *wish, brim_plan **plan,
                                brim_exec **exec)
{
  placement p = {.session = session, .wish = wish};
  const brim_status status = place(&p);
  if (status != BRIM_OK) {
    brim_plan_free(p.plan);
    return status;
  }
  *plan = p.plan;
  *exec = p.exec;
  return BRIM_OK;
}
