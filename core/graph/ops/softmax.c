/* softmax and its logarithm, over the last dimension. Both keep their result for the gradient. */
#include "graph/graph.h"

#undef brim_softmax
#undef brim_log_softmax

static brim_status gradient_softmax(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "softmax_grad", n->out[0]);
}
static brim_status gradient_log_softmax(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "log_softmax_grad", n->out[0]);
}

enum { FLOPS_OF_EXP = 20 };

static void cost_softmax(const brim_node *n, brim_cost *out)
{
  out->flops = FLOPS_OF_EXP * (uint64_t)brim_shape_count(&n->out[0]->shape);
}

#define SOFTMAX(id)                                                                                                    \
  BRIM_OP(id) = {.name = #id,                                                                                          \
                 .kind = BRIM_KIND_REDUCTION,                                                                          \
                 .traits = BRIM_OP_APART,                                                                              \
                 .signature = "x [...,F] -> y [...,F]",                                                                \
                 .each_token = brim_op_each_token_last,                                                                \
                 .inplace = BRIM_OP_INPLACE(0),                                                                        \
                 .infer = brim_op_infer_same,                                                                          \
                 .gradient = gradient_##id,                                                                            \
                 .probabilities = true,                                                                                \
                 .cost = cost_softmax};                                                                                \
  BRIM_OP(id##_grad) = {.name = #id "_grad",                                                                           \
                        .kind = BRIM_KIND_REDUCTION,                                                                   \
                        .traits = BRIM_OP_APART,                                                                       \
                        .signature = "y, dy -> dx",                                                                    \
                        .inplace = BRIM_OP_INPLACE(1) | BRIM_OP_INPLACE(0),                                            \
                        .cost = cost_softmax}
SOFTMAX(softmax);
SOFTMAX(log_softmax);

/* Rejects the dimension of the samples as the one to normalise over. */
static brim_tensor *apply(brim_graph *g, const char *op, brim_tensor *x)
{
  if (!brim_graph_accepts(g, op, NULL, x)) return NULL;
  if (x->shape.rank < 2) {
    char text[96];
    brim_graph_fail(g, op, NULL, "input must be [N, ..., F], got %s", brim_shape_format(text, sizeof text, &x->shape));
    return NULL;
  }
  return brim_graph_apply(g, op, NULL, &x, 1, NULL);
}
brim_tensor *brim_softmax(brim_graph *g, brim_tensor *x)
{
  return apply(g, "softmax", x);
}
brim_tensor *brim_log_softmax(brim_graph *g, brim_tensor *x)
{
  return apply(g, "log_softmax", x);
}
