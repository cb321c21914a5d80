/* The search behind memory.recompute=auto. Internal to recompute*.c. */
#ifndef BRIM_GRAPH_RECOMPUTE_AUTO_H
#define BRIM_GRAPH_RECOMPUTE_AUTO_H
#include "graph/recompute_walk.h"

/* What a node counts for when it runs again: its operations, and the bytes it moves. Views count nothing. */
uint64_t brim_recompute_work(const brim_node *n);
/* Fills the levels of `out`, in `arena`. `end`: nodes after which their results alone go on, [forward_count]. */
void brim_recompute_search(const brim_program *p, const bool *end, brim_arena *arena, brim_recompute *out);
#endif
