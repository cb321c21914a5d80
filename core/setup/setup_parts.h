/* What opening a setup is made of. Internal to core/setup. */
#ifndef BRIM_SETUP_SETUP_PARTS_H
#define BRIM_SETUP_SETUP_PARTS_H
#include "setup/setup.h"

/* Precisions that the backend keeps activations in, whatever the updates are: bit 1 << enum brim_precision of each. */
uint32_t brim_setup_backend_precisions(const brim_setup *setup);
/* A look at the model: does its result depend on norm groups at all? */
brim_status brim_setup_find_norm_group(brim_setup *setup);
/* The loss, if it goes with the data; of weights there must be one for every class, not all 0. ECONFIG. */
brim_status brim_setup_open_loss(brim_setup *setup);
/* Deals the samples to the clients of a federation; reads the data if their labels matter. ECONFIG, and what the
 * dataset says. */
brim_status brim_setup_open_federation(brim_setup *setup);
/* Is a value as it is in the installed configurations, or where they say nothing? Then nobody has chosen it. */
bool brim_setup_is_untouched(const brim_yaml *value);
/* What the data asks for, in the place of what nobody has chosen: the configuration is made again, so that the run's
 * folder says what was trained. `status` is of what there is now. */
brim_status brim_setup_ask_for(brim_setup *setup, enum brim_level level, const char *word, const char *because,
                               brim_status status);
#endif
