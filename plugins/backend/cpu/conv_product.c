/* The gradient of a convolution's weights as a product of matrices, which are built from some samples at a time:
 *     dw[O, C R S] += dy[rows, O]^T columns[rows, C R S]          a row for each pixel of y, sample after sample
 * In conv.c each unit of samples has its own part of dw, and the parts are then added up. That is better unless dw is
 * large and there are few pixels, as in the last layers of a residual network, where the parts would dominate the
 * memory traffic.
 *
 * Each element of dw is one chain of sums over the pixels of the samples in their order (see cpu_gemm), so it does not
 * depend on the micro-batch, nor on the grain. The choice of this method depends on the shape and the grain. */
#include "conv.h"
#include "simd_pool.h"

enum {
  ROWS = 256,            /* rows of the matrices that are in memory at once, or a sample's rows if a sample has more */
  CHANNELS_PER_TASK = 32 /* at least */
};
#define WEIGHTS_MIN ((int64_t)256 * 1024) /* elements of dw */
#define PIXELS_MAX 128                    /* limit for the pixels of y in a unit */

typedef struct product {
  const cpu_conv_key *key;
  const float *x, *dy; /* values of the present samples */
  float *columns;
  int64_t samples; /* present */
} product;

static int64_t pixels_of(const cpu_conv_key *k)
{
  return k->out_height * k->out_width;
}

static int64_t window_of(const cpu_conv_key *k)
{
  return k->kernel[0] * k->kernel[1];
}

static int64_t samples_at_once(const cpu_conv_key *k, int64_t samples)
{
  return cpu_min(samples, cpu_max(1, ROWS / pixels_of(k)));
}

bool cpu_conv_is_product(const cpu_conv_key *k, int64_t unit_samples)
{
  return k->groups == 1 && k->out_channels * k->channels * window_of(k) >= WEIGHTS_MIN &&
         unit_samples * pixels_of(k) <= PIXELS_MAX;
}

static uint64_t rows_bytes(const cpu_conv_key *k, int64_t samples)
{
  return cpu_aligned((uint64_t)(samples_at_once(k, samples) * pixels_of(k) * k->out_channels) * sizeof(float));
}

static uint64_t columns_bytes(const cpu_conv_key *k, int64_t samples)
{
  return cpu_aligned((uint64_t)(samples_at_once(k, samples) * pixels_of(k) * k->channels * window_of(k)) *
                     sizeof(float));
}

uint64_t cpu_conv_product_bytes(const cpu_backend *b, const cpu_conv_key *k, int64_t samples)
{
  return rows_bytes(k, samples) + columns_bytes(k, samples) + cpu_multiply_bytes(b);
}

/* ---- columns ---- */

/* Writes the window's values of a block of channels at one pixel of y, channel by channel. */
static void make_window(const cpu_conv_key *k, const float *x, int64_t row, int64_t column, float *to)
{
  const int64_t block = k->x_block, window = window_of(k);
  for (int64_t r = 0, at = 0; r < k->kernel[0]; r++)
    for (int64_t s = 0; s < k->kernel[1]; s++, at++) {
      const int64_t h = row * k->stride[0] - k->padding[0] + r * k->dilation[0];
      const int64_t w = column * k->stride[1] - k->padding[1] + s * k->dilation[1];
      const bool inside = h >= 0 && h < k->height && w >= 0 && w < k->width;
      const float *from = x + (h * k->width + w) * block;
      if (inside)
        for (int64_t c = 0; c < block; c++) to[c * window + at] = from[c];
      else
        for (int64_t c = 0; c < block; c++) to[c * window + at] = 0;
    }
}

static int64_t blocks_per_task(const cpu_conv_key *k)
{
  return cpu_max(1, CHANNELS_PER_TASK / k->x_block);
}

static int64_t tasks_of_sample(const cpu_conv_key *k)
{
  return cpu_divide_up(k->channels / k->x_block, blocks_per_task(k));
}

/* Fills a sample's rows of `columns` for some blocks of channels. */
static void make_columns(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const product *p = arg;
  const cpu_conv_key *k = p->key;
  const int64_t sample = task / tasks_of_sample(k), plane = k->height * k->width, width = k->channels * window_of(k);
  const int64_t first = task % tasks_of_sample(k) * blocks_per_task(k);
  const int64_t end = cpu_min(first + blocks_per_task(k), k->channels / k->x_block);
  float *to = p->columns + sample * pixels_of(k) * width;
  for (int64_t row = 0; row < k->out_height; row++)
    for (int64_t column = 0; column < k->out_width; column++, to += width)
      for (int64_t i = first; i < end; i++)
        make_window(k, p->x + (sample * k->channels + i * k->x_block) * plane, row, column,
                    to + i * k->x_block * window_of(k));
}

typedef struct bias_sums {
  const cpu_conv_key *key;
  const cpu_pooling *simd;
  const float *dy;
  int64_t samples;
  float *sum;
} bias_sums;

static void add_block_to_bias(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const bias_sums *s = arg;
  const cpu_conv_key *k = s->key;
  const int64_t c = task * k->y_block;
  for (int64_t n = 0; n < s->samples; n++)
    s->simd->sum_pixels(s->dy + (n * k->out_channels + c) * pixels_of(k), pixels_of(k), k->y_block, s->sum + c);
}

/* Adds up the sums of planes one by one; conv.c explains why. */
void cpu_conv_add_bias(cpu_backend *b, const cpu_conv_key *k, const float *dy, int64_t samples, float *dbias)
{
  bias_sums s = {.key = k, .simd = cpu_pooling_of_isa[b->isa], .dy = dy, .samples = samples, .sum = dbias};
  cpu_pool_run(b->pool, k->out_channels / k->y_block, add_block_to_bias, &s);
}

void cpu_conv_product_run(cpu_backend *b, const cpu_conv_key *k, const brim_launch *launch)
{
  char *workspace = launch->workspace;
  float *rows = launch->workspace; /* each pixel of dy with all its channels */
  const int64_t samples = launch->node->in[0]->shape.dim[0], width = k->channels * window_of(k);
  const uint64_t columns_at = rows_bytes(k, samples), product_at = columns_at + columns_bytes(k, samples);
  product p = {.key = k, .x = launch->in[0], .dy = launch->in[1], .columns = (float *)(void *)(workspace + columns_at)};
  for (int64_t n = 0; n < samples; n += p.samples) {
    p.samples = cpu_min(samples_at_once(k, samples), samples - n);
    const brim_shape y = {4, {p.samples, k->out_channels, k->out_height, k->out_width}};
    cpu_layout_convert(b, &y, p.dy, k->y_block, rows, k->out_channels);
    cpu_pool_run(b->pool, p.samples * tasks_of_sample(k), make_columns, &p);
    const cpu_gemm g = {.m = k->out_channels,
                        .n = width,
                        .k = p.samples * pixels_of(k),
                        .a = rows,
                        .lda = k->out_channels,
                        .a_transposed = true,
                        .b = p.columns,
                        .ldb = width,
                        .c = launch->out[0],
                        .ldc = width,
                        .accumulate = n > 0 || cpu_adds(launch, 0)};
    cpu_multiply(b, &(cpu_products){.gemm = g, .count = 1}, workspace + product_at);
    if (launch->node->out_count > 1) cpu_conv_add_bias(b, k, p.dy, p.samples, launch->out[1]);
    p.x += p.samples * k->channels * k->height * k->width;
    p.dy += p.samples * k->out_channels * pixels_of(k);
  }
}
