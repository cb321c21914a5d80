/* Collectives made of the host half's messages, through host memory: for ranks that share a GPU, which NCCL refuses,
 * and for ranks without MPI. They are slower than those of a communicator, so they suit sums that are rare: those of a
 * federation's rounds. Like the hub, this is not a choice of `comm`. */
#ifndef BRIM_DIST_MESSAGES_H
#define BRIM_DIST_MESSAGES_H
#include "brim/comm.h"
#include "brim/plugin.h"

extern const brim_plugin brim_comm_messages;
#endif
