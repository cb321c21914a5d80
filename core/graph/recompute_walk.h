/* The order in which the nodes of a training graph run if some results are dropped. Internal to recompute*.c. */
#ifndef BRIM_GRAPH_RECOMPUTE_WALK_H
#define BRIM_GRAPH_RECOMPUTE_WALK_H
#include "graph/plan.h"

/* Makes the graph in which drops are chosen: `whole`, with two nodes for each node that has halves (see op.h), so that
 * each half may be dropped alone. Nodes are renumbered copies; tensors are shared. `of`: by node, the node of `whole`
 * that it copies, or is half of. The result lives in `arena`. */
const brim_graph *brim_walk_halve(const brim_graph *whole, brim_arena *arena, uint32_t **of);

/* Tensor ids by node, in one array, because the nodes and tensors themselves do not fit into the processor's caches. */
typedef struct brim_walk_ids {
  uint32_t *begin; /* by node, and one more for the end */
  uint32_t *id;
} brim_walk_ids;

/* Walks the backward pass in order. Before a node that needs a dropped tensor come the clones that compute it, in the
 * order of the forward pass, starting from tensors that are kept. */
typedef struct brim_walk {
  const brim_graph *g;     /* the graph with halves; the arrays below are by its nodes */
  const brim_graph *whole; /* as passed to brim_walk_init */
  uint32_t *of;            /* by node: its node of `whole` */
  brim_walk_ids in, out;
  bool together;   /* the visited node is half of a node of `whole`, and the walk visits the other half before or after
                      it, so one kernel computes both */
  size_t tensors;  /* number of tensors of the forward pass, including its inputs */
  int32_t *maker;  /* by tensor: the forward node that computes it; -1: none */
  bool *dropped;   /* by node of the forward pass */
  bool *made;      /* by node: its clone has been visited */
  uint32_t *stack; /* nodes to clone */
  void (*visit)(struct brim_walk *w, uint32_t node, bool clone);
} brim_walk;

/* Prepares a walk. `whole`: a graph without recompute. */
void brim_walk_init(brim_walk *w, const brim_graph *whole, brim_arena *arena);
void brim_walk_backward(brim_walk *w);
static inline bool brim_walk_drops(const brim_walk *w, uint32_t tensor)
{
  return w->maker[tensor] >= 0 && w->dropped[w->maker[tensor]];
}
/* Whether a node is the second half of a node of `whole`; the first half is right before it. */
static inline bool brim_walk_is_second(const brim_walk *w, uint32_t node)
{
  return node > 0 && w->of[node] == w->of[node - 1];
}
/* The tensor whose memory a view uses, in the original graph. */
const brim_tensor *brim_walk_root(const brim_graph *g, const brim_tensor *t);
/* Whether a node gives the same result when it runs again. */
bool brim_walk_repeats(const brim_graph *g, const brim_node *n);

#endif
