/* The effective batch: makes batch_size, gradient_accumulation_steps and effective_batch_size consistent. */
#ifndef BRIM_CONFIG_BATCH_H
#define BRIM_CONFIG_BATCH_H
#include "config/compose.h"

/* If the user sets no effective batch, it is the product of micro-batch and accumulation; otherwise accumulation
 * follows from it. training.batch_size=auto does not change it. Stores the derived values in config->root, so that the
 * resolved configuration has the same meaning when it is read again. The configuration must have no problems; this may
 * add some. */
void brim_batch_resolve(brim_composition *c, const brim_schema *schema, brim_config *config);
#endif
