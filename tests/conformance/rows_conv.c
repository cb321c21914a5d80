/* Rows of convolutions and pooling. */
#include <math.h>

#include "conformance/bench.h"

#define PRODUCTS_MAX 200000 /* multiply-adds a sample of one convolution: keeps the suite short */

/* Reduces the filters, to a multiple of `groups`, until the work is within bounds. `depth`: channels that a filter
 * sees. */
static int64_t limit_filters(int64_t filters, int64_t groups, int64_t depth, const int64_t extent[2],
                             const int64_t kernel[2])
{
  const int64_t each = depth * extent[0] * extent[1] * kernel[0] * kernel[1];
  while (filters > groups && filters * each > PRODUCTS_MAX) filters = (filters / groups + 1) / 2 * groups;
  return filters;
}

/* Picks any kernel, stride, padding and dilation, different in height and width. The padding may be larger than the
 * kernel, so that some windows lie entirely within it. */
static brim_conv2d_options pick_options(bench *b)
{
  brim_conv2d_options o = {.no_bias = bench_pick(b, 0, 2) == 0};
  const bool dilated = bench_pick(b, 0, 1) == 1;
  for (int d = 0; d < 2; d++) {
    o.kernel[d] = b->o.size == SIZE_ONE ? 1 : bench_pick(b, 1, b->o.size == SIZE_SMALL ? 3 : 5);
    o.stride[d] = bench_pick(b, 1, 3);
    o.dilation[d] = dilated ? bench_pick(b, 1, 3) : 1;
    o.padding[d] =
        b->o.size == SIZE_ONE ? 0 : bench_pick(b, 0, bench_pick(b, 0, 4) ? o.kernel[d] / 2 : o.kernel[d] + 1);
  }
  return o;
}

/* Returns an extent that a kernel fits into, with or without its padding. */
static int64_t pick_extent_for(bench *b, int64_t kernel, int64_t dilation)
{
  return bench_pick_extent(b, dilation * (kernel - 1) + 1);
}

static brim_tensor *make_conv2d(bench *b)
{
  const brim_conv2d_options o = pick_options(b);
  const int64_t c = bench_pick_channels(b), h = pick_extent_for(b, o.kernel[0], o.dilation[0]);
  const int64_t w = pick_extent_for(b, o.kernel[1], o.dilation[1]);
  const int64_t k = limit_filters(bench_pick_channels(b), 1, c, (int64_t[]){h, w}, o.kernel);
  return brim_conv2d(b->g, "conv", bench_input4(b, c, h, w), k, o);
}
BENCH_ROW(conv2d) = {"conv2d", make_conv2d, .by_sample = true, .skips = true};

/* Builds a convolution as models use it: 3x3 with and without padding, 1x1, 5x5. */
static brim_tensor *make_conv2d_square(bench *b)
{
  const int64_t kernel = b->o.size == SIZE_ONE ? 1 : 2 * bench_pick(b, 0, 2) + 1;
  const int64_t padding = bench_pick(b, 0, 1) ? kernel / 2 : 0, stride = bench_pick(b, 1, 4) == 1 ? 2 : 1;
  const int64_t c = bench_pick_channels(b), extent = bench_pick_extent(b, kernel);
  const brim_conv2d_options o = {.kernel = {kernel, kernel}, .stride = {stride, stride}, .padding = {padding, padding}};
  const int64_t k = limit_filters(bench_pick_channels(b), 1, c, (int64_t[]){extent, extent}, o.kernel);
  return brim_conv2d(b->g, "conv", bench_input4(b, c, extent, extent), k, o);
}
BENCH_ROW(conv2d_square) = {"conv2d, square", make_conv2d_square, .by_sample = true};

/* Gives each group whole blocks of a processor's vectors, a partial block, or a single channel. */
static brim_tensor *make_conv2d_grouped(bench *b)
{
  static const int64_t depths[] = {1, 2, 3, 5, 8, 16};
  const bool small = b->o.size == SIZE_SMALL || b->o.size == SIZE_ONE;
  brim_conv2d_options o = pick_options(b);
  o.groups = bench_pick(b, 1, small ? 3 : 6);
  const int64_t depth = depths[bench_pick(b, 0, small ? 1 : 5)], width = depths[bench_pick(b, 0, small ? 1 : 5)];
  const int64_t h = pick_extent_for(b, o.kernel[0], o.dilation[0]), w = pick_extent_for(b, o.kernel[1], o.dilation[1]);
  const int64_t k = limit_filters(o.groups * width, o.groups, depth, (int64_t[]){h, w}, o.kernel);
  return brim_conv2d(b->g, "conv", bench_input4(b, o.groups * depth, h, w), k, o);
}
BENCH_ROW(conv2d_grouped) = {"conv2d, grouped", make_conv2d_grouped, .by_sample = true, .skips = true};

/* Groups with a single pixel. Without AVX-512, oneDNN computes 3 such samples as a matrix product with channels last,
 * but not the 8 samples of a unit (plugins/backend/cpu/conv.c). */
static brim_tensor *make_conv2d_pixel(bench *b)
{
  const brim_conv2d_options o = {.kernel = {1, 1}, .stride = {2, 1}, .groups = 2};
  return brim_conv2d(b->g, "conv", bench_input4(b, 2, 1, 1), 4, o);
}
BENCH_ROW(conv2d_pixel) = {"conv2d of one pixel", make_conv2d_pixel, .by_sample = true};

/* Each group has one channel and one or several filters. The kernel is MobileNet's 3x3 or any other. */
static brim_tensor *make_conv2d_depthwise(bench *b)
{
  const int64_t c = bench_pick_channels(b);
  brim_conv2d_options o = pick_options(b);
  if (b->o.size != SIZE_ONE && bench_pick(b, 0, 1))
    o = (brim_conv2d_options){.kernel = {3, 3}, .stride = {1, bench_pick(b, 1, 2)}, .padding = {1, 1}};
  o.groups = c;
  const int64_t h = pick_extent_for(b, o.kernel[0], o.dilation[0] ? o.dilation[0] : 1);
  const int64_t w = pick_extent_for(b, o.kernel[1], o.dilation[1] ? o.dilation[1] : 1);
  const int64_t filters = bench_pick(b, 0, 2) ? 1 : bench_pick(b, 2, 3);
  return brim_conv2d(b->g, "conv", bench_input4(b, c, h, w), filters * c, o);
}
BENCH_ROW(conv2d_depthwise) = {"conv2d, depthwise", make_conv2d_depthwise, .by_sample = true, .skips = true};

/* Has a batch larger than a cache: 32 channels of 40x40, in 4 groups, dilated. */
static brim_tensor *make_conv2d_large(bench *b)
{
  return brim_conv2d(
      b->g, "conv", bench_input4(b, 32, 40, 40), 32,
      (brim_conv2d_options){
          .kernel = {3, 3}, .stride = {2, 2}, .padding = {2, 2}, .dilation = {2, 2}, .groups = 4, .no_bias = 1});
}
BENCH_ROW(conv2d_large) = {"conv2d, 40x40", make_conv2d_large, .by_sample = true, .large = true};

/* Windows of 3x3 with many channels. After the first convolution cpu stores channels in blocks, and it computes the
 * second one by Winograd's transforms. Some tiles lie inside the image, some at its edges, some are cut off; the
 * padding varies. The operation after it lets the gradient come in blocks. */
static brim_tensor *make_conv2d_3x3(bench *b)
{
  const int64_t padding[2] = {bench_pick(b, 0, 2), bench_pick(b, 0, 2)};
  brim_tensor *x = bench_input4(b, 4, bench_pick(b, 3, 9), bench_pick(b, 3, 9));
  x = brim_conv2d(b->g, "before", x, 64 + 16 * bench_pick(b, 0, 1), (brim_conv2d_options){.kernel = {1, 1}});
  x = brim_conv2d(b->g, "y", x, 80,
                  (brim_conv2d_options){
                      .kernel = {3, 3}, .padding = {padding[0], padding[1]}, .no_bias = (int32_t)bench_pick(b, 0, 1)});
  return brim_silu(b->g, x);
}
BENCH_ROW(conv2d_3x3) = {"conv2d, 3x3",     make_conv2d_3x3, .composite = true,
                         .by_sample = true, .large = true,   .spreads_nan = true};

/* Has many weights for few pixels, with channels in blocks or not: cpu computes the gradients of such weights by a
 * product. */
static brim_tensor *make_conv2d_few_pixels(bench *b)
{
  const int64_t channels = bench_pick(b, 80, 81);
  brim_tensor *x = bench_input(b, &(brim_shape){4, {b->o.batch, channels, 4, 5}}, "x");
  return brim_conv2d(b->g, "y", x, 368, (brim_conv2d_options){.kernel = {3, 3}, .stride = {2, 1}, .padding = {1, 2}});
}
BENCH_ROW(conv2d_few_pixels) = {"conv2d, few pixels", make_conv2d_few_pixels, .by_sample = true, .large = true};

static brim_tensor *make_conv1d(bench *b)
{
  const brim_conv2d_options flat = pick_options(b);
  const int64_t groups = bench_pick(b, 1, 3), depth = bench_pick_channels(b) / groups + 1;
  const brim_conv1d_options o = {flat.kernel[1],   flat.stride[1], flat.padding[1],
                                 flat.dilation[1], groups,         flat.no_bias};
  const int64_t extent[2] = {1, pick_extent_for(b, o.kernel, o.dilation)}, c = groups * depth;
  const int64_t k = limit_filters(groups * bench_pick(b, 1, 16), groups, depth, extent, (int64_t[]){1, o.kernel});
  return brim_conv1d(b->g, "conv", bench_input(b, &(brim_shape){3, {b->o.batch, c, extent[1]}}, "x"), k, o);
}
BENCH_ROW(conv1d) = {"conv1d", make_conv1d, .by_sample = true, .skips = true};

/* ---- transposed ---- */

/* Any kernel, stride, dilation and output padding, and padding that does not remove the whole result. `extent`: of
 * x. */
static brim_conv_transpose2d_options pick_transposed(bench *b, const int64_t extent[2])
{
  brim_conv_transpose2d_options o = {.no_bias = bench_pick(b, 0, 2) == 0};
  const bool dilated = bench_pick(b, 0, 1) == 1;
  for (int d = 0; d < 2; d++) {
    o.kernel[d] = b->o.size == SIZE_ONE ? 1 : bench_pick(b, 1, b->o.size == SIZE_SMALL ? 3 : 5);
    o.stride[d] = b->o.size == SIZE_ONE ? 1 : bench_pick(b, 1, 3);
    o.dilation[d] = dilated && b->o.size != SIZE_ONE ? bench_pick(b, 1, 3) : 1;
    const int64_t most = o.stride[d] > o.dilation[d] ? o.stride[d] : o.dilation[d];
    o.output_padding[d] = bench_pick(b, 0, 1) ? bench_pick(b, 0, most - 1) : 0;
    const int64_t y = (extent[d] - 1) * o.stride[d] + o.dilation[d] * (o.kernel[d] - 1) + 1 + o.output_padding[d];
    o.padding[d] = bench_pick(b, 0, y - 1 < 2 * o.kernel[d] ? (y - 1) / 2 : o.kernel[d]);
  }
  return o;
}

/* Channels on either side by groups, with the same limit of multiply-adds as other convolutions. */
static brim_tensor *make_transposed(bench *b, int64_t groups, int64_t depth, int64_t filters)
{
  const int64_t extent[2] = {bench_pick_extent(b, 1), bench_pick_extent(b, 1)};
  brim_conv_transpose2d_options o = pick_transposed(b, extent);
  o.groups = groups;
  const int64_t k = limit_filters(groups * filters, groups, depth, extent, o.kernel);
  return brim_conv_transpose2d(b->g, "conv", bench_input4(b, groups * depth, extent[0], extent[1]), k, o);
}
static brim_tensor *make_conv_transpose2d(bench *b)
{
  const int64_t c = bench_pick_channels(b);
  return make_transposed(b, 1, c, bench_pick_channels(b));
}
BENCH_ROW(conv_transpose2d) = {"conv_transpose2d", make_conv_transpose2d, .by_sample = true, .skips = true,
                               .spreads_nan = true};

static brim_tensor *make_conv_transpose2d_grouped(bench *b)
{
  static const int64_t depths[] = {1, 2, 3, 5, 8, 16};
  const bool small = b->o.size == SIZE_SMALL || b->o.size == SIZE_ONE;
  const int64_t groups = bench_pick(b, 1, small ? 3 : 6), depth = depths[bench_pick(b, 0, small ? 1 : 5)];
  return make_transposed(b, groups, depth, depths[bench_pick(b, 0, small ? 1 : 5)]);
}
BENCH_ROW(conv_transpose2d_grouped) = {"conv_transpose2d, grouped", make_conv_transpose2d_grouped, .by_sample = true,
                                       .skips = true, .spreads_nan = true};

/* Doubles an image as decoders do, with windows that touch or overlap. */
static brim_tensor *make_conv_transpose2d_double(bench *b)
{
  const int64_t wide = bench_pick(b, 0, 1), c = bench_pick_channels(b), h = bench_pick_extent(b, 1);
  const brim_conv_transpose2d_options o = {
      .kernel = {2 + 2 * wide, 2 + 2 * wide}, .stride = {2, 2}, .padding = {wide, wide}};
  const int64_t k = limit_filters(bench_pick_channels(b), 1, c, (int64_t[]){2 * h, 2 * h}, o.kernel);
  return brim_conv_transpose2d(b->g, "conv", bench_input4(b, c, h, h), k, o);
}
BENCH_ROW(conv_transpose2d_double) = {"conv_transpose2d, doubling", make_conv_transpose2d_double, .by_sample = true,
                                      .spreads_nan = true};

/* Builds 3x3 windows with and without a bias; cpu uses Winograd's transforms, see make_conv2d_3x3. */
static brim_tensor *make_conv_transpose2d_3x3(bench *b)
{
  brim_tensor *x = bench_input4(b, 4, bench_pick(b, 3, 9), bench_pick(b, 3, 9));
  x = brim_conv2d(b->g, "before", x, 64 + 16 * bench_pick(b, 0, 1), (brim_conv2d_options){.kernel = {1, 1}});
  const int64_t padding[2] = {bench_pick(b, 0, 1), bench_pick(b, 0, 1)};
  const brim_conv_transpose2d_options o = {
      .kernel = {3, 3}, .padding = {padding[0], padding[1]}, .no_bias = (int32_t)bench_pick(b, 0, 1)};
  return brim_silu(b->g, brim_conv_transpose2d(b->g, "y", x, 80, o));
}
BENCH_ROW(conv_transpose2d_3x3) = {"conv_transpose2d, 3x3", make_conv_transpose2d_3x3,
                                   .composite = true,       .by_sample = true,
                                   .large = true,           .spreads_nan = true};

static brim_tensor *make_conv_transpose1d(bench *b)
{
  const int64_t groups = bench_pick(b, 1, 3), depth = bench_pick_channels(b) / groups + 1;
  const int64_t extent[2] = {1, bench_pick_extent(b, 1)};
  const brim_conv_transpose2d_options flat = pick_transposed(b, extent);
  const brim_conv_transpose1d_options o = {flat.kernel[1],   flat.stride[1], flat.padding[1], flat.output_padding[1],
                                           flat.dilation[1], groups,         flat.no_bias};
  const int64_t k = limit_filters(groups * bench_pick(b, 1, 16), groups, depth, extent, (int64_t[]){1, o.kernel});
  const brim_shape shape = {3, {b->o.batch, groups * depth, extent[1]}};
  return brim_conv_transpose1d(b->g, "conv", bench_input(b, &shape, "x"), k, o);
}
BENCH_ROW(conv_transpose1d) = {"conv_transpose1d", make_conv_transpose1d, .by_sample = true, .skips = true,
                               .spreads_nan = true};

/* ---- pooling ---- */

/* Picks any window, stride and padding that pooling accepts, different in height and width. A stride smaller than the
 * window makes windows overlap; a larger one leaves some of x outside all windows. */
static brim_pool2d_options pick_windows(bench *b)
{
  brim_pool2d_options o = {.exclude_padding = (int32_t)bench_pick(b, 0, 1)};
  for (int d = 0; d < 2; d++) {
    o.kernel[d] = b->o.size == SIZE_ONE ? 1 : bench_pick(b, 1, b->o.size == SIZE_ANY ? 7 : 3);
    o.stride[d] = bench_pick(b, 0, 3); /* 0: the kernel's */
    o.padding[d] = bench_pick(b, 0, 1) ? o.kernel[d] / 2 : 0;
  }
  return o;
}

static brim_tensor *make_max_pool2d(bench *b)
{
  const brim_pool2d_options o = pick_windows(b);
  const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, o.kernel[0]);
  return brim_max_pool2d(b->g, bench_input4(b, c, h, bench_pick_extent(b, o.kernel[1])), o);
}
BENCH_ROW(max_pool2d) = {"max_pool2d", make_max_pool2d, .by_sample = true};

static brim_tensor *make_max_pool2d_by_2(bench *b)
{
  const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, 2);
  return brim_max_pool2d(b->g, bench_input4(b, c, h, bench_pick_extent(b, 2)), (brim_pool2d_options){.kernel = {2, 2}});
}
BENCH_ROW(max_pool2d_by_2) = {"max_pool2d, 2x2", make_max_pool2d_by_2, .by_sample = true};

static brim_tensor *make_max_pool1d(bench *b)
{
  const int64_t kernel = b->o.size == SIZE_ONE ? 1 : bench_pick(b, 1, 4), stride = bench_pick(b, 0, 3);
  const brim_shape shape = {3, {b->o.batch, bench_pick_channels(b), bench_pick_extent(b, kernel)}};
  return brim_max_pool1d(b->g, bench_input(b, &shape, "x"), kernel, stride, bench_pick(b, 0, kernel / 2));
}
BENCH_ROW(max_pool1d) = {"max_pool1d", make_max_pool1d, .by_sample = true};

static brim_tensor *make_avg_pool2d(bench *b)
{
  const brim_pool2d_options o = pick_windows(b);
  const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, o.kernel[0]);
  return brim_avg_pool2d(b->g, bench_input4(b, c, h, bench_pick_extent(b, o.kernel[1])), o);
}
BENCH_ROW(avg_pool2d) = {"avg_pool2d", make_avg_pool2d, .by_sample = true};

/* Pools to fewer or more places, by whole factors or not. */
static brim_tensor *make_adaptive_avg_pool2d(bench *b)
{
  const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, 1), w = bench_pick_extent(b, 1);
  const int64_t height = b->o.size == SIZE_ONE ? 1 : bench_pick(b, 1, 7);
  return brim_adaptive_avg_pool2d(b->g, bench_input4(b, c, h, w), height,
                                  bench_pick(b, 0, 3) ? bench_pick(b, 1, 7) : w);
}
BENCH_ROW(adaptive_avg_pool2d) = {"adaptive_avg_pool2d", make_adaptive_avg_pool2d, .by_sample = true};

static brim_tensor *make_global_avg_pool(bench *b)
{
  const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, 1), w = bench_pick_extent(b, 1);
  brim_tensor *x = bench_pick(b, 0, 2) ? bench_input4(b, c, h, 5 * w)
                                       : bench_input(b, &(brim_shape){3, {b->o.batch, c, h * w}}, "x");
  return brim_global_avg_pool(b->g, x);
}
BENCH_ROW(global_avg_pool) = {"global_avg_pool", make_global_avg_pool, .by_sample = true};

/* Picks a larger or smaller size, by whole factors or not. Some cases have a single value as input or as result. */
static brim_upsample2d_options pick_size(bench *b)
{
  const int32_t linear = (int32_t)bench_pick(b, 0, 2) > 0;
  brim_upsample2d_options o = {.mode = linear ? BRIM_UPSAMPLE_LINEAR : BRIM_UPSAMPLE_NEAREST,
                               .align_corners = linear && bench_pick(b, 0, 1)};
  for (int d = 0; d < 2; d++)
    if (bench_pick(b, 0, 1))
      o.factor[d] = bench_pick(b, 1, 3);
    else
      o.size[d] = b->o.size == SIZE_ONE ? 1 : bench_pick(b, 1, 13);
  return o;
}

static brim_tensor *make_upsample2d(bench *b)
{
  const brim_upsample2d_options o = pick_size(b);
  const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, 1);
  return brim_upsample2d(b->g, bench_input4(b, c, h, bench_pick_extent(b, 1)), o);
}
BENCH_ROW(upsample2d) = {"upsample2d", make_upsample2d, .by_sample = true};

static brim_tensor *make_upsample1d(bench *b)
{
  const brim_upsample2d_options flat = pick_size(b);
  const brim_upsample1d_options o = {flat.size[1], flat.factor[1], flat.mode, flat.align_corners};
  const brim_shape shape = {3, {b->o.batch, bench_pick_channels(b), bench_pick_extent(b, 1)}};
  return brim_upsample1d(b->g, bench_input(b, &shape, "x"), o);
}
BENCH_ROW(upsample1d) = {"upsample1d", make_upsample1d, .by_sample = true};

/* Pools tensors larger than a cache, as at the start and end of a residual network. */
static brim_tensor *make_pools_large(bench *b)
{
  const brim_pool2d_options o = {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
  brim_tensor *x = brim_max_pool2d(b->g, bench_input4(b, 40, 40, 40), o);
  return brim_global_avg_pool(b->g, brim_avg_pool2d(b->g, x, o));
}
BENCH_ROW(pools_large) = {"pooling, 40x40", make_pools_large, .by_sample = true, .large = true};
