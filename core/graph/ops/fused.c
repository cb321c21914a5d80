/* Fused operations, and how the fusion pass (core/graph/fuse.c) makes their nodes. Their shapes, costs and gradients
 * are those of the two operations, which are found by name.
 *
 * The gradient of most activations needs only their result, so the tensor between the two operations is not kept. The
 * gradients of gelu and silu need their input, which is therefore a second output in training.
 *
 * A batch norm with an addition can take an activation too: "batch_norm+add" and "relu" become "batch_norm+add+relu",
 * the end of a residual block. */
#include <stdio.h>
#include <string.h>

#include "graph/fuse.h"

/* Returns the first operation: "linear" of "linear+relu". */
static const brim_op *first_of(const brim_node *n)
{
  char name[64];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(n->op, "+"), n->op);
  return brim_op_find(name);
}

/* Returns the second operation or, with `suffix`, its gradient. */
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

/* The arithmetic of all parts, such as three of "batch_norm+add+relu". */
static void cost_parts(const brim_node *n, brim_cost *out)
{
  uint64_t flops = 0;
  for (const char *part = n->op; *part;) {
    char name[64];
    brim_cost cost = {0};
    const size_t length = strcspn(part, "+");
    snprintf(name, sizeof name, "%.*s", (int)length, part);
    brim_op_take_cost(brim_op_find(name), n, &cost);
    flops += cost.flops;
    part += length + (part[length] == '+');
  }
  out->flops = flops;
}

/* Applies the gradient rule of the first operation to the gradient of its result. */
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

/* Adds to the gradient of the kept tensor, to which gradients from other readers may already have been added. */
static brim_status gradient_by_kept(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {n->out[1], brim_autodiff_of(ad, n->out[0])};
  const brim_attr attr = {.activation = n->attr.fused.activation};
  if (in[1]) BRIM_TRY(brim_autodiff_emit(ad, second_of(n, "_grad")->name, n, &attr, in, 2, &n->out[1], 1));
  return gradient_of_first(ad, n, brim_autodiff_of(ad, n->out[1]));
}

/* ---- gradients of batch norms ---- */

/* relu's gradient needs the sign of the norm's result. The kernel computes that from x, so it reads one tensor less
 * than two kernels. */
static brim_status gradient_batch_norm_relu(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {n->in[0], n->in[1], n->in[2], n->out[1], n->out[2], brim_autodiff_of(ad, n->out[0])};
  if (!in[5] || !brim_autodiff_offers(ad, "batch_norm+relu_grad")) return gradient_by_result(ad, n);
  return brim_autodiff_emit(ad, "batch_norm+relu_grad", n, NULL, in, 6, n->in, 3);
}

/* The gradient of the sum is the gradient of both a and the norm, as a view without a copy. */
static brim_status gradient_through_sum(brim_autodiff *ad, const brim_node *n, brim_tensor *flow)
{
  brim_tensor **a = &n->in[n->in_count - 1];
  if (brim_autodiff_needs(ad, *a)) BRIM_TRY(brim_autodiff_emit(ad, "reshape", n, NULL, &flow, 1, a, 1));
  return gradient_of_first(ad, n, flow);
}

static brim_status gradient_norm_add(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *dy = brim_autodiff_of(ad, n->out[0]);
  return dy ? gradient_through_sum(ad, n, dy) : BRIM_OK;
}

static brim_status gradient_norm_add_relu(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {n->out[0], brim_autodiff_of(ad, n->out[0])};
  if (!in[1]) return BRIM_OK;
  brim_tensor *flow = brim_autodiff_compute(ad, "relu_grad", n, &(brim_attr){0}, in, 2, &n->out[0]->shape);
  return flow ? gradient_through_sum(ad, n, flow) : BRIM_EINVAL; /* the graph has the error */
}

/* The kernel reads the result, whose sign relu's gradient needs, and writes the gradient of the sum for a. */
static brim_status gradient_batch_norm_add_relu(brim_autodiff *ad, const brim_node *n)
{
  static const char op[] = "batch_norm+add+relu_grad";
  brim_tensor *const in[] = {n->in[0], n->in[1], n->out[1], n->out[2], n->out[0], brim_autodiff_of(ad, n->out[0])};
  brim_tensor *const of[] = {n->in[3], n->in[0], n->in[1], n->in[2]};
  if (!in[5] || !brim_autodiff_offers(ad, op)) return gradient_norm_add_relu(ad, n);
  return brim_autodiff_emit(ad, op, n, NULL, in, 6, of, 4);
}

/* ---- halves ---- */

static brim_node make_half(const brim_node *n, const brim_op *op)
{
  brim_node half = *n;
  half.descriptor = op;
  half.op = op->name;
  return half;
}

/* The halves are linear, and the activation of its result. The fused kernel may apply the activation before rounding,
 * so the bits agree only in types whose results are not rounded again. */
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

/* The halves are the sum, and its norm, which reads the sum as stored, in every type. */
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

/* The activation's result replaces the activation's input as the output. */
static bool join_activation(brim_graph *g, brim_node *first, const brim_node *second)
{
  (void)g;
  first->attr.fused.activation = second->attr.activation;
  first->out[0] = second->out[0];
  return true;
}

/* The gradient follows from the sign of the result, which is the input's sign because the slope is above 0. */
static bool join_leaky_relu(brim_graph *g, brim_node *first, const brim_node *second)
{
  return second->attr.activation.factor > 0 && join_activation(g, first, second);
}

/* Whether the next node is another such product, possibly after nodes with one operand and a result of the same
 * size. */
static bool is_followed_by(const brim_graph *g, const brim_node *n, const char *op)
{
  for (size_t i = n->index + 1; i < g->node_count; i++) {
    const brim_node *next = g->node[i];
    if (strcmp(next->op, op) == 0) return true;
    if (next->in_count != 1 || next->out[0]->bytes != next->in[0]->bytes) return false;
  }
  return false;
}

/* In training both results are outputs. The product's scratch then lives while both are made. If another product
 * follows, that is not more memory than the next product needs, because a layer keeps its input for its gradient and so
 * the same tensors are alive. In other cases the plan might become larger, for instance with four dimensions, which the
 * product may have to copy. */
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

/* Whether the sum uses the operand unchanged: it is not repeated, and its gradient is not summed. */
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

/* Joins a norm and an addition to norm(x) + a. The sum's result replaces the norm's, and a is the last input. */
static bool join_norm_add(brim_graph *g, brim_node *first, const brim_node *second)
{
  brim_tensor *a = second->in[second->in[0] == first->out[0] ? 1 : 0], **before = first->in;
  if (!is_whole(g, a, first->out[0])) return false;
  first->in = BRIM_ARENA_NEW(&g->arena, brim_tensor *, first->in_count + 1);
  memcpy(first->in, before, first->in_count * sizeof *before);
  first->in[first->in_count++] = a;
  first->out[0] = second->out[0];
  return true;
}

/* Joins an addition and a norm to norm(a + b). Inputs: a, b and the norm's parameters; outputs: the sum and those of
 * the norm. Not with four dimensions, for which backends may have layouts of their own: copies would cost more than
 * fusion saves. */
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

/* The cost in batch_norm.c, plus a comparison, and for "batch_norm+relu_grad" the result again. */
static void cost_batch_norm_grads(const brim_node *n, brim_cost *out)
{
  out->flops = (n->out_count > 3 ? 12 : 15) * (uint64_t)brim_shape_count(&n->in[0]->shape);
}

/* ---- descriptors ---- */

#define LINEAR(id, its_signature, its_infer, its_gradient, its_halve, its_stays, its_join)                             \
  BRIM_OP(linear_##id) = {.name = "linear+" #id,                                                                       \
                          .kind = BRIM_KIND_PRODUCT,                                                                   \
                          .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_FROM(0)},                \
                          .signature = "x [...,F], weight [O,F], [bias [O]] -> " its_signature,                        \
                          .infer = its_infer,                                                                          \
                          .gradient = its_gradient,                                                                    \
                          .fusion = {BRIM_FUSE_BIAS_ACTIVATION, its_stays, its_join},                                  \
                          .halve = its_halve,                                                                          \
                          .cost = cost_parts}
#define CONV2D(id, its_join)                                                                                           \
  BRIM_OP(conv2d_##id) = {.name = "conv2d+" #id,                                                                       \
                          .kind = BRIM_KIND_CONVOLUTION,                                                               \
                          .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_SAMPLES(0)},             \
                          .signature =                                                                                 \
                              "x [N,C,H,W], weight [K,C/groups,R,S] or [K,C/groups,S], [bias [K]] -> y [N,K,P,Q]",     \
                          .infer = infer_first,                                                                        \
                          .gradient = gradient_by_result,                                                              \
                          .fusion = {BRIM_FUSE_BIAS_ACTIVATION, BRIM_STAYS_NEVER, its_join},                           \
                          .cost = cost_parts}
LINEAR(relu, "y [...,O]", infer_first, gradient_by_result, NULL, BRIM_STAYS_NEVER, join_activation);
LINEAR(leaky_relu, "y [...,O]", infer_first, gradient_by_result, NULL, BRIM_STAYS_NEVER, join_leaky_relu);
LINEAR(sigmoid, "y [...,O]", infer_first, gradient_by_result, NULL, BRIM_STAYS_NEVER, join_activation);
LINEAR(tanh, "y [...,O]", infer_first, gradient_by_result, NULL, BRIM_STAYS_NEVER, join_activation);
LINEAR(gelu, "y [...,O], [before [...,O]]", infer_keeping, gradient_by_kept, halve_keeping, BRIM_STAYS_IN_TRAINING,
       join_keeping);
LINEAR(silu, "y [...,O], [before [...,O]]", infer_keeping, gradient_by_kept, halve_keeping, BRIM_STAYS_IN_TRAINING,
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
                            .inplace = BRIM_OP_INPLACE(0),
                            .gradient = gradient_batch_norm_relu,
                            .cost = cost_parts};
BRIM_OP(batch_norm_inference_relu) = {
    .name = "batch_norm_inference+relu",
    .kind = BRIM_KIND_NORM,
    .fusion = {BRIM_FUSE_NORM_ACTIVATION, BRIM_STAYS_NEVER, join_activation},
    .wide_in = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2) | BRIM_OP_WIDE(3) | BRIM_OP_WIDE(4),
    .signature = "x [N,C,...], weight [C], bias [C], running_mean [C], running_var [C] -> y [N,C,...]",
    .inplace = BRIM_OP_INPLACE(0),
    .infer = infer_first,
    .gradient = gradient_by_result,
    .cost = cost_parts};

/* Defines an operation at the end of a residual block. */
#define NORM_ADD(id, its_op, its_wide_in, its_wide_out, its_signature, its_inputs, its_infer, its_gradient, its_kind,  \
                 its_join)                                                                                             \
  BRIM_OP(id) = {.name = its_op,                                                                                       \
                 .kind = BRIM_KIND_NORM,                                                                               \
                 .traits = {.sum = BRIM_SUM_NEXT},                                                                     \
                 .fusion = {its_kind, BRIM_STAYS_NEVER, its_join},                                                     \
                 .wide_in = its_wide_in,                                                                               \
                 .wide_out = its_wide_out,                                                                             \
                 .signature = its_signature,                                                                           \
                 .inplace = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(its_inputs - 1),                                      \
                 .infer = its_infer,                                                                                   \
                 .gradient = its_gradient,                                                                             \
                 .cost = cost_parts}
#define BATCH_NORM_ADD(id, its_op, its_gradient, its_kind, its_join)                                                   \
  NORM_ADD(id, its_op, BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2), BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),                           \
           "x [N,C,...], weight [C], bias [C], a [N,C,...] -> y [N,C,...], mean [G,C], rstd [G,C], mean_sum [C], "     \
           "var_sum [C]",                                                                                              \
           4, NULL, its_gradient, its_kind, its_join)
#define BATCH_NORM_INFERENCE_ADD(id, its_op, its_gradient, its_kind, its_join)                                         \
  NORM_ADD(id, its_op, BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2) | BRIM_OP_WIDE(3) | BRIM_OP_WIDE(4), 0,                       \
           "x [N,C,...], weight [C], bias [C], running_mean [C], running_var [C], a [N,C,...] -> y [N,C,...]", 6,      \
           infer_first, its_gradient, its_kind, its_join)
BATCH_NORM_ADD(batch_norm_add, "batch_norm+add", gradient_norm_add, BRIM_FUSE_NORM_ADD, join_norm_add);
BATCH_NORM_ADD(batch_norm_add_relu, "batch_norm+add+relu", gradient_batch_norm_add_relu, BRIM_FUSE_NORM_ACTIVATION,
               join_activation);
BATCH_NORM_INFERENCE_ADD(batch_norm_inference_add, "batch_norm_inference+add", gradient_norm_add, BRIM_FUSE_NORM_ADD,
                         join_norm_add);
BATCH_NORM_INFERENCE_ADD(batch_norm_inference_add_relu, "batch_norm_inference+add+relu", gradient_norm_add_relu,
                         BRIM_FUSE_NORM_ACTIVATION, join_activation);
BRIM_OP(batch_norm_relu_grad) = {.name = "batch_norm+relu_grad",
                                 .kind = BRIM_KIND_NORM,
                                 .signature = "x, weight, bias, mean, rstd, dy -> dx, dweight, dbias",
                                 .accumulates = BRIM_OP_FROM(1),
                                 .inplace = BRIM_OP_INPLACE(5),
                                 .cost = cost_batch_norm_grads};
/* da is complete before the kernel writes dx, so dx may take the memory of y, of dy, or of a da that no node reads. */
BRIM_OP(batch_norm_add_relu_grad) = {.name = "batch_norm+add+relu_grad",
                                     .kind = BRIM_KIND_NORM,
                                     .signature = "x, weight, mean, rstd, y, dy -> da, dx, dweight, dbias",
                                     .accumulates = BRIM_OP_FROM(2),
                                     .inplace = BRIM_OP_INPLACE(4) | BRIM_OP_INPLACE(5),
                                     .inplace_second = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(4) | BRIM_OP_INPLACE(5),
                                     .cost = cost_batch_norm_grads};
BRIM_OP(group_norm_relu) = {.name = "group_norm+relu",
                            .kind = BRIM_KIND_NORM,
                            .fusion = {BRIM_FUSE_NORM_ACTIVATION, BRIM_STAYS_NEVER, join_activation},
                            .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_FROM(0)},
                            .wide_in = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                            .wide_out = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                            .signature = "x [N,C,...], weight [C], bias [C] -> y [N,C,...], mean [N,groups], rstd "
                                         "[N,groups]",
                            .inplace = BRIM_OP_INPLACE(0),
                            .infer = infer_first,
                            .gradient = gradient_by_result,
                            .cost = cost_parts};
BRIM_OP(layer_norm_relu) = {.name = "layer_norm+relu",
                            .kind = BRIM_KIND_NORM,
                            .fusion = {BRIM_FUSE_NORM_ACTIVATION, BRIM_STAYS_NEVER, join_activation},
                            .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_FROM(0)},
                            .wide_in = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                            .wide_out = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                            .signature = "x [...,F], weight [F], bias [F] -> y [...,F], mean [...], rstd [...]",
                            .inplace = BRIM_OP_INPLACE(0),
                            .infer = infer_first,
                            .gradient = gradient_by_result,
                            .cost = cost_parts};

/* ---- the norm of a + b ---- */

/* Adds the norm's gradient to the sum's own gradient; a and b both get the result. */
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
                           .inplace = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),
                           .inplace_second = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),
                           .gradient = gradient_add_layer_norm,
                           .halve = halve_sum_norm,
                           .cost = cost_parts};
BRIM_OP(add_rms_norm) = {.name = "add+rms_norm",
                         .kind = BRIM_KIND_NORM,
                         .fusion = {BRIM_FUSE_RESIDUAL_NORM, BRIM_STAYS, join_residual_norm},
                         .traits = {.samples_in = BRIM_OP_SAMPLES(0) | BRIM_OP_SAMPLES(1),
                                    .samples_out = BRIM_OP_FROM(0),
                                    .sum = BRIM_SUM_FIRST},
                         .wide_in = BRIM_OP_WIDE(2),
                         .wide_out = BRIM_OP_WIDE(2),
                         .signature = "a [...,F], b [...,F], weight [F] -> sum [...,F], y [...,F], rstd [...]",
                         .inplace = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),
                         .inplace_second = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),
                         .gradient = gradient_add_rms_norm,
                         .halve = halve_sum_norm,
                         .cost = cost_parts};

/* ---- relu after max pooling and dropout ---- */

static uint64_t hash_of_dropout(const brim_attr *attr)
{
  return brim_op_find("dropout")->hash(attr);
}

/* The kernel of the first operation's gradient masks dy by the sign of the result. */
static brim_status gradient_max_pool_relu(brim_autodiff *ad, const brim_node *n)
{
  static const char op[] = "max_pool2d+relu_grad";
  brim_tensor *const in[] = {brim_autodiff_of(ad, n->out[0]), n->out[1], n->out[0]};
  if (!in[0] || !brim_autodiff_offers(ad, op)) return gradient_by_result(ad, n);
  return brim_autodiff_emit(ad, op, n, NULL, in, 3, n->in, 1);
}

/* The kernel needs no mask, because the result is 0 where a value is dropped. */
static brim_status gradient_dropout_relu(brim_autodiff *ad, const brim_node *n)
{
  if (!brim_autodiff_offers(ad, "dropout+relu_grad")) return gradient_by_result(ad, n);
  return brim_autodiff_pass(ad, n, "dropout+relu_grad", n->out[0]);
}

BRIM_OP(max_pool2d_relu) = {.name = "max_pool2d+relu",
                            .kind = BRIM_KIND_POOLING,
                            .traits = BRIM_OP_APART,
                            .fusion = {BRIM_FUSE_BIAS_ACTIVATION, BRIM_STAYS_NEVER, join_activation},
                            .signature = "x [N,C,H,W] -> y [N,C,P,Q], index [N,C,P,Q]",
                            .infer = infer_first,
                            .gradient = gradient_max_pool_relu,
                            .cost = cost_parts};
BRIM_OP(max_pool2d_relu_grad) = {.name = "max_pool2d+relu_grad",
                                 .kind = BRIM_KIND_POOLING,
                                 .traits = BRIM_OP_APART,
                                 .signature = "dy, index, y -> dx"};
BRIM_OP(dropout_relu) = {.name = "dropout+relu",
                         .traits = BRIM_OP_APART,
                         .fusion = {BRIM_FUSE_BIAS_ACTIVATION, BRIM_STAYS_NEVER, join_activation},
                         .signature = "x [...] -> y [...]",
                         .inplace = BRIM_OP_INPLACE(0),
                         .infer = infer_first,
                         .gradient = gradient_dropout_relu,
                         .hash = hash_of_dropout,
                         .cost = cost_parts};
BRIM_OP(dropout_relu_grad) = {.name = "dropout+relu_grad",
                              .traits = BRIM_OP_APART,
                              .signature = "y, dy -> dx",
                              .inplace = BRIM_OP_INPLACE(1) | BRIM_OP_INPLACE(0),
                              .hash = hash_of_dropout};

/* ---- a + dropout(x) ---- */

static brim_status infer_dropout_add(brim_graph *g, brim_node *n)
{
  n->out[0] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, n->in[0]->dtype, &n->in[0]->shape, n->name);
  return BRIM_OK;
}

/* The gradient of a is dy itself, as a view without a copy. */
static brim_status gradient_dropout_add(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {brim_autodiff_of(ad, n->out[0])};
  if (brim_autodiff_needs(ad, n->in[0])) BRIM_TRY(brim_autodiff_emit(ad, "reshape", n, NULL, in, 1, &n->in[0], 1));
  if (!brim_autodiff_needs(ad, n->in[1])) return BRIM_OK;
  return brim_autodiff_emit(ad, "dropout_grad", n, NULL, in, 1, &n->in[1], 1);
}

BRIM_OP(dropout_add) = {
    .name = "dropout+add",
    .fusion = {BRIM_FUSE_DROPOUT_ADD, BRIM_STAYS_NEVER, join_dropout_add},
    .traits = {.samples_in = BRIM_OP_FROM(0), .samples_out = BRIM_OP_FROM(0), .apart = true, .sum = BRIM_SUM_LAST},
    .signature = "a [...], x [...] -> a + dropout(x) [...]",
    .inplace = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),
    .infer = infer_dropout_add,
    .gradient = gradient_dropout_add,
    .hash = hash_of_dropout,
    .cost = cost_parts};
