/* The collectives between the nodes of programs, if ranks divide the update (graph/shard.h):
 *
 *   training   with sharded gradients, in every micro-batch: adds up each bucket and gives every rank its part. Starts
 *              after the last node that adds to the bucket, ends before the rank adds its part to the stored one.
 *   check      adds up the proofs of all ranks, after the last node.
 *   update     adds up the squares of all gradients, before the node that makes a scale of the sum, if there is one.
 *              Then gathers each bucket of the parameters: starts after the last update of the rank's part, ends before
 *              the first moving average.
 *
 * All ranks have the same collectives in the same order, but may have them between different nodes. */
#ifndef BRIM_GRAPH_COLLECTIVES_H
#define BRIM_GRAPH_COLLECTIVES_H
#include "graph/plan.h"

/* [plan] Finds the collectives of a program whose tensors have offsets. Does nothing without shards. */
void brim_collectives_find(const brim_plan *plan, brim_program *program);
/* Whether a rank without samples needs this training node for the collectives: it zeroes a bucket, or adds the rank's
 * own part of the sum to the stored one. */
bool brim_collectives_need(const brim_graph *g, const brim_node *node);
/* For tests and debug builds: checks that the collectives are in order and inside the arena, and that their buffers are
 * alive while they run. EINTERNAL. */
brim_status brim_collectives_check(const brim_plan *plan, const brim_program *program);
#endif
