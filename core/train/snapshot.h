/* Host copies of all parameters and optimizer states, as checkpoints name them. The model's file holds the weights that
 * are evaluated. If those are averages, the weights in training are among the optimizer's states, as "<name>.raw".
 *
 * Where ranks share out the update (graph/shard.h), a rank's has the parameters whole, and of states its slices. It
 * still lists all states, in the order of every other rank's. */
#ifndef BRIM_TRAIN_SNAPSHOT_H
#define BRIM_TRAIN_SNAPSHOT_H
#include "exec/exec.h"
#include "store/checkpoint.h"

/* Ready when zeroed. */
typedef struct brim_snapshot {
  brim_arena arena;
  void *values;
  brim_checkpoint_tensors tensors;                    /* their names and data are the snapshot's own */
  const brim_program *model_program, *update_program; /* of the plan */
  const brim_tensor **model, **optimizer;             /* its tensors, in the same order; NULL: nothing of it */
} brim_snapshot;

/* Memory for what a plan keeps from step to step. Of a plan for evaluation the parameters only. ENOMEM_HOST. */
brim_status brim_snapshot_make(const brim_plan *plan, brim_snapshot *snapshot);
/* The same values for another plan of the same training. EINTERNAL if it keeps anything else. */
brim_status brim_snapshot_bind(brim_snapshot *snapshot, const brim_plan *plan);
void brim_snapshot_release(brim_snapshot *snapshot);
/* [step] From the device, and to it: `exec` is of the snapshot's plan. */
brim_status brim_snapshot_read(brim_snapshot *snapshot, brim_exec *exec);
brim_status brim_snapshot_write(const brim_snapshot *snapshot, brim_exec *exec);
#endif
