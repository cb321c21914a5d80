/* An operation's descriptor: its shapes, its gradient, the memory that it may share, and its cost. A descriptor is
 * registered where it is written:
 *
 *     BRIM_OP(relu) = {.name = "relu", .inplace = BRIM_OP_INPLACE(0), .infer = infer_relu, ...};
 *
 * so a new operation needs a file here and one kernel in each backend. */
#ifndef BRIM_GRAPH_OP_H
#define BRIM_GRAPH_OP_H
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "brim/ops.h"

typedef struct brim_graph brim_graph;
typedef struct brim_autodiff brim_autodiff;

typedef struct brim_cost {
  uint64_t flops, bytes; /* a multiply-add counts two; bytes: minimum read and written */
} brim_cost;

/* The kind of work, for reports. */
enum brim_op_kind {
  BRIM_KIND_POINTWISE,
  BRIM_KIND_PRODUCT,
  BRIM_KIND_PRODUCT_LOSS, /* a loss with the product that makes its logits */
  BRIM_KIND_ATTENTION,
  BRIM_KIND_CONVOLUTION,
  BRIM_KIND_RECURRENT,
  BRIM_KIND_NORM,
  BRIM_KIND_POOLING,
  BRIM_KIND_REDUCTION, /* sums, softmax, losses, metrics */
  BRIM_KIND_LOOKUP,
  BRIM_KIND_COPY, /* copies, also to another type or layout */
  BRIM_KIND_UPDATE,
  BRIM_OP_KINDS
};
/* Whether matrix products are most of the work of this kind. */
static inline bool brim_kind_is_product(enum brim_op_kind kind)
{
  return kind >= BRIM_KIND_PRODUCT && kind <= BRIM_KIND_RECURRENT;
}

/* For operations "first+second": how the fusion pass (core/graph/fuse.c) replaces a node of the first and the following
 * node of the second. */
typedef struct brim_fusion {
  uint64_t kind; /* enum brim_fusion_kind; 0: the fusion pass does not make this operation */
  /* in which graphs the first one's result is an output */
  enum { BRIM_STAYS_NEVER, BRIM_STAYS_IN_TRAINING, BRIM_STAYS } first_stays;
  /* Turns `first` into the fused node. Returns false, with nothing changed, if the two cannot be fused. */
  bool (*join)(brim_graph *g, brim_node *first, const brim_node *second);
} brim_fusion;

typedef struct brim_op {
  brim_op_traits traits; /* first: the part of the descriptor that backends see (brim/ops.h) */
  const char *name;
  enum brim_op_kind kind;
  /* The inputs and outputs, as `brim ops` prints them: "x [N,F], weight [O,F], [bias [O]] -> y [N,O]". Those in
   * brackets of their own may be omitted; "x, ...": any number. */
  const char *signature;
  /* Bits of the outputs that the kernels add to if they have role GRADIENT; BRIM_OP_FROM(i): all from out[i] on. For
   * any other output, the gradient of a parameter is computed separately, and a node adds it. */
  uint32_t accumulates;
  /* The inputs whose memory out[0] may overwrite if no later node needs them: BRIM_OP_INPLACE(i) | ... The plan uses
   * the first of them that is free. The kernel must read each element before it writes that element. */
  uint32_t inplace;
  /* The inputs whose memory out[1] may overwrite. out[1] never overwrites the input that out[0] overwrites. If out[0]
   * is never read, out[1] may get its memory, so the kernel may write an element of out[1] only when it no longer needs
   * that element of out[0]. */
  uint32_t inplace_second;
  /* The inputs that the kernel still reads after it has written a part of out[0]. So out[0] never overwrites memory
   * that one of them shares. */
  uint32_t reread;
  /* If activations have a smaller type (core/graph/lower.c): bits of the inputs whose parameters the kernel reads in
   * fp32 (other parameters are copied to the smaller type), and bits of the outputs that stay in fp32, such as
   * statistics and losses. */
  uint32_t wide_in, wide_out;
  /* For generation (core/graph/generate.c): whether this node computes each token's results only from that token's
   * inputs or from a cache. The node's tensors have the tokens of all texts as the first two dimensions. NULL: it does
   * not. */
  bool (*each_token)(const brim_node *node);
  bool converts;      /* out[0] holds in[0]'s values, possibly in another type */
  bool probabilities; /* out[0] holds probabilities, or their logarithms */
  /* For a fused operation that also outputs the result of its first half: makes nodes for the two halves, on the fused
   * node's tensors. Recompute may then keep that result and recompute only the second half. Returns false if the two
   * halves, run as separate kernels, would not give the bits of the fused kernel. NULL: the operation has no halves. */
  bool (*halve)(const brim_node *node, brim_arena *arena, brim_node half[2]);
  /* Sets dtype and shape of the outputs from the inputs, and checks the attributes. NULL: only the core makes such
   * nodes, with given outputs. */
  brim_status (*infer)(brim_graph *g, brim_node *node);
  /* Emits the nodes that compute the gradients of the inputs. NULL: the operation passes no gradient to its inputs. */
  brim_status (*gradient)(brim_autodiff *ad, const brim_node *node);
  /* Sets the flops, and the bytes if they are not those of all tensors once. NULL: the flops are `flops` for each
   * element of in[0] or, if that is 0, one for each element of out[0]. */
  void (*cost)(const brim_node *node, brim_cost *out);
  uint32_t flops;
  /* A hash of the attributes that affect the node's time. NULL: brim_op_hash(), of all attributes. */
  uint64_t (*hash)(const brim_attr *attr);
  brim_fusion fusion;
} brim_op;

#define BRIM_OP_INPLACE(input) (1u << (input))
#define BRIM_OP_FROM(output) (~0u << (output))
#define BRIM_OP_WIDE(i) (1u << (i))
#define BRIM_OP_SAMPLES(i) (1u << (i))
/* Traits of most operations: every tensor has samples, each computed independently. */
#define BRIM_OP_APART                                                                                                  \
  {                                                                                                                    \
    .samples_in = ~0u, .samples_out = ~0u, .apart = 1                                                                  \
  }
/* Registers a descriptor in a section of the object file; see op.c. */
#define BRIM_OP(id)                                                                                                    \
  static const brim_op op_##id;                                                                                        \
  static const brim_op *const op_entry_##id __attribute__((section("brim_ops"), used)) = &op_##id;                     \
  static const brim_op op_##id

const brim_op *brim_op_find(const char *name); /* NULL if unknown */
size_t brim_op_count(void);
const brim_op *brim_op_at(size_t i);
/* The numbers in a signature: of inputs, of the inputs that may be omitted, which come last, and of outputs. */
typedef struct brim_op_arity {
  uint32_t in, optional, out;
  bool variadic; /* any number of inputs, at least `in` */
} brim_op_arity;
brim_op_arity brim_op_arity_of(const brim_op *op);
brim_cost brim_op_cost(const brim_node *node);
/* The cost by the descriptor `op`, which may be of a part of a fused node. `out` already has the bytes. */
void brim_op_take_cost(const brim_op *op, const brim_node *node, brim_cost *out);
uint64_t brim_op_hash(const brim_attr *attr); /* 0 if all are zero */

/* An infer function for descriptors: one output, of in[0]'s shape; in[0] must have real numbers. */
brim_status brim_op_infer_same(brim_graph *g, brim_node *node);

/* Functions for each_token of descriptors: true always; true if in[0] is [N,T,...,F], for operations over the last
 * dimension; true if the axis of attr.move is not that of the tokens. */
bool brim_op_each_token(const brim_node *node);
bool brim_op_each_token_last(const brim_node *node);
bool brim_op_each_token_axis(const brim_node *node);

/* For gradient rules: the gradient of a node's output, or NULL if none flows there. */
brim_tensor *brim_autodiff_of(brim_autodiff *ad, const brim_tensor *output);
/* Whether the gradient of this tensor is needed, because it depends on a parameter. */
bool brim_autodiff_needs(const brim_autodiff *ad, const brim_tensor *input);
/* Whether the gradient that `like` passes to `input` must be added up: `input` is a parameter, or has no samples while
 * `like` has some. */
bool brim_autodiff_sums(const brim_autodiff *ad, const brim_node *like, const brim_tensor *input);
/* The arena for data that a gradient's attributes point to. */
brim_arena *brim_autodiff_arena(brim_autodiff *ad);
/* Emits `op` with the given inputs and attributes (NULL: those of `like`). Output i is the gradient that `like` passes
 * to of[i]; it has of[i]'s shape and is added to its gradient: by the kernel if it must be added up and the operation
 * accumulates that output, otherwise by a separate node. Emits nothing if no gradient is needed. */
brim_status brim_autodiff_emit(brim_autodiff *ad, const char *op, const brim_node *like, const brim_attr *attr,
                               brim_tensor *const *in, uint32_t in_count, brim_tensor *const *of, uint32_t of_count);
/* For most operations of one input: emits `op` of dy, or of `kept` and dy (NULL: of dy alone), which gives in[0]'s
 * gradient. */
brim_status brim_autodiff_pass(brim_autodiff *ad, const brim_node *node, const char *op, brim_tensor *kept);
/* Replaces an output's gradient; returns the previous one. For a fused operation: the rule of its first half then
 * differentiates it. */
brim_tensor *brim_autodiff_replace(brim_autodiff *ad, const brim_tensor *output, brim_tensor *gradient);
/* For a rule whose kernel adds to the gradient that x already has: takes that gradient from x. NULL if x has none yet,
 * or its gradient is added up over the samples. */
brim_tensor *brim_autodiff_take(brim_autodiff *ad, const brim_tensor *x);
/* Whether the backend has an operation that the core can do without. */
bool brim_autodiff_offers(const brim_autodiff *ad, const char *op);
/* Emits `op` for an intermediate result on the way to a gradient, with one output of the given shape; NULL on error. */
brim_tensor *brim_autodiff_compute(brim_autodiff *ad, const char *op, const brim_node *like, const brim_attr *attr,
                                   brim_tensor *const *in, uint32_t in_count, const brim_shape *shape);
#endif
