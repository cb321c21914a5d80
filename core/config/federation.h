/* What a federation asks of a configuration: clients in the place of epochs. */
#ifndef BRIM_CONFIG_FEDERATION_H
#define BRIM_CONFIG_FEDERATION_H
#include "config/compose.h"

/* Where there are clients (total_clients): adds a problem for each key that does not go with them, and sets what
 * follows for training: a step of the run is a round. */
void brim_federation_resolve(brim_composition *composition, const brim_schema *schema, brim_config *config);
#endif
