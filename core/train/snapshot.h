/* Host copies of all parameters and optimizer states, named as in checkpoints. The model's file holds the weights
 * that are evaluated. If those are averages, the training weights are among the optimizer's states, as "<name>.raw".
 *
 * Where ranks shard the update (graph/shard.h), a rank's snapshot has whole parameters and its slices of the states.
 * It still lists all states, in the same order on every rank. */
#ifndef BRIM_TRAIN_SNAPSHOT_H
#define BRIM_TRAIN_SNAPSHOT_H
#include "exec/exec.h"
#include "store/checkpoint.h"

/* Ready when zeroed. */
typedef struct brim_snapshot {
  brim_arena arena;
  void *values;
  brim_checkpoint_tensors tensors;                    /* their names and data belong to the snapshot */
  const brim_program *model_program, *update_program; /* of the plan */
  const brim_tensor **model, **optimizer; /* the plan's tensors, in the same order; NULL: not on this rank */
} brim_snapshot;

/* Allocates memory for the tensors that a plan keeps from step to step; for an evaluation plan only the parameters.
 * ENOMEM_HOST. */
brim_status brim_snapshot_make(const brim_plan *plan, brim_snapshot *snapshot);
/* Uses the same values for another plan of the same training. EINTERNAL if that plan has different tensors. */
brim_status brim_snapshot_bind(brim_snapshot *snapshot, const brim_plan *plan);
void brim_snapshot_release(brim_snapshot *snapshot);
/* [step] Copies from the device, and to it: `exec` belongs to the snapshot's plan. */
brim_status brim_snapshot_read(brim_snapshot *snapshot, brim_exec *exec);
brim_status brim_snapshot_write(const brim_snapshot *snapshot, brim_exec *exec);
#endif
