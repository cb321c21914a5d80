/* What drives a run: its setup with the planner, the dialogue with the policies, and the choice by which its steps are
 * planned now. `brim plan` stops here; `brim train` goes on with a trainer, `brim simulate` with arithmetic. */
#ifndef BRIM_DRIVE_DRIVE_H
#define BRIM_DRIVE_DRIVE_H
#include "decide/decide.h"

typedef struct brim_drive brim_drive;

/* Another world than the real one, with a model of plans in the place of plans, for the life of a drive. */
typedef struct brim_drive_place {
  const brim_env *env;
  const brim_plan_model *model;
  brim_decision_fn listen; /* from the beginning: see brim_policies_listen */
  void *context;
  bool answers_at_once; /* see brim_policies_answer_there */
} brim_drive_place;

struct brim_drive {
  brim_setup *setup;
  brim_planner planner;
  brim_dialogue dialogue;
  const brim_drive_place *place; /* NULL: the real world */
  brim_choice choice; /* resolved: by the configuration, by policies, or what a run that ran out of memory came to;
                       * fp32 while nobody has chosen another precision for `auto` */
  brim_order order;   /* of it */
  bool started;       /* brim_drive_start was called */
  void *held;         /* the device, while a run that has begun changes its plan; NULL: see brim_drive_hold */
};

/* [init] Makes the instances, finds the device, describes the data: enough for plans. The configuration must outlive
 * the drive. As brim_setup_open and brim_setup_finish; of a model that is trained on features, which are computed now
 * if no file has them, also what placing returns. */
brim_status brim_drive_open(const brim_config *config, const brim_setup_options *options, brim_drive **out);
/* The same in another world, which what takes the drive's place is in too. */
brim_status brim_drive_open_in(const brim_drive_place *place, const brim_config *config,
                               const brim_setup_options *options, brim_drive **out);
void brim_drive_close(brim_drive *drive);

/* ---- what is chosen ---- */

/* [plan] Lets the policies choose the plan of training. They may ask for another configuration: then *drive is another,
 * too, also on failure. */
brim_status brim_drive_settle(brim_drive **drive);
/* [init] A plan did not get its memory: as brim_decide_after_oom, and the drive's choice is what it comes to. */
brim_status brim_drive_after_oom(brim_drive *drive, brim_status failure, uint64_t needed_bytes);
/* Does something ask for another configuration? */
bool brim_drive_asks(const brim_drive *drive);
/* [init] Opens *drive anew with what is asked for; its plans must be freed. */
brim_status brim_drive_remake(brim_drive **drive);
/* Training goes by this choice from now on; the effective batch stays. */
void brim_drive_go(brim_drive *drive, const brim_choice *choice);
/* The same in micro-batches of `batch` samples, or of all that the rank has of a step. */
void brim_drive_cut(brim_drive *drive, int64_t batch);
/* Samples that are evaluated at a time. */
int64_t brim_drive_eval_batch(const brim_drive *drive);
/* Samples are dealt to the ranks by these weights (see brim_dealing) from now on, which are the setup's then. How a
 * step may be cut is another question after it: brim_drive_settle. */
void brim_drive_deal(brim_drive *drive, int64_t *weight);

/* ---- its life ---- */

/* [init] Right after the first plan, before anything is placed: brim_planner_measure, and then a thread begins to read
 * the data, if it is to be read. Again: nothing. */
brim_status brim_drive_start(brim_drive *drive);
/* The run has begun: its precision and model are what they are, and nothing is foreseen any more. */
void brim_drive_begin(brim_drive *drive);
/* Seconds since some moment, by the world that it is in. */
double brim_drive_now(const brim_drive *drive);

/* ---- its device ---- */

/* [init] A device for a plan of so many bytes: the one it was made for, or another like it, which has room for it and
 * which nobody who came before is to have; waits for it if wait_for_gpu says so. *claim: held until the plan is placed;
 * NULL where nobody shares the device, else for env->release. For another device than the drive's, brim_drive_move and
 * a new plan. ENODEVICE, ENOMEM_DEVICE, EINTERRUPTED: see brim_claim_take. */
brim_status brim_drive_claim(brim_drive *drive, uint64_t peak_bytes, void **claim, int *device);
/* [step] Nobody else is served on the run's device until brim_drive_let_go: for a run that gives its arena back to
 * place another. `alone`: not if anybody waits for it. False, with the thread's error text, if it is not held, so that
 * the plan must be claimed as a new run's. True where nobody shares the device, and if it is held already. */
bool brim_drive_hold(brim_drive *drive, bool alone);
void brim_drive_let_go(brim_drive *drive);
/* [init] Plans of before must be freed: they are of another device. */
brim_status brim_drive_move(brim_drive *drive, int device);
void brim_drive_tell_device(const brim_drive *drive); /* which of several, and why */
#endif
