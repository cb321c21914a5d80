/* All parameters and optimizer states, named as in checkpoints: where they lie on the device, or a host copy of them.
 * The model's file holds the weights that are evaluated. If those are averages, the training weights are among the
 * optimizer's states, as "<name>.raw".
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
  brim_exec *exec; /* where the values are; NULL: in `values` */
  brim_checkpoint_device device;
  void *values; /* of a copy */
  uint64_t bytes;
  bool is_mapped;                                     /* `values` are pages of a file without a name */
  brim_checkpoint_tensors tensors;                    /* their names and data belong to the snapshot */
  const brim_program *model_program, *update_program; /* of the plan */
  const brim_tensor **model, **optimizer; /* the plan's tensors, in the same order; NULL: not on this rank */
} brim_snapshot;

/* Lists the tensors that `exec`'s plan keeps from step to step; for an evaluation plan only the parameters. Reading or
 * writing them through `tensors` reads or writes the device. *snapshot and `exec` must stay where they are until
 * release. */
void brim_snapshot_list(brim_exec *exec, brim_snapshot *snapshot);
/* [step] Copies these tensors from the device. The copy's pages belong to a file in `folder`, which the system can
 * write out when memory is short; without such a file (`folder` NULL, no room on its disk) they are the process's own
 * memory. ENOMEM_HOST. */
brim_status brim_snapshot_copy(brim_exec *exec, const char *folder, int32_t rank, brim_snapshot *snapshot);
/* [step] Writes the copy to `exec`, whose plan is of the same training. EINTERNAL if that has different tensors. */
brim_status brim_snapshot_put(brim_snapshot *snapshot, brim_exec *exec);
void brim_snapshot_release(brim_snapshot *snapshot);
#endif
