/* A machine's processors, shared out to the ranks that run on it. */
#ifndef BRIM_DIST_PROCESSORS_H
#define BRIM_DIST_PROCESSORS_H
#include <sched.h>

#include "dist/dist.h"

/* [init] What rank `rank` of `ranks` on this machine may have of the processors that this process may run on: as many
 * whole cores as the others, neighbours. Empty if there are fewer cores than ranks: then all have all. */
cpu_set_t brim_processors_cut(int32_t ranks, int32_t rank);
/* [init] Ranks tell each other where they may run, however they were started, so that the threads of those that have
 * processors in common go by their share (brim_host_processors). */
brim_status brim_processors_share(brim_dist *dist);
#endif
