/* Which clients of a federation train in a round: a function of the seed, the round and what clients have. */
#ifndef BRIM_FEDERATE_SELECT_H
#define BRIM_FEDERATE_SELECT_H
#include "base/arena.h"
#include "data/partition.h"

/* [any] The name of a method (enum brim_method), and in a line how it selects; help is NULL behind the last. */
const char *brim_method_name(brim_arena *arena, int32_t method);
const char *brim_method_help(int32_t method);
/* [step] Writes `count` different clients, at most partition->clients, by the settings' `method`. ENOMEM_HOST. */
brim_status brim_select_clients(const brim_settings *settings, const brim_partition *partition, int64_t round,
                                int64_t count, int64_t *out);
#endif
