/* The interface of a run's work for the loop over its steps (loop.h) and for changes of its plan (recover.h, resize.h).
 * The trainer implements it; a simulation implements it by arithmetic. Every call completes its work. */
#ifndef BRIM_DRIVE_WORK_H
#define BRIM_DRIVE_WORK_H
#include "drive/drive.h"

/* The part of a loop's turn that failed. */
enum brim_turn_part {
  BRIM_TURN_DUE,    /* something due after a commit: it has changed nothing that was trained */
  BRIM_TURN_CHANGE, /* between two steps */
  BRIM_TURN_STEP    /* a step, or there is no step left: interrupted, or after the last */
};

typedef struct brim_work {
  void *self; /* the first argument of each function */

  /* ---- steps and the work after them: all may run out of memory ---- */

  int64_t (*step)(void *self);    /* committed steps */
  void (*begin_turn)(void *self); /* NULL: nothing */
  /* [step] Makes at least one step; several if nothing is due between them. */
  brim_status (*make)(void *self);
  /* [step] Evaluates at the present step; sets loop.doing before anything that may run out of memory. *is_new: false if
   * it was done before. */
  brim_status (*evaluate)(void *self, bool *is_new);
  brim_status (*end_round)(void *self); /* before policies examine memory */
  bool (*is_best)(void *self); /* is the present step the best, so that it gets a checkpoint though none is due? */
  bool (*is_over)(void *self); /* before its last step */
  brim_status (*checkpoint)(void *self);
  brim_status (*go_on)(void *self);  /* EINTERRUPTED or another error: no further step */
  brim_status (*finish)(void *self); /* after the last step */
  /* Handles a turn that failed with `status` and the thread's error text. OK: repeat the turn. */
  brim_status (*failed)(void *self, enum brim_turn_part part, brim_status status);

  /* ---- between two steps ---- */

  bool (*is_ahead)(void *self); /* has the next step started? Then nothing may change. NULL: never */
  /* [step] Is there memory pressure? Reports it, and if the run must act writes a checkpoint first. *acts: the work
   * must be cleaned and its arena shrunk to *bytes (0: need not shrink). */
  brim_status (*heed_pressure)(void *self, bool *acts, uint64_t *bytes);
  /* [step] The number of looks at memory in a row at which the arena could have been larger by `more` bytes without
   * pressure. NULL: 0. */
  int64_t (*roomy_looks)(void *self, uint64_t more);
  bool (*is_asking)(void *self); /* is it time to ask policies for another plan? NULL: once a second */
  double (*step_seconds)(void *self);

  /* ---- the plan ---- */

  uint64_t (*placed_bytes)(void *self); /* peak of the placed plan; 0: none */
  bool (*has_values)(void *self);       /* do the device or the host hold the parameters of the last commit? */
  /* [step] Frees memory that can be made again. `of_round`: at the end of a round or under pressure, so that it is
   * logged; recovery logs its own calls. */
  void (*clean)(void *self, enum brim_cleanup cleanup, bool of_round);
  /* [step] Copies the values to the host and gives the arena back; the run's device is held. ENOMEM_HOST: nothing was
   * done. */
  brim_status (*park)(void *self);
  /* [step] Parks, places the run's present plan and restores the values. On failure nothing is placed and the values
   * stay on the host. Returns what brim_placement_open does. */
  brim_status (*replan)(void *self);
  /* [step] The same from the last checkpoint, as the values are lost. */
  brim_status (*rewind)(void *self);
  /* While nothing is placed: `drive` replaces the previous drive. NULL: nothing to do. */
  void (*follow)(void *self, brim_drive *drive);
} brim_work;
#endif
