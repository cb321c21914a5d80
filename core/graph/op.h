/* What an operation is: one descriptor says its shapes, its gradient, what its memory may share, and what it
 * costs. A descriptor is registered where it is written:
 *
 *     BRIM_OP(relu) = {.name = "relu", .inplace = BRIM_OP_INPLACE(0), .infer = infer_relu, ...};
 *
 * so adding an operation touches its file here and one kernel in each backend. */
#ifndef BRIM_GRAPH_OP_H
#define BRIM_GRAPH_OP_H
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "brim/ops.h"

typedef struct brim_graph brim_graph;
typedef struct brim_autodiff brim_autodiff;

typedef struct brim_cost {
  uint64_t flops, bytes; /* multiply-adds count two; bytes read and written at least */
} brim_cost;

/* For operations "first+second": how the fusion pass (core/graph/fuse.c) replaces a node of the first and the node of
 * the second after it. */
typedef struct brim_fusion {
  uint64_t kind; /* enum brim_fusion_kind; 0: the pass does not make this operation */
  enum { BRIM_STAYS_NEVER, BRIM_STAYS_IN_TRAINING, BRIM_STAYS } first_stays; /* is the first one's result an output? */
  /* Makes `first` the fused node. False, with nothing changed: these two cannot be fused. */
  bool (*join)(brim_graph *g, brim_node *first, const brim_node *second);
} brim_fusion;

typedef struct brim_op {
  brim_op_traits traits; /* first: what backends see of the descriptor (brim/ops.h) */
  const char *name;
  /* For readers, as brim ops prints it: "x [N,F], weight [O,F], [bias [O]] -> y [N,O]". */
  const char *signature;
  uint32_t in_count, out_count;
  bool variadic; /* any number of inputs, at least in_count */
  /* The outputs to which its kernels add if they have role GRADIENT, BRIM_OP_FROM(i): all from out[i] on. What flows to
   * a parameter through any other output is computed aside and added by a node. */
  uint32_t accumulates;
  uint32_t optional; /* of the inputs, the last so many may be left out */
  /* The inputs whose memory out[0] may overwrite if nobody needs them later: a bit each, BRIM_OP_INPLACE(i) | ... The
   * first that is free is taken. The kernel must read each element of it before it writes that element. */
  uint32_t inplace;
  /* Likewise of out[1], which gets none that out[0] has; but where nobody reads out[0], it lies there itself: the
   * kernel makes an element of out[1] when it does not need that of out[0] any more. */
  uint32_t inplace_second;
  /* Where activations are kept in a smaller type (core/graph/lower.c): parameters among the inputs that the kernel
   * reads as they are, in fp32, where others are given as copies of that type; and outputs that stay in fp32, as
   * statistics and losses do. A bit each. */
  uint32_t wide_in, wide_out;
  bool converts;      /* out[0] holds in[0]'s values, perhaps in another type */
  bool probabilities; /* out[0] holds probabilities, or their logarithms */
  /* Of an operation that does the work of two and has the first one's result among its own: what the two are, as nodes
   * of its tensors. Recompute then may keep that result and make again what the second one does. Only of nodes where
   * the two, each with a kernel of its own, leave the same bits. False: they may not. NULL: it has no halves. */
  bool (*halve)(const brim_node *node, brim_arena *arena, brim_node half[2]);
  /* Sets dtype and shape of the outputs from those of the inputs, checks the attributes. NULL: the node is made
   * by the core with its outputs given. */
  brim_status (*infer)(brim_graph *g, brim_node *node);
  /* Emits the nodes that compute the gradients of the inputs. NULL: no gradient flows through. */
  brim_status (*gradient)(brim_autodiff *ad, const brim_node *node);
  void (*cost)(const brim_node *node, brim_cost *out); /* NULL: one flop an output element, all tensors once */
  /* A hash of the attributes on which the node's time depends. NULL: of all, brim_op_hash(). */
  uint64_t (*hash)(const brim_attr *attr);
  brim_fusion fusion;
} brim_op;

#define BRIM_OP_INPLACE(input) (1u << (input))
#define BRIM_OP_FROM(output) (~0u << (output))
#define BRIM_OP_WIDE(i) (1u << (i))
#define BRIM_OP_SAMPLES(i) (1u << (i))
/* Traits of most operations: every tensor has samples, each computed by itself. */
#define BRIM_OP_APART                                                                                                  \
  {                                                                                                                    \
    .samples_in = ~0u, .samples_out = ~0u, .apart = 1                                                                  \
  }
/* Descriptors lie side by side in a section of the object file; see op.c. */
#define BRIM_OP(id)                                                                                                    \
  static const brim_op op_##id;                                                                                        \
  static const brim_op *const op_entry_##id __attribute__((section("brim_ops"), used)) = &op_##id;                     \
  static const brim_op op_##id

const brim_op *brim_op_find(const char *name); /* NULL if there is none */
size_t brim_op_count(void);
const brim_op *brim_op_at(size_t i);
brim_cost brim_op_cost(const brim_node *node);
uint64_t brim_op_hash(const brim_attr *attr); /* 0 if all are zero */

/* For descriptors: one output, of in[0]'s shape; in[0] must have real numbers. */
brim_status brim_op_infer_same(brim_graph *g, brim_node *node);

/* For gradient rules. The gradient of a node's output, NULL if nobody needs it. */
brim_tensor *brim_autodiff_of(brim_autodiff *ad, const brim_tensor *output);
/* Is a gradient of this tensor needed at all (does a parameter lie behind it)? */
bool brim_autodiff_needs(const brim_autodiff *ad, const brim_tensor *input);
/* Has what flows back to `input` through `like` to be added up: is it a parameter, or has it no samples where `like`
 * has some? */
bool brim_autodiff_sums(const brim_autodiff *ad, const brim_node *like, const brim_tensor *input);
/* Where what a gradient's attributes point to may lie. */
brim_arena *brim_autodiff_arena(brim_autodiff *ad);
/* Emits `op` with the given inputs and attributes (NULL: of `like`). Output i is what flows back to of[i] through
 * `like`, has of[i]'s shape and is added to its gradient: by the kernel if that has to be added up and the operation
 * accumulates that output, else by a node of its own. If none of them needs a gradient, nothing is emitted. */
brim_status brim_autodiff_emit(brim_autodiff *ad, const char *op, const brim_node *like, const brim_attr *attr,
                               brim_tensor *const *in, uint32_t in_count, brim_tensor *const *of, uint32_t of_count);
/* For most operations of one input: emits `op` of dy, or of `kept` and dy (NULL: of dy alone), which flows to in[0]. */
brim_status brim_autodiff_pass(brim_autodiff *ad, const brim_node *node, const char *op, brim_tensor *kept);
/* Puts `gradient` in the place of an output's gradient; returns what was there. For a fused operation, whose first half
 * is then differentiated by its own rule. */
brim_tensor *brim_autodiff_replace(brim_autodiff *ad, const brim_tensor *output, brim_tensor *gradient);
/* Adds `flow`, an activation of x's shape, to the gradient of x. */
brim_status brim_autodiff_add(brim_autodiff *ad, const brim_node *like, brim_tensor *x, brim_tensor *flow);
/* Emits `op`, whose one output of the given shape is no gradient yet but on the way to one; NULL on error. */
brim_tensor *brim_autodiff_compute(brim_autodiff *ad, const char *op, const brim_node *like, const brim_attr *attr,
                                   brim_tensor *const *in, uint32_t in_count, const brim_shape *shape);
#endif
