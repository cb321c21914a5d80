/* The collectives that programs contain between their nodes if ranks share the update (graph/shard.h):
 *
 *   training   with sharded gradients, the sum of each bucket, scattered: starts after the last node that adds to it,
 *              ends before the own part is added to the rank's stored part. In every micro-batch.
 *   check      the sum of all ranks' proofs, after the last node.
 *   update     the sum of the squares of all gradients, before the node that makes a scale of it, if there is one; and
 *              each bucket of the parameters, gathered: starts after the last update of the rank's part, ends before
 *              the first moving average.
 *
 * All ranks have the same collectives in the same order, between nodes of their own. */
#ifndef BRIM_GRAPH_COLLECTIVES_H
#define BRIM_GRAPH_COLLECTIVES_H
#include "graph/plan.h"

/* [plan] Finds those of a program whose tensors have their offsets. Does nothing without shards. */
void brim_collectives_find(const brim_plan *plan, brim_program *program);
/* Does a rank without samples need this training node for the collectives: does it zero a bucket, or add the own part
 * of the sum to what the rank keeps? */
bool brim_collectives_need(const brim_graph *g, const brim_node *node);
/* For tests and debug builds: checks that they are in order and inside the arena, and that their buffers are alive
 * while they run. EINTERNAL. */
brim_status brim_collectives_check(const brim_plan *plan, const brim_program *program);
#endif
