/* Training, a step at a time. A step is a transaction: it reads its samples, accumulates gradients, looks at the loss,
 * and only then commits: the update of the parameters, the state, the cursor. Until then nothing durable changes. */
#ifndef BRIM_TRAIN_TRAINER_H
#define BRIM_TRAIN_TRAINER_H
#include <jansson.h>

#include "base/spread.h"
#include "drive/drive.h"
#include "exec/exec.h"
#include "federate/round.h"
#include "planner/footprint.h"
#include "store/checkpoint.h"

typedef struct brim_trainer brim_trainer;

/* Figures of data, or in a training record of the steps since the one before. NAN: there is none. */
typedef struct brim_evaluation {
  int32_t task; /* enum brim_task */
  int64_t samples;
  double loss;                    /* mean over the part; of tokens over those that count, each by itself */
  double accuracy;                /* share of right answers; of tokens of those that count */
  int32_t top_k;                  /* 0: off */
  double accuracy_top;            /* share of labels among the top_k best answers */
  double f1;                      /* macro: see scores.h */
  double mae, mape;               /* of real numbers: mean absolute error, and in percent of max(|target|, 1e-7) */
  double rmse, r2;                /* root of the mean squared error; share of the targets' variance explained */
  const char *const *class_names; /* NULL: none */
  int64_t classes;
  const double *confusion; /* [classes, classes]: row = label, column = predicted; owned by the trainer. NULL: not
                            * counted, because these are no classes, or too many (BRIM_MANY_CLASSES) */
} brim_evaluation;
/* One without figures. */
brim_evaluation brim_evaluation_none(void);
/* exp(loss), of tokens; else NAN. */
double brim_evaluation_perplexity(const brim_evaluation *e);

/* [init] Plans, places, initialises the parameters from the seed, and waits for the run's data. The drive must
 * outlive the trainer. EBUDGET, ENOMEM_DEVICE. */
brim_status brim_trainer_open(brim_drive *drive, brim_trainer **out);
/* [init] For evaluation only: no gradients, no optimizer state. Places what `count` samples, `batch` at a time, take
 * and reads the parameters of a checkpoint, of whichever optimizer and backend. With `keep_output` the model's output
 * can be read after each batch. EBUDGET, ENOMEM_DEVICE, ELOAD. */
brim_status brim_trainer_open_evaluation(brim_drive *drive, int64_t count, int64_t batch, bool keep_output,
                                         const char *checkpoint, brim_trainer **out);
void brim_trainer_close(brim_trainer *trainer);
const brim_drive *brim_trainer_drive(const brim_trainer *trainer);
/* NULL while nothing is placed: see brim_trainer_replan. */
const brim_plan *brim_trainer_plan(const brim_trainer *trainer);
brim_exec *brim_trainer_exec(brim_trainer *trainer);
uint64_t brim_trainer_device_bytes(const brim_trainer *trainer); /* of the arena */
uint64_t brim_trainer_host_bytes(const brim_trainer *trainer);   /* of the loader */
/* What the process was predicted to take of the host, before anything was placed; zero in evaluation only. */
const brim_footprint *brim_trainer_footprint(const brim_trainer *trainer);
/* The state at the last commit; the runner keeps its own counts (records, best) in it. */
brim_train_state *brim_trainer_state(brim_trainer *trainer);
/* What came of the last round of a federation; of the trainer's, until the next. */
const brim_round_result *brim_trainer_last_round(const brim_trainer *trainer);
/* [any] What a federation's simulated world reckons with; without one nothing. */
void brim_trainer_tell_world(const brim_trainer *trainer, brim_text *out);
/* Learning rate of the last step. */
double brim_trainer_lr(const brim_trainer *trainer);

/* [init] Fills the parameters from the weights that the configuration names (model.weights); without any, nothing.
 * Before the first step, not after brim_trainer_resume. *record, unless NULL, gets what the run's folder is to keep of
 * it, with hashes of the files; NULL: there are no weights. ELOAD, ECONFIG, ENOMEM_HOST. */
brim_status brim_trainer_load_weights(brim_trainer *trainer, json_t **record);
/* [init] Takes parameters, optimizer state and counters from a checkpoint. ELOAD if it is of another model,
 * optimizer or backend's precision. Before the first step. */
brim_status brim_trainer_resume(brim_trainer *trainer, const char *checkpoint);
/* [step] Trains one step and commits it. ENUMERIC if the loss is not finite: names the step and the first operation
 * that made such a value; nothing is committed. Where the loss is scaled (setup/loss_scale.h) such a step is
 * committed without an update, and counted in the state, until it no longer helps to lower the scale. With `more` the
 * caller promises to go straight on to the next step, whatever this one gives, without reading or writing parameters:
 * then a device that can has the next step begun before the host waits for the loss of this one. On failure the step is
 * discarded: the state is that of the last commit, and the next call begins with the samples behind it. So are the
 * parameters, unless the update itself failed: see brim_trainer_has_values. */
brim_status brim_trainer_step(brim_trainer *trainer, bool more);
/* [step] Has the step after the last commit been begun, so that the next call must be brim_trainer_step? */
bool brim_trainer_is_ahead(const brim_trainer *trainer);
/* Loss and accuracy over a whole part; the last batch is exact. EINTERRUPTED if *stop becomes nonzero (may be NULL). */
brim_status brim_trainer_evaluate(brim_trainer *trainer, enum brim_part part, const volatile int *stop,
                                  brim_evaluation *out);
/* [step] Of a federation whose samples have classes: how the accuracy of the global model on each client's samples is
 * spread over the clients, by one pass over the training data. Samples are plain, as in an evaluation. The same on all
 * ranks. EINTERRUPTED as above; ENOMEM_HOST, and what the data and the backend say. */
brim_status brim_trainer_evaluate_clients(brim_trainer *trainer, const volatile int *stop, brim_spread *out);
/* [step] Gives memory back to the system that is not needed now: light, what was freed; heavy, also what can be made
 * again: samples decoded ahead, what the backend's libraries keep. What is known about recompute stays: some
 * kilobytes, and seconds to find out. */
void brim_trainer_clean(brim_trainer *trainer, enum brim_cleanup cleanup);
/* When a step or an evaluation failed last, before anything was cleaned up: brim_now(). */
double brim_trainer_failed_at(const brim_trainer *trainer);
/* Between two steps, not while the trainer is ahead: takes parameters and optimizer state to the host, and gives the
 * arena back. Then a checkpoint can be written, the drive be changed, and brim_trainer_replan or brim_trainer_restart
 * be called, but nothing else of the trainer be used. ENOMEM_HOST: nothing was done. */
brim_status brim_trainer_park(brim_trainer *trainer);
/* Between two steps, not while the trainer is ahead: the drive was changed (drive.h: cut, moved, another limit), or
 * memory is to be given to others. Takes parameters and optimizer state to the host, gives the arena back, plans,
 * claims and places anew as the drive is now, which may ask the policies, and puts the values back. Samples, state
 * and all bits that do not depend on the micro-batch go on. On failure nothing is placed and the values stay on the
 * host: it may be called again after another change, and a checkpoint can be written meanwhile, but nothing else of the
 * trainer be used. ENOMEM_HOST: nothing was done. ENOMEM_DEVICE, EBUDGET, ENODEVICE, EINTERRUPTED: see
 * brim_placement_open. */
brim_status brim_trainer_replan(brim_trainer *trainer);
/* The same with the values of a checkpoint, or where that is NULL of the run's first step, whatever became of those
 * there were. On failure nothing is placed, and it may be called again. As brim_trainer_replan and brim_trainer_resume.
 */
brim_status brim_trainer_restart(brim_trainer *trainer, const char *checkpoint);
/* While nothing is placed: `drive` is in the place of the one there was, which was made again (brim_drive_remake),
 * perhaps on another backend of the same real type. */
void brim_trainer_follow(brim_trainer *trainer, brim_drive *drive);
/* Are the parameters of the last commit there, on the device or on the host? Not after a failure in the middle of an
 * update: then brim_trainer_restart. */
bool brim_trainer_has_values(const brim_trainer *trainer);
/* [step] All ranks come together, each with what came of the work before; `status`, if that is not OK, with the
 * thread's error text. If another rank has failed: EPEER, and if its parameters are lost so are these. A failure has to
 * be told once, so that all know of it at the same place: see brim_trainer_has_told. ECOMM: the job is over. */
brim_status brim_trainer_meet(brim_trainer *trainer, enum brim_meeting meeting, brim_status status);
/* Was the last failure of a function of the trainer told to the other ranks? */
bool brim_trainer_has_told(const brim_trainer *trainer);
/* What failed last is left as it is, by all ranks: it is no failure any more. */
void brim_trainer_forgive(brim_trainer *trainer);
/* What was said at the last meeting, the same to all. */
const brim_verdict *brim_trainer_verdict(const brim_trainer *trainer);
/* [step] What this rank wishes at the meetings from now on: of enum brim_wish. */
void brim_trainer_wish(brim_trainer *trainer, uint32_t wishes);
/* Seconds that this rank has spent waiting for others. */
double brim_trainer_waited(const brim_trainer *trainer);
/* [init] All ranks get rank 0's parameters. */
brim_status brim_trainer_broadcast(brim_trainer *trainer);
/* [step] Are the parameters the same on all ranks? Else EINTERNAL on all, naming the first that is not, and the rank.
 * ENOMEM_HOST, EPEER: it was not looked at. */
brim_status brim_trainer_compare(brim_trainer *trainer);
/* Writes the state at the last commit to the run's folder, with all other ranks, which come together for it: EPEER if
 * one of them has failed. ENOMEM_HOST. */
brim_status brim_trainer_checkpoint(brim_trainer *trainer, const char *run_dir, int64_t keep);
#endif
