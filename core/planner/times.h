/* The time of a step by operation, with the lower bounds that the device's ceilings give. */
#ifndef BRIM_PLANNER_TIMES_H
#define BRIM_PLANNER_TIMES_H
#include "base/arena.h"
#include "exec/ceiling.h"
#include "planner/planner.h"

/* Nodes with the same signature, which take the same time. */
typedef struct brim_op_time {
  const char *op, *name; /* names of the first node; `plan` owns them */
  int64_t nodes;
  double times;          /* runs of all these nodes per step */
  double seconds, floor; /* seconds of all these nodes per step; floor: the lower bound, 0 if unknown */
  brim_cost cost;        /* arithmetic and bytes of all these nodes per step */
} brim_op_time;

typedef struct brim_times {
  brim_op_time *op; /* sorted by the time above the lower bound, largest first */
  size_t count;
  double seconds;      /* seconds of a step, as in brim_figures */
  double rest_seconds; /* the part of it outside operations: zeroing, loading, reading the loss, and preparing samples
                          if that does not overlap with kernels. Negative on devices that run whole programs in less
                          time than the sum of their nodes */
  brim_ceiling ceiling;
  brim_plan *plan; /* the plan of one micro-batch and the update */
  brim_arena arena;
} brim_times;

/* [init] Finds the times of a choice's step. Times the parts that the device profile lacks, even if that takes long.
 * The caller must release *out in any case. Errors as for brim_planner_time, and of planning. */
brim_status brim_times_find(brim_planner *planner, const brim_choice *choice, brim_times *out);
void brim_times_release(brim_times *times);
#endif
