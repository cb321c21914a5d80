/* How the ranks of a job come together to write a checkpoint. */
#ifndef BRIM_TRAIN_CHECKPOINT_RANKS_H
#define BRIM_TRAIN_CHECKPOINT_RANKS_H
#include "dist/dist.h"
#include "train/checkpoint.h"

/* The meetings of one checkpoint, by votes (BRIM_MEET_CHECKPOINT). */
typedef struct brim_checkpoint_meeting {
  brim_dist *dist;
  int64_t step;
  brim_checkpoint_ranks ranks; /* for brim_checkpoint_write_together, as long as this lives */
} brim_checkpoint_meeting;
void brim_checkpoint_meet(brim_checkpoint_meeting *out, brim_dist *dist, int64_t step);

/* [init] Do all ranks see the run's folder of rank 0? All call it once it is made. ECONFIG, on all, naming a rank that
 * does not; EIO. */
brim_status brim_checkpoint_check_folder(brim_dist *dist, const char *run_dir);
#endif
