/* Training, one step at a time. A step is a transaction: it reads its samples, accumulates gradients, checks the
 * loss, and only then commits the update of the parameters, the state and the cursor. Until then nothing durable
 * changes. */
#ifndef BRIM_TRAIN_TRAINER_H
#define BRIM_TRAIN_TRAINER_H
#include <jansson.h>

#include "base/spread.h"
#include "drive/drive.h"
#include "exec/exec.h"
#include "federate/round.h"
#include "planner/footprint.h"
#include "store/checkpoint.h"

struct brim_samples; /* train/samples.h */
typedef struct brim_trainer brim_trainer;

/* Figures of a dataset part, or in a training record of the steps since the previous one. NAN: not available. */
typedef struct brim_evaluation {
  int32_t task; /* enum brim_task */
  int64_t samples;
  double loss;         /* mean over the part; for tokens over those that count, equally weighted */
  double accuracy;     /* share of right answers; for tokens, of those that count */
  int32_t top_k;       /* 0: off */
  double accuracy_top; /* share of labels among the top_k best answers */
  double f1;           /* macro: see scores.h */
  double mae, mape;    /* of real numbers: mean absolute error, and the same in percent of max(|target|, 1e-7) */
  double rmse, r2;     /* root of the mean squared error; share of the targets' variance explained */
  const char *const *class_names; /* may be NULL */
  int64_t classes;
  const double *confusion; /* [classes, classes]: row = label, column = predicted; owned by the trainer. NULL: not
                              counted, as the task has no classes or too many (BRIM_MANY_CLASSES) */
} brim_evaluation;
/* An evaluation without figures. */
brim_evaluation brim_evaluation_none(void);
/* The perplexity, exp(loss), for tokens; else NAN. */
double brim_evaluation_perplexity(const brim_evaluation *e);

/* [init] Plans, places, initializes the parameters from the seed, and waits for the run's data. The drive must
 * outlive the trainer. EBUDGET, ENOMEM_DEVICE. */
brim_status brim_trainer_open(
    brim_drive *drive,
    brim_trainer *
        *out); /* [init] For evaluation only, without gradients and optimizer state. Places a plan for `count` samples,
                * `batch` at a time, and reads the parameters of a checkpoint, of any optimizer and backend. With
                * `keep_output` the model's output can be read after each batch. EBUDGET, ENOMEM_DEVICE, ELOAD. */
brim_status brim_trainer_open_evaluation(brim_drive *drive, int64_t count, int64_t batch, bool keep_output,
                                         const char *checkpoint, brim_trainer **out);
/* [init] The same to continue texts, or for tokens' losses: see brim_evaluation_wish. checkpoint NULL: the parameters
 * are those of model.weights. */
brim_status brim_trainer_open_generation(brim_drive *drive, const brim_evaluation_wish *wish, const char *checkpoint,
                                         brim_trainer **out);
void brim_trainer_close(brim_trainer *trainer);
const brim_drive *brim_trainer_drive(const brim_trainer *trainer);
/* The trainer's plan; NULL while nothing is placed: see brim_trainer_replan. */
const brim_plan *brim_trainer_plan(const brim_trainer *trainer);
brim_exec *brim_trainer_exec(brim_trainer *trainer);
uint64_t brim_trainer_device_bytes(const brim_trainer *trainer); /* of the arena */
uint64_t brim_trainer_host_bytes(const brim_trainer *trainer);   /* of the loader */
/* The predicted host memory of the process, from before anything was placed; zero for evaluation only. */
const brim_footprint *brim_trainer_footprint(const brim_trainer *trainer);
/* The state at the last commit; the runner keeps its own counts (records, best) in it. */
brim_train_state *brim_trainer_state(brim_trainer *trainer);
/* The result of a federation's last round; owned by the trainer and valid until the next round. */
const brim_round_result *brim_trainer_last_round(const brim_trainer *trainer);
/* [any] The accuracies of a federation's clients over their last training. ENOMEM_HOST. */
brim_status brim_trainer_client_accuracy(const brim_trainer *trainer, brim_spread *out);
/* [any] Describes the assumptions of a federation's simulated world; writes nothing without one. */
void brim_trainer_print_world(const brim_trainer *trainer, brim_text *out);
/* The epsilon of a federation's privacy that is spent after the last committed round, or after the next one. 0 without
 * noise. */
double brim_trainer_epsilon(const brim_trainer *trainer, bool next);
/* Learning rate of the last step. */
double brim_trainer_lr(const brim_trainer *trainer);
/* The factor by which the last step's gradients, as they lie in memory, become the gradients of its mean loss. */
double brim_trainer_gradient_scale(const brim_trainer *trainer);

/* [init] Fills the parameters from the weights that the configuration names (model.weights), if any. Call it before
 * the first step and not after brim_trainer_resume. *record, unless NULL, gets the description of the weights for the
 * run's folder, with hashes of the files; NULL: there are no weights. ELOAD, ECONFIG, ENOMEM_HOST. */
brim_status brim_trainer_load_weights(brim_trainer *trainer, json_t **record);
/* [init] Passes a federation the run's folder, in which it may need files; the string must outlive the trainer. is_new:
 * makes the file of client states, on rank 0, before the other ranks call this. EBUDGET if the disk has too little
 * room; ELOAD, EIO, ENOMEM_HOST. */
brim_status brim_trainer_keep_in(brim_trainer *trainer, const char *folder, bool is_new);
/* [init] Loads parameters, optimizer state and counters from a checkpoint. ELOAD if its model, optimizer or backend
 * precision differs. Call it before the first step. */
brim_status brim_trainer_resume(brim_trainer *trainer, const char *checkpoint);
/* [step] Trains one step and commits it. ENUMERIC if the loss is not finite, naming the step and the first operation
 * that made such a value; nothing is committed. Where the loss is scaled (setup/loss_scale.h) such a step is
 * committed without an update and counted in the state, until lowering the scale no longer helps. With `more` the
 * caller promises to continue with the next step, whatever the result, without reading or writing parameters; an
 * asynchronous device then begins the next step before the host waits for the loss of this one. On failure the step
 * is discarded: the state is that of the last commit, and the next call begins with the samples after it. The
 * parameters are those of the last commit too, unless the update itself failed: see brim_trainer_has_values. */
brim_status brim_trainer_step(brim_trainer *trainer, bool more);
/* [step] Whether the step after the last commit has begun, so that the next call must be brim_trainer_step. */
bool brim_trainer_is_ahead(const brim_trainer *trainer);
/* Loss and accuracy over a whole part; the last batch is exact. EINTERRUPTED if *stop becomes nonzero (may be NULL). */
brim_status brim_trainer_evaluate(brim_trainer *trainer, enum brim_part part, const volatile int *stop,
                                  brim_evaluation *out);
/* [step] For a federation whose samples have classes: the spread over clients of the global model's accuracy on each
 * client's samples, computed in one pass over the training data without augmentation. The same on all ranks.
 * EINTERRUPTED as above; ENOMEM_HOST, and errors of the data and the backend. */
brim_status brim_trainer_evaluate_clients(brim_trainer *trainer, const volatile int *stop, brim_spread *out);
/* [step] The same in the lanes, for clients' personal models (a client without one counts with the global model), or
 * with `finetunes` for the global model after each client has trained it (federate.finetune_epochs). Batches are those
 * of training, so samples that training leaves out do not count. */
brim_status brim_trainer_evaluate_own(brim_trainer *trainer, bool finetunes, const volatile int *stop,
                                      brim_spread *out);
/* Sets the list that the following evaluations of a part fill with the samples that they get most wrong, if the plan
 * keeps their answers; NULL, the default: none. Each evaluation begins a new list. */
void brim_trainer_list_samples(brim_trainer *trainer, struct brim_samples *samples);
/* [step] Returns unneeded memory to the system. Light: freed blocks. Heavy: also memory whose contents can be made
 * again, namely samples decoded ahead and caches of the backend's libraries. Results about recompute are kept: they
 * take some kilobytes, and seconds to compute. */
void brim_trainer_clean(brim_trainer *trainer, enum brim_cleanup cleanup);
/* When a step or an evaluation last failed, before any cleanup: brim_now(). */
double brim_trainer_failed_at(const brim_trainer *trainer);
/* Between two steps, not while the trainer is ahead: copies parameters and optimizer state to a file without a name in
 * `folder`, else to the host's memory, and releases the arena. After that only writing a checkpoint, changing the
 * drive, brim_trainer_replan and brim_trainer_restart are allowed. ENOMEM_HOST: nothing was done. */
brim_status brim_trainer_park(brim_trainer *trainer, const char *folder);
/* Between two steps, not while the trainer is ahead, after the drive was changed (drive.h: cut, moved, another limit)
 * or to release memory. Parks, plans, claims and places anew for the current drive, which may ask the policies, and
 * restores the values. Samples, state and all bits that do not depend on the micro-batch continue unchanged. On failure
 * nothing is placed and the values stay parked: the caller may write a checkpoint, or change the drive and call it
 * again, but must not use anything else of the trainer. ENOMEM_HOST: nothing was done. ENOMEM_DEVICE, EBUDGET,
 * ENODEVICE, EINTERRUPTED: see brim_placement_open. */
brim_status brim_trainer_replan(brim_trainer *trainer, const char *folder);
/* The same with the values of a checkpoint, or of the run's beginning if it is NULL; the current values are
 * discarded. On failure nothing is placed, and it may be called again. Errors as for brim_trainer_replan and
 * brim_trainer_resume. */
brim_status brim_trainer_restart(brim_trainer *trainer, const char *checkpoint);
/* Called while nothing is placed: replaces the drive by `drive`, which was made again (brim_drive_remake), perhaps on
 * another backend with the same real type. */
void brim_trainer_follow(brim_trainer *trainer, brim_drive *drive);
/* Whether the parameters of the last commit exist, on the device or on the host. They do not after a failure during
 * an update: then call brim_trainer_restart. */
bool brim_trainer_has_values(const brim_trainer *trainer);
/* [step] Meets the other ranks; each passes the status of its preceding work; with a status other than OK the
 * thread's error text belongs to it. EPEER if another rank has failed; if that rank lost its parameters, these count
 * as lost too. Each failure must be reported once, so that all ranks learn of it at the same place: see
 * brim_trainer_has_reported. ECOMM: the job is over. */
brim_status brim_trainer_meet(brim_trainer *trainer, enum brim_meeting meeting, brim_status status);
/* Whether the last failure of a trainer function has been reported to the other ranks. */
bool brim_trainer_has_reported(const brim_trainer *trainer);
/* Forgets the last failure; all ranks do so. */
void brim_trainer_clear_failure(brim_trainer *trainer);
/* The result of the last meeting, the same on all ranks. */
const brim_verdict *brim_trainer_verdict(const brim_trainer *trainer);
/* [step] Sets this rank's wishes for the following meetings: of enum brim_wish. */
void brim_trainer_wish(brim_trainer *trainer, uint32_t wishes);
/* Seconds that this rank has waited for others. */
double brim_trainer_waited(const brim_trainer *trainer);
/* Seconds that the training thread has waited for samples; 0 for a federation, whose clients read their own. */
double brim_trainer_loader_waited(const brim_trainer *trainer);
/* [init] Copies rank 0's parameters to all ranks. */
brim_status brim_trainer_broadcast(brim_trainer *trainer);
/* [step] Checks that all ranks have the same parameters. EINTERNAL on all, naming the first parameter that differs,
 * and the rank. ENOMEM_HOST, EPEER: not checked. */
brim_status brim_trainer_compare(brim_trainer *trainer);
/* Writes the state of the last commit to the run's folder, together with all other ranks: EPEER if one of them has
 * failed. ENOMEM_HOST. */
brim_status brim_trainer_checkpoint(brim_trainer *trainer, const char *run_dir, int64_t keep);
#endif
