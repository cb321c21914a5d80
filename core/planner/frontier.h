/* What could be chosen for a run: micro-batches, recompute and, where it is open, precision, with the exact peak and
 * the predicted time of a step. Of these the ones that nothing beats: less memory costs time. */
#ifndef BRIM_PLANNER_FRONTIER_H
#define BRIM_PLANNER_FRONTIER_H
#include "planner/figures.h"

#define BRIM_FRONTIER_MAX 192

typedef struct brim_frontier_row {
  brim_choice choice;
  brim_figures figures;
  bool chosen; /* it is what the run has */
} brim_frontier_row;

/* Ready when zeroed. */
typedef struct brim_frontier {
  brim_frontier_row
      row[BRIM_FRONTIER_MAX]; /* by peak, rising; the time falls, but for the chosen one, which is there always */
  size_t count;
  uint64_t room_bytes; /* that a plan may take, within every limit */
} brim_frontier;

/* [plan] `chosen`: what the run has. `precisions`: all that the backend has are looked at, and not only its own. No
 * plan may be placed, as something may be timed. */
brim_status brim_frontier_find(brim_planner *planner, const brim_choice *chosen, bool precisions,
                               brim_frontier *frontier);
#endif
