/* The possible choices for a run (micro-batch, recompute and, if open, precision) with the exact peak and the predicted
 * time of a step, reduced to the choices for which no other has both a lower peak and a shorter time. */
#ifndef BRIM_PLANNER_FRONTIER_H
#define BRIM_PLANNER_FRONTIER_H
#include "planner/figures.h"

#define BRIM_FRONTIER_MAX 192

typedef struct brim_frontier_row {
  brim_choice choice;
  brim_figures figures;
  bool chosen; /* the run's own choice */
} brim_frontier_row;

/* Ready when zeroed. */
typedef struct brim_frontier {
  brim_frontier_row row[BRIM_FRONTIER_MAX]; /* sorted by rising peak; the time falls from row to row, except at the
                                               chosen row, which is always included */
  size_t count;
  uint64_t room_bytes; /* bytes that a plan may use, within all limits */
} brim_frontier;

/* [plan] Plans what brim_frontier_find will ask for first, in several threads. */
void brim_frontier_plan_next(brim_planner *planner, const brim_choice *chosen);
/* [plan] Finds the choices. `chosen`: the run's own. `precisions`: consider all precisions of the backend, not only the
 * run's. No
 * plan may be placed, as this may time kernels. */
brim_status brim_frontier_find(brim_planner *planner, const brim_choice *chosen, bool precisions,
                               brim_frontier *frontier);
#endif
