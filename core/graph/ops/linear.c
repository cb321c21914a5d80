/* The fully connected layer: y[n,o] = bias[o] + sum over f of x[n,f] * weight[o,f]. */
#include <math.h>

#include "graph/graph.h"

#undef brim_linear

static brim_status infer_linear(brim_graph *g, brim_node *n)
{
  const brim_shape y = {2, {n->in[0]->shape.dim[0], n->in[1]->shape.dim[0]}};
  n->out[0] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, g->real, &y, n->name);
  return BRIM_OK;
}

static brim_status gradient_linear(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *x = n->in[0], *weight = n->in[1], *bias = n->in[2], *dy = brim_autodiff_of(ad, n->out[0]);
  brim_tensor *const for_weight[] = {x, dy}, *const parameters[] = {weight, bias};
  BRIM_TRY(brim_autodiff_emit_parameters(ad, "linear_grad_weight", n, for_weight, 2, parameters, 2));
  if (!brim_autodiff_needs(ad, x)) return BRIM_OK;
  brim_tensor *const for_input[] = {dy, weight};
  return brim_autodiff_emit(ad, "linear_grad_input", n, for_input, 2, x);
}

static void cost_products(const brim_tensor *weight, int64_t rows, brim_cost *out)
{
  out->flops = 2 * (uint64_t)rows * (uint64_t)brim_shape_count(&weight->shape);
}
static void cost_linear(const brim_node *n, brim_cost *out)
{
  cost_products(n->in[1], n->in[0]->shape.dim[0], out); /* also linear_grad_input: dy, weight */
}
static void cost_grad_weight(const brim_node *n, brim_cost *out)
{
  cost_products(n->out[0], n->in[0]->shape.dim[0], out);
}

BRIM_OP(linear) = {.name = "linear",
                   .in_count = 3,
                   .out_count = 1,
                   .infer = infer_linear,
                   .gradient = gradient_linear,
                   .cost = cost_linear};
BRIM_OP(linear_grad_input) = {.name = "linear_grad_input", .in_count = 2, .out_count = 1, .cost = cost_linear};
BRIM_OP(linear_grad_weight) = {.name = "linear_grad_weight", .in_count = 2, .out_count = 2, .cost = cost_grad_weight};

brim_tensor *brim_linear(brim_graph *g, const char *name, brim_tensor *x, int64_t out_features)
{
  if (!brim_graph_accepts(g, "linear", name, x)) return NULL;
  char text[96];
  if (x->shape.rank != 2) {
    brim_graph_fail(g, "linear", name, "input must be [N, F], got %s (brim_flatten makes it so)",
                    brim_shape_format(text, sizeof text, &x->shape));
    return NULL;
  }
  if (out_features < 1) {
    brim_graph_fail(g, "linear", name, "out_features must be at least 1, got %lld", (long long)out_features);
    return NULL;
  }
  const int64_t in_features = x->shape.dim[1];
  const brim_shape weight_shape = {2, {out_features, in_features}}, bias_shape = {1, {out_features}};
  const double bound = 1 / sqrt((double)in_features); /* torch.nn.Linear.reset_parameters */
  brim_tensor *weight = brim_graph_parameter(g, brim_arena_printf(&g->arena, "%s.weight", name), &weight_shape, bound);
  brim_tensor *bias = brim_graph_parameter(g, brim_arena_printf(&g->arena, "%s.bias", name), &bias_shape, bound);
  brim_tensor *const in[] = {x, weight, bias};
  brim_node *n = brim_graph_node(g, "linear", name, in, 3, NULL);
  return n ? n->out[0] : NULL;
}
