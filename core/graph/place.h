/* Places a plan's persistent parts and each program's tensors in the arena. */
#ifndef BRIM_GRAPH_PLACE_H
#define BRIM_GRAPH_PLACE_H
#include "graph/plan.h"

/* [plan] Sets the starts and sizes of the persistent parts, and of the block in host memory. Takes a graph of each
 * kind, or NULL if the plan has none; the programs must have their graphs. */
void brim_place_persistent(brim_plan *plan, const brim_graph *train, const brim_graph *eval, const brim_graph *update);
/* [plan] Sets the offsets of a program's tensors, and converts its buffers' offsets, which until then count from the
 * start of the transient part. All programs must have their transient parts. */
void brim_place_tensors(const brim_plan *plan, brim_program *program);
/* The largest transient part of any program. */
uint64_t brim_place_most_transient(const brim_plan *plan);
#endif
