/* Products of tiles in shared memory with fp32 multiply-adds, for attention and lstm.
 *
 * A block of 128 threads holds a tile of 16R rows by 8C columns in registers, R x C numbers in each thread. A warp has
 * 4R rows and all columns. So sums and maxima over a row stay within 8 lanes, and the next product can use a row of the
 * previous result without a barrier of the block.
 *
 * Tiles are stored in shared memory row by row. Each row has `DEPTH` numbers and four more, so that 16-byte loads of
 * neighbouring rows use different banks. A thread needs four neighbouring columns, because dropout draws four numbers
 * at a time and results are stored 16 bytes at a time. But its loads are fastest if lanes read neighbouring rows. So if
 * the rows of a tile are a product's columns, they are stored in another order: column c at tile_place(c).
 *
 * R x C = 4 x 8 multiply-adds per thread and step need 12 / 4 loads of 16 bytes, so shared memory's bandwidth is not
 * the limit. */
#ifndef CUDA_TILE_CUH
#define CUDA_TILE_CUH
#include "kernel.cuh"
#include "tile_geometry.h"

/* Return the number of the thread's row i (of R) and of its column j (of C), and the place of a column's row in shared
 * memory. */
template <int R> static __device__ inline int tile_row(int i)
{
  return (int)threadIdx.x / CUDA_WARP * 4 * R + 4 * i + (int)threadIdx.x % CUDA_WARP / 8;
}
static __device__ inline int tile_lane()
{
  return (int)threadIdx.x % 8;
}
static __device__ inline int tile_column(int j)
{
  return j / 4 * 32 + 4 * tile_lane() + j % 4;
}
static __device__ inline int tile_place(int column)
{
  return column / 32 * 32 + column % 4 * 8 + column % 32 / 4;
}

/* ---- loading ---- */

/* Loads the first `width` numbers of each of COUNT rows, which are `stride` apart. Only `rows` rows exist; the rest of
 * the tile becomes 0. vector: all rows start at a multiple of 16 bytes, and width is a multiple of a pack. */
template <typename T, int DEPTH, int COUNT, bool COLUMNS>
static __device__ inline void tile_load(float *tile, const T *from, int64_t stride, int64_t rows, int width,
                                        bool vector)
{
  constexpr int P = cuda_pack<T>::count;
  if (vector) {
#pragma unroll 2
    for (int i = threadIdx.x; i < COUNT * (DEPTH / P); i += TILE_THREADS) {
      const int row = i / (DEPTH / P), d = i % (DEPTH / P) * P;
      cuda_pack<T> pack = {};
      if (row < rows && d < width) pack.load(from + row * stride + d);
      float *to = tile + (COLUMNS ? tile_place(row) : row) * (DEPTH + TILE_PAD) + d;
#pragma unroll
      for (int e = 0; e < P; e += 4)
        *reinterpret_cast<float4 *>(to + e) = make_float4(pack.v[e], pack.v[e + 1], pack.v[e + 2], pack.v[e + 3]);
    }
    return;
  }
  for (int i = threadIdx.x; i < COUNT * DEPTH; i += TILE_THREADS) {
    const int row = i / DEPTH, d = i % DEPTH;
    tile[(COLUMNS ? tile_place(row) : row) * (DEPTH + TILE_PAD) + d] =
        row < rows && d < width ? cuda_load(&from[row * stride + d]) : 0;
  }
}

/* ---- products ---- */

/* sum[row][column] += a[row] . b[column], over DEPTH. The rows of b are stored at their tile_place. */
template <int R, int C, int DEPTH>
static __device__ inline void tile_dot(float (&sum)[R][C], const float *a, const float *b)
{
  const float *left = a + tile_row<R>(0) * (DEPTH + TILE_PAD), *right = b + tile_lane() * (DEPTH + TILE_PAD);
#pragma unroll 1
  for (int d = 0; d < DEPTH; d += 4) {
    float4 x[R];
#pragma unroll
    for (int i = 0; i < R; i++) x[i] = *reinterpret_cast<const float4 *>(left + 4 * i * (DEPTH + TILE_PAD) + d);
#pragma unroll
    for (int j = 0; j < C; j++) {
      const float4 w = *reinterpret_cast<const float4 *>(right + (j / 4 * 32 + j % 4 * 8) * (DEPTH + TILE_PAD) + d);
#pragma unroll
      for (int i = 0; i < R; i++) sum[i][j] = fmaf(x[i].x, w.x, sum[i][j]);
#pragma unroll
      for (int i = 0; i < R; i++) sum[i][j] = fmaf(x[i].y, w.y, sum[i][j]);
#pragma unroll
      for (int i = 0; i < R; i++) sum[i][j] = fmaf(x[i].z, w.z, sum[i][j]);
#pragma unroll
      for (int i = 0; i < R; i++) sum[i][j] = fmaf(x[i].w, w.w, sum[i][j]);
    }
  }
}

/* For each of the thread's rows, the columns of a tile that count: [low, high). */
template <int R> struct tile_range {
  int low[R], high[R];
};

static __device__ inline float tile_part(const float4 &v, int e)
{
  return e == 0 ? v.x : e == 1 ? v.y : e == 2 ? v.z : v.w;
}

/* sum[row][d] += sum over columns of p[row][column] * b[column][d], in the order of the columns. d: the thread's
 * numbers of DEPTH, as in tile_column. The rows of p have COLUMNS numbers and four more. RANGED: only columns in a
 * row's range are added, so that other columns cannot add a NaN. */
template <int R, int COLUMNS, int DEPTH, bool RANGED>
static __device__ inline void tile_combine(float (&sum)[R][DEPTH / 8], const float *p, const float *b,
                                           const tile_range<R> &range)
{
  const float *weight = p + tile_row<R>(0) * (COLUMNS + TILE_PAD);
#pragma unroll 1
  for (int column = 0; column < COLUMNS; column += 4) {
    float4 x[R];
#pragma unroll
    for (int i = 0; i < R; i++)
      x[i] = *reinterpret_cast<const float4 *>(weight + 4 * i * (COLUMNS + TILE_PAD) + column);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const float *row = b + tile_place(column + e) * (DEPTH + TILE_PAD) + 4 * tile_lane();
#pragma unroll
      for (int m = 0; m < DEPTH / 32; m++) {
        const float4 v = *reinterpret_cast<const float4 *>(row + 32 * m);
#pragma unroll
        for (int i = 0; i < R; i++) {
          if (RANGED && !(column + e >= range.low[i] && column + e < range.high[i])) continue;
          const float w = tile_part(x[i], e);
          sum[i][4 * m] = fmaf(w, v.x, sum[i][4 * m]);
          sum[i][4 * m + 1] = fmaf(w, v.y, sum[i][4 * m + 1]);
          sum[i][4 * m + 2] = fmaf(w, v.z, sum[i][4 * m + 2]);
          sum[i][4 * m + 3] = fmaf(w, v.w, sum[i][4 * m + 3]);
        }
      }
    }
  }
}

/* ---- storing ---- */

static __device__ inline void tile_store4(float *to, const float *v)
{
  *reinterpret_cast<float4 *>(to) = make_float4(v[0], v[1], v[2], v[3]);
}
template <typename T> static __device__ inline void tile_store4(T *to, const float *v)
{
  static_assert(sizeof(T) == 2, "bf16 or fp16");
  T value[4];
  uint2 raw;
#pragma unroll
  for (int e = 0; e < 4; e++) cuda_store(&value[e], v[e]);
  memcpy(&raw, value, sizeof raw);
  *reinterpret_cast<uint2 *>(to) = raw;
}
/* Stores `width` numbers of a row of tile_combine's result, times `factor`. vector: as in tile_load. */
template <typename T, int N>
static __device__ inline void tile_store(T *to, const float (&row)[N], float factor, int width, bool vector)
{
#pragma unroll
  for (int m = 0; m < N / 4; m++) {
    const int d = 32 * m + 4 * tile_lane();
    float v[4];
#pragma unroll
    for (int e = 0; e < 4; e++) v[e] = row[4 * m + e] * factor;
    if (vector && d < width) {
      tile_store4(to + d, v);
    } else if (!vector) {
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (d + e < width) cuda_store(&to[d + e], v[e]);
    }
  }
}

/* ---- over the eight lanes of a row ---- */

static __device__ inline float tile_row_sum(float value)
{
#pragma unroll
  for (int lane = 4; lane > 0; lane /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, lane);
  return value;
}
/* The maximum ignores NaN. */
static __device__ inline float tile_row_max(float value)
{
#pragma unroll
  for (int lane = 4; lane > 0; lane /= 2) value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, lane));
  return value;
}
#endif
