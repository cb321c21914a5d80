/* Requirements of federations on a configuration: clients instead of epochs. */
#ifndef BRIM_CONFIG_FEDERATION_H
#define BRIM_CONFIG_FEDERATION_H
#include "config/compose.h"

/* With clients (total_clients): adds a problem for each key that cannot be used with them, and sets the training keys
 * that follow from them: a step of the run is a round. */
void brim_federation_resolve(brim_composition *composition, const brim_schema *schema, brim_config *config);
/* The name of a rank with federate.mode=processes: "server" for 0, "client_1" for 1. Returns `out`. */
const char *brim_federation_process(int32_t rank, char *out, size_t room);
#endif
