/* Rows of the normalisations. If a set of statistics has few values, the terms of the gradient of x nearly cancel (with
 * two values, only eps is left), so neither finite differences nor single precision give meaningful results. The same
 * happens if dy is proportional to x, as with the numbers of finite differences. In these cases eps is large, so that
 * results are well conditioned. */
#include "conformance/bench.h"

#define FEW 12

static double pick_eps(bench *b, int64_t values)
{
  static const double eps[] = {1e-5, 1e-3, 0.5};
  return eps[values < FEW || b->o.size == SIZE_SMALL ? 2 : bench_pick(b, 0, 2)];
}

/* Returns an input [N, F], [N, T, F], [N, C, H, F] or of rank 5. */
static brim_tensor *input_of_rows(bench *b)
{
  const bool wide = b->o.size == SIZE_BLOCKED || b->o.size == SIZE_ANY;
  const int64_t features = (wide ? bench_pick(b, 1, 7) : 1) * bench_pick_channels(b);
  const int64_t some = bench_pick_channels(b), extent = bench_pick_extent(b, 1);
  switch (bench_pick(b, 0, 5)) {
  case 0:
    return bench_input2(b, features);
  case 1: /* more rows than a piece of the cpu backend has */
    return bench_input(b, &(brim_shape){3, {b->o.batch, wide ? some + 60 : some, bench_pick_channels(b)}}, "x");
  case 2:
  case 4:
    return bench_input4(b, some, extent, bench_pick_extent(b, 1));
  case 3:
    return bench_input(b, &(brim_shape){5, {b->o.batch, 2, extent, bench_pick(b, 1, 3), features}}, "x");
  default:
    return bench_input(b, &(brim_shape){3, {b->o.batch, extent, features}}, "x");
  }
}

static int64_t last_of(const brim_tensor *x)
{
  const brim_shape shape = brim_shape_of(x);
  return shape.dim[shape.rank - 1];
}

static brim_tensor *make_layer_norm(bench *b)
{
  brim_tensor *x = input_of_rows(b);
  return brim_layer_norm(b->g, "norm", x, pick_eps(b, last_of(x)));
}
BENCH_ROW(layer_norm) = {"layer_norm", make_layer_norm, .by_sample = true};

static brim_tensor *make_rms_norm(bench *b)
{
  brim_tensor *x = input_of_rows(b);
  return brim_rms_norm(b->g, "norm", x, pick_eps(b, last_of(x)));
}
BENCH_ROW(rms_norm) = {"rms_norm", make_rms_norm, .by_sample = true};

static brim_tensor *make_rms_norm_offset(bench *b)
{
  brim_tensor *x = input_of_rows(b);
  return brim_rms_norm_offset(b->g, "norm", x, pick_eps(b, last_of(x)), (double)bench_pick(b, -2, 4) / 2);
}
BENCH_ROW(rms_norm_offset) = {"rms_norm, offset", make_rms_norm_offset, .by_sample = true};

/* Adds x and a norm of a parameter. The norm adds to the gradient of a parameter; it overwrites the gradient of any
 * other input. */
static brim_tensor *make_norm_of_a_parameter(bench *b)
{
  const int64_t dim[] = {bench_pick_extent(b, 2), 4 * bench_pick_channels(b)};
  brim_tensor *p = brim_parameter_new(b->g, "p", 2, dim, (brim_init){BRIM_INIT_NORMAL, 1});
  brim_tensor *x = bench_input(b, &(brim_shape){3, {b->o.batch, dim[0], dim[1]}}, "x");
  const double eps = pick_eps(b, 4);
  switch (bench_pick(b, 0, 2)) {
  case 0:
    p = brim_layer_norm(b->g, "norm", p, eps);
    break;
  case 1:
    p = brim_rms_norm(b->g, "norm", p, eps);
    break;
  default:
    p = brim_group_norm(b->g, "norm", p, 2, eps);
    break;
  }
  return brim_add(b->g, x, p);
}
BENCH_ROW(norm_of_a_parameter) = {"norms of a parameter", make_norm_of_a_parameter};

/* ---- over channels ---- */

/* Returns an input [N, C], [N, C, L], [N, C, H, W] or of rank 5. Most have rank 4, whose channels may come in
 * blocks. */
static brim_tensor *input_of_channels(bench *b, int64_t channels, int64_t least)
{
  const int64_t h = bench_pick_extent(b, least), w = bench_pick_extent(b, 1);
  if (b->o.size == SIZE_BLOCKED && bench_pick(b, 0, 2) > 0) /* a reshape's result comes in blocks where possible */
    return brim_reshape(b->g, bench_input2(b, channels * h * w), 4, (int64_t[]){b->o.batch, channels, h, w});
  switch (bench_pick(b, least > 1, 5)) {
  case 0:
    return bench_input2(b, channels);
  case 1:
    return bench_input(b, &(brim_shape){3, {b->o.batch, channels, h}}, "x");
  case 2:
    return bench_input(b, &(brim_shape){5, {b->o.batch, channels, h, w, bench_pick(b, 1, 3)}}, "x");
  default:
    return bench_input4(b, channels, h, w);
  }
}

/* Returns the number of values in a set with `samples` samples of `channels` channels. */
static int64_t values_of(const brim_tensor *x, int64_t samples, int64_t channels)
{
  const brim_shape shape = brim_shape_of(x);
  return brim_shape_count(&shape) / (shape.dim[0] * shape.dim[1]) * samples * channels;
}

/* Returns whole blocks of channels, or more channels than a strip of the cpu backend has. */
static int64_t pick_many_channels(bench *b)
{
  if (b->o.size == SIZE_BLOCKED) return 16 * bench_pick(b, 1, 5);
  return bench_pick_channels(b) + (b->o.size == SIZE_ANY && bench_pick(b, 0, 2) == 0 ? 64 : 0);
}

static brim_tensor *make_batch_norm(bench *b)
{
  brim_tensor *x = input_of_channels(b, pick_many_channels(b), 1);
  const int64_t group = b->g->norm_group < b->o.batch ? b->g->norm_group : b->o.batch;
  return brim_batch_norm(b->g, "norm", x, pick_eps(b, values_of(x, group, 1)), 0.1);
}
BENCH_ROW(batch_norm) = {"batch_norm", make_batch_norm, .by_sample = true, .norm_group = 4};

/* Each sample is a group, so the smallest batches have several groups too. */
static brim_tensor *make_batch_norm_single(bench *b)
{
  brim_tensor *x = input_of_channels(b, bench_pick_channels(b), 2);
  return brim_batch_norm(b->g, "norm", x, pick_eps(b, values_of(x, 1, 1)), 0.1);
}
BENCH_ROW(batch_norm_single) = {"batch_norm, groups of 1", make_batch_norm_single, .by_sample = true, .norm_group = 1};

static brim_tensor *make_batch_norm_inference(bench *b)
{
  brim_graph *g = b->g;
  const int64_t channels = pick_many_channels(b);
  const brim_shape shape = {1, {channels}};
  const brim_init zero = {BRIM_INIT_CONSTANT, 0}, one = {BRIM_INIT_CONSTANT, 1};
  brim_tensor *in[5] = {input_of_channels(b, channels, 1)};
  in[1] = bench_parameter(b, "weight", &shape, 1);
  in[2] = bench_parameter(b, "bias", &shape, 1);
  in[3] = brim_graph_buffer(g, "running_mean", &shape, zero, 0.1);
  in[4] = brim_graph_buffer(g, "running_var", &shape, one, 0.1);
  brim_graph_apply(g, "batch_norm_inference", "norm", in, 5, &(brim_attr){.norm = {.eps = 1e-5}});
  return NULL; /* in evaluation there is no gradient */
}
BENCH_ROW(batch_norm_inference) = {"batch_norm_inference", make_batch_norm_inference, .by_sample = true};

static brim_tensor *make_group_norm(bench *b)
{
  const int64_t channels = pick_many_channels(b);
  int64_t groups = bench_pick(b, 1, channels);
  while (channels % groups != 0) groups--;
  brim_tensor *x = input_of_channels(b, channels, 1);
  return brim_group_norm(b->g, "norm", x, groups, pick_eps(b, values_of(x, 1, channels / groups)));
}
BENCH_ROW(group_norm) = {"group_norm", make_group_norm, .by_sample = true};

/* ---- realistic sizes: kernels split long rows and long channels in several ways ---- */

static brim_tensor *rows_of(bench *b, int64_t features)
{
  return bench_input(b, &(brim_shape){3, {b->o.batch, 5, features}}, "x");
}
#define LONG_ROWS(length)                                                                                              \
  static brim_tensor *make_layer_norm_##length(bench *b)                                                               \
  {                                                                                                                    \
    return brim_layer_norm(b->g, "norm", rows_of(b, length), 1e-5);                                                    \
  }                                                                                                                    \
  static brim_tensor *make_rms_norm_##length(bench *b)                                                                 \
  {                                                                                                                    \
    return brim_rms_norm(b->g, "norm", rows_of(b, length), 1e-5);                                                      \
  }                                                                                                                    \
  BENCH_ROW(layer_norm_##length) = {"layer_norm of " #length, make_layer_norm_##length, .by_sample = true,             \
                                    .large = true};                                                                    \
  BENCH_ROW(rms_norm_##length) = {"rms_norm of " #length, make_rms_norm_##length, .by_sample = true, .large = true}
LONG_ROWS(768);
LONG_ROWS(2001); /* rows begin at any offset */
LONG_ROWS(6144);
LONG_ROWS(10001);
LONG_ROWS(20000);

/* After a convolution channels may be last. There is no bias, because batch norm makes its gradient 0. */
static brim_tensor *image(bench *b, int64_t width, bool convolve)
{
  brim_tensor *x = bench_input4(b, convolve ? 2 : 24, 50, width);
  return convolve ? brim_conv2d(b->g, "conv", x, 24, (brim_conv2d_options){.kernel = {1, 1}, .no_bias = 1}) : x;
}
#define LARGE_IMAGES(width)                                                                                            \
  static brim_tensor *make_batch_norm_##width(bench *b)                                                                \
  {                                                                                                                    \
    return brim_batch_norm(b->g, "norm", image(b, width, false), 1e-5, 0.1);                                           \
  }                                                                                                                    \
  static brim_tensor *make_conv_batch_norm_##width(bench *b)                                                           \
  {                                                                                                                    \
    return brim_batch_norm(b->g, "norm", image(b, width, true), 1e-5, 0.1);                                            \
  }                                                                                                                    \
  static brim_tensor *make_group_norm_##width(bench *b)                                                                \
  {                                                                                                                    \
    return brim_group_norm(b->g, "norm", image(b, width, false), 4, 1e-5);                                             \
  }                                                                                                                    \
  static brim_tensor *make_conv_group_norm_##width(bench *b)                                                           \
  {                                                                                                                    \
    return brim_group_norm(b->g, "norm", image(b, width, true), 4, 1e-5);                                              \
  }                                                                                                                    \
  BENCH_ROW(batch_norm_##width) = {"batch_norm of 50x" #width, make_batch_norm_##width, .by_sample = true,             \
                                   .large = true, .norm_group = 2};                                                    \
  BENCH_ROW(conv_batch_norm_##width) = {"batch_norm of 50x" #width " after conv",                                      \
                                        make_conv_batch_norm_##width,                                                  \
                                        .composite = true,                                                             \
                                        .by_sample = true,                                                             \
                                        .large = true,                                                                 \
                                        .norm_group = 2};                                                              \
  BENCH_ROW(group_norm_##width) = {"group_norm of 50x" #width, make_group_norm_##width, .by_sample = true,             \
                                   .large = true};                                                                     \
  BENCH_ROW(conv_group_norm_##width) = {"group_norm of 50x" #width " after conv", make_conv_group_norm_##width,        \
                                        .composite = true, .by_sample = true, .large = true}
LARGE_IMAGES(60);
LARGE_IMAGES(33);

/* Builds a norm as in models: between convolutions, followed by relu. */
static brim_tensor *make_block(bench *b)
{
  brim_graph *g = b->g;
  const int64_t channels = bench_pick_channels(b), h = bench_pick_extent(b, 3), w = bench_pick_extent(b, 3);
  const brim_conv2d_options three = {.kernel = {3, 3}, .padding = {1, 1}, .no_bias = 1};
  brim_tensor *x = brim_conv2d(g, "conv1", bench_input4(b, bench_pick(b, 1, 3), h, w), channels, three);
  brim_tensor *y = brim_relu(g, brim_batch_norm(g, "bn1", x, 0.5, 0.1));
  y = brim_batch_norm(g, "bn2", brim_conv2d(g, "conv2", y, channels, three), 0.5, 0.1);
  y = brim_flatten(g, brim_relu(g, brim_add(g, x, y)));
  return brim_linear(g, "fc", y, bench_pick(b, 1, 9));
}
BENCH_ROW(block) = {"network: residual block with batch norm", make_block, .composite = true, .by_sample = true,
                    .norm_group = 4};
