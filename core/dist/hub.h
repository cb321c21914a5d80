/* The host half of a communicator for ranks that brim started without MPI: messages go through each rank's connection
 * to the launcher, which distributes them (seats.h). Users do not choose it with `comm`: brim uses it whenever such a
 * connection exists. */
#ifndef BRIM_DIST_HUB_H
#define BRIM_DIST_HUB_H
#include "brim/comm.h"
#include "brim/plugin.h"

extern const brim_plugin brim_comm_hub;
/* Whether brim started this process as a rank with such a connection. */
bool brim_hub_is_there(void);
#endif
