/* The host's half of a communicator for ranks that brim has started without MPI: exchanges go over their lines to the
 * launcher, which serves them (seats.h). Nobody chooses it: it is taken where such a line is. */
#ifndef BRIM_DIST_HUB_H
#define BRIM_DIST_HUB_H
#include "brim/comm.h"
#include "brim/plugin.h"

extern const brim_plugin brim_comm_hub;
/* Was this process started as such a rank? */
bool brim_hub_is_there(void);
#endif
