/* Training, one step at a time. A step is a transaction: it reads its samples, accumulates gradients, checks the loss,
 * and only then updates the parameters, the state and the position in the data. Until then nothing durable changes. */
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

/* Figures of a part of the data or, in a training record, of the steps since the previous record. NAN: not
 * available. */
typedef struct brim_evaluation {
  int32_t task; /* enum brim_task */
  int64_t samples;
  double loss;         /* mean over the part; for tokens over those that count, with equal weights */
  double accuracy;     /* fraction of correct answers; for tokens, of those that count */
  int32_t top_k;       /* 0: off */
  double accuracy_top; /* fraction of labels among the top_k best answers */
  double f1;           /* macro: see scores.h */
  double mae, mape;    /* for real numbers: mean absolute error, and the same in percent of max(|target|, 1e-7) */
  double rmse, r2;     /* root of the mean squared error; fraction of the targets' variance that the model explains */
  const char *const *class_names; /* may be NULL */
  int64_t classes;
  const double *confusion; /* [classes, classes]: row = label, column = predicted; owned by the trainer. NULL: not
                              counted, because the task has no classes or too many (BRIM_MANY_CLASSES) */
} brim_evaluation;
/* An evaluation without figures. */
brim_evaluation brim_evaluation_none(void);
/* The perplexity, exp(loss), for tokens; else NAN. */
double brim_evaluation_perplexity(const brim_evaluation *e);

/* [init] Plans training, places the plan, initializes the parameters from the seed, and waits for the run's data. The
 * drive must outlive the trainer. EBUDGET, ENOMEM_DEVICE. */
brim_status brim_trainer_open(
    brim_drive *drive,
    brim_trainer **out); /* [init] Opens a trainer that can only evaluate, without gradients and optimizer state. Places
                            a plan for `count` samples, `batch` at a time, and reads the parameters of a checkpoint,
                            which any optimizer and backend may have made. With `keep_output` the model's output can be
                            read after each batch. EBUDGET, ENOMEM_DEVICE, ELOAD. */
brim_status brim_trainer_open_evaluation(brim_drive *drive, int64_t count, int64_t batch, bool keep_output,
                                         const char *checkpoint, brim_trainer **out);
/* [init] The same for continuing texts, or for tokens' losses: see brim_evaluation_wish. checkpoint NULL: uses the
 * parameters of model.weights. */
brim_status brim_trainer_open_generation(brim_drive *drive, const brim_evaluation_wish *wish, const char *checkpoint,
                                         brim_trainer **out);
void brim_trainer_close(brim_trainer *trainer);
const brim_drive *brim_trainer_drive(const brim_trainer *trainer);
/* The trainer's plan; NULL while nothing is placed: see brim_trainer_replan. */
const brim_plan *brim_trainer_plan(const brim_trainer *trainer);
brim_exec *brim_trainer_exec(brim_trainer *trainer);
uint64_t brim_trainer_device_bytes(const brim_trainer *trainer); /* bytes of the arena */
uint64_t brim_trainer_host_bytes(const brim_trainer *trainer);   /* bytes of the loader */
/* The host memory of the process, as predicted before anything was placed; all zero for evaluation only. */
const brim_footprint *brim_trainer_footprint(const brim_trainer *trainer);
/* The state at the last commit, in which the runner also keeps its own counts (records, best). */
brim_train_state *brim_trainer_state(brim_trainer *trainer);
/* The result of a federation's last round; owned by the trainer and valid until the next round. */
const brim_round_result *brim_trainer_last_round(const brim_trainer *trainer);
/* [any] Computes the accuracies of a federation's clients, measured during their last training. ENOMEM_HOST. */
brim_status brim_trainer_client_accuracy(const brim_trainer *trainer, brim_spread *out);
/* [any] Describes the assumptions of a federation's simulated world; writes nothing without a simulated world. */
void brim_trainer_print_world(const brim_trainer *trainer, brim_text *out);
/* The privacy budget, epsilon, that a federation has spent after the last committed round, or with `next` after the
 * next one. 0 without noise. */
double brim_trainer_epsilon(const brim_trainer *trainer, bool next);
/* Learning rate of the last step. */
double brim_trainer_lr(const brim_trainer *trainer);
/* The factor that converts the last step's gradients in memory to the gradients of its mean loss. */
double brim_trainer_gradient_scale(const brim_trainer *trainer);

/* [init] Fills the parameters from the weights that the configuration names (model.weights), if any. Call it before the
 * first step, and not after brim_trainer_resume. If `record` is not NULL, *record becomes the description of the
 * weights for the run's folder, with hashes of the files, or NULL if there are no weights. ELOAD, ECONFIG,
 * ENOMEM_HOST. */
brim_status brim_trainer_load_weights(brim_trainer *trainer, json_t **record);
/* [init] Tells a federation the run's folder, in which it may store files; the string must outlive the trainer. is_new:
 * rank 0 makes the file of client states before the other ranks call this. EBUDGET if the disk has too little room;
 * ELOAD, EIO, ENOMEM_HOST. */
brim_status brim_trainer_keep_in(brim_trainer *trainer, const char *folder, bool is_new);
/* [init] Loads parameters, optimizer state and counters from a checkpoint. ELOAD if its model, optimizer or backend
 * precision differs. Call it before the first step. */
brim_status brim_trainer_resume(brim_trainer *trainer, const char *checkpoint);
/* [step] Trains one step and commits it. ENUMERIC if the loss is not finite, naming the step and the first operation
 * with a non-finite result; nothing is committed. If the loss is scaled (setup/loss_scale.h), such a step is committed
 * without an update and counted in the state, until lowering the scale no longer helps. With `more` the caller promises
 * to continue with the next step, whatever the result, without reading or writing parameters; an asynchronous device
 * then begins the next step before the host waits for the loss of this one. On failure the step is discarded: the state
 * is that of the last commit, and the next call begins with the samples after that commit. The parameters are also
 * those of the last commit, unless the update itself failed: see brim_trainer_has_values. */
brim_status brim_trainer_step(brim_trainer *trainer, bool more);
/* [step] Whether the step after the last commit has already begun, so that the next call must be brim_trainer_step. */
bool brim_trainer_is_ahead(const brim_trainer *trainer);
/* Computes loss and accuracy over a whole part; a shorter last batch counts exactly. EINTERRUPTED if *stop becomes
 * nonzero (may be NULL). */
brim_status brim_trainer_evaluate(brim_trainer *trainer, enum brim_part part, const volatile int *stop,
                                  brim_evaluation *out);
/* [step] For a federation whose samples have classes: the spread over clients of the global model's accuracy on each
 * client's samples, computed in one pass over the training data without augmentation. The same on all ranks.
 * EINTERRUPTED as above; ENOMEM_HOST, and errors of the data and the backend. */
brim_status brim_trainer_evaluate_clients(brim_trainer *trainer, const volatile int *stop, brim_spread *out);
/* [step] The same, computed in the lanes, for clients' personal models (for a client without one, the global model), or
 * with `finetunes` for the global model after each client has trained it (federate.finetune_epochs). Uses the batches
 * of training, so samples that training leaves out do not count. */
brim_status brim_trainer_evaluate_own(brim_trainer *trainer, bool finetunes, const volatile int *stop,
                                      brim_spread *out);
/* Sets a list that later evaluations of a part fill with the samples for which the model is most wrong, if the plan
 * keeps the answers; NULL, the default: no list. Each evaluation begins a new list. */
void brim_trainer_list_samples(brim_trainer *trainer, struct brim_samples *samples);
/* [step] Returns unneeded memory to the system. Light: freed blocks. Heavy: also memory whose contents can be made
 * again, namely samples decoded ahead and caches of the backend's libraries. Keeps the choices of recompute, which take
 * some kilobytes, and seconds to compute. */
void brim_trainer_clean(brim_trainer *trainer, enum brim_cleanup cleanup);
/* Returns the time (brim_now()) at which a step or an evaluation last failed, before any cleanup. */
double brim_trainer_failed_at(const brim_trainer *trainer);
/* Call between two steps, not while the trainer is ahead. Copies parameters and optimizer state to a file without a
 * name in `folder`, or else to the host's memory, and releases the arena. After that the caller may only write a
 * checkpoint, change the drive, or call brim_trainer_replan or brim_trainer_restart. ENOMEM_HOST: nothing was done. */
brim_status brim_trainer_park(brim_trainer *trainer, const char *folder);
/* Call between two steps, not while the trainer is ahead, after the drive was changed (drive.h: another micro-batch,
 * device or limit) or to release memory. Parks the values, then plans, claims and places for the current drive, which
 * may ask the policies, and restores the values. Samples, state and all bits that do not depend on the micro-batch
 * continue unchanged. On failure nothing is placed and the values stay parked: the caller may write a checkpoint, or
 * change the drive and call this again, but must not use the trainer otherwise. ENOMEM_HOST: nothing was done.
 * ENOMEM_DEVICE, EBUDGET, ENODEVICE, EINTERRUPTED: see brim_placement_open. */
brim_status brim_trainer_replan(brim_trainer *trainer, const char *folder);
/* The same with the values of a checkpoint, or of the run's beginning if it is NULL; discards the current values. On
 * failure nothing is placed, and the caller may call it again. Errors as for brim_trainer_replan and
 * brim_trainer_resume. */
brim_status brim_trainer_restart(brim_trainer *trainer, const char *checkpoint);
/* Call while nothing is placed: replaces the drive by `drive`, which was reopened (brim_drive_remake), perhaps on
 * another backend with the same real type. */
void brim_trainer_follow(brim_trainer *trainer, brim_drive *drive);
/* Whether the parameters of the last commit exist, on the device or on the host. After a failure during an update they
 * do not: then call brim_trainer_restart. */
bool brim_trainer_has_values(const brim_trainer *trainer);
/* [step] Meets the other ranks; each passes the status of its preceding work; with a status other than OK the thread's
 * error text belongs to it. EPEER if another rank has failed; if that rank lost its parameters, this rank's count as
 * lost too. Report each failure exactly once, so that all ranks learn of it at the same meeting: see
 * brim_trainer_has_reported. ECOMM: the job has failed. */
brim_status brim_trainer_meet(brim_trainer *trainer, enum brim_meeting meeting, brim_status status);
/* Whether the last failure of a trainer function has been reported to the other ranks. */
bool brim_trainer_has_reported(const brim_trainer *trainer);
/* Forgets the last failure; all ranks call it. */
void brim_trainer_clear_failure(brim_trainer *trainer);
/* The result of the last meeting, the same on all ranks. */
const brim_verdict *brim_trainer_verdict(const brim_trainer *trainer);
/* [step] Sets this rank's wishes (bits of enum brim_wish) for the following meetings. */
void brim_trainer_wish(brim_trainer *trainer, uint32_t wishes);
/* Seconds that this rank has waited for other ranks. */
double brim_trainer_waited(const brim_trainer *trainer);
/* Seconds that the training thread has waited for samples; 0 for a federation, in which each lane reads its own
 * samples. */
double brim_trainer_loader_waited(const brim_trainer *trainer);
/* [init] Copies rank 0's parameters to all ranks. */
brim_status brim_trainer_broadcast(brim_trainer *trainer);
/* [step] Checks that all ranks have the same parameters. EINTERNAL on all ranks, naming the first parameter that
 * differs, and the rank. ENOMEM_HOST, EPEER: not checked. */
brim_status brim_trainer_compare(brim_trainer *trainer);
/* Writes the state of the last commit to the run's folder, together with all other ranks: EPEER if one of them has
 * failed. ENOMEM_HOST. */
brim_status brim_trainer_checkpoint(brim_trainer *trainer, const char *run_dir, int64_t keep);
#endif
