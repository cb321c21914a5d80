/* The interface of a run's work for the loop over its steps (loop.h) and for changes of its plan (recover.h, resize.h).
 * The trainer implements it; a simulation implements it by computing times. Each call returns when its work is done. */
#ifndef BRIM_DRIVE_WORK_H
#define BRIM_DRIVE_WORK_H
#include "drive/drive.h"

/* The part of a turn of the loop that failed. */
enum brim_turn_part {
  BRIM_TURN_DUE,    /* work that was due after a commit; it has changed no trained values */
  BRIM_TURN_CHANGE, /* between two steps */
  BRIM_TURN_STEP    /* a step; or there is no further step, because of an interruption or after the last one */
};

typedef struct brim_work {
  void *self; /* the first argument of each function */

  /* ---- steps and the work after them; each function may run out of memory ---- */

  int64_t (*step)(void *self);    /* committed steps */
  void (*begin_turn)(void *self); /* called at the start of each turn of the loop; NULL: not needed */
  /* [step] Makes at least one step, or several if nothing is due between them. */
  brim_status (*make)(void *self);
  /* [step] Evaluates at the current step; sets loop.doing before work that may run out of memory. *is_new: false if
   * this step was evaluated before. */
  brim_status (*evaluate)(void *self, bool *is_new);
  brim_status (*end_round)(void *self); /* called before policies examine memory */
  bool (*is_best)(
      void *self); /* whether the current step is the best so far, so that it gets a checkpoint even if none is due */
  bool (*is_over)(void *self); /* whether the run ends before its last step */
  brim_status (*checkpoint)(void *self);
  brim_status (*check_stop)(void *self); /* OK: continue; EINTERRUPTED or another error: make no further step */
  brim_status (*finish)(void *self);     /* called after the last step */
  /* Handles a turn that failed with `status` and the thread's error text. OK: repeat the turn. */
  brim_status (*failed)(void *self, enum brim_turn_part part, brim_status status);

  /* ---- between two steps ---- */

  bool (*is_ahead)(void *self); /* whether the next step has already started, so that nothing may change; NULL: never */
  /* [step] Checks for memory pressure and reports it. If the run must act, writes a checkpoint and sets *acts: the loop
   * then cleans up, and shrinks the arena to *bytes (0: no need to shrink). */
  brim_status (*heed_pressure)(void *self, bool *acts, uint64_t *bytes);
  /* [step] The number of consecutive checks of memory at which the arena could have been larger by `more` bytes without
   * pressure. A NULL function counts as 0. */
  int64_t (*checks_with_room)(void *self, uint64_t more);
  bool (*is_asking)(void *self); /* whether to ask policies for another plan now; NULL: once a second */
  double (*step_seconds)(void *self);

  /* ---- the plan ---- */

  uint64_t (*placed_bytes)(void *self); /* peak of the placed plan; 0: none */
  bool (*has_values)(void *self);       /* whether the device or the host has the parameters of the last commit */
  /* [step] Frees memory whose contents can be rebuilt. `of_round`: the call is at the end of a round or under pressure,
   * and must be logged; recovery logs its own calls. */
  void (*clean)(void *self, enum brim_cleanup cleanup, bool of_round);
  /* [step] Copies the values to the host and gives the arena back; the run keeps holding the device. ENOMEM_HOST:
   * nothing was done. */
  brim_status (*park)(void *self);
  /* [step] Parks, then places the run's current plan and restores the values. On failure nothing is placed and the
   * values stay on the host. Returns the status of brim_placement_open. */
  brim_status (*replan)(void *self);
  /* [step] The same, with the values of the last checkpoint, because the current ones are lost. */
  brim_status (*rewind)(void *self);
  /* Called while nothing is placed: `drive` replaces the previous drive. NULL: not needed. */
  void (*follow)(void *self, brim_drive *drive);
} brim_work;
#endif
