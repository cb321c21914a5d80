/* Stores all updates of a round for an aggregator with `merge` (brim/aggregator.h), in a file with a row for each
 * selected client. brim writes a client's row when the client has trained. Rows stay valid until the round ends, even
 * if another plan is placed meanwhile. The file is unlinked, so the system removes it however the process ends.
 * Internal to core/federate. */
#ifndef BRIM_FEDERATE_WHOLE_H
#define BRIM_FEDERATE_WHOLE_H
#include "exec/exec.h"
#include "federate/aggregation.h"
#include "planner/updates.h"

typedef struct brim_whole brim_whole;

/* The updates that have arrived, in the order of selection. */
typedef struct brim_whole_round {
  const int64_t *row; /* [count] */
  const brim_arrival *const *arrival;
  int64_t count;
} brim_whole_round;

/* [init] Makes the file in the folder `folder`. EBUDGET, with both sizes, if the disk has too little room; EIO,
 * ENOMEM_HOST. */
brim_status brim_whole_open(const brim_updates_plan *plan, const char *folder, int32_t rank, brim_whole **out);
/* `is_lost`: a function of the aggregator hangs and may still use the memory, so this does not free it. */
void brim_whole_close(brim_whole *whole, bool is_lost); /* NULL: nothing */
/* [step, any thread] Writes the update of the client that the lane trained last; `values` has room for twice the
 * largest parameter. */
brim_status brim_whole_write(const brim_whole *whole, int64_t row, brim_exec *lane, const brim_program *adopt,
                             void *values);
/* [step] Copy a row to the sums, tensor by tensor, or the sums to a row. */
brim_status brim_whole_put(const brim_whole *whole, int64_t row, brim_exec *server);
brim_status brim_whole_take(const brim_whole *whole, int64_t row, brim_exec *server);
/* [step] Calls the aggregator for all blocks and writes its result to the sums. EPLUGIN, ENUMERIC, EIO. */
brim_status brim_whole_merge(brim_whole *whole, const brim_whole_round *round, brim_aggregation *aggregation,
                             brim_exec *server);
#endif
