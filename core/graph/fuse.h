/* Fusion: pairs of operations that become one, so that what is between them makes no trip through memory. */
#ifndef BRIM_GRAPH_FUSE_H
#define BRIM_GRAPH_FUSE_H
#include "graph/graph.h"

/* The kinds of fusion: bits of brim_graph_options.fuse, and their names, in this order, as graph.fuse takes them. */
enum brim_fusion_kind {
  BRIM_FUSE_BIAS_ACTIVATION = 1, /* linear or conv2d, and an activation */
  BRIM_FUSE_NORM_ACTIVATION = 2, /* batch, group or layer norm, and relu */
  BRIM_FUSE_RESIDUAL_NORM = 4,   /* add, and layer norm or RMS norm of the sum */
  BRIM_FUSE_DROPOUT_ADD = 8,     /* dropout, and its addition to something else */
  BRIM_FUSE_LINEAR_LOSS = 16,    /* the last linear and softmax cross-entropy: see build.c */
  BRIM_FUSE_ALL = 31
};
#define BRIM_FUSE_NAMES "bias_activation|norm_activation|residual_norm|dropout_add|linear_loss"

/* Fuses what `fusions` allows in a graph that has no backward pass yet. offers(arg, op) tells whether an operation may
 * be used; NULL: every one. A tensor that the author named (output, kept, wanted) stays; ids of tensors and places of
 * nodes change. */
void brim_graph_fuse(brim_graph *g, uint64_t fusions, bool (*offers)(const void *arg, const char *op), const void *arg);
/* Behind autodiff: a linear_cross_entropy and its gradient become one node of the backward pass, with the metrics
 * behind it, if the backend (g->offers) has that: the logits are made once, not again for the gradient. Its scratch
 * holds those of some rows, of all classes. Results are the same bits. */
void brim_graph_fuse_loss(brim_graph *g);
#endif
