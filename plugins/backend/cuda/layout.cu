/* The order of rank-4 activations in memory: plain, [N][C][H][W], or channels-last, [N][H][W][C], which convolutions on
 * tensor cores need. Operations keep the order of their input. Values are converted only if two inputs differ, or a
 * kernel supports only one order.
 *
 * A conversion transposes N matrices, [C][HW] to [HW][C] or back: 2 times the tensor's bytes. A block moves tiles of 32
 * x 32 through shared memory, so that reads and writes both go along rows; a padding column keeps the columns in
 * different banks. */
#include "divider.h"
#include "kernel.cuh"

enum { TILE = 32, TILE_ROWS = 8 };

typedef struct transposition {
  int64_t rows, columns, tiles; /* the rows and columns of a matrix; the number of tiles in all matrices */
  cuda_divider row_tiles, column_tiles;
} transposition;

/* to[n][column][row] = from[n][row][column]. A thread issues TILE / TILE_ROWS loads at once, because loads of few bytes
 * one after another would not keep memory busy. */
template <typename T>
static __global__ void __launch_bounds__(TILE *TILE_ROWS)
    transpose_kernel(T *__restrict__ to, const T *__restrict__ from, const __grid_constant__ transposition m)
{
  __shared__ T tile[TILE][TILE + 1];
  const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
  for (int64_t t = blockIdx.x; t < m.tiles; t += gridDim.x) {
    int64_t n = t;
    const int64_t column = cuda_take(&m.column_tiles, &n) * TILE, row = cuda_take(&m.row_tiles, &n) * TILE;
    const int64_t sample = n * m.rows * m.columns;
    T v[TILE / TILE_ROWS] = {};
#pragma unroll
    for (int k = 0; k < TILE / TILE_ROWS; k++) {
      const int64_t i = row + y + k * TILE_ROWS;
      if (i < m.rows && column + x < m.columns) v[k] = from[sample + i * m.columns + column + x];
    }
#pragma unroll
    for (int k = 0; k < TILE / TILE_ROWS; k++) tile[y + k * TILE_ROWS][x] = v[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE / TILE_ROWS; k++) {
      const int64_t i = column + y + k * TILE_ROWS;
      if (i < m.columns && row + x < m.rows) to[sample + i * m.rows + row + x] = tile[x][y + k * TILE_ROWS];
    }
    __syncthreads();
  }
}

template <typename T>
static brim_status transpose(cuda_backend *b, T *to, const T *from, int64_t matrices, int64_t rows, int64_t columns)
{
  const int64_t row_tiles = cuda_divide_up(rows, TILE), column_tiles = cuda_divide_up(columns, TILE);
  const transposition m = {rows, columns, matrices * row_tiles * column_tiles, cuda_divider_of(row_tiles),
                           cuda_divider_of(column_tiles)};
  return cuda_launch(b, transpose_kernel<T>, cuda_rows(cuda_min(m.tiles, 1 << 20), TILE * TILE_ROWS), to, from, m);
}

extern "C" brim_status cuda_layout_convert(cuda_backend *b, const brim_shape *shape, uint32_t dtype, const void *from,
                                           void *to, bool channels_last)
{
  const int64_t channels = shape->dim[1], pixels = shape->dim[2] * shape->dim[3];
  const int64_t rows = channels_last ? channels : pixels, columns = channels_last ? pixels : channels;
  switch (brim_dtype_bytes(dtype)) { /* values are only moved, so only their width matters */
  case 1:
    return transpose(b, (uint8_t *)to, (const uint8_t *)from, shape->dim[0], rows, columns);
  case 2:
    return transpose(b, (uint16_t *)to, (const uint16_t *)from, shape->dim[0], rows, columns);
  default:
    return transpose(b, (uint32_t *)to, (const uint32_t *)from, shape->dim[0], rows, columns);
  }
}

extern "C" void cuda_layout_set(brim_tensor *t, bool channels_last)
{
  if (t->shape.rank == 4) t->channel_block = channels_last ? t->shape.dim[1] : 1;
}

extern "C" bool cuda_in_order(const brim_tensor *t, bool channels_last)
{
  if (t->shape.rank != 4) return true;
  /* With one channel or one pixel both orders are the same. */
  const bool same = t->shape.dim[1] == 1 || t->shape.dim[2] * t->shape.dim[3] == 1;
  return same || cuda_channels_last(t) == channels_last;
}

extern "C" uint64_t cuda_ordered_bytes(const brim_tensor *t, bool channels_last)
{
  return cuda_in_order(t, channels_last) ? 0 : cuda_round_up(t->bytes, CUDA_ALIGNMENT);
}

extern "C" const void *cuda_ordered(cuda_backend *b, const brim_tensor *t, const void *values, bool channels_last,
                                    void **scratch)
{
  if (cuda_in_order(t, channels_last)) return values;
  void *to = *scratch;
  *scratch = (char *)to + cuda_ordered_bytes(t, channels_last);
  if (cuda_layout_convert(b, &t->shape, t->dtype, values, to, channels_last) != BRIM_OK) return NULL;
  return to;
}

/* ---- for several families ---- */

static bool wanted_order(const brim_node *node, bool plain)
{
  return !plain && node->in[0]->shape.rank == 4 && cuda_channels_last(node->in[0]);
}

static uint64_t scratch_before(const brim_node *node, uint32_t input, bool plain)
{
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < input; i++) bytes += cuda_ordered_bytes(node->in[i], wanted_order(node, plain));
  return bytes;
}

static const void *input(cuda_backend *b, const brim_launch *launch, uint32_t i, bool plain)
{
  void *scratch = (char *)launch->workspace + scratch_before(launch->node, i, plain);
  return cuda_ordered(b, launch->node->in[i], launch->in[i], wanted_order(launch->node, plain), &scratch);
}

extern "C" CUDA_PREPARE(cuda_follow_prepare)
{
  (void)self, (void)program, (void)need, (void)state;
  for (uint32_t i = 0; i < node->out_count; i++)
    cuda_layout_set(node->out[i], node->in[0]->shape.rank == 4 && cuda_channels_last(node->in[0]));
  return BRIM_OK;
}

extern "C" CUDA_PREPARE(cuda_same_order_prepare)
{
  need->workspace_bytes = scratch_before(node, node->in_count, false);
  /* A converted input is read completely before the result is written, so it may be overwritten, but an input that is
   * read in one order and overwritten in another may not. */
  if (need->workspace_bytes > 0) need->no_inplace = 1;
  return cuda_follow_prepare(self, program, node, need, state);
}

extern "C" CUDA_PREPARE(cuda_plain_prepare)
{
  (void)self, (void)program, (void)state;
  need->workspace_bytes = scratch_before(node, node->in_count, true);
  if (need->workspace_bytes > 0) need->no_inplace = 1;
  return BRIM_OK;
}

extern "C" const void *cuda_plain_input(cuda_backend *b, const brim_launch *launch, uint32_t i)
{
  return input(b, launch, i, true);
}

extern "C" const void *cuda_same_order_input(cuda_backend *b, const brim_launch *launch, uint32_t i)
{
  return input(b, launch, i, false);
}

extern "C" void *cuda_scratch_end(const brim_launch *launch, bool plain)
{
  return (char *)launch->workspace + scratch_before(launch->node, launch->node->in_count, plain);
}
