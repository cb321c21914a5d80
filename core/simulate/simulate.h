/* Simulates policies in a scenario: their decisions, and the results. Nothing is trained or allocated: the drive,
 * budget and ladder of real runs ask the same questions in the same order, and a scripted environment replaces
 * devices, planner, queue and host. The same words give the same results. */
#ifndef BRIM_SIMULATE_SIMULATE_H
#define BRIM_SIMULATE_SIMULATE_H
#include "config/config.h"
#include "simulate/scenario.h"
#include "simulate/world.h"

/* Plans of a real model and data, which replace a scenario's model. */
typedef struct brim_real_plans brim_real_plans;
/* [init] Opens plans for a configuration, which must outlive them: reads the data's description; times nothing. Errors
 * as for brim_drive_open. */
brim_status brim_real_plans_open(const brim_config *config, brim_real_plans **out);
void brim_real_plans_close(brim_real_plans *plans); /* may be NULL */

/* An event. */
typedef struct brim_simulated {
  double time; /* seconds from the beginning */
  size_t job;  /* index; BRIM_SCENE_JOBS_MAX: no job caused it */
  int64_t step;
  const char *by, *choice, *reason; /* "policy.robust", "cuda:1", ""; without a job: name, event, "" */
} brim_simulated;

enum brim_sim_end { BRIM_SIM_FINISHED, BRIM_SIM_FAILED, BRIM_SIM_KILLED, BRIM_SIM_LATE };
const char *brim_sim_end_name(enum brim_sim_end end); /* "finished" */

/* The costs and results of a job. */
typedef struct brim_sim_costs {
  double wall_seconds;     /* from its start to its end */
  double waiting_seconds;  /* in line */
  double training_seconds; /* in steps that count */
  double redone_seconds;   /* in steps that failed or were lost */
  double again_seconds;    /* part of the training: recompute */
  double pausing_seconds;  /* for plans, checkpoints and evaluations */
  int64_t steps, steps_all, samples;
  int64_t lost_steps;        /* repeated from a checkpoint, or lost with the process */
  int64_t ooms, retries;     /* plans or steps that ran out of memory; work that was repeated */
  int64_t plan_changes;      /* after the first placed one */
  int64_t cleanups, decided; /* reported decisions */
  uint64_t peak_bytes;       /* of the largest placed plan */
  int64_t micro_batch;       /* at the end */
  char device[64];           /* at the end; "": never placed */
} brim_sim_costs;

typedef struct brim_sim_job_result {
  const char *name;
  enum brim_sim_end end;
  brim_status status;
  const char *error; /* first line; "": no error */
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
  int64_t questions;                    /* asked of policies */
  const char *policy[BRIM_CHOICES_MAX]; /* ids, in order */
  size_t policy_count;
} brim_simulation;

/* [init] Runs the simulation. `config`: one per job; the caller keeps them until the result is released, and they are
 * changed. `real`: plans that replace the scenario's model; may be NULL. The ends of jobs are results, not statuses. */
brim_status brim_simulate(const brim_scenario *scenario, brim_config *const *config, brim_real_plans *real,
                          brim_simulation *out);
void brim_simulation_release(brim_simulation *simulation);
#endif
