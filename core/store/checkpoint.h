/* Checkpoints of a run: `<run>/checkpoints/step-00000050/` with model.safetensors, optimizer.safetensors and
 * state.json.
 *
 * brim writes a checkpoint into a temporary folder (".step-00000050.tmp"), syncs every file and the folder, and renames
 * the folder, so a checkpoint is complete or absent. It contains no time, host or path, so two runs with the same
 * settings write the same bytes. `best` and `last` are symbolic links, replaced by rename. Tensors have plain layout,
 * without padding. model.safetensors holds the weights that are evaluated: with training.ema_decay the moving averages,
 * and then optimizer.safetensors holds the training weights as "<name>.raw". */
#ifndef BRIM_STORE_CHECKPOINT_H
#define BRIM_STORE_CHECKPOINT_H
#include <stdbool.h>

#include "base/file.h"
#include "store/safetensors.h"

#define BRIM_CHECKPOINTS_NAME "checkpoints"     /* the folder of checkpoints in the run's folder */
#define BRIM_CHECKPOINT_STATE_NAME "state.json" /* in each checkpoint */

/* The state besides tensors that a run needs to resume as if it had not stopped. */
typedef struct brim_train_state {
  int64_t step;              /* commits so far */
  int64_t samples;           /* samples seen */
  int64_t epoch;             /* derived from the step, for readers */
  int64_t metrics_records;   /* lines of metrics.jsonl at the commit (not bytes, which differ with timings) */
  double best_loss;          /* the best loss on validation data; NAN: none yet */
  int64_t best_step;         /* -1: none yet */
  int64_t worse_evaluations; /* consecutive evaluations without a better validation loss */
  int64_t evaluated_step;    /* the step of the last evaluation; 0: none */
  double evaluated_accuracy; /* accuracy of that evaluation; NAN: not available */
  /* For federate.convergence_threshold: the reference figures (NAN: none yet), and the number of consecutive
   * evaluations that did not improve on them by more than the threshold. */
  double settled_loss, settled_accuracy;
  int64_t settled_evaluations;
  uint64_t model_hash;   /* hash of the parameters' names and shapes */
  uint64_t profile_hash; /* hash of the run's device profile; 0: no profile */
  uint64_t frozen_hash;  /* FNV-1a, only in older checkpoints; 0: they have frozen_xxh64, or no frozen parameters */
  uint64_t frozen_xxh64; /* hash of the frozen parameters, which checkpoints do not contain; 0: none are frozen */
  char model_id[64], optimizer_id[64], backend_id[64];
  double train_loss, train_accuracy; /* figures of the newest training record; NAN: none yet */
  double train_mae; /* the mean absolute error, instead of the accuracy, if the model predicts real numbers */
  /* running sums since the last record, so that a resumed run writes the same records */
  double window_loss, window_correct, window_weight; /* correct: correct answers, or the sum of absolute errors; weight:
                                                        of the samples in the mean loss */
  int64_t window_samples;
  double window_tokens; /* tokens that count; 0 if samples are not tokens */
  double gradient_norm; /* norm before clipping in the last step that was not skipped; NAN: not computed */
  /* Loss scaling; all 0 without it. Skipped steps are commits without an update. */
  double loss_scale;        /* scale of the next step */
  int64_t loss_scale_steps; /* consecutive steps kept with this scale, or since a step was skipped */
  int64_t skipped_steps, skipped_in_a_row;
  /* Totals of a federation's simulated world (seconds, joules, bytes, bytes of edges), and their values in the newest
   * training record. */
  double world_seconds, world_joules, recorded_seconds, recorded_joules;
  int64_t world_bytes, recorded_bytes, world_edge_bytes, recorded_edge_bytes;
} brim_train_state;

enum brim_checkpoint_part { BRIM_CHECKPOINT_MODEL, BRIM_CHECKPOINT_OPTIMIZER, BRIM_CHECKPOINT_PARTS };

/* Copies values of tensors that lie on a device and have no `data`: `bytes` bytes of tensor `i` of a part, from byte
 * `first` (for a slice: of this rank's bytes). */
typedef struct brim_checkpoint_device {
  brim_status (*read)(void *context, enum brim_checkpoint_part part, size_t i, uint64_t first, uint64_t bytes,
                      void *host);
  brim_status (*write)(void *context, enum brim_checkpoint_part part, size_t i, uint64_t first, uint64_t bytes,
                       const void *host);
  void *context;
} brim_checkpoint_device;

/* Host memory through which values pass between a device and a file. */
#define BRIM_CHECKPOINT_PIECE_BYTES ((uint64_t)16 << 20)

typedef struct brim_checkpoint_tensors {
  const brim_safetensor *model, *optimizer;
  size_t model_count, optimizer_count;
  const brim_checkpoint_device *device; /* NULL: all tensors have `data` */
} brim_checkpoint_tensors;

/* Writes checkpoint `state->step` of the run in `run_dir`, and points `best` to that of `state->best_step`. Then
 * deletes all but the last `keep` and the best. Syncs the run's records (*.jsonl) first. On EIO this removes its files,
 * and the older checkpoints are unchanged. When the checkpoint is on disk, errors with links or with deleting old
 * checkpoints are only warnings, and the next call tries again. If the process is killed at any moment, this checkpoint
 * or the previous one can be found. */
brim_status brim_checkpoint_write(const char *run_dir, const brim_train_state *state,
                                  const brim_checkpoint_tensors *tensors, int64_t keep);
/* The ranks of a job that write a checkpoint together. */
typedef struct brim_checkpoint_ranks {
  int32_t rank, ranks;
  void *context;
  /* Exchanges the ranks' statuses: each passes the status of its own work. Returns OK on all ranks if all succeeded.
   * Otherwise a rank that failed gets its own status back, with its text, and the others get a status whose text names
   * that rank. */
  brim_status (*meet)(void *context, brim_status own);
} brim_checkpoint_ranks;
/* Writes the same checkpoint. All ranks call it at the same step, with a folder that all can access. If tensors are
 * sharded (brim_safetensor.is_slice) each rank writes its part, and the first rank the manifest once all parts are on
 * disk; else the first rank writes alone. On failure the attempt's files are removed, and all ranks fail. The bytes of
 * a checkpoint do not depend on the number of ranks. */
brim_status brim_checkpoint_write_together(const char *run_dir, const brim_train_state *state,
                                           const brim_checkpoint_tensors *tensors, int64_t keep,
                                           const brim_checkpoint_ranks *ranks);
/* [step] Drops the run's checkpoints from the page cache; they are on disk. */
void brim_checkpoint_drop_cached(const char *run_dir);
/* Finds the newest undamaged checkpoint, comparing every byte with its hash, and writes its folder to `path`. Warns
 * about each damaged one that it skips. Cleans up after killed attempts (leftover folders, links), so the caller must
 * hold the run's lock. *found = false if there are no checkpoints; ELOAD if all are damaged. */
brim_status brim_checkpoint_find(const char *run_dir, char *path, size_t room, bool *found);
/* Adds up the number and the bytes on disk of the spare checkpoints: those that neither `best` nor `last` points to and
 * that are older than *whole, the newest undamaged one. Without `deletes`, finds *whole by comparing every byte with
 * its hash (0: none, or nothing is spare), and warns about damaged newer ones. With `deletes`, *whole comes from an
 * earlier call; if it still exists, deletes the spare checkpoints that no command is reading. The caller must hold the
 * run's lock. ECONFIG: the folder of checkpoints is a link, so it may belong to a run that the lock does not cover.
 * EIO. */
brim_status brim_checkpoint_prune(const char *run_dir, bool deletes, int64_t *whole, size_t *count, uint64_t *bytes);
/* Writes the path of a run's checkpoint, whether or not it exists. */
brim_status brim_checkpoint_path(const char *run_dir, int64_t step, char out[BRIM_PATH_MAX]);
/* [any] Whether the run has a checkpoint, damaged or not. The run may be in progress. */
bool brim_checkpoint_exists(const char *run_dir);
/* Reads state.json and checks it. ELOAD with file and reason. */
brim_status brim_checkpoint_read_state(const char *path, brim_train_state *state);
/* Checks the files against their hashes and reads the tensors into the given buffers, which have the expected names,
 * dtypes and shapes (this writes to `data`), or to the device. ELOAD naming the damaged file. If tensors are missing,
 * unexpected or of another shape, one ELOAD lists all of them, and nothing is written. Converts between F32 and F64.
 * `optimizer_count` 0: reads only the model. For a slice, reads only its elements. */
brim_status brim_checkpoint_read(const char *path, const brim_checkpoint_tensors *tensors);
#endif
