/* Where everything of a plan lies in the arena: the persistent parts, and the tensors of each program. */
#ifndef BRIM_GRAPH_PLACE_H
#define BRIM_GRAPH_PLACE_H
#include "graph/plan.h"

/* [plan] The starts and sizes of the persistent parts, and of the block in host memory. Graphs of each kind, NULL where
 * the plan has none; programs have theirs. */
void brim_place_persistent(brim_plan *plan, const brim_graph *train, const brim_graph *eval, const brim_graph *update);
/* [plan] The offsets of a program's tensors; its buffers' are from the start of the transient part until then. All
 * programs have their transient parts by now. */
void brim_place_tensors(const brim_plan *plan, brim_program *program);
/* The most that any program's transient part takes. */
uint64_t brim_place_most_transient(const brim_plan *plan);
#endif
