/* The effective batch: how batch_size, gradient_accumulation_steps and effective_batch_size agree. */
#ifndef BRIM_CONFIG_BATCH_H
#define BRIM_CONFIG_BATCH_H
#include "config/compose.h"

/* The effective batch is the product of micro-batch and accumulation; or it is given, and accumulation follows. With
 * training.batch_size=auto it is what it would be without. What follows is put into config->root, so that the resolved
 * configuration means the same when it is read again. For a configuration without problems; adds some. */
void brim_batch_resolve(brim_composition *c, const brim_schema *schema, brim_config *config);
#endif
