/* Convolutions of 3x3 by Winograd's transforms: fewer multiplications than there are terms (simd_winograd.c).
 *
 * The output is cut into tiles of 2x2, a chunk of which is a task: its inputs are transformed, each of the 16 places is
 * a product of its own, [tiles, channels in] with [channels in, channels out], and what comes out is transformed back:
 *     in[p][tile][c] -> out[p][tile][k] = sum over c of in[p][tile][c] * kernel[p][c][k]
 * Kernels are transformed at every run. The gradient of the input is the same with kernels turned by half a turn, that
 * go from output channels to input channels, and what is left of the padding.
 *
 * An element of a product is one chain of sums however the tiles are cut into chunks (see cpu_gemm), and a tile depends
 * on its sample alone: so neither the micro-batch nor the threads change a bit. A value that is not finite makes NaN of
 * all outputs of the tiles that it lies in.
 *
 * Workspace: transformed kernels | for each thread: in, out, what a product needs. */
#include "conv.h"
#include "simd_winograd.h"

enum {
  CHANNELS_MIN = 32, /* on both sides: with fewer the transforms are most of the work */
  PLACE_GAP = 16
};

/* The convolution that is done: of the forward pass, or of its gradient. */
typedef struct winograd {
  cpu_backend *backend;
  const cpu_winograd_simd *simd;
  cpu_winograd_plane x, y;
  int64_t in, out;              /* channels */
  int64_t padding[2];           /* before the first row, and column */
  int64_t rows, columns, tiles; /* of tiles: in a plane; in all samples */
  int64_t chunk;                /* tiles */
  cpu_behind behind;            /* the forward pass */
  bool turned;                  /* of weights [in, out], not [out, in] */
  const float *from, *weights, *bias;
  float *to, *kernel;
  char *threads;
} winograd;

static int64_t tiles_along(int64_t outputs)
{
  return cpu_divide_up(outputs, WINOGRAD_OUT);
}

static winograd winograd_of(cpu_backend *b, const cpu_conv_key *k, int64_t samples)
{
  static const cpu_winograd_simd *const tables[] = {&cpu_winograd_v2, &cpu_winograd_v3, &cpu_winograd_v4};
  const bool back = k->kind == CONV_GRAD_INPUT;
  winograd v = {.backend = b, .simd = tables[b->isa], .turned = back};
  const cpu_winograd_plane x = {k->height, k->width, b->block}, y = {k->out_height, k->out_width, b->block};
  v.x = back ? y : x;
  v.y = back ? x : y;
  v.in = back ? k->out_channels : k->channels;
  v.out = back ? k->channels : k->out_channels;
  for (int i = 0; i < 2; i++) v.padding[i] = back ? 2 - k->padding[i] : k->padding[i];
  v.rows = tiles_along(v.y.height);
  v.columns = tiles_along(v.y.width);
  v.tiles = samples * v.rows * v.columns;
  const int64_t rounds = cpu_divide_up(v.tiles, b->simd->gemm_rows_max * b->threads), step = b->simd->gemm_rows;
  v.chunk = cpu_divide_up(cpu_divide_up(v.tiles, rounds * b->threads), step) * step;
  return v;
}

bool cpu_conv_is_winograd(const cpu_backend *b, const cpu_conv_key *k)
{
  bool small = k->groups == 1;
  for (int i = 0; i < 2; i++)
    small = small && k->kernel[i] == 3 && k->stride[i] == 1 && k->dilation[i] == 1 && k->padding[i] <= 2;
  const int64_t given = k->kind == CONV_GRAD_INPUT ? k->y_block : k->x_block;
  return small && given == b->block && k->channels % b->block == 0 && k->out_channels % b->block == 0 &&
         k->channels >= CHANNELS_MIN && k->out_channels >= CHANNELS_MIN;
}

/* Floats from a place to the next, of kernels and of a chunk: not a multiple of a page, as places are written together,
 * and would otherwise be in each other's way in the cache. */
static int64_t kernel_step(const winograd *v)
{
  return v->in * v->out + PLACE_GAP;
}

static int64_t chunk_step(const winograd *v, int64_t channels)
{
  return v->chunk * channels + PLACE_GAP;
}

static uint64_t kernel_bytes(const winograd *v)
{
  return cpu_aligned((uint64_t)(WINOGRAD_PLACES * kernel_step(v)) * sizeof(float));
}

static uint64_t chunk_bytes(const winograd *v, int64_t channels)
{
  return cpu_aligned((uint64_t)(WINOGRAD_PLACES * chunk_step(v, channels)) * sizeof(float));
}

static uint64_t thread_bytes(const winograd *v)
{
  return chunk_bytes(v, v->in) + chunk_bytes(v, v->out) + cpu_aligned(v->backend->simd->gemm_scratch_bytes);
}

uint64_t cpu_conv_winograd_bytes(cpu_backend *b, const cpu_conv_key *k, int64_t samples)
{
  const winograd v = winograd_of(b, k, samples);
  return kernel_bytes(&v) + (uint64_t)b->threads * thread_bytes(&v);
}

/* kernel[p][c][k]: a task is a block of channels c that go in. Kernels of neighbours lie side by side, or those that go
 * to neighbours do: a block of both is made at once. */
static void make_kernels(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const winograd *v = arg;
  const int64_t block = v->x.block, c_step = 9 * (v->turned ? v->out : 1), k_step = 9 * (v->turned ? 1 : v->in);
  for (int64_t k = 0; k < v->out; k += block)
    for (int64_t c = task * block; c < (task + 1) * block; c++)
      v->simd->kernels(v->weights + c * c_step + k * k_step, k_step, block, v->turned, v->kernel + c * v->out + k,
                       kernel_step(v));
}

typedef struct place {
  int64_t sample, h, w; /* of the tile's first output */
} place;

static place place_of(const winograd *v, int64_t tile)
{
  const int64_t plane = v->rows * v->columns, at = tile % plane;
  return (place){tile / plane, at / v->columns * WINOGRAD_OUT, at % v->columns * WINOGRAD_OUT};
}

static void transform_inputs(const winograd *v, int64_t first, int64_t count, float *in)
{
  const int64_t block = v->x.block, plane = v->x.height * v->x.width;
  for (int64_t i = 0; i < count; i++) {
    const place at = place_of(v, first + i);
    for (int64_t c = 0; c < v->in; c += block)
      v->simd->input(&v->x, v->from + (at.sample * v->in + c) * plane, at.h - v->padding[0], at.w - v->padding[1],
                     in + i * v->in + c, chunk_step(v, v->in));
  }
}

/* What is behind the convolution, for the tile's outputs of a block. */
static void apply_behind(const winograd *v, float *y, int64_t h, int64_t w)
{
  const int64_t pixels = cpu_min(WINOGRAD_OUT, v->y.width - w), count = pixels * v->y.block;
  for (int64_t i = h; i < cpu_min(h + WINOGRAD_OUT, v->y.height); i++) {
    float *row = y + (i * v->y.width + w) * v->y.block;
    if (v->behind.relu) v->backend->simd->relu(row, row, count);
    if (v->behind.function) v->behind.function(row, row, count, v->behind.factor);
  }
}

static void transform_outputs(const winograd *v, int64_t first, int64_t count, const float *out)
{
  const int64_t block = v->y.block, plane = v->y.height * v->y.width;
  for (int64_t i = 0; i < count; i++) {
    const place at = place_of(v, first + i);
    for (int64_t k = 0; k < v->out; k += block) {
      float *y = v->to + (at.sample * v->out + k) * plane;
      v->simd->output(&v->y, out + i * v->out + k, chunk_step(v, v->out), v->bias ? v->bias + k : NULL, y, at.h, at.w);
      apply_behind(v, y, at.h, at.w);
    }
  }
}

static void run_chunk(void *arg, int64_t task, int32_t thread)
{
  const winograd *v = arg;
  char *mine = v->threads + (uint64_t)thread * thread_bytes(v);
  float *in = (float *)(void *)mine, *out = (float *)(void *)(mine + chunk_bytes(v, v->in));
  float *scratch = (float *)(void *)(mine + chunk_bytes(v, v->in) + chunk_bytes(v, v->out));
  const int64_t first = task * v->chunk, count = cpu_min(v->chunk, v->tiles - first);
  transform_inputs(v, first, count, in);
  for (int64_t p = 0; p < WINOGRAD_PLACES; p++) {
    const cpu_gemm g = {.m = count,
                        .n = v->out,
                        .k = v->in,
                        .a = in + p * chunk_step(v, v->in),
                        .lda = v->in,
                        .b = v->kernel + p * kernel_step(v),
                        .ldb = v->out,
                        .c = out + p * chunk_step(v, v->out),
                        .ldc = v->out};
    v->backend->simd->gemm(&g, 0, g.m, 0, g.n, scratch);
  }
  transform_outputs(v, first, count, out);
}

void cpu_conv_winograd_run(cpu_backend *b, const cpu_conv_key *k, const brim_launch *launch)
{
  winograd v = winograd_of(b, k, launch->node->in[0]->shape.dim[0]);
  v.behind = cpu_behind_of(b, launch->node);
  v.from = launch->in[0];
  v.weights = launch->in[1];
  v.bias = k->has_bias ? launch->in[2] : NULL;
  v.to = launch->out[0];
  v.kernel = launch->workspace;
  v.threads = (char *)launch->workspace + kernel_bytes(&v);
  cpu_pool_run(b->pool, v.in / b->block, make_kernels, &v);
  cpu_pool_run(b->pool, cpu_divide_up(v.tiles, v.chunk), run_chunk, &v);
}
