/* Which clients of a federation train in a round: a function of the seed, the round and what clients have. */
#ifndef BRIM_FEDERATE_SELECT_H
#define BRIM_FEDERATE_SELECT_H
#include "data/partition.h"

/* [step] Writes `count` different clients, at most partition->clients, by the settings' `method`. ENOMEM_HOST. */
brim_status brim_select_clients(const brim_settings *settings, const brim_partition *partition, int64_t round,
                                int64_t count, int64_t *out);
#endif
