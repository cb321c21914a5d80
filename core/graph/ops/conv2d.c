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
    const int64_t span = x->dim[2 + d] + 2 * a->padding[d], reach = a->dilation[d] * (a->kernel[d] - 1) + 1;
    if (span < reach) {
      char text[96];
      return brim_graph_fail(g, n->op, n->name, "kernel %lldx%lld is larger than the padded input %s",
                             (long long)a->kernel[0], (long long)a->kernel[1], brim_shape_format(text, sizeof text, x));
    }
    y.dim[2 + d] = (span - reach) / a->stride[d] + 1;
  }
  n->out[0] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, g->real, &y, n->name);
  return BRIM_OK;
}

static brim_status gradient_conv2d(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *x = n->in[0], *weight = n->in[1], *dy = brim_autodiff_of(ad, n->out[0]);
  brim_tensor *const for_weight[] = {x, dy};
  BRIM_TRY(brim_autodiff_emit(ad, "conv2d_grad_weight", n, NULL, for_weight, 2, &n->in[1], n->in_count - 1));
  if (!brim_autodiff_needs(ad, x)) return BRIM_OK;
  brim_tensor *const for_input[] = {dy, weight};
  return brim_autodiff_emit(ad, "conv2d_grad_input", n, NULL, for_input, 2, &x, 1);
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
                   .signature = "x [N,C,H,W], weight [K,C/groups,R,S], [bias [K]] -> y [N,K,P,Q]",
                   .in_count = 3,
                   .optional = 1,
                   .out_count = 1,
                   .infer = infer_conv2d,
                   .gradient = gradient_conv2d,
                   .cost = cost_conv2d};
BRIM_OP(conv2d_grad_input) = {.name = "conv2d_grad_input",
                              .signature = "dy, weight -> dx",
                              .in_count = 2,
                              .out_count = 1,
                              .cost = cost_grad_input};
BRIM_OP(conv2d_grad_weight) = {.name = "conv2d_grad_weight",
                               .signature = "x, dy -> dweight, [dbias]",
                               .in_count = 2,
                               .out_count = 2,
                               .accumulates = true,
                               .cost = cost_grad_weight};

/* What is wrong with a layer's numbers; false if nothing is. `attr` is filled from the options, 0 meaning 1. */
static bool refuses(brim_graph *g, const char *name, const brim_tensor *x, int64_t out_channels,
                    const brim_conv2d_options *o, brim_conv2d_attr *attr)
{
  char text[96];
  const int64_t groups = attr->groups = o->groups ? o->groups : 1;
  bool good = out_channels >= 1 && groups >= 1;
  for (int d = 0; d < 2; d++) {
    attr->kernel[d] = o->kernel[d];
    attr->stride[d] = o->stride[d] ? o->stride[d] : 1;
    attr->dilation[d] = o->dilation[d] ? o->dilation[d] : 1;
    attr->padding[d] = o->padding[d];
    good = good && attr->kernel[d] >= 1 && attr->kernel[d] <= WINDOW_MAX && attr->stride[d] >= 1 &&
           attr->dilation[d] >= 1 && attr->dilation[d] <= WINDOW_MAX && attr->padding[d] >= 0 &&
           attr->padding[d] <= WINDOW_MAX;
  }
  if (!good)
    brim_graph_fail(g, "conv2d", name,
                    "out_channels %lld, kernel %lldx%lld, stride %lldx%lld, dilation %lldx%lld and groups %lld must be "
                    "at least 1 and padding %lldx%lld at least 0; kernel, dilation and padding at most %d",
                    (long long)out_channels, (long long)attr->kernel[0], (long long)attr->kernel[1],
                    (long long)attr->stride[0], (long long)attr->stride[1], (long long)attr->dilation[0],
                    (long long)attr->dilation[1], (long long)groups, (long long)attr->padding[0],
                    (long long)attr->padding[1], WINDOW_MAX);
  else if (x->shape.dim[1] % groups != 0 || out_channels % groups != 0)
    brim_graph_fail(g, "conv2d", name, "groups %lld must divide out_channels %lld and the channels of the input %s",
                    (long long)groups, (long long)out_channels, brim_shape_format(text, sizeof text, &x->shape));
  return g->status != BRIM_OK;
}

brim_tensor *brim_conv2d(brim_graph *g, const char *name, brim_tensor *x, int64_t out_channels,
                         brim_conv2d_options options)
{
  if (!brim_graph_accepts(g, "conv2d", name, x)) return NULL;
  char text[96];
  if (x->shape.rank != 4) {
    brim_graph_fail(g, "conv2d", name, "input must be [N, C, H, W], got %s",
                    brim_shape_format(text, sizeof text, &x->shape));
    return NULL;
  }
  brim_attr attr = {0};
  if (refuses(g, name, x, out_channels, &options, &attr.conv2d)) return NULL;
  const int64_t *kernel = options.kernel, channels = x->shape.dim[1] / attr.conv2d.groups;
  const brim_shape weight = {4, {out_channels, channels, kernel[0], kernel[1]}}, bias = {1, {out_channels}};
  const double bound = 1 / sqrt((double)(channels * kernel[0] * kernel[1])); /* torch.nn.Conv2d.reset_parameters */
  brim_tensor *in[3] = {x, brim_graph_weight(g, name, "weight", &weight, bound)};
  if (!options.no_bias) in[2] = brim_graph_weight(g, name, "bias", &bias, bound);
  return brim_graph_apply(g, "conv2d", name, in, options.no_bias ? 2 : 3, &attr);
}
