/* Convolution (cross-correlation, as in every deep learning library) over two dimensions or one:
 *     y[n,k,p,q] = bias[k] + sum over c,r,s of x[n, first + c, h, w] * weight[k,c,r,s]
 *     h = p*stride - padding + r*dilation, w likewise; `first` is the first channel of filter k's group
 * One dimension is treated as a height of 1: conv1d is conv2d between two reshapes, which are views. Its weight keeps
 * its rank in checkpoints, [K,C/g,S], and is read as [K,C/g,1,S]. */
#include <math.h>

#include "graph/ops/conv.h"

#undef brim_conv1d
#undef brim_conv2d

static brim_window window_of(const brim_conv2d_attr *a)
{
  return (brim_window){{a->kernel[0], a->kernel[1]},
                       {a->stride[0], a->stride[1]},
                       {a->padding[0], a->padding[1]},
                       {a->dilation[0], a->dilation[1]}};
}

static brim_status infer_conv2d(brim_graph *g, brim_node *n)
{
  brim_shape y = {4, {n->in[0]->shape.dim[0], n->in[1]->shape.dim[0]}};
  const brim_window window = window_of(&n->attr.conv2d);
  BRIM_TRY(brim_window_places(g, n->op, n->name, &window, &n->in[0]->shape, &y.dim[2]));
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

void brim_conv_cost(const brim_tensor *y, const brim_tensor *weight, brim_cost *out)
{
  out->flops =
      2 * (uint64_t)brim_shape_count(&y->shape) * (uint64_t)(brim_shape_count(&weight->shape) / weight->shape.dim[0]);
}
static void cost_conv2d(const brim_node *n, brim_cost *out)
{
  brim_conv_cost(n->out[0], n->in[1], out);
}
static void cost_grad_input(const brim_node *n, brim_cost *out)
{
  brim_conv_cost(n->in[0], n->in[1], out);
}
static void cost_grad_weight(const brim_node *n, brim_cost *out)
{
  brim_conv_cost(n->in[1], n->out[0], out);
}

BRIM_OP(conv2d) = {.name = "conv2d",
                   .kind = BRIM_KIND_CONVOLUTION,
                   .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_SAMPLES(0)},
                   .signature = "x [N,C,H,W], weight [K,C/groups,R,S] or [K,C/groups,S], [bias [K]] -> y [N,K,P,Q]",
                   .infer = infer_conv2d,
                   .gradient = gradient_conv2d,
                   .cost = cost_conv2d};
BRIM_OP(conv2d_grad_input) = {.name = "conv2d_grad_input",
                              .kind = BRIM_KIND_CONVOLUTION,
                              .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_SAMPLES(0)},
                              .signature = "dy, weight -> dx",
                              .cost = cost_grad_input};
BRIM_OP(conv2d_grad_weight) = {.name = "conv2d_grad_weight",
                               .kind = BRIM_KIND_CONVOLUTION,
                               .traits = {.samples_in = BRIM_OP_SAMPLES(0) | BRIM_OP_SAMPLES(1)},
                               .signature = "x, dy -> dweight, [dbias]",
                               .accumulates = BRIM_OP_FROM(0),
                               .cost = cost_grad_weight};

brim_conv2d_attr brim_conv_attr(const brim_conv2d_options *o)
{
  brim_conv2d_attr attr = {.groups = o->groups ? o->groups : 1};
  for (int d = 0; d < 2; d++) {
    attr.kernel[d] = o->kernel[d];
    attr.stride[d] = o->stride[d] ? o->stride[d] : 1;
    attr.dilation[d] = o->dilation[d] ? o->dilation[d] : 1;
    attr.padding[d] = o->padding[d];
  }
  return attr;
}

bool brim_conv_check(brim_graph *g, const char *op, const char *name, const brim_shape *x, int64_t out_channels,
                     const brim_conv2d_attr *a)
{
  const brim_window w = window_of(a);
  char text[96], kernel[48], stride[48], dilation[48], padding[48];
  if (!brim_window_valid(&w) || out_channels < 1 || a->groups < 1)
    brim_graph_fail(g, op, name,
                    "out_channels %lld, kernel %s, stride %s, dilation %s and groups %lld must be at least 1 and "
                    "padding %s at least 0; kernel, stride, dilation and padding must be at most %d",
                    (long long)out_channels, brim_window_format(kernel, sizeof kernel, x, w.kernel),
                    brim_window_format(stride, sizeof stride, x, w.stride),
                    brim_window_format(dilation, sizeof dilation, x, w.dilation), (long long)a->groups,
                    brim_window_format(padding, sizeof padding, x, w.padding), BRIM_WINDOW_MAX);
  else if (x->dim[1] % a->groups != 0 || out_channels % a->groups != 0)
    brim_graph_fail(g, op, name, "groups %lld must divide out_channels %lld and the channels of the input %s",
                    (long long)a->groups, (long long)out_channels, brim_shape_format(text, sizeof text, x));
  return g->status == BRIM_OK;
}

/* Checks the arguments, makes the parameters and convolves x, which has 4 dimensions or 3. */
static brim_tensor *make_layer(brim_graph *g, const char *op, const char *name, brim_tensor *x, int64_t out_channels,
                               const brim_conv2d_options *o)
{
  const brim_shape shape = x->shape;
  const brim_attr attr = {.conv2d = brim_conv_attr(o)};
  const brim_window window = window_of(&attr.conv2d);
  int64_t places[2];
  if (!brim_graph_named(g, op, name)) return NULL;
  if (!brim_conv_check(g, op, name, &shape, out_channels, &attr.conv2d)) return NULL;
  if (brim_window_places(g, op, name, &window, &shape, places) != BRIM_OK) return NULL;
  const int64_t channels = shape.dim[1] / attr.conv2d.groups, taps = o->kernel[0] * o->kernel[1];
  brim_shape weight = {shape.rank, {out_channels, channels, o->kernel[0], o->kernel[1]}};
  const brim_shape bias = {1, {out_channels}};
  if (shape.rank == 3) weight.dim[2] = o->kernel[1];
  const double bound = 1 / sqrt((double)channels * (double)taps); /* torch.nn.Conv2d.reset_parameters */
  brim_tensor *in[3] = {x, brim_graph_weight(g, name, "weight", &weight, bound)};
  if (!o->no_bias) in[2] = brim_graph_weight(g, name, "bias", &bias, bound);
  if (shape.rank == 3) in[0] = brim_window_spread(g, x);
  return brim_graph_apply(g, "conv2d", name, in, o->no_bias ? 2 : 3, &attr);
}

brim_tensor *brim_conv2d(brim_graph *g, const char *name, brim_tensor *x, int64_t out_channels,
                         brim_conv2d_options options)
{
  return brim_window_rank(g, "conv2d", name, x, 4) ? make_layer(g, "conv2d", name, x, out_channels, &options) : NULL;
}

brim_tensor *brim_conv1d(brim_graph *g, const char *name, brim_tensor *x, int64_t out_channels,
                         brim_conv1d_options options)
{
  const brim_conv1d_options *o = &options;
  const brim_conv2d_options flat = {.kernel = {1, o->kernel},
                                    .stride = {1, o->stride},
                                    .padding = {0, o->padding},
                                    .dilation = {1, o->dilation},
                                    .groups = o->groups,
                                    .no_bias = o->no_bias};
  if (!brim_window_rank(g, "conv1d", name, x, 3)) return NULL;
  return brim_window_join(g, make_layer(g, "conv1d", name, x, out_channels, &flat));
}
