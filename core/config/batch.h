/* The effective batch: makes batch_size, gradient_accumulation_steps and effective_batch_size consistent. */
#ifndef BRIM_CONFIG_BATCH_H
#define BRIM_CONFIG_BATCH_H
#include "config/compose.h"

/* The effective batch is the product of micro-batch and accumulation; or it is given, and accumulation follows from it.
 * With training.batch_size=auto it is the same as without. The derived values are stored in config->root, so that the
 * resolved configuration has the same meaning when it is read again. For a configuration without problems; may add
 * some. */
void brim_batch_resolve(brim_composition *c, const brim_schema *schema, brim_config *config);
#endif
