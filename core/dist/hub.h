/* The host half of a communicator for ranks that brim started without MPI: exchanges go over their lines to the
 * launcher, which serves them (seats.h). It is not a choice of `comm`: it is used whenever such a line exists. */
#ifndef BRIM_DIST_HUB_H
#define BRIM_DIST_HUB_H
#include "brim/comm.h"
#include "brim/plugin.h"

extern const brim_plugin brim_comm_hub;
/* Whether brim started this process as such a rank. */
bool brim_hub_is_there(void);
#endif
