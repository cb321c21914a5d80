/* Simulates the decisions of policies in a scenario, and their results. brim trains and allocates nothing: the code of
 * real runs asks the policies the same questions in the same order, and a scripted environment replaces devices,
 * planner, queue and host. The same command gives the same results. */
#ifndef BRIM_SIMULATE_SIMULATE_H
#define BRIM_SIMULATE_SIMULATE_H
#include "config/config.h"
#include "simulate/scenario.h"
#include "simulate/world.h"

/* Plans of a real model and data, which replace a scenario's model. */
typedef struct brim_real_plans brim_real_plans;
/* [init] Opens plans for a configuration, which must outlive them: reads the data's description, and does not time
 * kernels. Errors as for brim_drive_open. */
brim_status brim_real_plans_open(const brim_config *config, brim_real_plans **out);
void brim_real_plans_close(brim_real_plans *plans); /* may be NULL */

/* An event. */
typedef struct brim_simulated {
  double time; /* seconds from the beginning */
  size_t job;  /* index of the job; BRIM_SCENE_JOBS_MAX: no job caused the event */
  int64_t step;
  /* by: "policy.robust", choice: "cuda:1", reason: ""; without a job: name, event, "". */
  const char *by, *choice, *reason;
} brim_simulated;

enum brim_sim_end { BRIM_SIM_FINISHED, BRIM_SIM_FAILED, BRIM_SIM_KILLED, BRIM_SIM_LATE };
const char *brim_sim_end_name(enum brim_sim_end end); /* "finished" */

/* The costs and results of a job. */
typedef struct brim_sim_costs {
  double wall_seconds;     /* seconds from the job's start to its end */
  double waiting_seconds;  /* in line */
  double training_seconds; /* in steps that count */
  double redone_seconds;   /* time in steps that failed or were lost */
  double again_seconds;    /* the part of the training that recompute takes */
  double pausing_seconds;  /* time for plans, checkpoints and evaluations */
  int64_t steps, steps_all, samples;
  int64_t lost_steps;        /* steps repeated from a checkpoint, or lost with the process */
  int64_t ooms, retries;     /* ooms: plans or steps that ran out of memory; retries: repetitions of work */
  int64_t plan_changes;      /* changes after the first placed plan */
  int64_t cleanups, decided; /* reported decisions */
  uint64_t peak_bytes;       /* peak of the largest placed plan */
  int64_t micro_batch;       /* micro-batch at the end */
  char device[64];           /* device at the end; "": the job was never placed */
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
  double end_seconds;                   /* time at which the last job ended */
  int64_t questions;                    /* asked of policies */
  const char *policy[BRIM_CHOICES_MAX]; /* ids, in order */
  size_t policy_count;
} brim_simulation;

/* [init] Runs the simulation. `config`: one per job; this changes them, and the caller must keep them until the result
 * is released. `real`: plans that replace the scenario's model; may be NULL. How a job ends is part of the result, not
 * a status. */
brim_status brim_simulate(const brim_scenario *scenario, brim_config *const *config, brim_real_plans *real,
                          brim_simulation *out);
void brim_simulation_release(brim_simulation *simulation);
#endif
