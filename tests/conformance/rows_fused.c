/* Rows of fused operations. The fusion pass must find each pair and replace it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/bench.h"
#include "graph/fuse.h"

/* Runs the fusion pass, after which the last node must be `op`. */
static brim_tensor *fused(bench *b, const char *op, brim_tensor *y)
{
  brim_graph_fuse(b->g, BRIM_FUSE_ALL, NULL, NULL);
  if (b->g->status == BRIM_OK && strcmp(b->g->node[b->g->node_count - 1]->op, op) != 0)
    fail_msg("%s was not made: the last node is %s", op, b->g->node[b->g->node_count - 1]->op);
  return y;
}

/* Two backends may disagree about the sign of a number near 0, and then only one has a gradient. With few results no
 * number is that near to 0; with many results the row differentiates nothing. The gradient consists of operations with
 * rows of their own. */
static brim_tensor *rectified(bench *b, const char *op, brim_tensor *y)
{
  fused(b, op, y);
  return b->o.size == SIZE_SMALL || b->o.size == SIZE_ONE ? y : NULL;
}

/* Activations of y, with random attributes where they have any. */
typedef brim_tensor *activation(bench *b, brim_tensor *y);

static brim_tensor *relu(bench *b, brim_tensor *y)
{
  return brim_relu(b->g, y);
}
static brim_tensor *leaky_relu(bench *b, brim_tensor *y)
{
  return brim_leaky_relu(b->g, y, (double)bench_pick(b, 1, 9) / 10);
}
static brim_tensor *sigmoid(bench *b, brim_tensor *y)
{
  return brim_sigmoid(b->g, y);
}
static brim_tensor *tangent(bench *b, brim_tensor *y)
{
  return brim_tanh(b->g, y);
}

static brim_tensor *linear_before(bench *b, activation *then)
{
  const int64_t scale = b->o.size == SIZE_BLOCKED || b->o.size == SIZE_ANY ? bench_pick(b, 1, 30) : 1;
  const int64_t in = scale * bench_pick_channels(b), out = bench_pick_channels(b);
  brim_tensor *x = bench_input2(b, in);
  if (bench_pick(b, 0, 2) == 0) return then(b, brim_linear_no_bias(b->g, "fc", x, out));
  return then(b, brim_linear(b->g, "fc", x, out));
}

static brim_tensor *make_linear_relu(bench *b)
{
  return rectified(b, "linear+relu", linear_before(b, relu));
}
static brim_tensor *make_linear_leaky_relu(bench *b)
{
  return rectified(b, "linear+leaky_relu", linear_before(b, leaky_relu));
}
static brim_tensor *make_linear_sigmoid(bench *b)
{
  return fused(b, "linear+sigmoid", linear_before(b, sigmoid));
}
static brim_tensor *make_linear_tanh(bench *b)
{
  return fused(b, "linear+tanh", linear_before(b, tangent));
}
BENCH_ROW(linear_relu) = {"linear+relu", make_linear_relu, .by_sample = true};
BENCH_ROW(linear_leaky_relu) = {"linear+leaky_relu", make_linear_leaky_relu, .by_sample = true};
BENCH_ROW(linear_sigmoid) = {"linear+sigmoid", make_linear_sigmoid, .by_sample = true};
BENCH_ROW(linear_tanh) = {"linear+tanh", make_linear_tanh, .by_sample = true};

/* Builds the fused operation directly, because in training the fusion pass requires another linear after it
 * (fuse.c). */
static brim_tensor *linear_keeping(bench *b, const char *op, int32_t approximate)
{
  const int64_t in = bench_pick_channels(b) * (b->o.size == SIZE_ANY ? bench_pick(b, 1, 30) : 1);
  const int64_t out = bench_pick_channels(b);
  const brim_shape weight = {2, {out, in}}, bias = {1, {out}};
  const brim_shape sequence = {3, {b->o.batch, bench_pick_extent(b, 1), in}};
  const brim_attr attr = {.fused = {.activation = {.approximate = approximate}}};
  brim_tensor *x = bench_pick(b, 0, 1) ? bench_input2(b, in) : bench_input(b, &sequence, "x");
  const bool biased = bench_pick(b, 0, 2) > 0;
  brim_tensor *const inputs[] = {x, bench_parameter(b, "weight", &weight, 2 / sqrt((double)in)),
                                 biased ? bench_parameter(b, "bias", &bias, 1) : NULL};
  return brim_graph_apply(b->g, op, "fc", inputs, biased ? 3 : 2, &attr);
}
static brim_tensor *make_linear_gelu_exact(bench *b)
{
  return linear_keeping(b, "linear+gelu", BRIM_GELU_EXACT);
}
static brim_tensor *make_linear_gelu_tanh(bench *b)
{
  return linear_keeping(b, "linear+gelu", BRIM_GELU_TANH);
}
static brim_tensor *make_linear_gelu_quick(bench *b)
{
  return linear_keeping(b, "linear+gelu", BRIM_GELU_QUICK);
}
static brim_tensor *make_linear_silu(bench *b)
{
  return linear_keeping(b, "linear+silu", 0);
}
BENCH_ROW(linear_gelu_exact) = {"linear+gelu exact", make_linear_gelu_exact, .by_sample = true};
BENCH_ROW(linear_gelu_tanh) = {"linear+gelu tanh", make_linear_gelu_tanh, .by_sample = true};
BENCH_ROW(linear_gelu_quick) = {"linear+gelu quick", make_linear_gelu_quick, .by_sample = true};
BENCH_ROW(linear_silu) = {"linear+silu", make_linear_silu, .by_sample = true};

/* The product is added to all columns of a tensor or to some of them. In some cases this tensor is also the input of
 * the product, so that the result cannot use its memory. */
static brim_tensor *make_linear_add(bench *b)
{
  const int64_t scale = b->o.size == SIZE_BLOCKED || b->o.size == SIZE_ANY ? bench_pick(b, 1, 30) : 1;
  const int64_t in = scale * bench_pick_channels(b), rows = bench_pick_extent(b, 1);
  const bool same = bench_pick(b, 0, 3) == 0;
  const int64_t all = same ? in : bench_pick_channels(b), first = bench_pick(b, 0, 1) * bench_pick(b, 0, all - 1);
  const brim_shape weight = {2, {first > 0 ? bench_pick(b, 1, all - first) : all, in}};
  brim_tensor *a = bench_input(b, &(brim_shape){3, {b->o.batch, rows, all}}, "a");
  brim_tensor *x = same ? a : bench_input(b, &(brim_shape){3, {b->o.batch, rows, in}}, "x");
  brim_tensor *const inputs[] = {a, x, bench_parameter(b, "weight", &weight, 2 / sqrt((double)in))};
  return brim_graph_apply(b->g, "linear+add", "fc", inputs, 3, &(brim_attr){.linear = {.first = first}});
}
BENCH_ROW(linear_add) = {"linear+add", make_linear_add, .by_sample = true};

/* Several layers have the same input, and each adds to its gradient; the last layer's input is also an operand of the
 * sum. */
static brim_tensor *make_linear_grad_input_add(bench *b)
{
  const int64_t in = bench_pick_channels(b), out = bench_pick_channels(b);
  brim_tensor *x = bench_pick(b, 0, 2) ? bench_input2(b, in) : bench_input4(b, 2, bench_pick_extent(b, 1), in);
  brim_tensor *y = brim_add(b->g, brim_linear(b->g, "fc1", x, out), brim_linear_no_bias(b->g, "fc2", x, out));
  return bench_pick(b, 0, 1) ? y : brim_add(b->g, brim_linear_no_bias(b->g, "fc3", y, out), y);
}
BENCH_ROW(linear_grad_input_add) = {"linear_grad_input+add", make_linear_grad_input_add, .composite = true,
                                    .by_sample = true};

/* The operands of the sum are independent, or dropout's input is a relu of the other operand. */
static brim_tensor *make_dropout_add(bench *b)
{
  const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, 1), w = bench_pick_extent(b, 1);
  const bool flat = bench_pick(b, 0, 1) == 0, before = bench_pick(b, 0, 1) == 0;
  brim_tensor *a = flat ? bench_input2(b, c * h) : bench_input4(b, c, h, w);
  brim_tensor *x = bench_pick(b, 0, 1) == 0 ? brim_relu(b->g, a)
                   : flat                   ? bench_input2(b, c * h)
                                            : bench_input4(b, c, h, w);
  brim_tensor *dropped = brim_dropout(b->g, x, (double)bench_pick(b, 1, 9) / 10);
  brim_tensor *y = before ? brim_add(b->g, a, dropped) : brim_add(b->g, dropped, a);
  return b->o.evaluate ? y : fused(b, "dropout+add", y);
}
BENCH_ROW(dropout_add) = {"dropout+add", make_dropout_add, .by_sample = true};

/* The model applies relu first; the fusion pass moves it if only the next operation reads its result. */
static brim_tensor *make_dropout_relu(bench *b)
{
  const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, 1), w = bench_pick_extent(b, 1);
  brim_tensor *x = bench_pick(b, 0, 1) == 0 ? bench_input2(b, c * h) : bench_input4(b, c, h, w);
  brim_tensor *y = brim_dropout(b->g, brim_relu(b->g, x), (double)bench_pick(b, 1, 9) / 10);
  return b->o.evaluate ? y : fused(b, "dropout+relu", y);
}
BENCH_ROW(dropout_relu) = {"dropout+relu", make_dropout_relu, .by_sample = true};

static brim_tensor *make_max_pool_relu(bench *b)
{
  const int64_t kernel = b->o.size == SIZE_ONE ? 1 : bench_pick(b, 1, 3);
  const brim_pool2d_options o = {.kernel = {kernel, kernel},
                                 .stride = {bench_pick(b, 1, 2), bench_pick(b, 1, 3)},
                                 .padding = {bench_pick(b, 0, kernel / 2), 0}};
  const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, kernel), w = bench_pick_extent(b, kernel);
  return fused(b, "max_pool2d+relu", brim_max_pool2d(b->g, brim_relu(b->g, bench_input4(b, c, h, w)), o));
}
BENCH_ROW(max_pool_relu) = {"max_pool2d+relu", make_max_pool_relu, .by_sample = true};

static brim_tensor *conv2d_before(bench *b, activation *then)
{
  const int64_t kernel = bench_pick(b, 1, 3), groups = bench_pick(b, 1, 2), c = groups * bench_pick_channels(b);
  const int64_t h = bench_pick_extent(b, 3), w = bench_pick_extent(b, 3);
  const brim_conv2d_options options = {.kernel = {kernel, 3},
                                       .stride = {bench_pick(b, 1, 2), 1},
                                       .padding = {bench_pick(b, 0, 1), 1},
                                       .groups = groups,
                                       .no_bias = bench_pick(b, 0, 2) == 0};
  brim_tensor *x = bench_input4(b, c, h, w);
  return then(b, brim_conv2d(b->g, "conv", x, groups * bench_pick_channels(b), options));
}

static brim_tensor *make_conv2d_relu(bench *b)
{
  return rectified(b, "conv2d+relu", conv2d_before(b, relu));
}
static brim_tensor *make_conv2d_leaky_relu(bench *b)
{
  return rectified(b, "conv2d+leaky_relu", conv2d_before(b, leaky_relu));
}
static brim_tensor *make_conv2d_sigmoid(bench *b)
{
  return fused(b, "conv2d+sigmoid", conv2d_before(b, sigmoid));
}
static brim_tensor *make_conv2d_tanh(bench *b)
{
  return fused(b, "conv2d+tanh", conv2d_before(b, tangent));
}
BENCH_ROW(conv2d_relu) = {"conv2d+relu", make_conv2d_relu, .by_sample = true};
BENCH_ROW(conv2d_leaky_relu) = {"conv2d+leaky_relu", make_conv2d_leaky_relu, .by_sample = true};
BENCH_ROW(conv2d_sigmoid) = {"conv2d+sigmoid", make_conv2d_sigmoid, .by_sample = true};
BENCH_ROW(conv2d_tanh) = {"conv2d+tanh", make_conv2d_tanh, .by_sample = true};

/* The graph has a view between the convolution and relu. */
static brim_tensor *make_conv1d_relu(bench *b)
{
  brim_tensor *x = bench_input(b, &(brim_shape){3, {b->o.batch, bench_pick_channels(b), bench_pick_extent(b, 3)}}, "x");
  brim_tensor *y = brim_conv1d(b->g, "conv", x, bench_pick_channels(b), (brim_conv1d_options){.kernel = 3});
  y = brim_relu(b->g, y);
  brim_graph_fuse(b->g, BRIM_FUSE_ALL, NULL, NULL);
  if (strcmp(b->g->node[1]->op, "conv2d+relu") != 0 || b->g->node_count != 3) fail_msg("conv1d and relu are not one");
  return b->o.size == SIZE_SMALL || b->o.size == SIZE_ONE ? y : NULL;
}
BENCH_ROW(conv1d_relu) = {"conv1d+relu", make_conv1d_relu, .by_sample = true};

/* ---- normalisation; as in rows_norm.c, eps is large where few values would cancel out ---- */

static brim_tensor *make_layer_norm_relu(bench *b)
{
  const int64_t features = (b->o.size == SIZE_ANY ? 7 : 1) * bench_pick_channels(b);
  const brim_shape shape = {3, {b->o.batch, bench_pick_extent(b, 1), features}};
  brim_tensor *x = bench_pick(b, 0, 1) ? bench_input2(b, features) : bench_input(b, &shape, "x");
  return rectified(b, "layer_norm+relu", brim_relu(b->g, brim_layer_norm(b->g, "norm", x, 0.5)));
}
BENCH_ROW(layer_norm_relu) = {"layer_norm+relu", make_layer_norm_relu, .by_sample = true};

/* Returns an input of rank 2 or 4. Some inputs of rank 4 are results of a reshape, which come in blocks where
 * possible. */
static brim_tensor *input_of_channels(bench *b, int64_t channels)
{
  const int64_t h = bench_pick_extent(b, 2), w = bench_pick_extent(b, 1);
  if (b->o.size == SIZE_BLOCKED && bench_pick(b, 0, 2) > 0)
    return brim_reshape(b->g, bench_input2(b, channels * h * w), 4, (int64_t[]){b->o.batch, channels, h, w});
  return bench_pick(b, 0, 3) == 0 ? bench_input2(b, channels) : bench_input4(b, channels, h, w);
}

static brim_tensor *make_group_norm_relu(bench *b)
{
  const int64_t channels = (b->o.size == SIZE_BLOCKED ? 16 : 2) * bench_pick(b, 1, 5);
  brim_tensor *y = brim_group_norm(b->g, "norm", input_of_channels(b, channels), bench_pick(b, 1, 2), 0.5);
  return rectified(b, "group_norm+relu", brim_relu(b->g, y));
}
BENCH_ROW(group_norm_relu) = {"group_norm+relu", make_group_norm_relu, .by_sample = true};

static brim_tensor *make_batch_norm_relu(bench *b)
{
  const int64_t more = b->o.size == SIZE_ANY && bench_pick(b, 0, 2) == 0 ? 64 : 0;
  const int64_t channels = b->o.size == SIZE_BLOCKED ? 16 * bench_pick(b, 1, 5) : bench_pick_channels(b) + more;
  brim_tensor *y = brim_batch_norm(b->g, "norm", input_of_channels(b, channels), 0.5, 0.1);
  return rectified(b, b->o.evaluate ? "batch_norm_inference+relu" : "batch_norm+relu", brim_relu(b->g, y));
}
BENCH_ROW(batch_norm_relu) = {"batch_norm+relu", make_batch_norm_relu, .by_sample = true, .norm_group = 4};

/* The end of a residual block. The other operand may be an input, which has an order in memory of its own and may not
 * be overwritten, or the result of another operation, or the norm's own input. */
static brim_tensor *other_operand(bench *b, brim_tensor *x)
{
  const brim_shape shape = brim_shape_of(x);
  switch (bench_pick(b, 0, 3)) {
  case 0:
    return x;
  case 1:
    return bench_input(b, &shape, "a");
  default:
    return brim_relu(b->g, x);
  }
}

static brim_tensor *make_batch_norm_sum(bench *b, bool rectifies)
{
  const int64_t more = b->o.size == SIZE_ANY && bench_pick(b, 0, 2) == 0 ? 64 : 0;
  const int64_t channels = b->o.size == SIZE_BLOCKED ? 16 * bench_pick(b, 1, 5) : bench_pick_channels(b) + more;
  brim_tensor *x = input_of_channels(b, channels), *a = other_operand(b, x);
  brim_tensor *y = brim_batch_norm(b->g, "norm", x, 0.5, 0.1);
  y = bench_pick(b, 0, 1) ? brim_add(b->g, y, a) : brim_add(b->g, a, y);
  const char *norm = b->o.evaluate ? "batch_norm_inference" : "batch_norm";
  char op[64];
  snprintf(op, sizeof op, "%s+add%s", norm, rectifies ? "+relu" : "");
  return rectifies ? rectified(b, op, brim_relu(b->g, y)) : fused(b, op, y);
}
static brim_tensor *make_batch_norm_add(bench *b)
{
  return make_batch_norm_sum(b, false);
}
static brim_tensor *make_batch_norm_add_relu(bench *b)
{
  return make_batch_norm_sum(b, true);
}
BENCH_ROW(batch_norm_add) = {"batch_norm+add", make_batch_norm_add, .by_sample = true, .terms = 4, .norm_group = 4};
BENCH_ROW(batch_norm_add_relu) = {"batch_norm+add+relu", make_batch_norm_add_relu, .by_sample = true, .terms = 4,
                                  .norm_group = 4};

/* Batch norm in evaluation, without a gradient. */
static brim_tensor *make_batch_norm_inference(bench *b, const char *op)
{
  brim_graph *g = b->g;
  const int64_t channels = b->o.size == SIZE_BLOCKED ? 16 * bench_pick(b, 1, 5) : bench_pick_channels(b);
  const brim_shape shape = {1, {channels}};
  const brim_init zero = {BRIM_INIT_CONSTANT, 0}, one = {BRIM_INIT_CONSTANT, 1};
  brim_tensor *in[5] = {input_of_channels(b, channels)};
  brim_tensor *a = strstr(op, "+add") ? other_operand(b, in[0]) : NULL;
  in[1] = bench_parameter(b, "weight", &shape, 1);
  in[2] = bench_parameter(b, "bias", &shape, 1);
  in[3] = brim_graph_buffer(g, "running_mean", &shape, zero, 0.1);
  in[4] = brim_graph_buffer(g, "running_var", &shape, one, 0.1);
  brim_tensor *y = brim_graph_apply(g, "batch_norm_inference", "norm", in, 5, &(brim_attr){.norm = {.eps = 0.5}});
  if (a) y = brim_add(g, a, y);
  if (strstr(op, "+relu")) y = brim_relu(g, y);
  fused(b, op, y);
  return NULL;
}
static brim_tensor *make_batch_norm_inference_relu(bench *b)
{
  return make_batch_norm_inference(b, "batch_norm_inference+relu");
}
static brim_tensor *make_batch_norm_inference_add(bench *b)
{
  return make_batch_norm_inference(b, "batch_norm_inference+add");
}
static brim_tensor *make_batch_norm_inference_add_relu(bench *b)
{
  return make_batch_norm_inference(b, "batch_norm_inference+add+relu");
}
BENCH_ROW(batch_norm_inference_add) = {"batch_norm_inference+add", make_batch_norm_inference_add, .by_sample = true,
                                       .terms = 4};
BENCH_ROW(batch_norm_inference_add_relu) = {"batch_norm_inference+add+relu", make_batch_norm_inference_add_relu,
                                            .by_sample = true, .terms = 4};
BENCH_ROW(batch_norm_inference_relu) = {"batch_norm_inference+relu", make_batch_norm_inference_relu, .by_sample = true};

/* The sum may be needed later or only by the norm, and so may its operands. */
static brim_tensor *make_sum_norm(bench *b, bool rms)
{
  brim_graph *g = b->g;
  const int64_t features = (b->o.size == SIZE_ANY ? 7 : 1) * bench_pick_channels(b);
  const brim_shape shape = {3, {b->o.batch, bench_pick_extent(b, 1), features}};
  const bool flat = bench_pick(b, 0, 1) == 0;
  brim_tensor *first = flat ? bench_input2(b, features) : bench_input(b, &shape, "x");
  brim_tensor *second = flat ? bench_input2(b, features) : bench_input(b, &shape, "x");
  const int64_t made = flat ? 0 : bench_pick(b, 0, 2); /* results of this graph may be overwritten, inputs may not */
  if (made > 0) first = brim_relu(g, first);
  if (made > 1) second = brim_relu(g, second);
  brim_tensor *sum = brim_add(g, first, second);
  brim_tensor *y = rms ? brim_rms_norm_offset(g, "norm", sum, 0.5, (double)bench_pick(b, 0, 1))
                       : brim_layer_norm(g, "norm", sum, 0.5);
  fused(b, rms ? "add+rms_norm" : "add+layer_norm", y);
  switch (bench_pick(b, 0, 2)) {
  case 0:
    return y;
  case 1:
    return brim_add(g, sum, y);
  default:
    return brim_add(g, first, y);
  }
}
static brim_tensor *make_sum_layer_norm(bench *b)
{
  return make_sum_norm(b, false);
}
static brim_tensor *make_sum_rms_norm(bench *b)
{
  return make_sum_norm(b, true);
}
/* The input of the norm is needed later too, so the gradient of each norm is added to another gradient. */
static brim_tensor *make_norm_add(bench *b, bool rms)
{
  brim_graph *g = b->g;
  const int64_t features = (b->o.size == SIZE_ANY ? 7 : 1) * bench_pick_channels(b);
  brim_tensor *x =
      bench_pick(b, 0, 2) ? bench_input2(b, features) : bench_input4(b, 2, bench_pick_extent(b, 1), features);
  for (int i = 0; i < 2; i++) {
    const char *name = i ? "norm2" : "norm1";
    brim_tensor *y = rms ? brim_rms_norm_offset(g, name, x, 0.5, i) : brim_layer_norm(g, name, x, 0.5);
    x = brim_add(g, x, bench_pick(b, 0, 1) ? brim_relu(g, y) : y);
  }
  return x;
}
static brim_tensor *make_layer_norm_grad_add(bench *b)
{
  return make_norm_add(b, false);
}
static brim_tensor *make_rms_norm_grad_add(bench *b)
{
  return make_norm_add(b, true);
}
BENCH_ROW(layer_norm_grad_add) = {"layer_norm_grad+add", make_layer_norm_grad_add, .composite = true,
                                  .by_sample = true};
BENCH_ROW(rms_norm_grad_add) = {"rms_norm_grad+add", make_rms_norm_grad_add, .composite = true, .by_sample = true};

BENCH_ROW(sum_layer_norm) = {"add+layer_norm", make_sum_layer_norm, .by_sample = true};
BENCH_ROW(sum_rms_norm) = {"add+rms_norm", make_sum_rms_norm, .by_sample = true};
