/* A job of a simulation. Internal to core/simulate. */
#ifndef BRIM_SIMULATE_JOB_H
#define BRIM_SIMULATE_JOB_H
#include <pthread.h>

#include "drive/drive.h"
#include "drive/loop.h"
#include "memory/pressure.h"
#include "simulate/simulate.h"
#include "simulate/world.h"

struct brim_sim_job;

typedef struct brim_sim_case {
  const brim_scenario *scenario;
  brim_real_plans *real; /* NULL: plans come from the scenario's model */
  brim_scene *scene;
  brim_simulation *out;
  void (*work)(struct brim_sim_job *job); /* the function that runs the whole job, on the job's thread */
  struct brim_sim_job *job, *current;     /* current: the job whose turn it is; may be NULL */
  size_t count;
  pthread_mutex_t lock; /* guards the turn */
} brim_sim_case;

typedef struct brim_sim_job {
  brim_sim_case *all;
  size_t index;
  brim_config *config; /* the caller's */
  brim_drive *drive;
  brim_setup_maker maker;
  brim_plan_model model_of_plans;
  brim_env env;
  brim_drive_place drive_place;
  brim_plugin backend, model; /* they replace those of the configuration */
  brim_backend_ops backend_ops;
  const brim_scene_model *plans; /* the scenario's model of plans */
  bool on_host;                  /* on the host's processors */
  brim_work work;
  brim_loop loop;
  brim_pressure_watch watch; /* watches the host's memory */
  int64_t *failures_left;    /* how often each of the scenario's failures will still occur */
  size_t look, pressure;     /* indices of the scenario's next entries */
  int place;                 /* place of the arena */
  uint64_t planned, arena, resident, garbage;
  bool is_placed, was_placed;
  int64_t step, evaluated_step, failed_step;
  double started, looked; /* started: time of its start; looked: time of the last look at the host's memory */
  bool is_late;
  brim_sim_costs costs;
  pthread_t thread;
  pthread_cond_t turn; /* signals that it is the job's turn: see turns.c */
  double wake;         /* time at which the job continues */
  bool is_done;
} brim_sim_job;

/* ---- turns.c ---- */
/* [init] Runs all jobs of the case, each from its wake time on; returns when all have ended. ENOMEM_HOST: a thread
 * could not be started. */
brim_status brim_sim_take_turns(brim_sim_case *c);
/* [the job's thread] Lets time pass for the job, while other jobs get their turns. EINTERRUPTED: the scenario ends
 * earlier. */
brim_status brim_sim_sleep(brim_sim_job *job, double seconds);

/* ---- env.c: the environment ---- */
brim_env brim_sim_env(brim_sim_job *job);
/* Adds an entry to the timeline. */
void brim_sim_report(brim_sim_job *job, const char *by, const char *choice, const char *reason);

/* ---- stand_in.c: replacements for the plans and plugins of a drive ---- */
/* Opens the job's drive on the chosen device. */
brim_status brim_sim_open(brim_sim_job *job);
/* Seconds of a step with the drive's current plan; *again: the part of them for recompute. */
brim_status brim_sim_step_seconds(brim_sim_job *job, double *seconds, double *again);

/* ---- job.c ---- */
/* Runs the whole job, on the job's thread. */
void brim_sim_job_work(brim_sim_job *job);
#endif
