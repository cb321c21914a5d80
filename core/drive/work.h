/* What a run does with the plan that it has, as far as changing plans and going on after a failure need to know: the
 * trainer does it, and in a simulation arithmetic. Between two calls nothing is half done. */
#ifndef BRIM_DRIVE_WORK_H
#define BRIM_DRIVE_WORK_H
#include "drive/drive.h"

typedef struct brim_work {
  void *self;                           /* the first argument of each function */
  int64_t (*step)(void *self);          /* steps that are committed */
  uint64_t (*placed_bytes)(void *self); /* peak of the plan that is placed; 0: none is */
  bool (*has_values)(void *self);       /* are the parameters of the last commit there, on the device or the host? */
  /* [step] Gives memory back that can be had again. */
  void (*clean)(void *self, enum brim_cleanup cleanup);
  /* [step] Takes the values to the host and gives the arena back, for which the run's device is held. ENOMEM_HOST:
   * nothing was done. */
  brim_status (*park)(void *self);
  /* [step] Parks, places the run's plan as it is now, and puts the values back. On failure nothing is placed, and
   * the values stay on the host. As brim_placement_open. */
  brim_status (*replan)(void *self);
  /* [step] The same from what was saved last, as the values are lost. */
  brim_status (*rewind)(void *self);
  /* While nothing is placed: `drive` was made again, and is in the place of the one there was. */
  void (*follow)(void *self, brim_drive *drive);
} brim_work;
#endif
