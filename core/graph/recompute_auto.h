/* The search for memory.recompute=auto. Internal to recompute*.c. */
#ifndef BRIM_GRAPH_RECOMPUTE_AUTO_H
#define BRIM_GRAPH_RECOMPUTE_AUTO_H
#include "graph/recompute_estimate.h"

/* The cost of running a node again: its operations and the bytes it moves. Views cost nothing. */
uint64_t brim_recompute_work(const brim_node *n);
/* Fills the levels of `out`, in `arena`. `end`, [forward_count]: the nodes whose results are the only earlier results
 * that later nodes read. `block_end`: the same, or those that the model marks as ends of blocks. */
void brim_recompute_search(const brim_program *p, const bool *end, const bool *block_end, brim_arena *arena,
                           brim_recompute *out);
/* Drops what memory.recompute=full drops if it joins this number of blocks: sets w.dropped of the estimate. False if it
 * does not try that number; it tries all smaller ones. `joined`, [forward_count], is scratch. */
bool brim_recompute_join(brim_estimate *e, const bool *end, size_t join, bool *joined);
#endif
