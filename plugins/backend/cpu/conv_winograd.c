/* 3x3 convolutions by Winograd's transforms, which need fewer multiplications (simd_winograd.c).
 *
 * The output is divided into 2x2 tiles; a task is a chunk of tiles. It transforms their inputs, computes a separate
 * product for each of the 16 places, [tiles, channels in] with [channels in, channels out], and transforms the results
 * back:
 *     in[p][tile][c] -> out[p][tile][k] = sum over c of in[p][tile][c] * kernel[p][c][k]
 * Kernels are transformed at every run. The gradient of the input is the same with kernels rotated by 180 degrees,
 * input and output channels exchanged, and the complementary padding.
 *
 * An element of a product is one chain of sums however the tiles are cut into chunks (see cpu_gemm), and a tile depends
 * on its sample alone: so neither the micro-batch nor the threads change a bit. A value that is not finite reaches the
 * outputs whose windows contain it, as NaN even if direct convolution would give infinity.
 *
 * Workspace: transformed kernels | for each thread: in, out, the workspace of a product. */
#include "conv_winograd.h"

/* Minimum channels of x and y. With fewer, most of the work would be transforms, and most of the memory scratch. */
enum {
  CHANNELS_MIN = 64,
  CHUNK_MAX = 128, /* tiles of a thread at a time */
};

/* The convolution to compute: the forward pass or the gradient of its input. */
typedef struct winograd {
  cpu_backend *backend;
  const cpu_winograd_simd *simd;
  cpu_winograd_tiles in;
  cpu_winograd_plane y;
  int64_t out;           /* channels */
  int64_t tiles;         /* in all samples */
  int64_t chunk;         /* tiles */
  cpu_epilogue epilogue; /* the forward pass */
  bool turned;           /* the weights are [in, out], not [out, in] */
  const float *from, *weights, *bias;
  float *to, *kernel;
  char *rooms; /* one for each thread */
} winograd;

static winograd winograd_of(cpu_backend *b, const cpu_conv_key *k, int64_t samples)
{
  const bool back = k->kind == CONV_GRAD_INPUT;
  winograd v = {.backend = b, .simd = cpu_winograd_of(b), .turned = back, .out = back ? k->channels : k->out_channels};
  v.y = back ? (cpu_winograd_plane){k->height, k->width, b->block}
             : (cpu_winograd_plane){k->out_height, k->out_width, b->block};
  v.in.plane = back ? (cpu_winograd_plane){k->out_height, k->out_width, b->block}
                    : (cpu_winograd_plane){k->height, k->width, b->block};
  v.in.channels = back ? k->out_channels : k->channels;
  for (int i = 0; i < 2; i++) v.in.before[i] = back ? 2 - k->padding[i] : k->padding[i];
  v.in.rows = cpu_divide_up(v.y.height, WINOGRAD_OUT);
  v.in.columns = cpu_divide_up(v.y.width, WINOGRAD_OUT);
  v.tiles = samples * v.in.rows * v.in.columns;
  const int64_t rounds = cpu_divide_up(v.tiles, (int64_t)CHUNK_MAX * b->threads), step = b->simd->gemm_rows;
  v.chunk = cpu_divide_up(cpu_divide_up(v.tiles, rounds * b->threads), step) * step;
  return v;
}

bool cpu_conv_is_winograd(const cpu_backend *b, const cpu_conv_key *k)
{
  bool small = k->groups == 1 && b->block % b->simd->lanes == 0;
  for (int i = 0; i < 2; i++)
    small = small && k->kernel[i] == 3 && k->stride[i] == 1 && k->dilation[i] == 1 && k->padding[i] <= 2;
  const bool back =
      k->kind == CONV_GRAD_INPUT; /* with less than a whole tile, the transforms would compute mostly padding */
  small =
      small && (back ? k->height : k->out_height) >= WINOGRAD_OUT && (back ? k->width : k->out_width) >= WINOGRAD_OUT;
  return small && (k->kind == CONV_GRAD_INPUT || k->x_block == b->block) &&
         (k->kind == CONV_FORWARD || k->y_block == b->block) && k->channels % b->block == 0 &&
         k->out_channels % b->block == 0 && k->channels >= CHANNELS_MIN && k->out_channels >= CHANNELS_MIN;
}

uint64_t cpu_conv_winograd_bytes(cpu_backend *b, const cpu_conv_key *k, int64_t samples)
{
  const winograd v = winograd_of(b, k, samples);
  return cpu_winograd_places_bytes(v.in.channels * v.out) +
         (uint64_t)b->threads * cpu_winograd_room_bytes(b, v.chunk * v.in.channels, v.chunk * v.out);
}

/* kernel[p][c][k]: a task is a block of input channels c. Depending on `turned`, adjacent kernels are of neighbouring
 * input or output channels, so a block of both is made at once. */
static void make_kernels(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const winograd *v = arg;
  const int64_t block = v->y.block, in = v->in.channels;
  const int64_t c_step = 9 * (v->turned ? v->out : 1), k_step = 9 * (v->turned ? 1 : in);
  for (int64_t k = 0; k < v->out; k += block)
    for (int64_t c = task * block; c < (task + 1) * block; c++)
      v->simd->kernels(v->weights + c * c_step + k * k_step, k_step, block, v->turned, v->kernel + c * v->out + k,
                       cpu_winograd_step(in * v->out));
}

void cpu_winograd_transform(cpu_winograd_fn transform, const cpu_winograd_tiles *t, const float *values, int64_t first,
                            int64_t count, float *to, int64_t step)
{
  const int64_t plane = t->plane.height * t->plane.width;
  for (int64_t i = 0; i < count; i++) {
    const cpu_winograd_place at = cpu_winograd_place_of(t, first + i);
    for (int64_t c = 0; c < t->channels; c += t->plane.block)
      transform(&t->plane, values + (at.sample * t->channels + c) * plane, at.h - t->before[0], at.w - t->before[1],
                to + i * t->channels + c, step);
  }
}

/* Applies the fused activation to the tile's outputs of a block. */
static void apply_epilogue(const winograd *v, float *y, int64_t h, int64_t w)
{
  const int64_t pixels = cpu_min(WINOGRAD_OUT, v->y.width - w), count = pixels * v->y.block;
  for (int64_t i = h; i < cpu_min(h + WINOGRAD_OUT, v->y.height); i++) {
    float *row = y + (i * v->y.width + w) * v->y.block;
    if (v->epilogue.relu) v->backend->simd->relu(row, row, count);
    if (v->epilogue.function) v->epilogue.function(row, row, count, v->epilogue.factor);
  }
}

static void transform_outputs(const winograd *v, int64_t first, int64_t count, const float *out, int64_t step)
{
  const int64_t block = v->y.block, plane = v->y.height * v->y.width;
  for (int64_t i = 0; i < count; i++) {
    const cpu_winograd_place at = cpu_winograd_place_of(&v->in, first + i);
    for (int64_t k = 0; k < v->out; k += block) {
      float *y = v->to + (at.sample * v->out + k) * plane;
      v->simd->output(&v->y, out + i * v->out + k, step, v->bias ? v->bias + k : NULL, y, at.h, at.w);
      apply_epilogue(v, y, at.h, at.w);
    }
  }
}

static void run_chunk(void *arg, int64_t task, int32_t thread)
{
  const winograd *v = arg;
  const int64_t channels = v->in.channels, first = task * v->chunk, count = cpu_min(v->chunk, v->tiles - first);
  const cpu_winograd_room room =
      cpu_winograd_room_at(v->backend, v->rooms, thread, v->chunk * channels, v->chunk * v->out);
  cpu_winograd_transform(v->simd->input, &v->in, v->from, first, count, room.first, room.first_step);
  for (int64_t p = 0; p < WINOGRAD_PLACES; p++) {
    const cpu_gemm g = {.m = count,
                        .n = v->out,
                        .k = channels,
                        .a = room.first + p * room.first_step,
                        .lda = channels,
                        .b = v->kernel + p * cpu_winograd_step(channels * v->out),
                        .ldb = v->out,
                        .c = room.second + p * room.second_step,
                        .ldc = v->out};
    v->backend->simd->gemm(&g, 0, g.m, 0, g.n, room.product);
  }
  transform_outputs(v, first, count, room.second, room.second_step);
}

void cpu_conv_winograd_run(cpu_backend *b, const cpu_conv_key *k, const brim_launch *launch)
{
  winograd v = winograd_of(b, k, launch->node->in[0]->shape.dim[0]);
  v.epilogue = cpu_epilogue_of(b, launch->node);
  v.from = launch->in[0];
  v.weights = launch->in[1];
  v.bias = launch->node->in_count > 2 ? launch->in[2] : NULL;
  v.to = launch->out[0];
  v.kernel = launch->workspace;
  v.rooms = (char *)launch->workspace + cpu_winograd_places_bytes(v.in.channels * v.out);
  cpu_pool_run(b->pool, v.in.channels / b->block, make_kernels, &v);
  cpu_pool_run(b->pool, cpu_divide_up(v.tiles, v.chunk), run_chunk, &v);
}
