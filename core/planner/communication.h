/* The time that the ranks of a job take for the collectives of a step. Collectives in host memory are timed once for
 * a set of ranks (communicator, ranks, hosts) and kept in the device profile as times by bytes: "all_reduce mpi 2
 * ranks 1 hosts". Collectives in a GPU's queue are not timed. */
#ifndef BRIM_PLANNER_COMMUNICATION_H
#define BRIM_PLANNER_COMMUNICATION_H
#include "planner/planner.h"

/* [init] For a job whose communicator is connected: if a rank's profile lacks the times, all ranks measure them
 * together, which takes tenths of a second. Each keeps the longest time of all ranks. Does nothing if no rank needs
 * times. */
brim_status brim_communication_time(brim_planner *planner);
/* [plan] Predicts the seconds per step, with `micros` micro-batches, from the profile; 0: unknown. */
double brim_communication_predict(brim_planner *planner, const brim_plan *plan, double micros);
#endif
