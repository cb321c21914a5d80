/* The search for memory.recompute=auto. Internal to recompute*.c. */
#ifndef BRIM_GRAPH_RECOMPUTE_AUTO_H
#define BRIM_GRAPH_RECOMPUTE_AUTO_H
#include "graph/recompute_estimate.h"

/* The cost of running a node again: its operations and the bytes it moves. Views cost nothing. */
uint64_t brim_recompute_work(const brim_node *n);
/* Fills the levels of `out`, in `arena`. `end`, [forward_count]: the nodes whose results are the only earlier results
 * that later nodes read. */
void brim_recompute_search(const brim_program *p, const bool *end, brim_arena *arena, brim_recompute *out);
#endif
