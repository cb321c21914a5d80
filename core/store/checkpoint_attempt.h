/* An attempt to write a checkpoint: the temporary folder, and the steps that publish it. Internal to the checkpoints'
 * files; checkpoint.c describes the order of steps. */
#ifndef BRIM_STORE_CHECKPOINT_ATTEMPT_H
#define BRIM_STORE_CHECKPOINT_ATTEMPT_H
#include "base/file.h"
#include "store/checkpoint.h"

/* The links `last` and `best`. */
enum { BRIM_LINK_LAST, BRIM_LINK_BEST, BRIM_LINKS };
typedef struct brim_link_change {
  const char *name, *aside;
  int64_t step; /* -1: unchanged */
} brim_link_change;

typedef struct brim_checkpoint_attempt {
  char folder[BRIM_PATH_MAX]; /* <run>/checkpoints */
  char aside[BRIM_PATH_MAX], whole[BRIM_PATH_MAX], old[BRIM_PATH_MAX];
  bool made_folder, made_aside, moved_old, published; /* progress of the attempt */
  brim_link_change change[BRIM_LINKS];
} brim_checkpoint_attempt;
/* The value of an attempt that has not begun; it may be abandoned. */
#define BRIM_CHECKPOINT_ATTEMPT_NONE                                                                                   \
  {                                                                                                                    \
    .change = { {.step = -1}, {.step = -1} }                                                                           \
  }

/* Writes the path of a step's temporary folder. */
brim_status brim_checkpoint_aside(const char *run_dir, int64_t step, char out[BRIM_PATH_MAX]);
/* Makes the temporary folder, for the caller to fill. If this or a later call fails, abandon the attempt. EIO. */
brim_status brim_checkpoint_begin(brim_checkpoint_attempt *attempt, const char *run_dir, int64_t step, int64_t best);
/* Publishes the temporary folder, which is filled and synced, as the checkpoint of its step. */
brim_status brim_checkpoint_publish(brim_checkpoint_attempt *attempt);
/* Undoes all steps of the attempt, in reverse, and preserves the thread's error text. Names of leftovers begin with a
 * dot, and the next sweep removes them. */
void brim_checkpoint_abandon(brim_checkpoint_attempt *attempt);
/* Called after publishing: updates the links and deletes old checkpoints. Errors are only warnings. */
void brim_checkpoint_conclude(brim_checkpoint_attempt *attempt, const brim_train_state *state, int64_t keep);
#endif
