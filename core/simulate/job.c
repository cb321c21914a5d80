/* A job's life: started, placed, trained in rounds, ended. The order of what is done after a commit is that of
 * train/run.c: evaluation, the round's end, checkpoint; then memory, the policies' step, and the next step. */
#include "simulate/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "decide/decide.h"

void brim_sim_tell(brim_sim_job *job, const char *by, const char *choice, const char *reason)
{
  brim_simulation *out = job->all->out;
  brim_arena *arena = &out->arena;
  if (out->event_count == out->event_room) {
    const size_t room = out->event_room ? 2 * out->event_room : 64;
    out->event = brim_xrealloc(out->event, room * sizeof *out->event);
    out->event_room = room;
  }
  out->event[out->event_count++] = (brim_simulated){brim_scene_now(job->all->scene),
                                                    job->index,
                                                    job->step,
                                                    brim_arena_string(arena, by),
                                                    brim_arena_string(arena, choice),
                                                    brim_arena_string(arena, reason)};
}

brim_status brim_sim_sleep(brim_sim_job *job, double seconds)
{
  const double until = brim_scene_now(job->all->scene) + seconds, end = job->all->scenario->until;
  brim_turns_sleep(&job->all->turns, job->index, until < end ? until : end);
  job->is_late = job->is_late || until > end;
  return job->is_late ? brim_fail(BRIM_EINTERRUPTED, "the scenario ends") : BRIM_OK;
}

/* A pause that is no training. */
static brim_status pause_for(brim_sim_job *job, double seconds)
{
  if (seconds == 0) return BRIM_OK;
  job->costs.pausing_seconds += seconds;
  return brim_sim_sleep(job, seconds);
}

/* ---- what is due after a commit ---- */

static int64_t every(const brim_sim_job *job, int64_t steps)
{
  return steps > 0 ? steps : job->drive->order.steps_per_epoch;
}

static bool is_due(const brim_sim_job *job, int64_t steps)
{
  return job->step > 0 && (job->step == job->drive->order.steps || job->step % every(job, steps) == 0);
}

static brim_status write_checkpoint(brim_sim_job *job)
{
  job->checkpoint_step = job->step;
  return pause_for(job, job->all->scenario->checkpoint_time);
}

static int64_t round_of(const brim_sim_job *job)
{
  const int64_t length = every(job, job->drive->setup->settings->training.eval_every_steps);
  return job->step / length + (job->step % length > 0);
}

static void leave_garbage(brim_sim_job *job)
{
  const uint64_t bytes = job->all->scenario->host.garbage;
  job->garbage += bytes;
  brim_scene_take(job->all->scene, BRIM_SCENE_HOST, bytes);
}

static brim_status end_round(brim_sim_job *job)
{
  enum brim_cleanup cleanup;
  brim_drive *d = job->drive;
  job->round_step = job->step;
  leave_garbage(job);
  job->all->out->questions += brim_policies_watch(d->dialogue.policies);
  BRIM_TRY(brim_decide_at_boundary(&d->dialogue, job->step, round_of(job), job->step >= d->order.steps, job->arena,
                                   &cleanup));
  brim_sim_clean(job, cleanup);
  return BRIM_OK;
}

static brim_status after_commit(brim_sim_job *job)
{
  const brim_training_settings *t = &job->drive->setup->settings->training;
  const bool round = is_due(job, t->eval_every_steps);
  if (round && job->evaluated_step != job->step) BRIM_TRY(pause_for(job, job->all->scenario->evaluation_time));
  if (round) job->evaluated_step = job->step;
  if (round && job->round_step != job->step) BRIM_TRY(end_round(job));
  if (job->checkpoint_step == job->step || !is_due(job, t->checkpoint_every_steps)) return BRIM_OK;
  return write_checkpoint(job);
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

/* What a run does then: a checkpoint, a heavy cleanup, and a plan of at most `bytes`, if that is not 0. */
static brim_status act_on_pressure(brim_sim_job *job, uint64_t bytes)
{
  BRIM_TRY(write_checkpoint(job));
  brim_sim_clean(job, BRIM_CLEAN_HEAVY);
  return bytes > 0 ? brim_recover_shrink(&job->recovery, bytes, "memory pressure") : BRIM_OK;
}

/* As it was recorded. */
static brim_status repeat_pressure(brim_sim_job *job)
{
  const brim_scenario *s = job->all->scenario;
  if (job->pressure == s->pressure_count || job->step < s->pressure[job->pressure].step) return BRIM_OK;
  brim_sim_tell(job, "memory", "critical", "");
  return act_on_pressure(job, s->pressure[job->pressure++].bytes);
}

/* Looks as often as a run does. */
static brim_status heed_pressure(brim_sim_job *job)
{
  char text[64];
  bool fell;
  const brim_memory_settings *m = &job->drive->setup->settings->memory;
  const brim_pressure_limits limits = {m->warn_percent, m->critical_percent};
  const double now = brim_scene_now(job->all->scene);
  if (now - job->looked < m->check_interval_seconds) return BRIM_OK;
  job->looked = now;
  const brim_pressure_reading reading = read_host(job);
  const enum brim_pressure_level level =
      brim_pressure_judge(&limits, &job->watch, brim_pressure_percent(&reading), &fell);
  if (level == BRIM_PRESSURE_CALM) return BRIM_OK;
  snprintf(text, sizeof text, "RAM at %.1f %%", reading.host.ram_percent);
  brim_sim_tell(job, "memory", level == BRIM_PRESSURE_ACTS ? "critical" : "warning", text);
  const brim_planner *planner = &job->drive->planner;
  return level == BRIM_PRESSURE_ACTS
             ? act_on_pressure(job, brim_recover_target(m, planner->device_info.on_host, job->arena, &reading))
             : BRIM_OK;
}

static brim_status check_alive(const brim_sim_job *job)
{
  if (brim_scene_host_over(job->all->scene) == 0) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "the host has no memory left, and the kernel ends the process");
}

/* ---- another plan between two steps ---- */

/* A look that was recorded: reached by time, and by the step. Steps that were lost are made again without. */
static bool is_at_look(brim_sim_job *job)
{
  const brim_scenario *s = job->all->scenario;
  if (job->look == s->look_count || job->step < s->look[job->look].step) return false;
  while (job->look < s->look_count && job->step >= s->look[job->look].step) job->look++;
  return brim_policies_follow(job->drive->dialogue.policies);
}

static brim_status look_around(brim_sim_job *job)
{
  double again;
  bool changes;
  const bool is_recorded = job->all->scenario->look_count > 0;
  BRIM_TRY(check_alive(job));
  BRIM_TRY(job->all->scenario->pressure_count > 0 ? repeat_pressure(job) : heed_pressure(job));
  if (!(is_recorded ? is_at_look(job) : brim_resize_is_due(&job->resize))) return BRIM_OK;
  BRIM_TRY(brim_sim_step_seconds(job, &job->resize.question.step_seconds, &again));
  job->all->out->questions++;
  BRIM_TRY(brim_resize_ask(&job->resize, &changes));
  return changes ? brim_resize_do(&job->resize) : BRIM_OK;
}

/* ---- steps ---- */

/* The next one that must be made by itself: at its end something is due. */
static int64_t next_stop(const brim_sim_job *job)
{
  const brim_scenario *scene = job->all->scenario;
  const brim_training_settings *t = &job->drive->setup->settings->training;
  const int64_t each[] = {every(job, t->eval_every_steps), every(job, t->checkpoint_every_steps)};
  int64_t stop = job->drive->order.steps;
  for (size_t i = 0; i < 2; i++) {
    const int64_t left = each[i] - job->step % each[i];
    if (left < stop - job->step) stop = job->step + left;
  }
  if (job->look < scene->look_count && scene->look[job->look].step > job->step && scene->look[job->look].step < stop)
    stop = scene->look[job->look].step;
  if (job->pressure < scene->pressure_count && scene->pressure[job->pressure].step > job->step &&
      scene->pressure[job->pressure].step < stop)
    stop = scene->pressure[job->pressure].step;
  for (size_t i = 0; i < scene->failure_count; i++) {
    const int64_t before = scene->failure[i].step - 1;
    if (job->failures_left[i] > 0 && before > job->step && before < stop) stop = before;
  }
  return stop;
}

/* When somebody looks next: at the host's memory only while it matters. */
static double next_look(const brim_sim_job *job)
{
  const brim_memory_settings *m = &job->drive->setup->settings->memory;
  const double lower = brim_pressure_lower(&(brim_pressure_limits){m->warn_percent, m->critical_percent});
  double next = brim_scene_next(job->all->scene);
  if (lower > 0 && read_host(job).host.ram_percent >= lower) next = fmin(next, job->looked + m->check_interval_seconds);
  if (job->all->scenario->look_count > 0) return next;
  return brim_policies_follow(job->drive->dialogue.policies) ? fmin(next, job->resize.asked + BRIM_RESIZE_ASK_SECONDS)
                                                             : next;
}

/* Fails the step that is to be made, if it is one of the scenario's failures. */
static brim_status fail_step(brim_sim_job *job, double seconds, bool *fails)
{
  const brim_scenario *scene = job->all->scenario;
  for (size_t i = 0; i < scene->failure_count; i++) {
    if (scene->failure[i].step != job->step + 1 || job->failures_left[i] == 0) continue;
    job->failures_left[i]--;
    *fails = true;
    job->costs.ooms++;
    job->costs.redone_seconds += seconds;
    if (scene->failure[i].loses) job->failed_step = job->step;
    BRIM_TRY(brim_sim_sleep(job, seconds));
    return brim_fail(BRIM_ENOMEM_DEVICE, "%s", scene->failure[i].says);
  }
  return BRIM_OK;
}

/* Of the first `steps` steps. */
static int64_t samples_of(const brim_order *o, int64_t steps)
{
  const int64_t rest = steps % o->steps_per_epoch * o->effective;
  return steps / o->steps_per_epoch * o->count + (rest < o->count ? rest : o->count);
}

static void commit(brim_sim_job *job, int64_t count, double seconds, double again)
{
  const brim_order *o = &job->drive->order;
  job->costs.samples += samples_of(o, job->step + count) - samples_of(o, job->step);
  job->costs.training_seconds += (double)count * seconds;
  job->costs.again_seconds += (double)count * again;
  job->step += count;
  brim_recover_committed(&job->recovery);
}

/* Of a step: up to a look that was recorded they pass evenly. */
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

/* As many as there are until something is due. */
static brim_status make_steps(brim_sim_job *job)
{
  bool fails = false;
  double seconds, again;
  BRIM_TRY(pace_of(job, &seconds, &again));
  BRIM_TRY(fail_step(job, seconds, &fails));
  const double time = next_look(job) - brim_scene_now(job->all->scene), left = ceil(time / seconds);
  const int64_t stop = next_stop(job) - job->step;
  const int64_t count = left < 1 ? 1 : left < (double)stop ? (int64_t)left : stop;
  BRIM_TRY(brim_sim_sleep(job, (double)count * seconds));
  commit(job, count, seconds, again);
  return BRIM_OK;
}

static brim_status turn(brim_sim_job *job, bool *done)
{
  BRIM_TRY(after_commit(job));
  *done = job->step >= job->drive->order.steps;
  if (*done) return BRIM_OK;
  BRIM_TRY(look_around(job));
  return make_steps(job);
}

/* What failed is done again after what helps, or nothing does. */
static brim_status recover(brim_sim_job *job, brim_status failure, const char *what)
{
  bool rewound;
  const brim_status status = brim_recover(&job->recovery, failure, what, &rewound);
  if (status == BRIM_OK) job->costs.retries++;
  return status;
}

static brim_status loop(brim_sim_job *job)
{
  char what[64];
  for (bool done = false; !done;) {
    brim_status status = turn(job, &done);
    if (brim_status_is_want(status) && brim_scene_host_over(job->all->scene) == 0) {
      snprintf(what, sizeof what, "step %lld", (long long)job->step + 1);
      done = false;
      status = recover(job, status, what);
    }
    BRIM_TRY(status);
  }
  return BRIM_OK;
}

/* ---- the whole ---- */

static brim_status place_first(brim_sim_job *job)
{
  for (;;) {
    const brim_status status = brim_sim_place(job);
    if (status == BRIM_OK || !brim_drive_asks(job->drive)) return status;
    BRIM_TRY(brim_drive_remake(&job->drive));
    BRIM_TRY(brim_drive_settle(&job->drive));
  }
}

static brim_status train(brim_sim_job *job)
{
  job->resident = job->all->scenario->host.process;
  brim_scene_take(job->all->scene, BRIM_SCENE_HOST, job->resident);
  BRIM_TRY(brim_sim_open(job));
  BRIM_TRY(pause_for(job, job->all->scenario->plan_time));
  BRIM_TRY(brim_planner_look(&job->drive->planner));
  BRIM_TRY(brim_drive_settle(&job->drive));
  BRIM_TRY(place_first(job));
  brim_drive_begin(job->drive);
  job->work = brim_sim_work(job);
  job->recovery = (brim_recovery){.drive = &job->drive, .work = &job->work};
  job->resize = (brim_resize){.drive = &job->drive, .work = &job->work, .asked = brim_scene_now(job->all->scene)};
  job->looked = -INFINITY;
  return loop(job);
}

static enum brim_sim_end end_of(const brim_sim_job *job, brim_status status)
{
  if (status == BRIM_OK) return BRIM_SIM_FINISHED;
  if (job->is_late) return BRIM_SIM_LATE;
  return status == BRIM_ENOMEM_HOST ? BRIM_SIM_KILLED : BRIM_SIM_FAILED;
}

static void report(brim_sim_job *job, brim_status status)
{
  brim_sim_job_result *r = &job->all->out->job[job->index];
  brim_arena *arena = &job->all->out->arena;
  const char *error = status == BRIM_OK ? "" : brim_error_text();
  r->end = end_of(job, status);
  r->status = status;
  r->error = brim_arena_string_n(arena, error, strcspn(error, "\n"));
  if (r->end == BRIM_SIM_KILLED) job->costs.lost_steps += job->step - job->checkpoint_step;
  job->costs.steps = job->step;
  job->costs.steps_all = job->drive ? job->drive->order.steps : 0; /* none: it could not be opened */
  job->costs.wall_seconds = brim_scene_now(job->all->scene) - job->started;
  r->costs = job->costs;
  brim_sim_tell(job, "simulation", brim_sim_end_name(r->end), r->error);
}

void brim_sim_job_work(brim_sim_job *job)
{
  job->started = brim_scene_now(job->all->scene);
  const brim_status status = train(job);
  report(job, status);
  brim_sim_unplace(job);
  brim_scene_give(job->all->scene, BRIM_SCENE_HOST, job->resident + job->garbage);
  brim_scene_settle(job->all->scene);
  brim_drive_close(job->drive);
  if (brim_scene_now(job->all->scene) > job->all->out->end_seconds)
    job->all->out->end_seconds = brim_scene_now(job->all->scene);
}
