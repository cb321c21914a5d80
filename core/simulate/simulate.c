#include "simulate/simulate.h"

#include <stdlib.h>
#include <string.h>

#include "base/guard.h"
#include "memory/policies.h"
#include "simulate/job.h"

const char *brim_sim_end_name(enum brim_sim_end end)
{
  static const char *const names[] = {[BRIM_SIM_FINISHED] = "finished",
                                      [BRIM_SIM_FAILED] = "failed",
                                      [BRIM_SIM_KILLED] = "killed",
                                      [BRIM_SIM_LATE] = "not done"};
  return names[end];
}

/* Of no job's doing. */
static void on_world(void *context, const char *who, const char *what)
{
  const brim_sim_case *c = context;
  brim_sim_job nobody = {.all = (brim_sim_case *)(uintptr_t)c, .index = BRIM_SCENE_JOBS_MAX};
  brim_sim_tell(&nobody, who, what, "");
}

static void work(void *context, size_t job)
{
  const brim_sim_case *c = context;
  brim_sim_job_work(&c->job[job]);
  brim_guard_go_on();
}

static void advance(void *context, double to)
{
  const brim_sim_case *c = context;
  brim_scene_advance(c->scene, to);
}

static void list_policies(const brim_config *config, brim_simulation *out)
{
  for (size_t i = 0; i < config->choice_count; i++)
    if (config->choice[i].plugin->kind == BRIM_POLICY)
      out->policy[out->policy_count++] = brim_arena_string(&out->arena, config->choice[i].plugin->id);
}

static void prepare(brim_sim_case *c, size_t i, brim_config *config)
{
  const brim_scenario *s = c->scenario;
  brim_sim_job *job = &c->job[i];
  *job = (brim_sim_job){
      .all = c, .index = i, .config = config, .plans = &s->model, .evaluated_step = -1, .failed_step = -1};
  job->failures_left = brim_xcalloc(s->failure_count + 1, sizeof *job->failures_left);
  for (size_t k = 0; k < s->failure_count; k++) job->failures_left[k] = s->failure[k].times;
  c->out->job[i].name = s->job[i].name;
}

static brim_status run(brim_sim_case *c, brim_config *const *config)
{
  double from[BRIM_SCENE_JOBS_MAX];
  for (size_t i = 0; i < c->count; i++) {
    prepare(c, i, config[i]);
    from[i] = c->scenario->job[i].from < c->scenario->until ? c->scenario->job[i].from : c->scenario->until;
  }
  brim_policy_clock_follow(brim_scene_clock(c->scene));
  const brim_status status = brim_turns_run(&c->turns, c->count, from, work, advance, c);
  brim_policy_clock_follow(NULL);
  for (size_t i = 0; i < c->count; i++) free(c->job[i].failures_left);
  return status;
}

brim_status brim_simulate(const brim_scenario *scenario, brim_config *const *config, brim_real_plans *real,
                          brim_simulation *out)
{
  brim_sim_job *jobs = brim_xcalloc(scenario->job_count, sizeof *jobs);
  brim_sim_case c = {.scenario = scenario, .real = real, .out = out, .job = jobs, .count = scenario->job_count};
  *out = (brim_simulation){.scenario = scenario, .job_count = scenario->job_count};
  list_policies(config[0], out);
  c.scene = brim_scene_open(scenario, on_world, &c);
  const brim_status status = run(&c, config);
  out->others = brim_scene_others_of(c.scene);
  brim_scene_close(c.scene);
  free(jobs);
  return status;
}

void brim_simulation_release(brim_simulation *s)
{
  free(s->event);
  brim_arena_release(&s->arena);
  *s = (brim_simulation){0};
}
