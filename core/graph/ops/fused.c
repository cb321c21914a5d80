/* Operations that do the work of two (see core/graph/fuse.c). They add nothing to what the two mean: shapes, costs and
 * gradients are those of the two, asked for by their names.
 *
 * The gradient of an activation behind something needs the result alone, so what lies between is nowhere kept. */
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"

/* What the operation begins with: "linear" of "linear+relu". */
static const brim_op *first_of(const brim_node *n)
{
  char name[64];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(n->op, "+"), n->op);
  return brim_op_find(name);
}

static brim_status infer_first(brim_graph *g, brim_node *n)
{
  return first_of(n)->infer(g, n);
}

static void cost_first(const brim_node *n, brim_cost *out)
{
  if (first_of(n)->cost) first_of(n)->cost(n, out);
}

/* dy through relu, which is then the gradient of the first one's result. */
static brim_status gradient_relu_behind(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {n->out[0], brim_autodiff_of(ad, n->out[0])};
  if (!in[1]) return BRIM_OK;
  brim_tensor *before = brim_autodiff_compute(ad, "relu_grad", n, NULL, in, 2, &n->out[0]->shape);
  if (!before) return BRIM_EINVAL; /* the graph has the error */
  brim_autodiff_replace(ad, n->out[0], before);
  const brim_status status = first_of(n)->gradient(ad, n);
  brim_autodiff_replace(ad, n->out[0], in[1]);
  return status;
}

BRIM_OP(linear_relu) = {.name = "linear+relu",
                        .signature = "x [...,F], weight [O,F], [bias [O]] -> y [...,O]",
                        .in_count = 3,
                        .optional = 1,
                        .out_count = 1,
                        .infer = infer_first,
                        .gradient = gradient_relu_behind,
                        .cost = cost_first};
BRIM_OP(conv2d_relu) = {
    .name = "conv2d+relu",
    .signature = "x [N,C,H,W], weight [K,C/groups,R,S] or [K,C/groups,S], [bias [K]] -> y [N,K,P,Q]",
    .in_count = 3,
    .optional = 1,
    .out_count = 1,
    .infer = infer_first,
    .gradient = gradient_relu_behind,
    .cost = cost_first};
BRIM_OP(batch_norm_relu) = {.name = "batch_norm+relu",
                            .signature = "x [N,C,...], weight [C], bias [C] -> y [N,C,...], mean [G,C], rstd [G,C], "
                                         "mean_sum [C], var_sum [C]",
                            .in_count = 3,
                            .out_count = 5,
                            .inplace = BRIM_OP_INPLACE(0),
                            .gradient = gradient_relu_behind,
                            .cost = cost_first};
BRIM_OP(batch_norm_inference_relu) = {
    .name = "batch_norm_inference+relu",
    .signature = "x [N,C,...], weight [C], bias [C], running_mean [C], running_var [C] -> y [N,C,...]",
    .in_count = 5,
    .out_count = 1,
    .inplace = BRIM_OP_INPLACE(0),
    .infer = infer_first,
    .cost = cost_first};
BRIM_OP(group_norm_relu) = {.name = "group_norm+relu",
                            .signature = "x [N,C,...], weight [C], bias [C] -> y [N,C,...], mean [N,groups], rstd "
                                         "[N,groups]",
                            .in_count = 3,
                            .out_count = 3,
                            .inplace = BRIM_OP_INPLACE(0),
                            .infer = infer_first,
                            .gradient = gradient_relu_behind,
                            .cost = cost_first};
BRIM_OP(layer_norm_relu) = {.name = "layer_norm+relu",
                            .signature = "x [...,F], weight [F], bias [F] -> y [...,F], mean [...], rstd [...]",
                            .in_count = 3,
                            .out_count = 3,
                            .inplace = BRIM_OP_INPLACE(0),
                            .infer = infer_first,
                            .gradient = gradient_relu_behind,
                            .cost = cost_first};

/* ---- the norm of a + b ---- */

/* The sum's own gradient, and on top of it what comes through the norm; then both a and b get it whole. */
static brim_status gradient_sum_norm(brim_autodiff *ad, const brim_node *n, const char *op, bool mean)
{
  brim_tensor *sum = n->out[0], *dy = brim_autodiff_of(ad, n->out[1]);
  brim_tensor *const in[] = {sum, n->in[2], n->out[2], mean ? n->out[3] : dy, dy};
  brim_tensor *const of[] = {sum, n->in[2], mean ? n->in[3] : NULL};
  if (dy) BRIM_TRY(brim_autodiff_emit(ad, op, n, NULL, in, mean ? 5 : 4, of, mean ? 3 : 2));
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
                           .signature = "a [...,F], b [...,F], weight [F], bias [F] -> sum [...,F], y [...,F], mean "
                                        "[...], rstd [...]",
                           .in_count = 4,
                           .out_count = 4,
                           .inplace = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),
                           .inplace_second = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),
                           .gradient = gradient_add_layer_norm,
                           .cost = cost_sum_norm};
BRIM_OP(add_rms_norm) = {.name = "add+rms_norm",
                         .signature = "a [...,F], b [...,F], weight [F] -> sum [...,F], y [...,F], rstd [...]",
                         .in_count = 3,
                         .out_count = 3,
                         .inplace = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),
                         .inplace_second = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),
                         .gradient = gradient_add_rms_norm,
                         .cost = cost_sum_norm};

/* ---- a + dropout(x) ---- */

static brim_status infer_dropout_add(brim_graph *g, brim_node *n)
{
  n->out[0] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, n->in[0]->dtype, &n->in[0]->shape, n->name);
  return BRIM_OK;
}

/* To a flows dy itself: a view of it, no copy. */
static brim_status gradient_dropout_add(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {brim_autodiff_of(ad, n->out[0])};
  if (brim_autodiff_needs(ad, n->in[0])) BRIM_TRY(brim_autodiff_emit(ad, "reshape", n, NULL, in, 1, &n->in[0], 1));
  if (!brim_autodiff_needs(ad, n->in[1])) return BRIM_OK;
  return brim_autodiff_emit(ad, "dropout_grad", n, NULL, in, 1, &n->in[1], 1);
}

BRIM_OP(dropout_add) = {.name = "dropout+add",
                        .signature = "a, x -> a + dropout(x)",
                        .in_count = 2,
                        .out_count = 1,
                        .inplace = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),
                        .infer = infer_dropout_add,
                        .gradient = gradient_dropout_add};
