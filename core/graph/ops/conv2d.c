/* Two-dimensional convolution (cross-correlation, as in every deep learning library):
 *     y[n,k,p,q] = bias[k] + sum over c,r,s of x[n, c, p*stride - padding + r, q*stride - padding + s] *
 * weight[k,c,r,s] */
#include <math.h>

#include "graph/graph.h"

#undef brim_conv2d

#define WINDOW_MAX 65536 /* rows or columns of a kernel or of padding */

static brim_status infer_conv2d(brim_graph *g, brim_node *n)
{
  const brim_shape *x = &n->in[0]->shape, *w = &n->in[1]->shape;
  const brim_conv2d_attr *a = &n->attr.conv2d;
  brim_shape y = {4, {x->dim[0], w->dim[0]}};
  for (int d = 0; d < 2; d++) {
    const int64_t span = x->dim[2 + d] + 2 * a->padding[d];
    if (span < a->kernel[d]) {
      char text[96];
      return brim_graph_fail(g, n->op, n->name, "kernel %lldx%lld is larger than the padded input %s",
                             (long long)a->kernel[0], (long long)a->kernel[1], brim_shape_format(text, sizeof text, x));
    }
    y.dim[2 + d] = (span - a->kernel[d]) / a->stride[d] + 1;
  }
  n->out[0] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, g->real, &y, n->name);
  return BRIM_OK;
}

static brim_status gradient_conv2d(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *x = n->in[0], *weight = n->in[1], *bias = n->in[2], *dy = brim_autodiff_of(ad, n->out[0]);
  brim_tensor *const for_weight[] = {x, dy}, *const parameters[] = {weight, bias};
  BRIM_TRY(brim_autodiff_emit_parameters(ad, "conv2d_grad_weight", n, for_weight, 2, parameters, 2));
  if (!brim_autodiff_needs(ad, x)) return BRIM_OK;
  brim_tensor *const for_input[] = {dy, weight};
  return brim_autodiff_emit(ad, "conv2d_grad_input", n, for_input, 2, x);
}

/* 2 * outputs * (C*R*S), for each of the three directions. `y` [N,K,P,Q], `weight` [K,C,R,S]. */
static void cost_products(const brim_tensor *y, const brim_tensor *weight, brim_cost *out)
{
  out->flops =
      2 * (uint64_t)brim_shape_count(&y->shape) * (uint64_t)(brim_shape_count(&weight->shape) / weight->shape.dim[0]);
}
static void cost_conv2d(const brim_node *n, brim_cost *out)
{
  cost_products(n->out[0], n->in[1], out);
}
static void cost_grad_input(const brim_node *n, brim_cost *out)
{
  cost_products(n->in[0], n->in[1], out);
}
static void cost_grad_weight(const brim_node *n, brim_cost *out)
{
  cost_products(n->in[1], n->out[0], out);
}

BRIM_OP(conv2d) = {.name = "conv2d",
                   .in_count = 3,
                   .out_count = 1,
                   .infer = infer_conv2d,
                   .gradient = gradient_conv2d,
                   .cost = cost_conv2d};
BRIM_OP(conv2d_grad_input) = {.name = "conv2d_grad_input", .in_count = 2, .out_count = 1, .cost = cost_grad_input};
BRIM_OP(conv2d_grad_weight) = {.name = "conv2d_grad_weight", .in_count = 2, .out_count = 2, .cost = cost_grad_weight};

brim_tensor *brim_conv2d(brim_graph *g, const char *name, brim_tensor *x, int64_t out_channels, int64_t kernel,
                         int64_t stride, int64_t padding)
{
  if (!brim_graph_accepts(g, "conv2d", name, x)) return NULL;
  char text[96];
  if (x->shape.rank != 4) {
    brim_graph_fail(g, "conv2d", name, "input must be [N, C, H, W], got %s",
                    brim_shape_format(text, sizeof text, &x->shape));
    return NULL;
  }
  if (out_channels < 1 || kernel < 1 || kernel > WINDOW_MAX || stride < 1 || padding < 0 || padding > WINDOW_MAX) {
    brim_graph_fail(
        g, "conv2d", name,
        "out_channels %lld, kernel %lld, stride %lld must be at least 1 and padding %lld at least 0; kernel and "
        "padding at most %d",
        (long long)out_channels, (long long)kernel, (long long)stride, (long long)padding, WINDOW_MAX);
    return NULL;
  }
  const brim_shape weight_shape = {4, {out_channels, x->shape.dim[1], kernel, kernel}},
                   bias_shape = {1, {out_channels}};
  const double bound = 1 / sqrt((double)(x->shape.dim[1] * kernel * kernel)); /* torch.nn.Conv2d.reset_parameters */
  brim_tensor *weight = brim_graph_parameter(g, brim_arena_printf(&g->arena, "%s.weight", name), &weight_shape, bound);
  brim_tensor *bias = brim_graph_parameter(g, brim_arena_printf(&g->arena, "%s.bias", name), &bias_shape, bound);
  brim_tensor *const in[] = {x, weight, bias};
  const brim_attr attr = {.conv2d = {{kernel, kernel}, {stride, stride}, {padding, padding}}};
  brim_node *n = brim_graph_node(g, "conv2d", name, in, 3, &attr);
  return n ? n->out[0] : NULL;
}
