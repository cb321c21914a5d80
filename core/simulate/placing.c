/* A job's plan on a device, and what becomes of it when memory runs out: the work of drive/work.h. */
#include <stdio.h>

#include "base/text.h"
#include "drive/placement.h"
#include "planner/room.h"
#include "simulate/job.h"

/* ---- placing ---- */

/* Does placing fail though there is room? */
static bool fails_now(brim_sim_job *job)
{
  const brim_scenario *s = job->all->scenario;
  for (size_t i = 0; i < s->failure_count; i++) {
    if (s->failure[i].step != 0 || job->failures_left[i] == 0) continue;
    job->failures_left[i]--;
    return true;
  }
  return false;
}

static brim_status plan_model(void *self, uint64_t *peak)
{
  brim_sim_job *job = self;
  BRIM_TRY(brim_planner_peak(&job->drive->planner, &job->drive->choice, peak));
  job->planned = *peak;
  return BRIM_OK;
}

static brim_status check_plan(void *self)
{
  brim_sim_job *job = self;
  const brim_status status = brim_planner_check_peak(&job->drive->planner, job->planned);
  job->costs.ooms += status != BRIM_OK;
  return status;
}

static brim_status take_memory(brim_sim_job *job)
{
  char a[32], b[32];
  brim_planner *planner = &job->drive->planner;
  BRIM_TRY(brim_planner_look(planner));
  brim_format_bytes(a, sizeof a, job->planned);
  if (fails_now(job))
    return brim_fail(BRIM_ENOMEM_DEVICE, "%s were not to be had, though the device says that they are free", a);
  if (planner->device_info.free_bytes < job->planned)
    return brim_fail(BRIM_ENOMEM_DEVICE, "%s were asked for, and %s are free", a,
                     brim_format_bytes(b, sizeof b, planner->device_info.free_bytes));
  job->place = job->on_host ? BRIM_SCENE_HOST : planner->device;
  job->arena = job->planned;
  job->is_placed = true;
  brim_scene_take(job->all->scene, job->place, job->arena);
  return BRIM_OK;
}

/* On a device that is held a failure does not count: the plan is claimed as a new run's then. */
static brim_status open_plan(void *self)
{
  brim_sim_job *job = self;
  const brim_status status = take_memory(job);
  job->costs.ooms += status == BRIM_ENOMEM_DEVICE && !job->drive->held;
  return status;
}

static brim_status place_here(brim_sim_job *job)
{
  const brim_placing what = {
      .self = job, .drive = job->drive, .trains = true, .plan = plan_model, .check = check_plan, .open = open_plan};
  return brim_placement_do(&what);
}

/* `recompute`, `arena`: as they were before it was placed. */
static void count_plan(brim_sim_job *job, int32_t recompute, uint64_t arena)
{
  const brim_drive *d = job->drive;
  const bool changes =
      d->choice.micro_batch != job->costs.micro_batch || d->choice.recompute != recompute || job->arena != arena;
  if (job->was_placed && changes) job->costs.plan_changes++;
  if (job->arena > job->costs.peak_bytes) job->costs.peak_bytes = job->arena;
  job->costs.micro_batch = d->choice.micro_batch;
  snprintf(job->costs.device, sizeof job->costs.device, "%s:%d", job->backend.id, d->planner.device);
  job->was_placed = true;
}

brim_status brim_sim_place(brim_sim_job *job)
{
  const int32_t recompute = job->drive->choice.recompute;
  const uint64_t arena = job->arena;
  BRIM_TRY(brim_planner_look(&job->drive->planner));
  const brim_status status = place_here(job);
  brim_drive_let_go(job->drive);
  BRIM_TRY(status);
  count_plan(job, recompute, arena);
  brim_scene_settle(job->all->scene);
  return BRIM_OK;
}

void brim_sim_unplace(brim_sim_job *job)
{
  if (job->is_placed) brim_scene_give(job->all->scene, job->place, job->arena);
  job->is_placed = false;
}

/* ---- as work ---- */

static int64_t step_of(void *self)
{
  const brim_sim_job *job = self;
  return job->step;
}

static uint64_t placed_bytes(void *self)
{
  const brim_sim_job *job = self;
  return job->is_placed ? job->arena : 0;
}

/* Not after a failure that loses them. */
static bool has_values(void *self)
{
  const brim_sim_job *job = self;
  return job->failed_step < 0;
}

static void clean(void *self, enum brim_cleanup cleanup, bool of_round)
{
  brim_sim_job *job = self;
  const double share = cleanup == BRIM_CLEAN_LIGHT ? job->all->scenario->host.light : cleanup == BRIM_CLEAN_HEAVY;
  const uint64_t bytes = (uint64_t)(share * (double)job->garbage);
  (void)of_round;
  if (cleanup == BRIM_CLEAN_NONE) return;
  job->costs.cleanups++;
  job->garbage -= bytes;
  brim_scene_give(job->all->scene, BRIM_SCENE_HOST, bytes);
}

static brim_status park(void *self)
{
  brim_sim_job *job = self;
  if (job->is_placed) (void)brim_drive_hold(job->drive, false);
  brim_sim_unplace(job);
  return BRIM_OK;
}

static brim_status replan(void *self)
{
  brim_sim_job *job = self;
  const double pause = job->all->scenario->replan_time;
  BRIM_TRY(park(job));
  BRIM_TRY(brim_sim_place(job));
  job->costs.pausing_seconds += pause;
  return brim_sim_sleep(job, pause);
}

int64_t brim_sim_saved_step(const brim_sim_job *job)
{
  return job->loop.checkpoint_step > 0 ? job->loop.checkpoint_step : 0;
}

static brim_status go_back(void *self)
{
  brim_sim_job *job = self;
  double seconds, again;
  BRIM_TRY(replan(job));
  BRIM_TRY(brim_sim_step_seconds(job, &seconds, &again));
  const int64_t lost = job->step - brim_sim_saved_step(job);
  job->failed_step = -1;
  job->costs.lost_steps += lost;
  job->costs.redone_seconds += (double)lost * seconds;
  job->costs.training_seconds -= (double)lost * seconds;
  job->step = job->evaluated_step = brim_sim_saved_step(job);
  return BRIM_OK;
}

brim_work brim_sim_work(brim_sim_job *job)
{
  return (brim_work){.self = job,
                     .step = step_of,
                     .placed_bytes = placed_bytes,
                     .has_values = has_values,
                     .clean = clean,
                     .park = park,
                     .replan = replan,
                     .rewind = go_back};
}
