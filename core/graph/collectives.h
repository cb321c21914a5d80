/* The collectives that programs have between their nodes where ranks share out what they update (graph/shard.h):
 *
 *   training   with gradients that are shared out, of each bucket the sum, scattered: behind the last node that adds to
 *              it, and done before the own part is added to what the rank keeps. In every micro-batch.
 *   check      the sum of all ranks' proofs, behind the last node.
 *   update     the sum of the squares of all gradients, before the node that makes a scale of it, if one does; and each
 *              bucket of the parameters, gathered: behind the last update of the rank's part, and done before the first
 *              moving average.
 *
 * All ranks have the same ones in the same order, between nodes of their own. */
#ifndef BRIM_GRAPH_COLLECTIVES_H
#define BRIM_GRAPH_COLLECTIVES_H
#include "graph/plan.h"

/* [plan] Of a program whose tensors have their offsets. Nothing without shards. */
void brim_collectives_find(const brim_plan *plan, brim_program *program);
/* Is a node of training needed for them by a rank that has no samples: does it write a bucket's zeros, or add the own
 * part of the sum to what the rank keeps? */
bool brim_collectives_need(const brim_graph *g, const brim_node *node);
/* For tests and debug builds: are they in order, inside the arena, and is what they work on alive meanwhile? EINTERNAL.
 */
brim_status brim_collectives_check(const brim_plan *plan, const brim_program *program);
#endif
