/* Fusion: merges pairs of operations, so that the tensor between them need not be written to memory and read again. */
#ifndef BRIM_GRAPH_FUSE_H
#define BRIM_GRAPH_FUSE_H
#include "graph/graph.h"

/* The kinds of fusion: bits of brim_graph_options.fuse, and their names, in this order, for the key graph.fuse. */
enum brim_fusion_kind {
  BRIM_FUSE_BIAS_ACTIVATION = 1, /* linear or conv2d, and an activation; max pooling or dropout, and relu */
  BRIM_FUSE_NORM_ACTIVATION = 2, /* batch, group or layer norm, or a batch norm's sum, and relu */
  BRIM_FUSE_RESIDUAL_NORM = 4,   /* add, and layer norm or RMS norm of the sum */
  BRIM_FUSE_DROPOUT_ADD = 8,     /* dropout, and the addition of its result to another tensor */
  BRIM_FUSE_LINEAR_LOSS = 16,    /* the last linear and softmax cross-entropy: see build.c */
  BRIM_FUSE_QKV = 32,            /* attention, and the slices of one tensor that it reads as q, k and v */
  BRIM_FUSE_NORM_ADD = 64,       /* batch norm, and add to its result */
  BRIM_FUSE_ALL = 127
};
#define BRIM_FUSE_NAMES "bias_activation|norm_activation|residual_norm|dropout_add|linear_loss|qkv|norm_add"

/* Makes the fusions that `fusions` allows in a graph without a backward pass. offers(arg, op) says whether an operation
 * may be used; NULL: all may. A tensor that the author named (output, kept, wanted) stays; tensor ids and node indices
 * change. */
void brim_graph_fuse(brim_graph *g, uint64_t fusions, bool (*offers)(const void *arg, const char *op), const void *arg);
/* Part of brim_graph_fuse, in fuse_qkv.c: attention that reads three slices of one tensor reads that tensor. */
void brim_graph_fuse_qkv(brim_graph *g);
/* The number of nodes that read each tensor, by id; a tensor that is read outside the graph has one more. In the
 * graph's arena. */
uint32_t *brim_graph_readers(brim_graph *g);
/* Removes the tensors for which gone[id] is set, and numbers the other tensors, and the nodes, again. */
void brim_graph_drop_tensors(brim_graph *g, const bool *gone);
/* Call after autodiff: a linear_cross_entropy and its gradient become one node of the backward pass, followed by the
 * metrics, if the backend (g->offers) has that operation. So the logits are not computed again for the gradient. The
 * node's scratch holds the logits of some rows, for all classes. Results are bit-identical. */
void brim_graph_fuse_loss(brim_graph *g);
/* Emits `op`, the gradient of a norm with respect to of[0]. If later nodes have already given of[0] a gradient, emits
 * the kernel that adds to it, if the backend offers that kernel (norm.c). */
brim_status brim_norm_emit_gradient(brim_autodiff *ad, const brim_node *n, const char *op, brim_tensor *const *in,
                                    uint32_t in_count, brim_tensor *const *of, uint32_t of_count);
#endif
