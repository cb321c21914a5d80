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
  brim_real_plans *real; /* NULL: the scenario's model plans */
  brim_scene *scene;
  brim_simulation *out;
  void (*work)(struct brim_sim_job *job); /* all of a job, on its thread */
  struct brim_sim_job *job, *current;     /* current: whose turn it is; NULL: nobody's */
  size_t count;
  pthread_mutex_t lock; /* of whose turn it is */
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
  brim_plugin backend, model; /* stand in for those of the configuration */
  brim_backend_ops backend_ops;
  const brim_scene_model *plans; /* what its plans take */
  bool on_host;                  /* on the host's processors */
  brim_work work;
  brim_loop loop;
  brim_pressure_watch watch; /* of the host's memory */
  int64_t *failures_left;    /* of each of the scenario's */
  size_t look, pressure;     /* the next ones of the scenario */
  int place;                 /* where the arena is */
  uint64_t planned, arena, resident, garbage;
  bool is_placed, was_placed;
  int64_t step, evaluated_step, failed_step;
  double started, looked; /* looked: at the host's memory */
  bool is_late;
  brim_sim_costs costs;
  pthread_t thread;
  pthread_cond_t turn; /* comes: see turns.c */
  double wake;         /* when it goes on */
  bool is_done;
} brim_sim_job;

/* ---- turns.c ---- */
/* [init] Works at all jobs of the case, each from when it is to wake; returns when all are done. ENOMEM_HOST: no thread
 * could be made. */
brim_status brim_sim_take_turns(brim_sim_case *c);
/* [the job's thread] The clock goes on; others have their turns. EINTERRUPTED: the scenario ends first. */
brim_status brim_sim_sleep(brim_sim_job *job, double seconds);

/* ---- env.c: the world ---- */
brim_env brim_sim_env(brim_sim_job *job);
/* An entry of the timeline. */
void brim_sim_tell(brim_sim_job *job, const char *by, const char *choice, const char *reason);

/* ---- stand_in.c: what answers in the place of a drive's plans and plugins ---- */
/* Opens the job's drive, on the device that is chosen. */
brim_status brim_sim_open(brim_sim_job *job);
/* Seconds of a step as the drive plans now; *again: of them for recompute. */
brim_status brim_sim_step_seconds(brim_sim_job *job, double *seconds, double *again);

/* ---- job.c ---- */
/* The whole of it, on its thread. */
void brim_sim_job_work(brim_sim_job *job);
#endif
