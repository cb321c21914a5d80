/* Estimates how much memory is alive at each moment of a training graph if some results are dropped. Internal to
 * recompute*.c.
 *
 * A search asks for hundreds of sets of dropped nodes, each almost equal to the one before. So an estimate keeps its
 * results and updates only those that change. */
#ifndef BRIM_GRAPH_RECOMPUTE_ESTIMATE_H
#define BRIM_GRAPH_RECOMPUTE_ESTIMATE_H
#include "graph/recompute_walk.h"

/* A moment of the walk of recompute_walk.h, as a number that does not depend on which other clones run: a step of the
 * forward pass is its index; a node of the backward pass comes after the clones that it needs, and these are ordered by
 * the input that needs them first, then by node. Bits, from the highest: 22 for the node of the backward pass, 20 for
 * its input, 22 for the clone's node; all ones for the input and the clone: the node itself. */
typedef uint64_t brim_moment;
#define BRIM_MOMENT_NEVER UINT64_MAX

/* A tensor's lifetime, inclusive. Its memory has two lives if it is dropped. */
typedef struct brim_life {
  brim_moment first, last; /* first: NEVER if no node uses the memory */
} brim_life;

typedef struct brim_estimate {
  brim_walk w;      /* the caller sets w.dropped; w.made: whether a node's clone runs */
  uint32_t *root;   /* by tensor: the tensor whose memory it uses */
  int64_t *bytes;   /* by tensor; 0: not transient */
  brim_moment when; /* moment of the peak */
  struct brim_alive *alive;
} brim_estimate;

/* Prepares an estimate for a program that drops nothing and whose nodes are prepared. */
void brim_estimate_init(brim_estimate *e, const brim_program *p, brim_arena *arena);
/* The lower bound for the transient bytes of a plan with the current drops; e->when becomes the moment that needs them.
 * A plan takes more because of gaps between buffers, and of results that could be in place but are not. */
uint64_t brim_estimate_run(brim_estimate *e);
/* Returns whether a result of the forward pass is kept at the peak only for the backward pass. Call brim_estimate_run
 * before. */
bool brim_estimate_waits(const brim_estimate *e, const brim_tensor *t);
/* Returns for each node the bytes alive while it runs, and those alive right before. Call brim_estimate_run before,
 * with nothing dropped. */
void brim_estimate_list(const brim_estimate *e, int64_t *during, int64_t *before);
/* Returns a node's workspace, less results that may be in place. */
int64_t brim_estimate_work(const brim_estimate *e, uint32_t node);
#endif
