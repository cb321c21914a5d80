/* The gradient of 3x3 weights by Winograd's transforms: x and dy are cut into tiles as in conv_winograd.c, and each of
 * the 16 places is a separate product,
 *     sum[p][k][c] = sum over the tiles of dy[p][tile][k] * x[p][tile][c]
 * which is transformed back and added to dw.
 *
 * Each unit of samples has its own sum, computed by one thread, some tiles at a time: one chain of sums for any number
 * of tiles (see cpu_gemm). dw adds the units' sums in the order of the samples. The unit's size follows from the shape
 * and the grain, so neither the micro-batch nor the threads change a bit. At the border a value that is not finite also
 * makes gradients of the kernel's other values NaN, to which it does not contribute.
 *
 * Workspace, for each unit that is computed at once: its sum; then for each: x, dy, the workspace of a product. */
#include "conv_winograd.h"

enum { CHUNK = 128 }; /* tiles that are transformed at once */

typedef struct winograd {
  cpu_backend *backend;
  const cpu_winograd_simd *simd;
  cpu_winograd_tiles x, y; /* of dy */
  int64_t unit, tiles;     /* the tiles of a unit; the tiles of all samples */
  int64_t wave;            /* units that are computed at once */
  int64_t chunk;
  int64_t first; /* tile of the wave */
  const float *from, *dy;
  float *dw;
  bool overwrites;    /* dw is written, not added to */
  char *sums, *rooms; /* one for each unit of the wave */
} winograd;

static winograd winograd_of(cpu_backend *b, const cpu_conv_key *k, int64_t samples, int64_t unit_samples)
{
  winograd v = {.backend = b, .simd = cpu_winograd_of(b)};
  v.y = (cpu_winograd_tiles){.plane = {k->out_height, k->out_width, b->block},
                             .channels = k->out_channels,
                             .rows = cpu_divide_up(k->out_height, WINOGRAD_OUT),
                             .columns = cpu_divide_up(k->out_width, WINOGRAD_OUT)};
  v.x = v.y;
  v.x.plane = (cpu_winograd_plane){k->height, k->width, b->block};
  v.x.channels = k->channels;
  for (int i = 0; i < 2; i++) v.x.before[i] = k->padding[i];
  v.unit = unit_samples * v.y.rows * v.y.columns;
  v.tiles = samples * v.y.rows * v.y.columns;
  v.wave = cpu_min(b->threads, cpu_divide_up(samples, unit_samples));
  v.chunk = cpu_min(CHUNK, cpu_min(v.unit, v.tiles));
  return v;
}

static uint64_t sum_bytes(const winograd *v)
{
  return cpu_winograd_places_bytes(v->x.channels * v->y.channels);
}

uint64_t cpu_conv_winograd_weights_bytes(cpu_backend *b, const cpu_conv_key *k, int64_t samples, int64_t unit_samples)
{
  const winograd v = winograd_of(b, k, samples, unit_samples);
  return (uint64_t)v.wave *
         (sum_bytes(&v) + cpu_winograd_room_bytes(b, v.chunk * v.x.channels, v.chunk * v.y.channels));
}

static float *sum_of(const winograd *v, int64_t unit)
{
  return (float *)(void *)(v->sums + (uint64_t)unit * sum_bytes(v));
}

/* Computes the sum of one unit of the wave. */
static void add_unit(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const winograd *v = arg;
  const int64_t c = v->x.channels, k = v->y.channels;
  const cpu_winograd_room room = cpu_winograd_room_at(v->backend, v->rooms, task, v->chunk * c, v->chunk * k);
  const int64_t start = v->first + task * v->unit, end = cpu_min(start + v->unit, v->tiles);
  for (int64_t at = start; at < end; at += v->chunk) {
    const int64_t count = cpu_min(v->chunk, end - at);
    cpu_winograd_transform(v->simd->input, &v->x, v->from, at, count, room.first, room.first_step);
    cpu_winograd_transform(v->simd->gradient, &v->y, v->dy, at, count, room.second, room.second_step);
    for (int64_t p = 0; p < WINOGRAD_PLACES; p++) {
      const cpu_gemm g = {.m = k,
                          .n = c,
                          .k = count,
                          .a = room.second + p * room.second_step,
                          .lda = k,
                          .a_transposed = true,
                          .b = room.first + p * room.first_step,
                          .ldb = c,
                          .c = sum_of(v, task) + p * cpu_winograd_step(c * k),
                          .ldc = c,
                          .accumulate = at > start};
      v->backend->simd->gemm(&g, 0, g.m, 0, g.n, room.product);
    }
  }
}

/* Adds the wave's sums, in order, for the kernels of an output channel. */
static void add_to_weights(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const winograd *v = arg;
  const int64_t c = v->x.channels, units = cpu_min(v->wave, cpu_divide_up(v->tiles - v->first, v->unit));
  if (v->overwrites && v->first == 0) memset(v->dw + task * c * 9, 0, (size_t)(c * 9) * sizeof(float));
  for (int64_t i = 0; i < units; i++)
    v->simd->weights(sum_of(v, i) + task * c, cpu_winograd_step(c * v->y.channels), c, v->dw + task * c * 9);
}

void cpu_conv_winograd_weights_run(cpu_backend *b, const cpu_conv_key *k, int64_t unit_samples,
                                   const brim_launch *launch)
{
  const int64_t samples = launch->node->in[0]->shape.dim[0];
  winograd v = winograd_of(b, k, samples, unit_samples);
  v.from = launch->in[0];
  v.dy = launch->in[1];
  v.dw = launch->out[0];
  v.overwrites = !cpu_adds(launch, 0);
  v.sums = launch->workspace;
  v.rooms = v.sums + (uint64_t)v.wave * sum_bytes(&v);
  for (; v.first < v.tiles; v.first += v.wave * v.unit) {
    cpu_pool_run(b->pool, cpu_min(v.wave, cpu_divide_up(v.tiles - v.first, v.unit)), add_unit, &v);
    cpu_pool_run(b->pool, k->out_channels, add_to_weights, &v);
  }
  if (launch->node->out_count > 1) cpu_conv_add_bias(b, k, v.dy, samples, launch->out[1]);
}
