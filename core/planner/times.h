/* The time of a step by operation, with the minimum that the device's ceilings allow. */
#ifndef BRIM_PLANNER_TIMES_H
#define BRIM_PLANNER_TIMES_H
#include "base/arena.h"
#include "exec/ceiling.h"
#include "planner/planner.h"

/* Nodes with the same signature, which take equally long. */
typedef struct brim_op_time {
  const char *op, *name; /* of the first; belong to `plan` */
  int64_t nodes;
  double times;          /* runs per step, of all nodes */
  double seconds, floor; /* per step, of all nodes; floor 0: unknown */
  brim_cost cost;        /* per step, of all nodes */
} brim_op_time;

typedef struct brim_times {
  brim_op_time *op; /* by the time above the floor, largest first */
  size_t count;
  double seconds;      /* of a step, as in brim_figures */
  double rest_seconds; /* the part of it outside operations (zeroing, loading, reading the loss; also preparing samples,
                          unless that happens beside kernels); on devices that run whole programs the saving of that, as
                          a negative number */
  brim_ceiling ceiling;
  brim_plan *plan; /* of one micro-batch and the update */
  brim_arena arena;
} brim_times;

/* [init] Finds the times of a choice's step. Times the parts that the device profile lacks, however long that takes.
 * The caller must release *out in any case. Errors as for brim_planner_time and of planning. */
brim_status brim_times_find(brim_planner *planner, const brim_choice *choice, brim_times *out);
void brim_times_release(brim_times *times);
#endif
