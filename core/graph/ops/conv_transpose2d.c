/* Transposed convolution: the gradient of a convolution with respect to its input, as a layer. Where conv2d sums over a
 * window, this adds each value, times the filter, to the window:
 *     y[n,k,h,w] = bias[k] + sum over c,r,s,p,q of x[n,c,p,q] * weight[c,k,r,s]
 *     over all p,q with  h = p*stride - padding + r*dilation,  w likewise
 * In terms of the convolution from y to x with the same attributes and weights,
 *     y  is its gradient of the input,  dx  is the convolution of dy,  dweight  its gradient of the weights,
 * so kernels, and the bits for any micro-batch, are the same. Only the bias, with its gradient, is added here. Several
 * heights lead to the same P, because a stride may leave the last rows of the input unread; output_padding chooses one.
 *
 * One dimension is treated as a height of 1, as in conv1d. */
#include <math.h>

#include "graph/ops/conv.h"

#undef brim_conv_transpose1d
#undef brim_conv_transpose2d
#undef brim_pad

static brim_status gradient_conv_transpose2d(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *x = n->in[0], *weight = n->in[1], *dy = brim_autodiff_of(ad, n->out[0]);
  brim_tensor *const for_weight[] = {dy, x}, *const for_input[] = {dy, weight};
  BRIM_TRY(brim_autodiff_emit(ad, "conv2d_grad_weight", n, NULL, for_weight, 2, &n->in[1], 1));
  if (n->in_count > 2) BRIM_TRY(brim_autodiff_emit(ad, "conv_transpose2d_grad_bias", n, NULL, &dy, 1, &n->in[2], 1));
  if (!brim_autodiff_needs(ad, x)) return BRIM_OK;
  return brim_autodiff_emit(ad, "conv2d", n, NULL, for_input, 2, &x, 1);
}

static void cost_conv_transpose2d(const brim_node *n, brim_cost *out)
{
  brim_conv_cost(n->in[0], n->in[1], out);
}

BRIM_OP(conv_transpose2d) = {
    .name = "conv_transpose2d",
    .kind = BRIM_KIND_CONVOLUTION,
    .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_SAMPLES(0)},
    .signature = "x [N,C,P,Q], weight [C,K/groups,R,S] or [C,K/groups,S], [bias [K]] -> y [N,K,H,W]",
    .gradient = gradient_conv_transpose2d,
    .cost = cost_conv_transpose2d};
BRIM_OP(conv_transpose2d_grad_bias) = {.name = "conv_transpose2d_grad_bias",
                                       .kind = BRIM_KIND_REDUCTION,
                                       .traits = {.samples_in = BRIM_OP_SAMPLES(0)},
                                       .signature = "dy -> dbias",
                                       .accumulates = BRIM_OP_FROM(0),
                                       .flops = 1};

/* Computes the shape of y, [N,K,H,W] even if x is [N,C,L]; false, with the error in the graph, if no shape is valid. */
static bool find_shape(brim_graph *g, const char *op, const char *name, const brim_shape *x, int64_t out_channels,
                       const brim_conv2d_attr *a, const int64_t output_padding[2], brim_shape *y)
{
  char one[96], two[96], three[96];
  const int dims = x->rank - 2;
  bool small = true, empty = false;
  *y = (brim_shape){4, {x->dim[0], out_channels, 1, 1}};
  for (int d = 0; d < 2; d++)
    small = small && output_padding[d] >= 0 && (output_padding[d] < a->stride[d] || output_padding[d] < a->dilation[d]);
  for (int d = 2 - dims; small && d < 2; d++) {
    const int64_t reach = a->dilation[d] * (a->kernel[d] - 1) + 1;
    y->dim[2 + d] = (x->dim[dims + d] - 1) * a->stride[d] + reach - 2 * a->padding[d] + output_padding[d];
    empty = empty || y->dim[2 + d] < 1;
  }
  if (!small)
    brim_graph_fail(g, op, name, "output_padding %s must be at least 0, and less than stride %s or dilation %s",
                    brim_window_format(one, sizeof one, x, output_padding),
                    brim_window_format(two, sizeof two, x, a->stride),
                    brim_window_format(three, sizeof three, x, a->dilation));
  else if (empty)
    brim_graph_fail(g, op, name, "padding %s removes the whole result of input %s: the result would be %s",
                    brim_window_format(one, sizeof one, x, a->padding), brim_shape_format(two, sizeof two, x),
                    brim_window_format(three, sizeof three, x, &y->dim[2]));
  return g->status == BRIM_OK;
}

/* An output padding of a whole stride or more, which a dilation allows, is implemented by zeros after x. */
static brim_tensor *pad_after(brim_graph *g, brim_tensor *x, const brim_conv2d_attr *a, const int64_t output_padding[2])
{
  const int64_t none[4] = {0}, after[4] = {0, 0, output_padding[0] / a->stride[0], output_padding[1] / a->stride[1]};
  return after[2] > 0 || after[3] > 0 ? brim_pad(g, x, none, after, 0) : x;
}

/* Checks the arguments, makes the parameters and convolves x, which has 4 dimensions or 3; y has 4. */
static brim_tensor *make_layer(brim_graph *g, const char *op, const char *name, brim_tensor *x, int64_t out_channels,
                               const brim_conv_transpose2d_options *o)
{
  const brim_shape shape = x->shape;
  const brim_conv2d_options like = {.kernel = {o->kernel[0], o->kernel[1]},
                                    .stride = {o->stride[0], o->stride[1]},
                                    .padding = {o->padding[0], o->padding[1]},
                                    .dilation = {o->dilation[0], o->dilation[1]},
                                    .groups = o->groups};
  const brim_attr attr = {.conv2d = brim_conv_attr(&like)};
  brim_shape y_shape;
  if (!brim_graph_named(g, op, name)) return NULL;
  if (!brim_conv_check(g, op, name, &shape, out_channels, &attr.conv2d)) return NULL;
  if (!find_shape(g, op, name, &shape, out_channels, &attr.conv2d, o->output_padding, &y_shape)) return NULL;
  const int64_t filters = out_channels / attr.conv2d.groups, taps = o->kernel[0] * o->kernel[1];
  brim_shape weight = {shape.rank, {shape.dim[1], filters, o->kernel[0], o->kernel[1]}};
  const brim_shape bias = {1, {out_channels}};
  if (shape.rank == 3) weight.dim[2] = o->kernel[1];
  /* as torch.nn.ConvTranspose2d.reset_parameters, whose fan-in of such a weight counts its own filters */
  const double bound = 1 / sqrt((double)filters * (double)taps);
  brim_tensor *in[3] = {NULL, brim_graph_weight(g, name, "weight", &weight, bound)};
  if (!o->no_bias) in[2] = brim_graph_weight(g, name, "bias", &bias, bound);
  in[0] = pad_after(g, shape.rank == 3 ? brim_window_spread(g, x) : x, &attr.conv2d, o->output_padding);
  brim_tensor *y = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, g->real, &y_shape, name);
  if (!y) return NULL;
  return brim_graph_node_into(g, "conv_transpose2d", name, in, o->no_bias ? 2 : 3, &y, 1, &attr) ? y : NULL;
}

brim_tensor *brim_conv_transpose2d(brim_graph *g, const char *name, brim_tensor *x, int64_t out_channels,
                                   brim_conv_transpose2d_options options)
{
  static const char op[] = "conv_transpose2d";
  return brim_window_rank(g, op, name, x, 4) ? make_layer(g, op, name, x, out_channels, &options) : NULL;
}

brim_tensor *brim_conv_transpose1d(brim_graph *g, const char *name, brim_tensor *x, int64_t out_channels,
                                   brim_conv_transpose1d_options options)
{
  static const char op[] = "conv_transpose1d";
  const brim_conv_transpose1d_options *o = &options;
  const brim_conv_transpose2d_options flat = {.kernel = {1, o->kernel},
                                              .stride = {1, o->stride},
                                              .padding = {0, o->padding},
                                              .output_padding = {0, o->output_padding},
                                              .dilation = {1, o->dilation},
                                              .groups = o->groups,
                                              .no_bias = o->no_bias};
  if (!brim_window_rank(g, op, name, x, 3)) return NULL;
  return brim_window_join(g, make_layer(g, op, name, x, out_channels, &flat));
}
