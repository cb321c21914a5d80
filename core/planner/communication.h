/* What the ranks of a job take to add up and to hand out in a step. Collectives in host memory are timed once for a set
 * of ranks (communicator, ranks, hosts) and kept in the device profile as times of bytes: "all_reduce mpi 2 ranks 1
 * hosts". What a GPU's queue of collectives takes is not timed. */
#ifndef BRIM_PLANNER_COMMUNICATION_H
#define BRIM_PLANNER_COMMUNICATION_H
#include "planner/planner.h"

/* [init] Of a job whose communicator is connected: if a rank's profile lacks them, all ranks time them together, which
 * takes tenths of a second. Each keeps the longest time of all ranks. Nothing where no rank has asked for times. */
brim_status brim_communication_time(brim_planner *planner);
/* [plan] Seconds of a step, in `micros` micro-batches, by what the profile has; 0: nothing. */
double brim_communication_predict(brim_planner *planner, const brim_plan *plan, double micros);
#endif
