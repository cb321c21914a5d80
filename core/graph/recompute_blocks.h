/* Chooses the nodes to drop within a budget, block by block. Internal to recompute*.c. */
#ifndef BRIM_GRAPH_RECOMPUTE_BLOCKS_H
#define BRIM_GRAPH_RECOMPUTE_BLOCKS_H
#include "graph/recompute_estimate.h"

typedef struct brim_blocks brim_blocks;

/* Arrays indexed by node of the forward pass. */
typedef struct brim_blocks_given {
  const bool *end;      /* a block ends here: of all results so far, later nodes read only this node's */
  const bool *repeats;  /* the node's results may be dropped and computed again */
  const uint64_t *work; /* the cost of running the node again */
} brim_blocks_given;

/* Allocates from `arena`. `e`: the program's estimate, with nothing dropped. */
brim_blocks *brim_blocks_create(brim_estimate *e, const brim_blocks_given *given, brim_arena *arena);
/* An estimate of the time that brim_blocks_solve takes, in units of a nanosecond or two. */
size_t brim_blocks_size(const brim_blocks *b);
/* Sets e->w.dropped to a set that should keep the peak within `bytes` with the least work; brim_estimate_run gives the
 * real peak. False, with nothing changed, if there is no such set. */
bool brim_blocks_solve(brim_blocks *b, uint64_t bytes);
#endif
