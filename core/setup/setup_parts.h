/* Parts of opening a setup. Internal to core/setup. */
#ifndef BRIM_SETUP_SETUP_PARTS_H
#define BRIM_SETUP_SETUP_PARTS_H
#include "setup/setup.h"

/* Precisions in which the backend can store activations, even if the updates do not support them: bit 1 << enum
 * brim_precision for each. */
uint32_t brim_setup_backend_precisions(const brim_setup *setup);
/* Finds, from the model, whether its result depends on norm groups. */
brim_status brim_setup_find_norm_group(brim_setup *setup);
/* Counts the bytes of buffers, and of the client states of a federation. */
void brim_setup_count_kept(brim_setup *setup, const brim_graph *graph);
/* Checks that each pattern of federate.local_parameters matches a parameter, and that some parameter matches none.
 * ECONFIG. */
brim_status brim_setup_check_local(const brim_setup *setup, const brim_graph *graph);
/* If an error begins with a key in quotes, adds a line with the origin of the key's value, which a preset may have
 * set. */
brim_status brim_setup_add_origin(const brim_setup *setup, brim_status status);
/* Opens the loss and checks that it fits the data. The number of weights must be the number of classes, and one weight
 * must not be 0. ECONFIG. */
brim_status brim_setup_open_loss(brim_setup *setup);
/* Divides the samples among the clients of a federation; reads the data if this needs labels. ECONFIG, and errors of
 * the dataset. */
brim_status brim_setup_open_federation(brim_setup *setup);
/* Whether a value is a default, of brim or of the installed configurations, and not chosen by the user. */
bool brim_setup_is_untouched(const brim_yaml *value);
/* Requests the value that the data needs instead of a default. brim then loads the configuration again, so that the
 * run's folder records the values in use. `status` is the error of the current configuration. */
brim_status brim_setup_ask_for(brim_setup *setup, enum brim_level level, const char *word, const char *because,
                               brim_status status);
#endif
