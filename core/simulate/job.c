/* Runs a job: starts it, places it, and trains it with the loop of a run (drive/loop.h). Its work (drive/work.h) only
 * computes times. */
#include "simulate/job.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "drive/placement.h"
#include "planner/room.h"

/* Takes one of the scenario's failures of a step (0: of placing a plan), if one is left. */
static const brim_scene_failure *take_failure(brim_sim_job *job, int64_t step)
{
  const brim_scenario *s = job->all->scenario;
  for (size_t i = 0; i < s->failure_count; i++) {
    if (s->failure[i].step != step || job->failures_left[i] == 0) continue;
    job->failures_left[i]--;
    return &s->failure[i];
  }
  return NULL;
}

/* ---- the job's plan ---- */

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
  if (take_failure(job, 0))
    return brim_fail(BRIM_ENOMEM_DEVICE, "cannot allocate %s, although the device reports them as free", a);
  if (planner->device_info.free_bytes < job->planned)
    return brim_fail(BRIM_ENOMEM_DEVICE, "cannot allocate %s: only %s are free", a,
                     brim_format_bytes(b, sizeof b, planner->device_info.free_bytes));
  job->place = job->on_host ? BRIM_SCENE_HOST : planner->device;
  job->arena = job->planned;
  job->is_placed = true;
  brim_scene_take(job->all->scene, job->place, job->arena);
  return BRIM_OK;
}

/* On a held device a failure does not count, because the plan is then claimed like a new run's. */
static brim_status open_plan(void *self)
{
  brim_sim_job *job = self;
  const brim_status status = take_memory(job);
  job->costs.ooms += status == BRIM_ENOMEM_DEVICE && !job->drive->held;
  return status;
}

/* Places the run's plan as a real run does: waits, and asks policies. */
static brim_status place(brim_sim_job *job)
{
  brim_drive *d = job->drive;
  const int32_t recompute = d->choice.recompute;
  const uint64_t arena = job->arena;
  const brim_placing what = {
      .self = job, .drive = d, .trains = true, .plan = plan_model, .check = check_plan, .open = open_plan};
  BRIM_TRY(brim_planner_look(&d->planner));
  const brim_status status = brim_placement_do(&what);
  brim_drive_end_hold(d);
  BRIM_TRY(status);
  const bool changes =
      d->choice.micro_batch != job->costs.micro_batch || d->choice.recompute != recompute || job->arena != arena;
  if (job->was_placed && changes) job->costs.plan_changes++;
  if (job->arena > job->costs.peak_bytes) job->costs.peak_bytes = job->arena;
  job->costs.micro_batch = d->choice.micro_batch;
  snprintf(job->costs.device, sizeof job->costs.device, "%s:%d", job->backend.id, d->planner.device);
  job->was_placed = true;
  brim_scene_settle(job->all->scene);
  return BRIM_OK;
}

static void unplace(brim_sim_job *job)
{
  if (job->is_placed) brim_scene_give(job->all->scene, job->place, job->arena);
  job->is_placed = false;
}

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

/* Whether the parameters exist: false after a failure that lost them. */
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
  unplace(job);
  return BRIM_OK;
}

static brim_status replan(void *self)
{
  brim_sim_job *job = self;
  const double pause = job->all->scenario->replan_time;
  BRIM_TRY(park(job));
  BRIM_TRY(place(job));
  job->costs.pausing_seconds += pause;
  return brim_sim_sleep(job, pause);
}

/* Returns the step of its newest checkpoint, or 0. */
static int64_t saved_step(const brim_sim_job *job)
{
  return job->loop.checkpoint_step > 0 ? job->loop.checkpoint_step : 0;
}

/* Returns the number of samples in the first `steps` steps. */
static int64_t samples_of(const brim_order *o, int64_t steps)
{
  const int64_t rest = steps % o->steps_per_epoch * o->effective;
  return steps / o->steps_per_epoch * o->count + (rest < o->count ? rest : o->count);
}

static brim_status go_back(void *self)
{
  brim_sim_job *job = self;
  double seconds, again;
  BRIM_TRY(replan(job));
  BRIM_TRY(brim_sim_step_seconds(job, &seconds, &again));
  const brim_order *o = &job->drive->order;
  const int64_t lost = job->step - saved_step(job);
  job->failed_step = -1;
  job->costs.samples -= samples_of(o, job->step) - samples_of(o, saved_step(job));
  job->costs.again_seconds -= (double)lost * again;
  job->costs.lost_steps += lost;
  job->costs.redone_seconds += (double)lost * seconds;
  job->costs.training_seconds -= (double)lost * seconds;
  job->step = job->evaluated_step = saved_step(job);
  return BRIM_OK;
}

/* A pause without training. */
static brim_status pause_for(brim_sim_job *job, double seconds)
{
  if (seconds == 0) return BRIM_OK;
  job->costs.pausing_seconds += seconds;
  return brim_sim_sleep(job, seconds);
}

/* ---- work due after a commit ---- */

static brim_status evaluate(void *self, bool *is_new)
{
  brim_sim_job *job = self;
  *is_new = job->evaluated_step != job->step;
  if (*is_new) BRIM_TRY(pause_for(job, job->all->scenario->evaluation_time));
  job->evaluated_step = job->step;
  return BRIM_OK;
}

/* Adds memory on the host that a cleanup could release. */
static brim_status end_round(void *self)
{
  brim_sim_job *job = self;
  const uint64_t bytes = job->all->scenario->host.garbage;
  job->garbage += bytes;
  brim_scene_take(job->all->scene, BRIM_SCENE_HOST, bytes);
  job->all->out->questions += brim_policies_watch(job->drive->dialogue.policies);
  return BRIM_OK;
}

static bool never(void *self)
{
  (void)self;
  return false;
}

static brim_status checkpoint(void *self)
{
  brim_sim_job *job = self;
  return pause_for(job, job->all->scenario->checkpoint_time);
}

static brim_status finish(void *self)
{
  (void)self;
  return BRIM_OK;
}

/* ---- the host's memory ---- */

static brim_pressure_reading read_host(const brim_sim_job *job)
{
  const brim_host_memory host = brim_scene_host_memory(job->all->scene);
  const uint64_t used = host.total_bytes - host.available_bytes;
  return (brim_pressure_reading){
      .host = {.ram_total_bytes = host.total_bytes,
               .ram_used_bytes = used,
               .ram_percent = host.total_bytes > 0 ? 100 * (double)used / (double)host.total_bytes : 0}};
}

/* Repeats recorded memory pressure. */
static brim_status repeat_pressure(brim_sim_job *job, bool *acts, uint64_t *bytes)
{
  const brim_scenario *s = job->all->scenario;
  *acts = job->pressure < s->pressure_count && job->step >= s->pressure[job->pressure].step;
  if (!*acts) return BRIM_OK;
  brim_sim_report(job, "memory", "critical", "");
  *bytes = s->pressure[job->pressure++].bytes;
  return brim_loop_save(&job->loop);
}

/* Checks memory pressure as often as a real run. */
static brim_status heed_pressure(void *self, bool *acts, uint64_t *bytes)
{
  char text[64];
  bool fell;
  brim_sim_job *job = self;
  const brim_memory_settings *m = &job->drive->setup->settings->memory;
  const brim_pressure_limits limits = {m->warn_percent, m->critical_percent};
  const double now = brim_scene_now(job->all->scene);
  if (job->all->scenario->pressure_count > 0) return repeat_pressure(job, acts, bytes);
  if (now - job->looked < m->check_interval_seconds) return BRIM_OK;
  job->looked = now;
  const brim_pressure_reading reading = read_host(job);
  const enum brim_pressure_level level =
      brim_pressure_judge(&limits, &job->watch, brim_pressure_percent(&reading), &fell);
  if (level == BRIM_PRESSURE_CALM) return BRIM_OK;
  snprintf(text, sizeof text, "RAM at %.1f %%", reading.host.ram_percent);
  brim_sim_report(job, "memory", level == BRIM_PRESSURE_ACTS ? "critical" : "warning", text);
  *acts = level == BRIM_PRESSURE_ACTS;
  if (!*acts) return BRIM_OK;
  *bytes = brim_recover_target(m, job->drive->planner.device_info.on_host, job->arena, &reading);
  return brim_loop_save(&job->loop);
}

static brim_status check_stop(void *self)
{
  const brim_sim_job *job = self;
  if (brim_scene_host_over(job->all->scene) == 0) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "the host is out of memory, and the kernel kills the process");
}

/* ---- another plan between two steps ---- */

/* Whether a recorded question to policies is due, by time and by step. Steps that were lost are repeated without such
 * questions. */
static bool is_at_look(brim_sim_job *job)
{
  const brim_scenario *s = job->all->scenario;
  if (job->look == s->look_count || job->step < s->look[job->look].step) return false;
  while (job->look < s->look_count && job->step >= s->look[job->look].step) job->look++;
  return brim_policies_follow(job->drive->dialogue.policies);
}

static bool is_asking(void *self)
{
  brim_sim_job *job = self;
  const bool asks = job->all->scenario->look_count > 0 ? is_at_look(job) : brim_resize_is_due(&job->loop.resize);
  job->all->out->questions += asks;
  return asks;
}

static double step_seconds(void *self)
{
  double seconds = 0, again;
  return brim_sim_step_seconds(self, &seconds, &again) == BRIM_OK ? seconds : 0;
}

/* ---- steps ---- */

/* Returns the nearer of two steps at which to stop; a step that is not ahead does not count. */
static int64_t nearer(const brim_sim_job *job, int64_t stop, int64_t other)
{
  return other > job->step && other < stop ? other : stop;
}

/* Returns the next step that must be made alone, because work is due after it. */
static int64_t next_stop(const brim_sim_job *job)
{
  const brim_scenario *s = job->all->scenario;
  int64_t stop = brim_loop_next_due(&job->loop);
  if (job->look < s->look_count) stop = nearer(job, stop, s->look[job->look].step);
  if (job->pressure < s->pressure_count) stop = nearer(job, stop, s->pressure[job->pressure].step);
  for (size_t i = 0; i < s->failure_count; i++)
    if (job->failures_left[i] > 0) stop = nearer(job, stop, s->failure[i].step - 1);
  return stop;
}

/* Returns the time of the next look; the host's memory is read only while it matters. */
static double next_look(const brim_sim_job *job)
{
  const brim_memory_settings *m = &job->drive->setup->settings->memory;
  const double lower = brim_pressure_lower(&(brim_pressure_limits){m->warn_percent, m->critical_percent});
  double next = brim_scene_next(job->all->scene);
  if (lower > 0 && read_host(job).host.ram_percent >= lower) next = fmin(next, job->looked + m->check_interval_seconds);
  if (job->all->scenario->look_count == 0 && brim_policies_follow(job->drive->dialogue.policies))
    next = fmin(next, job->loop.resize.asked + BRIM_RESIZE_ASK_SECONDS);
  return next;
}

/* Computes the duration of steps: up to a recorded look they are spread evenly. */
static brim_status pace_of(brim_sim_job *job, double *seconds, double *again)
{
  const brim_scenario *s = job->all->scenario;
  BRIM_TRY(brim_sim_step_seconds(job, seconds, again));
  if (job->look == s->look_count || s->look[job->look].step <= job->step) return BRIM_OK;
  const brim_scene_look *next = &s->look[job->look];
  const double left = fmax(BRIM_SCENE_MOMENT, next->at - brim_scene_now(job->all->scene));
  *again *= left / (double)(next->step - job->step) / *seconds;
  *seconds = left / (double)(next->step - job->step);
  return BRIM_OK;
}

/* Makes all steps until work is due, or a single step that fails if the scenario has a failure there. */
static brim_status make(void *self)
{
  brim_sim_job *job = self;
  double seconds, again;
  BRIM_TRY(pace_of(job, &seconds, &again));
  const brim_scene_failure *failure = take_failure(job, job->step + 1);
  if (failure) {
    job->costs.ooms++;
    job->costs.redone_seconds += seconds;
    if (failure->loses) job->failed_step = job->step;
    BRIM_TRY(brim_sim_sleep(job, seconds));
    return brim_fail(BRIM_ENOMEM_DEVICE, "%s", failure->says);
  }
  const double time = next_look(job) - brim_scene_now(job->all->scene), left = ceil(time / seconds);
  const int64_t stop = next_stop(job) - job->step;
  const int64_t count = left < 1 ? 1 : left < (double)stop ? (int64_t)left : stop;
  BRIM_TRY(brim_sim_sleep(job, (double)count * seconds));
  const brim_order *o = &job->drive->order;
  job->costs.samples += samples_of(o, job->step + count) - samples_of(o, job->step);
  job->costs.training_seconds += (double)count * seconds;
  job->costs.again_seconds += (double)count * again;
  job->step += count;
  return BRIM_OK;
}

/* Repeats failed work after a measure; without one does nothing. */
static brim_status failed(void *self, enum brim_turn_part part, brim_status failure)
{
  bool rewound;
  brim_sim_job *job = self;
  (void)part;
  if (!brim_status_is_want(failure) || brim_scene_host_over(job->all->scene) > 0) return failure;
  const brim_status status = brim_loop_recover(&job->loop, failure, &rewound);
  if (status == BRIM_OK) job->costs.retries++;
  return status;
}

/* ---- the whole job ---- */

static brim_status train(brim_sim_job *job)
{
  job->resident = job->all->scenario->host.process;
  brim_scene_take(job->all->scene, BRIM_SCENE_HOST, job->resident);
  BRIM_TRY(brim_sim_open(job));
  BRIM_TRY(pause_for(job, job->all->scenario->plan_time));
  BRIM_TRY(brim_planner_look(&job->drive->planner));
  BRIM_TRY(brim_drive_settle(&job->drive));
  for (brim_status status = place(job); status != BRIM_OK; status = place(job)) {
    if (!brim_drive_asks(job->drive)) return status; /* requests another configuration */
    BRIM_TRY(brim_drive_remake(&job->drive));
    BRIM_TRY(brim_drive_settle(&job->drive));
  }
  brim_drive_begin(job->drive);
  job->work = (brim_work){.self = job,
                          .step = step_of,
                          .make = make,
                          .evaluate = evaluate,
                          .end_round = end_round,
                          .is_best = never,
                          .is_over = never,
                          .checkpoint = checkpoint,
                          .check_stop = check_stop,
                          .finish = finish,
                          .failed = failed,
                          .heed_pressure = heed_pressure,
                          .is_asking = is_asking,
                          .step_seconds = step_seconds,
                          .placed_bytes = placed_bytes,
                          .has_values = has_values,
                          .clean = clean,
                          .park = park,
                          .replan = replan,
                          .rewind = go_back};
  job->loop = brim_loop_begin(&job->drive, &job->work);
  job->loop.resize.asked = brim_scene_now(job->all->scene);
  job->looked = -INFINITY;
  return brim_loop_run(&job->loop);
}

const char *brim_sim_end_name(enum brim_sim_end end)
{
  static const char *const names[] = {[BRIM_SIM_FINISHED] = "finished",
                                      [BRIM_SIM_FAILED] = "failed",
                                      [BRIM_SIM_KILLED] = "killed",
                                      [BRIM_SIM_LATE] = "not done"};
  return names[end];
}

static void report(brim_sim_job *job, brim_status status)
{
  brim_simulation *out = job->all->out;
  brim_sim_job_result *r = &out->job[job->index];
  const char *error = status == BRIM_OK ? "" : brim_error_text();
  r->end = status == BRIM_OK            ? BRIM_SIM_FINISHED
           : job->is_late               ? BRIM_SIM_LATE
           : status == BRIM_ENOMEM_HOST ? BRIM_SIM_KILLED
                                        : BRIM_SIM_FAILED;
  r->status = status;
  r->error = brim_arena_string_n(&out->arena, error, strcspn(error, "\n"));
  if (r->end == BRIM_SIM_KILLED) job->costs.lost_steps += job->step - saved_step(job);
  job->costs.steps = job->step;
  job->costs.steps_all = job->drive ? job->drive->order.steps : 0; /* 0 if the run failed before its drive was opened */
  job->costs.wall_seconds = brim_scene_now(job->all->scene) - job->started;
  r->costs = job->costs;
  out->end_seconds = fmax(out->end_seconds, brim_scene_now(job->all->scene));
  brim_sim_report(job, "simulation", brim_sim_end_name(r->end), r->error);
}

void brim_sim_job_work(brim_sim_job *job)
{
  job->started = brim_scene_now(job->all->scene);
  report(job, train(job));
  unplace(job);
  brim_scene_give(job->all->scene, BRIM_SCENE_HOST, job->resident + job->garbage);
  brim_scene_settle(job->all->scene);
  brim_drive_close(job->drive);
}
