/* The drive of a run: its setup and planner, the dialogue with the policies, and the current choice of plan. `brim
 * plan` stops here; `brim train` continues with a trainer, `brim simulate` with arithmetic. */
#ifndef BRIM_DRIVE_DRIVE_H
#define BRIM_DRIVE_DRIVE_H
#include "decide/decide.h"

typedef struct brim_drive brim_drive;

/* A simulated world, which models plans instead of making them. Must outlive the drive. */
typedef struct brim_drive_place {
  const brim_env *env;
  const brim_plan_model *model;
  brim_decision_fn listen; /* called from the beginning: see brim_policies_listen */
  void *context;
  bool answers_at_once; /* see brim_policies_answer_there */
} brim_drive_place;

struct brim_drive {
  brim_setup *setup;
  brim_planner planner;
  brim_dialogue dialogue;
  const brim_drive_place *place; /* NULL: the real world */
  brim_choice choice;            /* from the configuration, from policies, or from recovery when memory ran out */
  brim_order order;              /* order of the samples under this choice */
  bool started;                  /* brim_drive_start was called */
  void *held; /* the hold on the device while a started run changes its plan; NULL: see brim_drive_hold */
};

/* [init] Makes the instances, finds the device and describes the data: enough for plans. The configuration must outlive
 * the drive. Returns the statuses of brim_setup_open and brim_setup_finish; for a model that is trained on features,
 * which this computes if no file has them, also the statuses of placing. */
brim_status brim_drive_open(const brim_config *config, const brim_setup_options *options, brim_drive **out);
/* Opens a drive in a simulated world. Drives that replace this one stay in that world. [init] */
brim_status brim_drive_open_in(const brim_drive_place *place, const brim_config *config,
                               const brim_setup_options *options, brim_drive **out);
void brim_drive_close(brim_drive *drive);

/* ---- choices ---- */

/* [plan] Lets the policies choose the training plan. If they request another configuration, replaces *drive, also on
 * failure. */
brim_status brim_drive_settle(brim_drive **drive);
/* [init] Handles a plan that got no memory, as brim_decide_after_oom does; the answer becomes the drive's choice. */
brim_status brim_drive_after_oom(brim_drive *drive, brim_status failure, uint64_t needed_bytes);
/* Whether a policy has requested another configuration. */
bool brim_drive_asks(const brim_drive *drive);
/* [init] Reopens *drive with the requested configuration; its plans must be freed before. */
brim_status brim_drive_remake(brim_drive **drive);
/* Makes training use this choice from now on; the effective batch does not change. */
void brim_drive_go(brim_drive *drive, const brim_choice *choice);
/* Makes training use micro-batches of `batch` samples, or of the rank's whole share of a step if that is smaller. */
void brim_drive_cut(brim_drive *drive, int64_t batch);
/* The number of samples in a batch of evaluation. */
int64_t brim_drive_eval_batch(const brim_drive *drive);
/* From now on, divides samples among the ranks by these weights (see brim_distribution), which the setup owns from here
 * on. The possible micro-batches may change: call brim_drive_settle again. */
void brim_drive_distribute(brim_drive *drive, int64_t *weight);

/* ---- life cycle ---- */

/* [init] Call right after the first plan, before anything is placed: calls brim_planner_measure, then starts a thread
 * that reads the data, unless the setup reads none. Later calls do nothing. */
brim_status brim_drive_start(brim_drive *drive);
/* Marks that the run has started: its precision and model are fixed, and brim predicts nothing more. */
void brim_drive_begin(brim_drive *drive);
/* Seconds since an arbitrary start, by the clock of the drive's world. */
double brim_drive_now(const brim_drive *drive);

/* ---- the device ---- */

/* [init] Finds a device for a plan of `peak_bytes`: the one it was made for, or one like it, that has room and is not
 * reserved for an earlier process in the queue. If wait_for_gpu is set, waits for such a device. *claim: hold it until
 * the plan is placed, then pass it to env->release; NULL if the device is not shared. If *device is not the drive's
 * device, call brim_drive_move and make a new plan. ENODEVICE, ENOMEM_DEVICE, EINTERRUPTED: see brim_claim_take. */
brim_status brim_drive_claim(brim_drive *drive, uint64_t peak_bytes, void **claim, int *device);
/* [step] Blocks other processes from the run's device until brim_drive_end_hold, so that a run can give back its arena
 * and place another. `alone`: only if no process waits for the device. Returns true also if the device is not shared or
 * already held. Returns false, with the thread's error text, if the device could not be held; the run must then claim
 * the device like a new run. */
bool brim_drive_hold(brim_drive *drive, bool alone);
void brim_drive_end_hold(brim_drive *drive);
/* [init] Selects another device. Existing plans must be freed first, as they belong to the old one. */
brim_status brim_drive_move(brim_drive *drive, int device);
void brim_drive_log_device(const brim_drive *drive); /* logs which of several devices was chosen, and the reason */
#endif
