/* Checkpoints of a run: `<run>/checkpoints/step-00000050/` with model.safetensors,
 * optimizer.safetensors and state.json.
 *
 * A checkpoint is written into a folder with a name of its own (".step-00000050.tmp"), every file and the
 * folder synced, and renamed: it is there whole or not at all. Nothing of clock, host or path is in it, so
 * two runs with the same settings leave the same bytes. `best` and `last` are symbolic links, replaced
 * by rename. Canonical: plain layout, no padding. model.safetensors holds the weights that are evaluated: with
 * training.ema_decay the moving averages, and optimizer.safetensors the weights in training as "<name>.raw". */
#ifndef BRIM_STORE_CHECKPOINT_H
#define BRIM_STORE_CHECKPOINT_H
#include <stdbool.h>

#include "store/safetensors.h"

/* What besides tensors makes a run go on as if it had not stopped. */
typedef struct brim_train_state {
  int64_t step;              /* commits so far */
  int64_t samples;           /* samples seen */
  int64_t epoch;             /* derived from the step, for readers */
  int64_t metrics_records;   /* lines of metrics.jsonl at the commit (their bytes differ with timings) */
  double best_loss;          /* on validation data; NAN: none yet */
  int64_t best_step;         /* -1: none yet */
  int64_t worse_evaluations; /* in a row, without a better validation loss */
  int64_t evaluated_step;    /* the last step after which an evaluation was made; 0: none */
  double evaluated_accuracy; /* of that evaluation; NAN: it has none */
  /* Of federate.convergence_threshold: the figures that a better one must beat by more than it, NAN: none yet; and
   * evaluations in a row that did not. */
  double settled_loss, settled_accuracy;
  int64_t settled_evaluations;
  uint64_t model_hash;   /* of the graph's parameters: names, shapes */
  uint64_t profile_hash; /* of the run's device profile; 0: it has none */
  uint64_t frozen_hash;  /* of the frozen parameters, which are in no checkpoint; 0: there are none */
  char model_id[64], optimizer_id[64], backend_id[64];
  double train_loss, train_accuracy; /* of the newest training record; NAN: none yet */
  double train_mae;                  /* the same, in the accuracy's place where answers are real numbers */
  /* running sums since the last record, so that a resumed run writes the same records */
  double window_loss, window_correct, window_weight; /* correct: right answers, or the sum of absolute errors; weight:
                                                        of the samples in the mean loss */
  int64_t window_samples;
  double window_tokens; /* that count; 0 where samples are no tokens */
  double gradient_norm; /* of the last step that was not skipped, before it was limited; NAN: not looked at */
  /* Of loss scaling; all 0 without. Skipped steps are commits without an update. */
  double loss_scale;        /* of the next step */
  int64_t loss_scale_steps; /* in a row that were kept with it, or since a step was skipped */
  int64_t skipped_steps, skipped_in_a_row;
  /* Of a federation's simulated world, in all: seconds, joules, bytes; and as the newest training record had them. */
  double world_seconds, world_joules, recorded_seconds, recorded_joules;
  int64_t world_bytes, recorded_bytes;
} brim_train_state;

typedef struct brim_checkpoint_tensors {
  const brim_safetensor *model, *optimizer;
  size_t model_count, optimizer_count;
} brim_checkpoint_tensors;

/* Writes checkpoint `state->step` of the run in `run_dir`, and points `best` to that of `state->best_step`. Then
 * deletes all but the last `keep` and the best. The run's records (*.jsonl) are synced before. On EIO nothing of the
 * attempt remains and the older checkpoints are as they were; once the checkpoint is safe, trouble with links or with
 * deleting old ones is a warning, and the next call tries again. A kill at any moment leaves this checkpoint or the
 * one before to be found. */
brim_status brim_checkpoint_write(const char *run_dir, const brim_train_state *state,
                                  const brim_checkpoint_tensors *tensors, int64_t keep);
/* The ranks of a job that write one together. */
typedef struct brim_checkpoint_ranks {
  int32_t rank, ranks;
  void *context;
  /* All come together, each with what came of its own work: OK to all if all is well. Else a rank that failed itself
   * gets its own status back, with its text, and the others one that says who did. */
  brim_status (*meet)(void *context, brim_status own);
} brim_checkpoint_ranks;
/* The same checkpoint, called by all ranks at the same step, in a folder that all see. Where they share tensors out
 * (brim_safetensor.is_slice) each writes its part, and the first rank the manifest when all parts are on the disk; else
 * the first rank writes alone. On failure nothing of the attempt remains, and all fail. A checkpoint
 * has the same bytes however many ranks have written it. */
brim_status brim_checkpoint_write_together(const char *run_dir, const brim_train_state *state,
                                           const brim_checkpoint_tensors *tensors, int64_t keep,
                                           const brim_checkpoint_ranks *ranks);
/* [step] Takes the run's checkpoints from the page cache; they are on the disk. */
void brim_checkpoint_drop_cached(const char *run_dir);
/* The newest checkpoint that is whole, every byte of it compared with its hash: its folder into `path`. Damaged ones
 * are passed over with a warning each. Cleans up after attempts that died (left-over folders, links), so the
 * caller holds the run's lock. *found = false if there is none; ELOAD if there are some and all are damaged. */
brim_status brim_checkpoint_find(const char *run_dir, char *path, size_t room, bool *found);
/* [any] Is there one, whole or not? Of a run that is under way too. */
bool brim_checkpoint_exists(const char *run_dir);
/* Reads state.json and checks it. ELOAD with file and reason. */
brim_status brim_checkpoint_read_state(const char *path, brim_train_state *state);
/* Checks the files against their hashes and reads the tensors into the given buffers, which have the expected
 * names, dtypes and shapes (`data` is written through). ELOAD naming the file that is damaged. All missing, unexpected
 * and mis-shaped tensors are listed in one ELOAD, and then nothing has been written. Dtypes F32 and F64 convert to each
 * other. `optimizer_count` 0: only the model. Of slices their elements are read. */
brim_status brim_checkpoint_read(const char *path, const brim_checkpoint_tensors *tensors);
#endif
