/* Chooses a checkpoint of a run. */
#ifndef BRIM_STORE_CHECKPOINT_CHOOSE_H
#define BRIM_STORE_CHECKPOINT_CHOOSE_H
#include <stddef.h>

#include "brim/status.h"

/* Finds the folder of the checkpoint that `which` names: "best", "last", the name of one of the run's checkpoints, or a
 * path; NULL: the best if the run has one, else the last. Resolves links. ELOAD if there is no such checkpoint. Writes
 * nothing. The run may be in progress; it keeps the checkpoint until the caller closes the descriptor *hold (-1: no
 * lock). */
brim_status brim_checkpoint_choose(const char *run, const char *which, char *path, size_t room, int *hold);

#define BRIM_CHECKPOINT_FREE (-1) /* no lock needed */
#define BRIM_CHECKPOINT_HELD (-2)
/* For a caller that is about to delete a checkpoint: returns a descriptor to close afterwards, BRIM_CHECKPOINT_FREE,
 * or, if another process reads the checkpoint, BRIM_CHECKPOINT_HELD. */
int brim_checkpoint_lock_to_delete(const char *path);
#endif
