/* An attempt to write a checkpoint: the folder aside, and what makes it one of the run's. Internal to the checkpoints'
 * files; the order of steps is in checkpoint.c. */
#ifndef BRIM_STORE_CHECKPOINT_ATTEMPT_H
#define BRIM_STORE_CHECKPOINT_ATTEMPT_H
#include "base/file.h"
#include "store/checkpoint.h"

/* The links `last` and `best`. */
enum { BRIM_LINK_LAST, BRIM_LINK_BEST, BRIM_LINKS };
typedef struct brim_link_change {
  const char *name, *aside;
  int64_t step; /* -1: stays as it is */
} brim_link_change;

typedef struct brim_checkpoint_attempt {
  char folder[BRIM_PATH_MAX]; /* <run>/checkpoints */
  char aside[BRIM_PATH_MAX], whole[BRIM_PATH_MAX], old[BRIM_PATH_MAX];
  bool made_folder, made_aside, moved_old, published; /* how far it has come */
  brim_link_change change[BRIM_LINKS];
} brim_checkpoint_attempt;
/* One that has not begun: it can be abandoned. */
#define BRIM_CHECKPOINT_ATTEMPT_NONE                                                                                   \
  {                                                                                                                    \
    .change = { {.step = -1}, {.step = -1} }                                                                           \
  }

/* Where the folder aside of a step lies. */
brim_status brim_checkpoint_aside(const char *run_dir, int64_t step, char out[BRIM_PATH_MAX]);
/* Makes the folder aside, to be filled. After a failure of this or of what follows: abandon. EIO. */
brim_status brim_checkpoint_begin(brim_checkpoint_attempt *attempt, const char *run_dir, int64_t step, int64_t best);
/* It is filled and synced, and becomes the checkpoint of its step. */
brim_status brim_checkpoint_publish(brim_checkpoint_attempt *attempt);
/* Undoes everything, in reverse, and keeps the thread's error text. What even that cannot undo has a name with a dot,
 * and the next sweep gets it. */
void brim_checkpoint_abandon(brim_checkpoint_attempt *attempt);
/* The published one is safe: links, and older ones that go. Trouble is a warning. */
void brim_checkpoint_conclude(brim_checkpoint_attempt *attempt, const brim_train_state *state, int64_t keep);
#endif
