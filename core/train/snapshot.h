/* All parameters and optimizer states, named as in checkpoints: their places on the device, or a copy on the host. The
 * model's file contains the weights that brim evaluates. If those are averages, the training weights are among the
 * optimizer's states, as "<name>.raw".
 *
 * If ranks shard the update (graph/shard.h), a rank's snapshot has whole parameters and its slices of the states. It
 * still lists all states, in the same order on every rank. */
#ifndef BRIM_TRAIN_SNAPSHOT_H
#define BRIM_TRAIN_SNAPSHOT_H
#include "exec/exec.h"
#include "store/checkpoint.h"

/* Ready when zeroed. */
typedef struct brim_snapshot {
  brim_arena arena;
  brim_exec *exec; /* the plan in whose arena the values are; NULL: they are in `values` */
  brim_checkpoint_device device;
  void *values; /* values of a copy */
  uint64_t bytes;
  bool is_mapped;                                     /* `values` is a mapping of a file without a name */
  brim_checkpoint_tensors tensors;                    /* the snapshot owns their names and data */
  const brim_program *model_program, *update_program; /* programs of the plan */
  /* The plan's tensors, in the same order; NULL: the tensor is not on this rank. */
  const brim_tensor **model, **optimizer;
} brim_snapshot;

/* Lists the tensors that `exec`'s plan keeps from step to step; for an evaluation plan only the parameters. Reading or
 * writing them through `tensors` reads or writes the device. *snapshot and `exec` must not move until release. */
void brim_snapshot_list(brim_exec *exec, brim_snapshot *snapshot);
/* [step] Copies these tensors from the device. The copy is a mapped file in `folder`, which the system can write out
 * when memory is short. If there is no such file (`folder` NULL, no room on its disk), the copy is in the process's own
 * memory. ENOMEM_HOST. */
brim_status brim_snapshot_copy(brim_exec *exec, const char *folder, int32_t rank, brim_snapshot *snapshot);
/* [step] Writes the copy to `exec`, whose plan must be for the same training. EINTERNAL if the plan has different
 * tensors. */
brim_status brim_snapshot_put(brim_snapshot *snapshot, brim_exec *exec);
void brim_snapshot_release(brim_snapshot *snapshot);
#endif
