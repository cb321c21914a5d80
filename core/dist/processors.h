/* Divides a machine's processors among the ranks that run on it. */
#ifndef BRIM_DIST_PROCESSORS_H
#define BRIM_DIST_PROCESSORS_H
#include <sched.h>

#include "dist/dist.h"

/* [init] The part of this process's processors for rank `rank` of `ranks` on this machine: neighbouring whole cores,
 * the same number for each rank. Empty if there are fewer cores than ranks: then all ranks share all of them. */
cpu_set_t brim_processors_cut(int32_t ranks, int32_t rank);
/* [init] The ranks, however they were started, tell each other which processors they may run on. Ranks that share
 * processors then limit their threads to their share (brim_host_processors). */
brim_status brim_processors_share(brim_dist *dist);
#endif
