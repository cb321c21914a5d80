/* Policies in a scenario: what they decide, and what comes of it. Nothing is trained and nothing allocated: the same
 * drive, budget and ladder ask the same questions in the same order as in a run, and a scripted world answers in the
 * place of devices, planner, queue and host. The same words give the same results. */
#ifndef BRIM_SIMULATE_SIMULATE_H
#define BRIM_SIMULATE_SIMULATE_H
#include "config/config.h"
#include "simulate/scenario.h"
#include "simulate/world.h"

/* Plans of a real model and data, in the place of a scenario's model of them. */
typedef struct brim_real_plans brim_real_plans;
/* [init] Of a configuration, which must outlive it: reads what its data are like, and nothing is timed. Those of
 * brim_drive_open. */
brim_status brim_real_plans_open(const brim_config *config, brim_real_plans **out);
void brim_real_plans_close(brim_real_plans *plans); /* NULL: nothing */

/* Something that happened. */
typedef struct brim_simulated {
  double time; /* seconds from the beginning */
  size_t job;  /* index; BRIM_SCENE_JOBS_MAX: none's doing */
  int64_t step;
  const char *by, *choice, *reason; /* "policy.robust", "cuda:1", ""; of no job's doing: who, what, "" */
} brim_simulated;

enum brim_sim_end { BRIM_SIM_FINISHED, BRIM_SIM_FAILED, BRIM_SIM_KILLED, BRIM_SIM_LATE };
const char *brim_sim_end_name(enum brim_sim_end end); /* "finished" */

/* What a job has cost, and has come to. */
typedef struct brim_sim_costs {
  double wall_seconds;     /* from its start to its end */
  double waiting_seconds;  /* in line */
  double training_seconds; /* in steps that count */
  double redone_seconds;   /* in steps that failed, or were lost */
  double again_seconds;    /* of the training: what recompute does again */
  double pausing_seconds;  /* for plans, checkpoints and evaluations */
  int64_t steps, steps_all, samples;
  int64_t lost_steps;        /* that were made again from a checkpoint, or are lost with the process */
  int64_t ooms, retries;     /* plans or steps that did not get their memory; what was done again */
  int64_t plan_changes;      /* after the first that was placed */
  int64_t cleanups, decided; /* decisions that were told */
  uint64_t peak_bytes;       /* of the largest plan that was placed */
  int64_t micro_batch;       /* at the end */
  char device[64];           /* likewise; "": never placed */
} brim_sim_costs;

typedef struct brim_sim_job_result {
  const char *name;
  enum brim_sim_end end;
  brim_status status;
  const char *error; /* first line; "": none */
  brim_sim_costs costs;
} brim_sim_job_result;

typedef struct brim_simulation {
  brim_arena arena;
  const brim_scenario *scenario;
  brim_simulated *event;
  size_t event_count, event_room;
  brim_sim_job_result job[BRIM_SCENE_JOBS_MAX];
  size_t job_count;
  brim_scene_others others;
  double end_seconds;                   /* when the last job ended */
  int64_t questions;                    /* that policies were asked */
  const char *policy[BRIM_CHOICES_MAX]; /* ids, in their order */
  size_t policy_count;
} brim_simulation;

/* [init] Runs it. `config`: one for each job, which the caller keeps until the result is released; they are changed.
 * `real`: the plans, in the place of the scenario's model; NULL: none. What becomes of the jobs is a result, not
 * a status. */
brim_status brim_simulate(const brim_scenario *scenario, brim_config *const *config, brim_real_plans *real,
                          brim_simulation *out);
void brim_simulation_release(brim_simulation *simulation);
#endif
