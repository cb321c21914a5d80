/* Elementwise functions other than relu, which is in pointwise.c. The result is kept for the gradient if it suffices,
 * otherwise the input. */
#include "graph/graph.h"

#undef brim_leaky_relu
#undef brim_gelu
#undef brim_silu
#undef brim_sigmoid
#undef brim_tanh
#undef brim_exp
#undef brim_scale

static brim_status gradient_leaky_relu(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "leaky_relu_grad", n->in[0]);
}
static brim_status gradient_gelu(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "gelu_grad", n->in[0]);
}
static brim_status gradient_silu(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "silu_grad", n->in[0]);
}
static brim_status gradient_sigmoid(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "sigmoid_grad", n->out[0]);
}
static brim_status gradient_tanh(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "tanh_grad", n->out[0]);
}

/* exp is its own derivative. */
static brim_status gradient_exp(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {brim_autodiff_of(ad, n->out[0]), n->out[0]};
  return brim_autodiff_emit(ad, "mul", n, NULL, in, 2, n->in, 1);
}

static brim_status gradient_scale(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "scale", NULL);
}

enum { FLOPS_OF_FUNCTION = 20 }; /* about the cost of one or two polynomials and a division */

static void cost_function(const brim_node *n, brim_cost *out)
{
  out->flops = FLOPS_OF_FUNCTION * (uint64_t)brim_shape_count(&n->out[0]->shape);
}

#define FUNCTION(id, its_cost, its_probabilities)                                                                      \
  BRIM_OP(id) = {.name = #id,                                                                                          \
                 .traits = BRIM_OP_APART,                                                                              \
                 .signature = "x [...] -> y [...]",                                                                    \
                 .each_token = brim_op_each_token,                                                                     \
                 .inplace = BRIM_OP_INPLACE(0),                                                                        \
                 .infer = brim_op_infer_same,                                                                          \
                 .gradient = gradient_##id,                                                                            \
                 .probabilities = its_probabilities,                                                                   \
                 .cost = its_cost}
/* Defines a gradient rule. `kept`: the tensor of the forward pass that it needs besides dy. */
#define GRADIENT(id, kept, its_cost)                                                                                   \
  BRIM_OP(id) = {.name = #id,                                                                                          \
                 .traits = BRIM_OP_APART,                                                                              \
                 .signature = kept ", dy -> dx",                                                                       \
                 .inplace = BRIM_OP_INPLACE(1) | BRIM_OP_INPLACE(0),                                                   \
                 .cost = its_cost}
FUNCTION(leaky_relu, NULL, false);
FUNCTION(gelu, cost_function, false);
FUNCTION(silu, cost_function, false);
FUNCTION(sigmoid, cost_function, true);
FUNCTION(tanh, cost_function, false);
FUNCTION(exp, cost_function, false);
FUNCTION(scale, NULL, false);
GRADIENT(leaky_relu_grad, "x", NULL);
GRADIENT(gelu_grad, "x", cost_function);
GRADIENT(silu_grad, "x", cost_function);
GRADIENT(sigmoid_grad, "y", NULL);
GRADIENT(tanh_grad, "y", NULL);

brim_tensor *brim_gelu(brim_graph *g, brim_tensor *x, int32_t kind)
{
  if (!brim_graph_accepts(g, "gelu", NULL, x)) return NULL;
  if (kind < BRIM_GELU_EXACT || kind > BRIM_GELU_QUICK) {
    brim_graph_fail(g, "gelu", NULL, "unknown kind %d: use BRIM_GELU_EXACT, BRIM_GELU_TANH or BRIM_GELU_QUICK", kind);
    return NULL;
  }
  const brim_attr attr = {.activation = {.approximate = kind}};
  return brim_graph_apply(g, "gelu", NULL, &x, 1, &attr);
}

/* Makes a node of an operation with a finite factor. */
static brim_tensor *apply_factor(brim_graph *g, const char *op, const char *what, brim_tensor *x, double factor)
{
  if (!brim_graph_accepts(g, op, NULL, x)) return NULL;
  if (!(factor - factor == 0)) {
    brim_graph_fail(g, op, NULL, "%s must be a finite number, got %g", what, factor);
    return NULL;
  }
  const brim_attr attr = {.activation = {.factor = factor}};
  return brim_graph_apply(g, op, NULL, &x, 1, &attr);
}
brim_tensor *brim_leaky_relu(brim_graph *g, brim_tensor *x, double slope)
{
  return apply_factor(g, "leaky_relu", "slope", x, slope);
}
brim_tensor *brim_scale(brim_graph *g, brim_tensor *x, double factor)
{
  return apply_factor(g, "scale", "factor", x, factor);
}

brim_tensor *brim_silu(brim_graph *g, brim_tensor *x)
{
  return brim_graph_apply(g, "silu", NULL, &x, 1, NULL);
}
brim_tensor *brim_sigmoid(brim_graph *g, brim_tensor *x)
{
  return brim_graph_apply(g, "sigmoid", NULL, &x, 1, NULL);
}
brim_tensor *brim_tanh(brim_graph *g, brim_tensor *x)
{
  return brim_graph_apply(g, "tanh", NULL, &x, 1, NULL);
}
brim_tensor *brim_exp(brim_graph *g, brim_tensor *x)
{
  return brim_graph_apply(g, "exp", NULL, &x, 1, NULL);
}
