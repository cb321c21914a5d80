/* How a step may be cut into micro-batches, and what the plans of each take. */
#ifndef BRIM_PLANNER_CUTS_H
#define BRIM_PLANNER_CUTS_H
#include "planner/planner.h"

#define BRIM_MICRO_BATCH_MAX ((int64_t)1 << 20) /* samples */

/* [plan] Lists the micro-batches that may be chosen, largest first: all that the rank has of a step, or what divides
 * the effective batch. They cut no norm group, and are multiples of the grain, or smaller than it, or all there is.
 * Returns how many. */
size_t brim_planner_list_cuts(brim_planner *planner);
#endif
