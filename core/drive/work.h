/* What a run does: the loop over its steps (loop.h) and what changes its plan (recover.h, resize.h) call it, and know
 * no more of it. The trainer does it, and in a simulation arithmetic. Between two calls nothing is half done. */
#ifndef BRIM_DRIVE_WORK_H
#define BRIM_DRIVE_WORK_H
#include "drive/drive.h"

/* Where in a turn of the loop something has failed. */
enum brim_turn_part {
  BRIM_TURN_DUE,    /* in what is due after a commit: nothing of it has changed what was trained */
  BRIM_TURN_CHANGE, /* between two steps */
  BRIM_TURN_STEP    /* in a step; or there is to be none: interrupted, or after the last */
};

typedef struct brim_work {
  void *self; /* the first argument of each function */

  /* ---- steps, and what is due after them: all may want memory ---- */

  int64_t (*step)(void *self);    /* that are committed */
  void (*begin_turn)(void *self); /* NULL: nothing */
  /* [step] At least one; several if nothing is due and nobody asks between them. */
  brim_status (*make)(void *self);
  /* [step] At the present step; what may want memory says so in loop.doing. *is_new: not if it was done before. */
  brim_status (*evaluate)(void *self, bool *is_new);
  brim_status (*end_round)(void *self); /* before policies look at memory */
  bool (*is_best)(void *self);          /* the present step, so that it has a checkpoint though none is due */
  bool (*is_over)(void *self);          /* before its last step */
  brim_status (*checkpoint)(void *self);
  brim_status (*go_on)(void *self);  /* EINTERRUPTED and others: no further step */
  brim_status (*finish)(void *self); /* after the last step */
  /* What becomes of a turn that failed: `status`, with the thread's error text. OK: it is to be made again. */
  brim_status (*failed)(void *self, enum brim_turn_part part, brim_status status);

  /* ---- between two steps ---- */

  bool (*is_ahead)(void *self); /* has the next step begun? Then nothing may change. NULL: never */
  /* [step] Has memory pressure come up? Tells it, and if something is to be done writes a checkpoint first. *acts: then
   * the work is to be cleaned, and its arena to shrink to *bytes; 0: it need not. */
  brim_status (*heed_pressure)(void *self, bool *acts, uint64_t *bytes);
  bool (*is_asking)(void *self); /* is it time to ask policies for another plan? NULL: once a second */
  double (*step_seconds)(void *self);

  /* ---- its plan ---- */

  uint64_t (*placed_bytes)(void *self); /* peak of the plan that is placed; 0: none is */
  bool (*has_values)(void *self);       /* are the parameters of the last commit there, on the device or the host? */
  /* [step] Gives memory back that can be had again. `of_round`: at the end of a round or under pressure, so that it is
   * told; else on the way up the ladder, which tells it itself. */
  void (*clean)(void *self, enum brim_cleanup cleanup, bool of_round);
  /* [step] Takes the values to the host and gives the arena back, for which the run's device is held. ENOMEM_HOST:
   * nothing was done. */
  brim_status (*park)(void *self);
  /* [step] Parks, places the run's plan as it is now, and puts the values back. On failure nothing is placed, and the
   * values stay on the host. As brim_placement_open. */
  brim_status (*replan)(void *self);
  /* [step] The same from what was saved last, as the values are lost. */
  brim_status (*rewind)(void *self);
  /* While nothing is placed: `drive` was made again, and is in the place of the one there was. NULL: nothing. */
  void (*follow)(void *self, brim_drive *drive);
} brim_work;
#endif
