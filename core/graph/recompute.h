/* Recompute: drops results of the forward pass that the backward pass needs, and computes them again with clones of
 * their nodes, right before their first use. It runs after fusion and autodiff, and drops whole nodes, which may be
 * fused. A clone has its node's inputs and attributes, and kernels are functions of these (dropout's numbers come from
 * counters), so no bit of a gradient changes.
 *
 * The choice of tensors to drop is made once for a graph, as levels, each with less memory and more work than the one
 * before. The first level whose plan fits costs least, and a larger budget never leads to a later level. */
#ifndef BRIM_GRAPH_RECOMPUTE_H
#define BRIM_GRAPH_RECOMPUTE_H
#include "base/text.h"
#include "graph/graph.h"

struct brim_program;

enum brim_recompute_kind { BRIM_RECOMPUTE_NONE, BRIM_RECOMPUTE_BLOCKS, BRIM_RECOMPUTE_FULL, BRIM_RECOMPUTE_AUTO };
#define BRIM_RECOMPUTE_NAMES "none|blocks|full|auto"
const char *brim_recompute_name(enum brim_recompute_kind kind); /* "blocks" */
#define BRIM_RECOMPUTE_LEVELS_MAX 64

typedef struct brim_recompute {
  uint32_t levels; /* number of levels, from 1; level 0 drops nothing */
  /* by level: the forward nodes to drop, and a lower bound for the transient bytes of the plan */
  const bool *dropped[BRIM_RECOMPUTE_LEVELS_MAX + 1];
  uint64_t bytes[BRIM_RECOMPUTE_LEVELS_MAX + 1];
} brim_recompute;

/* [plan] Chooses the tensors to drop in a training program that drops none yet and whose nodes are prepared, so that
 * sizes are those in memory. `none` has no level, `blocks` and `full` have one, and `auto` has as many as are useful.
 * The result lives in `arena`. */
void brim_recompute_choose(const struct brim_program *p, enum brim_recompute_kind kind, brim_arena *arena,
                           brim_recompute *out);
/* A cache of the choices of `auto`, because choosing takes much longer than planning. It serves plans that differ only
 * in batch, type of activations, device and budget, such as the plans of a run. Initially empty; release frees it. */
typedef struct brim_recompute_cache {
  struct brim_recompute_entry *first;
} brim_recompute_cache;
/* [plan] The same as brim_recompute_choose with a cache, which owns the result. Several threads may use a cache. */
const brim_recompute *brim_recompute_levels(brim_recompute_cache *cache, const struct brim_program *p,
                                            enum brim_recompute_kind kind);
void brim_recompute_cache_release(brim_recompute_cache *cache);
/* [plan] Adds the clones of a level to a training graph of the same model and batch, in the place of those of another
 * level. Its nodes must be prepared again. On failure sets the graph's error. */
brim_status brim_recompute_apply(brim_graph *g, const brim_recompute *r, uint32_t level);
/* Recomputed FLOPs of a program, as a share of those without recompute. */
double brim_recompute_share(const struct brim_program *p);
/* Prints "recompute=auto: 12 operations recomputed, 5.6 % more work in a step" for a training program; nothing for
 * `none`. */
void brim_recompute_print(const struct brim_program *train, enum brim_recompute_kind kind, brim_text *out);
#endif
