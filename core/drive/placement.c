#include "drive/placement.h"

#include "decide/decide.h"
#include "graph/plan_json.h"
#include "memory/live.h"
#include "planner/footprint.h"
#include "planner/room.h"
#include "planner/strict.h"
#include "planner/taken.h"

/* ---- placing anything ---- */

typedef struct placement {
  const brim_placing *what;
  brim_drive *drive;
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

/* Moves to the claimed device if it is another one. Plans belong to the device for which they were made. */
static brim_status move(placement *p, int device)
{
  if (device != p->drive->planner.device) {
    drop(p);
    BRIM_TRY(brim_drive_move(p->drive, device));
    BRIM_TRY(make_plan(p));
  }
  if (!p->drive->place) brim_drive_log_device(p->drive);
  return BRIM_OK;
}

/* Places on the device that the run holds. If a process outside the queue took the memory, *placed is false, and the
 * run must claim the device like a new run. */
static brim_status open_held(placement *p, bool *placed)
{
  *placed = false;
  if (!p->drive->held) return BRIM_OK;
  const brim_status status = p->what->open(p->what->self);
  brim_drive_end_hold(p->drive);
  *placed = status == BRIM_OK;
  return status == BRIM_ENOMEM_DEVICE ? BRIM_OK : status;
}

/* Waits for a device if necessary, and places. If a process outside the queue has taken the memory meanwhile, the run
 * queues again. */
static brim_status claim_and_open(placement *p)
{
  for (;;) {
    int device;
    bool placed;
    void *claim;
    brim_drive *d = p->drive;
    if (!p->is_planned)
      BRIM_TRY(make_plan(p)); /* the plan was freed for another device, which then was not available */
    BRIM_TRY(p->what->check(p->what->self));
    BRIM_TRY(open_held(p, &placed));
    if (placed) return BRIM_OK;
    BRIM_TRY(brim_drive_claim(d, p->peak, &claim, &device));
    const bool queues = claim && d->planner.waits;
    brim_status status = move(p, device);
    if (status == BRIM_OK) status = p->what->open(p->what->self);
    d->dialogue.env->release(d->dialogue.env->self, claim);
    if (status != BRIM_ENOMEM_DEVICE || !queues) return status;
    brim_log(BRIM_LOG_INFO, "a process outside the queue took the memory meanwhile: %s", brim_error_text());
  }
}

brim_status brim_placement_do(const brim_placing *placing)
{
  placement p = {.what = placing, .drive = placing->drive};
  for (;;) {
    BRIM_TRY(make_plan(&p));
    brim_status status = placing->check(placing->self); /* checks before data is read and before waiting for devices */
    if (status == BRIM_OK) BRIM_TRY(brim_drive_start(p.drive));
    if (status == BRIM_OK) status = claim_and_open(&p);
    const bool is_want = brim_decide_is_want(&p.drive->dialogue, status) && p.is_planned;
    if (status == BRIM_OK || !placing->trains || !is_want) return status;
    drop(&p);
    BRIM_TRY(brim_drive_after_oom(p.drive, status, p.peak));
  }
}

/* ---- plans of a model ---- */

typedef struct model_placing {
  brim_drive *drive;
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
  const brim_planner *planner = &p->drive->planner;
  const brim_choice *choice = &p->drive->choice;
  BRIM_TRY(p->wish ? brim_planner_plan_evaluation(planner, choice, p->wish, &p->plan)
                   : brim_planner_plan(planner, choice, false, &p->plan));
  *peak = p->plan->peak_bytes;
  return BRIM_OK;
}

/* Checks that the plan fits the device, and the process the host. */
static brim_status check_plan(void *self)
{
  model_placing *p = self;
  brim_drive *d = p->drive;
  BRIM_TRY(brim_strict_check_plan(d->setup, p->plan));
  BRIM_TRY(brim_planner_foresee(&d->planner, p->plan, d->choice.micro_batch));
  return brim_planner_check(&d->planner, &d->choice, p->plan);
}

static brim_status open_plan(void *self)
{
  model_placing *p = self;
  return brim_exec_open(p->plan, p->drive->planner.device, &p->exec);
}

/* Publishes the plan's device and memory (memory/live.h). */
static void publish(const brim_drive *d, const brim_plan *plan)
{
  const brim_planner *planner = &d->planner;
  const char *backend = brim_setup_backend_id(d->setup);
  const int devices = d->setup->backend_ops->device_count(d->setup->backend);
  brim_live_place(&(brim_live_placed){.backend = backend,
                                      .device = planner->device,
                                      .key = brim_device_key(backend, planner->device, devices, &planner->device_info),
                                      .peak_bytes = plan->peak_bytes,
                                      .taken_bytes = planner->device_info.taken_bytes + planner->comm_bytes,
                                      .class_bytes = plan->class_bytes,
                                      .classes = BRIM_ROLE_COUNT,
                                      .queue_seconds = planner->queue_seconds});
}

/* Reports the parts of a plan for evaluation or generation that the device computes slowly. A training run reports its
 * own. */
static void warn_of_slower(const brim_drive *d, const brim_plan *plan)
{
  brim_text text = {0};
  brim_plan_print_refused(plan, &text);
  if (text.length > 0 && d->setup->world.rank == 0) brim_log(BRIM_LOG_WARN, "%s", text.s);
  brim_text_release(&text);
}

brim_status brim_placement_open(brim_drive *drive, const brim_evaluation_wish *wish, brim_plan **plan, brim_exec **exec)
{
  model_placing p = {.drive = drive, .wish = wish};
  const brim_placing what = {.self = &p,
                             .drive = drive,
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
  drive->planner.besides_bytes = 0;
  brim_planner_keep_no_plans(&drive->planner);
  brim_taken_keep(&drive->planner, drive->choice.precision);
  brim_exec_join(p.exec, drive->setup->options.dist);
  publish(drive, p.plan);
  if (wish) brim_live_now(BRIM_LIVE_WORKING);
  if (wish) warn_of_slower(drive, p.plan);
  *plan = p.plan;
  *exec = p.exec;
  return BRIM_OK;
}

/* ---- without placing ---- */

/* Checks the drive's current plan. If it does not fit the device, *needed is its memory. */
static brim_status check(brim_drive *d, uint64_t *needed)
{
  model_placing p = {.drive = d};
  BRIM_TRY(plan_model(&p, needed));
  const brim_status status = check_plan(&p);
  drop_plan(&p);
  return status;
}

brim_status brim_placement_try(brim_drive **drive)
{
  BRIM_TRY(brim_drive_settle(drive));
  for (;;) {
    brim_drive *d = *drive;
    uint64_t needed = 0;
    brim_status status = check(d, &needed);
    if (!brim_decide_is_want(&d->dialogue, status)) return status;
    status = brim_drive_after_oom(d, status, needed);
    if (brim_drive_asks(d)) {
      BRIM_TRY(brim_drive_remake(drive));
      BRIM_TRY(brim_drive_settle(drive));
    } else if (status != BRIM_OK) {
      return brim_decide_is_want(&d->dialogue, status) ? BRIM_OK : status;
    }
  }
}
