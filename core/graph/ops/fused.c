/* Fused operations, and how the fusion pass (core/graph/fuse.c) makes their nodes. Their shapes, costs and gradients
 * are those of the two operations, looked up by name.
 *
 * The gradient of most activations needs only their result, so the tensor between the two is not kept. That of gelu and
 * silu needs their input: in training it is a second output. */
#include <stdio.h>
#include <string.h>

#include "graph/fuse.h"

/* The first operation: "linear" of "linear+relu". */
static const brim_op *first_of(const brim_node *n)
{
  char name[64];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(n->op, "+"), n->op);
  return brim_op_find(name);
}

/* The second operation or, with `suffix`, its gradient. */
static const brim_op *second_of(const brim_node *n, const char *suffix)
{
  char name[64];
  snprintf(name, sizeof name, "%s%s", strchr(n->op, '+') + 1, suffix);
  return brim_op_find(name);
}

static brim_status infer_first(brim_graph *g, brim_node *n)
{
  return first_of(n)->infer(g, n);
}

static brim_status infer_keeping(brim_graph *g, brim_node *n)
{
  n->out_count = g->training ? 2 : 1;
  BRIM_TRY(infer_first(g, n));
  if (g->training) n->out[1] = brim_graph_like(g, n, &n->out[0]->shape);
  return BRIM_OK;
}

static void cost_both(const brim_node *n, brim_cost *out)
{
  brim_cost second = {.flops = (uint64_t)brim_shape_count(&n->out[0]->shape)};
  if (second_of(n, "")->cost) second_of(n, "")->cost(n, &second);
  if (first_of(n)->cost) first_of(n)->cost(n, out);
  out->flops += second.flops;
}

/* Applies the first one's rule to the gradient of its result. */
static brim_status gradient_of_first(brim_autodiff *ad, const brim_node *n, brim_tensor *before)
{
  brim_tensor *dy = brim_autodiff_replace(ad, n->out[0], before);
  const brim_status status = first_of(n)->gradient(ad, n);
  brim_autodiff_replace(ad, n->out[0], dy);
  return status;
}

static brim_status gradient_by_result(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {n->out[0], brim_autodiff_of(ad, n->out[0])};
  if (!in[1]) return BRIM_OK;
  const brim_attr attr = {.activation = n->attr.fused.activation};
  brim_tensor *before = brim_autodiff_compute(ad, second_of(n, "_grad")->name, n, &attr, in, 2, &n->out[0]->shape);
  return before ? gradient_of_first(ad, n, before) : BRIM_EINVAL; /* the graph has the error */
}

/* Adds to the gradient of the kept tensor, as other nodes may have read it and added to its gradient already. */
static brim_status gradient_by_kept(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {n->out[1], brim_autodiff_of(ad, n->out[0])};
  const brim_attr attr = {.activation = n->attr.fused.activation};
  if (in[1]) BRIM_TRY(brim_autodiff_emit(ad, second_of(n, "_grad")->name, n, &attr, in, 2, &n->out[1], 1));
  return gradient_of_first(ad, n, brim_autodiff_of(ad, n->out[1]));
}

/* ---- halves ---- */

static brim_node make_half(const brim_node *n, const brim_op *op)
{
  brim_node half = *n;
  half.descriptor = op;
  half.op = op->name;
  return half;
}

/* The halves are linear, and the activation of its result. The fused kernel may apply the activation before rounding:
 * that gives the same bits only in types whose results are not rounded further. */
static bool halve_keeping(const brim_node *n, brim_arena *arena, brim_node half[2])
{
  (void)arena;
  if (n->out_count < 2 || (n->out[1]->dtype != BRIM_DTYPE_F32 && n->out[1]->dtype != BRIM_DTYPE_F64)) return false;
  half[0] = make_half(n, first_of(n));
  half[0].out = n->out + 1;
  half[0].out_count = 1;
  half[1] = make_half(n, second_of(n, ""));
  half[1].in = n->out + 1;
  half[1].in_count = 1;
  half[1].out_count = 1;
  half[1].attr = (brim_attr){.activation = n->attr.fused.activation};
  return true;
}

/* The sum, then its norm, which uses the sum as stored, in every type. */
static bool halve_sum_norm(const brim_node *n, brim_arena *arena, brim_node half[2])
{
  half[0] = make_half(n, first_of(n));
  half[0].in_count = 2;
  half[0].out_count = 1;
  half[1] = make_half(n, second_of(n, ""));
  half[1].in_count = n->in_count - 1;
  half[1].in = BRIM_ARENA_NEW(arena, brim_tensor *, half[1].in_count);
  half[1].in[0] = n->out[0];
  memcpy(half[1].in + 1, n->in + 2, (half[1].in_count - 1) * sizeof *n->in);
  half[1].out = n->out + 1;
  half[1].out_count = n->out_count - 1;
  return true;
}

/* ---- fusion ---- */

/* The activation's result replaces its input. */
static bool join_activation(brim_graph *g, brim_node *first, const brim_node *second)
{
  (void)g;
  first->attr.fused.activation = second->attr.activation;
  first->out[0] = second->out[0];
  return true;
}

/* Its gradient follows from the sign of its result, which a slope above 0 keeps. */
static bool join_leaky_relu(brim_graph *g, brim_node *first, const brim_node *second)
{
  return second->attr.activation.factor > 0 && join_activation(g, first, second);
}

/* Whether the next node is another such product. Nodes with one operand and a result of the same size may come before
 * it. */
static bool is_followed_by(const brim_graph *g, const brim_node *n, const char *op)
{
  for (size_t i = n->index + 1; i < g->node_count; i++) {
    const brim_node *next = g->node[i];
    if (strcmp(next->op, op) == 0) return true;
    if (next->in_count != 1 || next->out[0]->bytes != next->in[0]->bytes) return false;
  }
  return false;
}

/* In training both results stay. The product's scratch lives while both are made; this is no more than another product
 * right after it needs, because a layer keeps its input for its gradient, so the same tensors are alive. In other cases
 * the plan might become larger, for instance with four dimensions, which the product may have to copy. */
static bool join_keeping(brim_graph *g, brim_node *first, const brim_node *second)
{
  if (!g->training) return join_activation(g, first, second);
  brim_tensor *before = first->out[0];
  if (second->out[0] == before || before->shape.rank == 4 || !is_followed_by(g, second, first->op)) return false;
  first->out = BRIM_ARENA_NEW(&g->arena, brim_tensor *, 2);
  first->out[1] = before;
  first->out_count = 2;
  return join_activation(g, first, second);
}

/* Whether the sum uses the operand as it is: not if it is repeated, or its gradient is added up. */
static bool is_whole(const brim_graph *g, const brim_tensor *operand, const brim_tensor *sum)
{
  return operand->role != BRIM_ROLE_PARAMETER && brim_shape_equal(&operand->shape, &sum->shape) &&
         brim_graph_has_samples(g, operand) == brim_graph_has_samples(g, sum);
}

/* Joins a dropout and an addition to a + dropout(x), with inputs a, x. */
static bool join_dropout_add(brim_graph *g, brim_node *first, const brim_node *second)
{
  brim_tensor *x = first->in[0], *a = second->in[second->in[0] == first->out[0] ? 1 : 0];
  if (!is_whole(g, a, first->out[0])) return false;
  first->in = BRIM_ARENA_NEW(&g->arena, brim_tensor *, 2);
  first->in[0] = a;
  first->in[1] = x;
  first->in_count = 2;
  first->out[0] = second->out[0];
  return true;
}

/* Joins an addition and a norm to norm(a + b). Inputs: a, b and the norm's parameters; outputs: the sum and those of
 * the norm. With four dimensions, where backends may have layouts of their own, copies would cost more than fusion
 * saves. */
static bool join_residual_norm(brim_graph *g, brim_node *first, const brim_node *second)
{
  const brim_tensor *sum = first->out[0];
  if (second->in[0] != sum || sum->shape.rank == 4) return false;
  if (!is_whole(g, first->in[0], sum) || !is_whole(g, first->in[1], sum)) return false;
  const uint32_t inputs = 1 + second->in_count, outputs = 1 + second->out_count;
  brim_tensor **in = BRIM_ARENA_NEW(&g->arena, brim_tensor *, inputs);
  brim_tensor **out = BRIM_ARENA_NEW(&g->arena, brim_tensor *, outputs);
  memcpy(in, first->in, 2 * sizeof *in);
  memcpy(in + 2, second->in + 1, (second->in_count - 1) * sizeof *in);
  out[0] = first->out[0];
  memcpy(out + 1, second->out, second->out_count * sizeof *out);
  first->in = in;
  first->in_count = inputs;
  first->out = out;
  first->out_count = outputs;
  first->attr = second->attr;
  return true;
}

/* ---- descriptors ---- */

#define LINEAR(id, its_signature, its_outputs, its_infer, its_gradient, its_halve, its_stays, its_join)                \
  BRIM_OP(linear_##id) = {.name = "linear+" #id,                                                                       \
                          .kind = BRIM_KIND_PRODUCT,                                                                   \
                          .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_FROM(0)},                \
                          .signature = "x [...,F], weight [O,F], [bias [O]] -> " its_signature,                        \
                          .in_count = 3,                                                                               \
                          .optional = 1,                                                                               \
                          .out_count = its_outputs,                                                                    \
                          .infer = its_infer,                                                                          \
                          .gradient = its_gradient,                                                                    \
                          .fusion = {BRIM_FUSE_BIAS_ACTIVATION, its_stays, its_join},                                  \
                          .halve = its_halve,                                                                          \
                          .cost = cost_both}
#define CONV2D(id, its_join)                                                                                           \
  BRIM_OP(conv2d_##id) = {.name = "conv2d+" #id,                                                                       \
                          .kind = BRIM_KIND_CONVOLUTION,                                                               \
                          .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_SAMPLES(0)},             \
                          .signature =                                                                                 \
                              "x [N,C,H,W], weight [K,C/groups,R,S] or [K,C/groups,S], [bias [K]] -> y [N,K,P,Q]",     \
                          .in_count = 3,                                                                               \
                          .optional = 1,                                                                               \
                          .out_count = 1,                                                                              \
                          .infer = infer_first,                                                                        \
                          .gradient = gradient_by_result,                                                              \
                          .fusion = {BRIM_FUSE_BIAS_ACTIVATION, BRIM_STAYS_NEVER, its_join},                           \
                          .cost = cost_both}
LINEAR(relu, "y [...,O]", 1, infer_first, gradient_by_result, NULL, BRIM_STAYS_NEVER, join_activation);
LINEAR(leaky_relu, "y [...,O]", 1, infer_first, gradient_by_result, NULL, BRIM_STAYS_NEVER, join_leaky_relu);
LINEAR(sigmoid, "y [...,O]", 1, infer_first, gradient_by_result, NULL, BRIM_STAYS_NEVER, join_activation);
LINEAR(tanh, "y [...,O]", 1, infer_first, gradient_by_result, NULL, BRIM_STAYS_NEVER, join_activation);
LINEAR(gelu, "y [...,O], [before [...,O]]", 2, infer_keeping, gradient_by_kept, halve_keeping, BRIM_STAYS_IN_TRAINING,
       join_keeping);
LINEAR(silu, "y [...,O], [before [...,O]]", 2, infer_keeping, gradient_by_kept, halve_keeping, BRIM_STAYS_IN_TRAINING,
       join_keeping);
CONV2D(relu, join_activation);
CONV2D(leaky_relu, join_leaky_relu);
CONV2D(sigmoid, join_activation);
CONV2D(tanh, join_activation);
BRIM_OP(batch_norm_relu) = {.name = "batch_norm+relu",
                            .kind = BRIM_KIND_NORM,
                            .fusion = {BRIM_FUSE_NORM_ACTIVATION, BRIM_STAYS_NEVER, join_activation},
                            .wide_in = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                            .wide_out = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                            .signature = "x [N,C,...], weight [C], bias [C] -> y [N,C,...], mean [G,C], rstd [G,C], "
                                         "mean_sum [C], var_sum [C]",
                            .in_count = 3,
                            .out_count = 5,
                            .inplace = BRIM_OP_INPLACE(0),
                            .gradient = gradient_by_result,
                            .cost = cost_both};
BRIM_OP(batch_norm_inference_relu) = {
    .name = "batch_norm_inference+relu",
    .kind = BRIM_KIND_NORM,
    .fusion = {BRIM_FUSE_NORM_ACTIVATION, BRIM_STAYS_NEVER, join_activation},
    .wide_in = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2) | BRIM_OP_WIDE(3) | BRIM_OP_WIDE(4),
    .signature = "x [N,C,...], weight [C], bias [C], running_mean [C], running_var [C] -> y [N,C,...]",
    .in_count = 5,
    .out_count = 1,
    .inplace = BRIM_OP_INPLACE(0),
    .infer = infer_first,
    .cost = cost_both};
BRIM_OP(group_norm_relu) = {.name = "group_norm+relu",
                            .kind = BRIM_KIND_NORM,
                            .fusion = {BRIM_FUSE_NORM_ACTIVATION, BRIM_STAYS_NEVER, join_activation},
                            .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_FROM(0)},
                            .wide_in = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                            .wide_out = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                            .signature = "x [N,C,...], weight [C], bias [C] -> y [N,C,...], mean [N,groups], rstd "
                                         "[N,groups]",
                            .in_count = 3,
                            .out_count = 3,
                            .inplace = BRIM_OP_INPLACE(0),
                            .infer = infer_first,
                            .gradient = gradient_by_result,
                            .cost = cost_both};
BRIM_OP(layer_norm_relu) = {.name = "layer_norm+relu",
                            .kind = BRIM_KIND_NORM,
                            .fusion = {BRIM_FUSE_NORM_ACTIVATION, BRIM_STAYS_NEVER, join_activation},
                            .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_FROM(0)},
                            .wide_in = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                            .wide_out = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                            .signature = "x [...,F], weight [F], bias [F] -> y [...,F], mean [...], rstd [...]",
                            .in_count = 3,
                            .out_count = 3,
                            .inplace = BRIM_OP_INPLACE(0),
                            .infer = infer_first,
                            .gradient = gradient_by_result,
                            .cost = cost_both};

/* ---- the norm of a + b ---- */

/* Adds the norm's gradient to the sum's own; then both a and b get all of it. */
static brim_status gradient_sum_norm(brim_autodiff *ad, const brim_node *n, const char *op, bool mean)
{
  brim_tensor *sum = n->out[0], *dy = brim_autodiff_of(ad, n->out[1]);
  brim_tensor *const in[] = {sum, n->in[2], n->out[2], mean ? n->out[3] : dy, dy};
  brim_tensor *const of[] = {sum, n->in[2], mean ? n->in[3] : NULL};
  if (dy) BRIM_TRY(brim_norm_emit_gradient(ad, n, op, in, mean ? 5 : 4, of, mean ? 3 : 2));
  brim_tensor *const flow[] = {brim_autodiff_of(ad, sum)};
  for (uint32_t i = 0; flow[0] && i < 2; i++)
    if (brim_autodiff_needs(ad, n->in[i])) BRIM_TRY(brim_autodiff_emit(ad, "reshape", n, NULL, flow, 1, &n->in[i], 1));
  return BRIM_OK;
}

static brim_status gradient_add_layer_norm(brim_autodiff *ad, const brim_node *n)
{
  return gradient_sum_norm(ad, n, "layer_norm_grad", true);
}

static brim_status gradient_add_rms_norm(brim_autodiff *ad, const brim_node *n)
{
  return gradient_sum_norm(ad, n, "rms_norm_grad", false);
}

static void cost_sum_norm(const brim_node *n, brim_cost *out)
{
  out->flops = 9 * (uint64_t)brim_shape_count(&n->in[0]->shape); /* see norm.c */
}

BRIM_OP(add_layer_norm) = {.name = "add+layer_norm",
                           .kind = BRIM_KIND_NORM,
                           .fusion = {BRIM_FUSE_RESIDUAL_NORM, BRIM_STAYS, join_residual_norm},
                           .traits = {.samples_in = BRIM_OP_SAMPLES(0) | BRIM_OP_SAMPLES(1),
                                      .samples_out = BRIM_OP_FROM(0),
                                      .sum = BRIM_SUM_FIRST},
                           .wide_in = BRIM_OP_WIDE(2) | BRIM_OP_WIDE(3),
                           .wide_out = BRIM_OP_WIDE(2) | BRIM_OP_WIDE(3),
                           .signature = "a [...,F], b [...,F], weight [F], bias [F] -> sum [...,F], y [...,F], mean "
                                        "[...], rstd [...]",
                           .in_count = 4,
                           .out_count = 4,
                           .inplace = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),
                           .inplace_second = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),
                           .gradient = gradient_add_layer_norm,
                           .halve = halve_sum_norm,
                           .cost = cost_sum_norm};
BRIM_OP(add_rms_norm) = {.name = "add+rms_norm",
                         .kind = BRIM_KIND_NORM,
                         .fusion = {BRIM_FUSE_RESIDUAL_NORM, BRIM_STAYS, join_residual_norm},
                         .traits = {.samples_in = BRIM_OP_SAMPLES(0) | BRIM_OP_SAMPLES(1),
                                    .samples_out = BRIM_OP_FROM(0),
                                    .sum = BRIM_SUM_FIRST},
                         .wide_in = BRIM_OP_WIDE(2),
                         .wide_out = BRIM_OP_WIDE(2),
                         .signature = "a [...,F], b [...,F], weight [F] -> sum [...,F], y [...,F], rstd [...]",
                         .in_count = 3,
                         .out_count = 3,
                         .inplace = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),
                         .inplace_second = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),
                         .gradient = gradient_add_rms_norm,
                         .halve = halve_sum_norm,
                         .cost = cost_sum_norm};

/* ---- a + dropout(x) ---- */

static brim_status infer_dropout_add(brim_graph *g, brim_node *n)
{
  n->out[0] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, n->in[0]->dtype, &n->in[0]->shape, n->name);
  return BRIM_OK;
}

/* The gradient of a is dy itself: a view of it, no copy. */
static brim_status gradient_dropout_add(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {brim_autodiff_of(ad, n->out[0])};
  if (brim_autodiff_needs(ad, n->in[0])) BRIM_TRY(brim_autodiff_emit(ad, "reshape", n, NULL, in, 1, &n->in[0], 1));
  if (!brim_autodiff_needs(ad, n->in[1])) return BRIM_OK;
  return brim_autodiff_emit(ad, "dropout_grad", n, NULL, in, 1, &n->in[1], 1);
}

static uint64_t hash_dropout_add(const brim_attr *attr)
{
  return brim_op_find("dropout")->hash(attr);
}

BRIM_OP(dropout_add) = {
    .name = "dropout+add",
    .fusion = {BRIM_FUSE_DROPOUT_ADD, BRIM_STAYS_NEVER, join_dropout_add},
    .traits = {.samples_in = BRIM_OP_FROM(0), .samples_out = BRIM_OP_FROM(0), .apart = true, .sum = BRIM_SUM_LAST},
    .signature = "a [...], x [...] -> a + dropout(x) [...]",
    .in_count = 2,
    .out_count = 1,
    .inplace = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),
    .infer = infer_dropout_add,
    .gradient = gradient_dropout_add,
    .hash = hash_dropout_add};
