/* Collectives made of the host half's messages, through host memory: for ranks that share a GPU, which NCCL refuses,
 * and for ranks without MPI. They are slower than a communicator's collectives, so brim uses them only where sums are
 * rare: in a federation's rounds. Like the hub, users do not choose this with `comm`. */
#ifndef BRIM_DIST_MESSAGES_H
#define BRIM_DIST_MESSAGES_H
#include "brim/comm.h"
#include "brim/plugin.h"

extern const brim_plugin brim_comm_messages;
#endif
