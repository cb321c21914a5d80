#include "simulate/simulate.h"

#include <stdlib.h>

#include "base/guard.h"
#include "memory/policies.h"
#include "simulate/job.h"

/* Adds an event that no job caused. */
static void on_world(void *context, const char *name, const char *what)
{
  brim_sim_job no_job = {.all = context, .index = BRIM_SCENE_JOBS_MAX};
  brim_sim_report(&no_job, name, what, "");
}

static void prepare(brim_sim_job *job, brim_sim_case *c, size_t i, brim_config *config)
{
  const brim_scenario *s = c->scenario;
  *job = (brim_sim_job){.all = c,
                        .index = i,
                        .config = config,
                        .plans = &s->model,
                        .failures_left = BRIM_ARENA_NEW(&c->out->arena, int64_t, s->failure_count),
                        .wake = s->job[i].from < s->until ? s->job[i].from : s->until,
                        .evaluated_step = -1,
                        .failed_step = -1};
  for (size_t k = 0; k < s->failure_count; k++) job->failures_left[k] = s->failure[k].times;
  c->out->job[i].name = s->job[i].name;
}

brim_status brim_simulate(const brim_scenario *scenario, brim_config *const *config, brim_real_plans *real,
                          brim_simulation *out)
{
  brim_sim_job *jobs = brim_xcalloc(scenario->job_count, sizeof *jobs);
  brim_sim_case c = {.scenario = scenario,
                     .real = real,
                     .out = out,
                     .work = brim_sim_job_work,
                     .job = jobs,
                     .count = scenario->job_count};
  *out = (brim_simulation){.scenario = scenario, .job_count = scenario->job_count};
  for (size_t i = 0; i < config[0]->choice_count; i++)
    if (config[0]->choice[i].plugin->kind == BRIM_POLICY)
      out->policy[out->policy_count++] = brim_arena_string(&out->arena, config[0]->choice[i].plugin->id);
  for (size_t i = 0; i < c.count; i++) prepare(&jobs[i], &c, i, config[i]);
  c.scene = brim_scene_open(scenario, on_world, &c);
  brim_policy_clock_follow(brim_scene_clock(c.scene));
  const brim_status status = brim_sim_take_turns(&c);
  brim_policy_clock_follow(NULL);
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
