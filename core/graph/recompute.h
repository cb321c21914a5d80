/* Recompute: results of the forward pass that the backward pass needs are dropped in between, and made again by clones
 * of the nodes that made them, right before their first use. It comes after fusion and autodiff and drops whole nodes,
 * so whole fused groups. A clone has the inputs and attributes of its node, and kernels are functions of these
 * (dropout's numbers come from counters): so no bit of a gradient changes.
 *
 * What is dropped is chosen once for a graph, as levels: each drops what the one before it does and more, for less
 * memory and more work. The least level whose plan fits costs least, and a larger budget never leads to a higher level.
 */
#ifndef BRIM_GRAPH_RECOMPUTE_H
#define BRIM_GRAPH_RECOMPUTE_H
#include "graph/graph.h"

enum brim_recompute_kind { BRIM_RECOMPUTE_NONE, BRIM_RECOMPUTE_BLOCKS, BRIM_RECOMPUTE_FULL, BRIM_RECOMPUTE_AUTO };
#define BRIM_RECOMPUTE_NAMES "none|blocks|full|auto"
#define BRIM_RECOMPUTE_LEVELS_MAX 64

typedef struct brim_recompute {
  uint32_t *level; /* [nodes] of the forward pass: dropped from this level on; UINT32_MAX: never */
  size_t nodes;    /* of the forward pass */
  uint32_t levels; /* that there are, from 1; level 0 drops nothing */
} brim_recompute;

/* [plan] What to drop in a training graph that drops nothing yet and whose nodes are prepared, so that sizes are those
 * in memory. `none` has no level, `blocks` and `full` one, `auto` as many as help. In `arena`. */
void brim_recompute_choose(const brim_graph *g, enum brim_recompute_kind kind, brim_arena *arena, brim_recompute *out);
/* [plan] Puts the clones into another graph of the same model and batch, which is not prepared yet. The graph keeps its
 * error. */
brim_status brim_recompute_apply(brim_graph *g, const brim_recompute *r, uint32_t level);
#endif
