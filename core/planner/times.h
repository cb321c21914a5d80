/* Where a step's time goes: each operation beside what it takes at least by the device's ceilings. */
#ifndef BRIM_PLANNER_TIMES_H
#define BRIM_PLANNER_TIMES_H
#include "base/arena.h"
#include "exec/ceiling.h"
#include "planner/planner.h"

/* Nodes of one signature, which take equally long. */
typedef struct brim_op_time {
  const char *op, *name; /* of the first; live in `plan` */
  int64_t nodes;
  double times;          /* that they run in a step, together */
  double seconds, floor; /* in a step, of all; floor 0: not known */
  brim_cost cost;        /* likewise */
} brim_op_time;

typedef struct brim_times {
  brim_op_time *op; /* by what is above the floor, most first */
  size_t count;
  double seconds;      /* of a step, as brim_figures has it */
  double rest_seconds; /* of it: what is no operation (zeroing, loading, reading the loss), and of devices that run
                        * programs whole what that saves, below zero; samples are among them where they are not prepared
                        * beside kernels */
  brim_ceiling ceiling;
  brim_plan *plan; /* of one micro-batch and the update */
  brim_arena arena;
} brim_times;

/* [init] Of a step as it is chosen. What the device profile lacks is timed, however long that
 * takes. *out is to be released in any case. As brim_planner_time, and what planning can return. */
brim_status brim_times_find(brim_planner *planner, const brim_choice *choice, brim_times *out);
void brim_times_release(brim_times *times);
#endif
