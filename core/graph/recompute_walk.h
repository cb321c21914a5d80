/* What recompute knows of a training graph: in which order its nodes run when some results are dropped, and how much
 * memory lives then. Internal to recompute*.c. */
#ifndef BRIM_GRAPH_RECOMPUTE_WALK_H
#define BRIM_GRAPH_RECOMPUTE_WALK_H
#include "graph/plan.h"

/* The graph in which what is dropped is chosen: `whole`, with two nodes for each that has halves (see op.h), so that
 * either may be dropped alone. Its nodes are copies, numbered anew; tensors are shared. `of`: by node, which node
 * of `whole` it is or is half of. In `arena`. */
const brim_graph *brim_walk_halve(const brim_graph *whole, brim_arena *arena, uint32_t **of);

/* Ids of tensors by node, one node's behind those of the node before: a walk goes over all nodes, a search makes
 * hundreds of walks, and nodes and tensors themselves are spread over more memory than caches hold. */
typedef struct brim_walk_ids {
  uint32_t *begin; /* by node, and one more */
  uint32_t *id;
} brim_walk_ids;

/* The backward pass is walked in order: before a node that needs a dropped tensor come the clones that make it, in the
 * order of the forward pass, back to tensors that are kept. Estimates and the rewriting of a graph walk alike. */
typedef struct brim_walk {
  const brim_graph *g;     /* with halves; what follows is by its nodes */
  const brim_graph *whole; /* as it was given */
  uint32_t *of;            /* by node: that of `whole` */
  brim_walk_ids in, out;
  bool together;   /* the node that is visited is one half, and the other is visited next to it: one kernel does both */
  size_t tensors;  /* of the forward pass, and what came before */
  int32_t *maker;  /* by tensor: the node of the forward pass whose activation it is; -1: none */
  bool *dropped;   /* by node of the forward pass */
  bool *made;      /* by node: its clone is there */
  uint32_t *stack; /* nodes to be cloned */
  void (*visit)(struct brim_walk *w, uint32_t node, bool clone);
} brim_walk;

/* `whole`: with nothing dropped yet. */
void brim_walk_init(brim_walk *w, const brim_graph *whole, brim_arena *arena);
void brim_walk_backward(brim_walk *w);
static inline bool brim_walk_drops(const brim_walk *w, uint32_t tensor)
{
  return w->maker[tensor] >= 0 && w->dropped[w->maker[tensor]];
}
/* Is it the second half of a node? The first is right before it. */
static inline bool brim_walk_is_second(const brim_walk *w, uint32_t node)
{
  return node > 0 && w->of[node] == w->of[node - 1];
}
/* The tensor whose memory a view's result is. In the graph as it was given. */
const brim_tensor *brim_walk_root(const brim_graph *g, const brim_tensor *t);
/* Does a node do the same when it runs twice? */
bool brim_walk_repeats(const brim_graph *g, const brim_node *n);

/* When tensors live, in steps of the walk. By instance: a tensor, or behind all of them its clone. */
typedef struct brim_estimate {
  brim_walk w;    /* the first: visits are given it */
  uint32_t *root; /* by tensor: whose memory it is */
  int64_t *bytes; /* by tensor; 0: not transient */
  int64_t *here;  /* by node: workspace, less results that may lie in place */
  int64_t *both;  /* the same of a half together with the other */
  int32_t *first, *last, *forward_first, *forward_last;
  int64_t *live;  /* by step: what a node needs beside what is touched */
  int64_t *total; /* by step: all that lives, when brim_estimate_run is done */
  int32_t now, when;
} brim_estimate;

/* Of a program that drops nothing and whose nodes are prepared. */
void brim_estimate_init(brim_estimate *e, const brim_program *p, brim_arena *arena);
/* The least transient bytes that any plan takes with what is dropped now, and in e->when the step that needs them. It
 * is less than what a plan takes by the gaps between buffers, and by results that could lie in place but do not. */
uint64_t brim_estimate_run(brim_estimate *e);
#endif
