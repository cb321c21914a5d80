/* avg_pool2d, adaptive_avg_pool2d and their gradients.
 *
 *     y[n,c,p,q] = the sum of x[n,c,h,w] over the window of (p, q), / R*S or / their number (pool_windows.h)
 *
 * For small windows a thread has one place of y, or channels-last a pack of its channels. With large windows, such as
 * whole images, that would mean few threads and long sums: there a warp has a window of a plain tensor, and a block has
 * a window of 32 channels of a channels-last one, in 8 shares of its pixels. The choice depends on the window alone. x
 * is read once, except where overlapping windows miss the cache. The gradient is gathered, like that of max pooling: dx
 * is written once. Sums of more than a few values are in double. */
#include "pool_windows.h"
#include "words.cuh"

enum { LARGE = 32, SHARES = CUDA_THREADS / CUDA_WARP };

/* Returns a value's share in the window of a place. A plain division would be a call, and spill registers. */
static __device__ inline float share_of(const cuda_pool &p, int64_t row, int64_t column)
{
  return __fdividef(1.0f, cuda_window_divisor(&p, 0, row) * cuda_window_divisor(&p, 1, column));
}

/* ---- small windows ---- */

template <typename T, int V>
static __global__ void __launch_bounds__(CUDA_THREADS)
    small_kernel(T *__restrict__ y, const T *__restrict__ x, const cuda_pool p, int64_t count)
{
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    const cuda_pixel at = cuda_pixel_of(&p, p.by_places, i);
    const cuda_range rows = cuda_window(&p, 0, at.row), columns = cuda_window(&p, 1, at.column);
    const int64_t step = p.lanes * V, row_step = p.extent[1] * step;
    const T *from = x + cuda_at_x(&p, &at, rows.from, columns.from) * V;
    float sum[V] = {};
    for (int height = (int)(rows.to - rows.from); height > 0; height--, from += row_step) {
      const T *next = from;
#pragma unroll 2 /* four would spill registers */
      for (int width = (int)(columns.to - columns.from); width > 0; width--, next += step) {
        float value[V];
        cuda_load_values(value, next);
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] += value[k];
      }
    }
    const float share = share_of(p, at.row, at.column);
#pragma unroll
    for (int k = 0; k < V; k++) sum[k] *= share;
    cuda_store_values(y + i * V, sum);
  }
}

/* ---- large windows ---- */

/* Adds up every `step`-th value of a window from number `first` on, in one plane and lane. */
template <typename T>
static __device__ inline double sum_of(const T *x, const cuda_pool &p, const cuda_pixel &at, cuda_range rows,
                                       cuda_range columns, int first, int step)
{
  /* The window's rows are contiguous, like a single row. */
  const bool whole = columns.from == 0 && columns.to == p.extent[1];
  const int64_t width = whole ? (rows.to - rows.from) * p.extent[1] : columns.to - columns.from;
  const int64_t height = whole ? 1 : rows.to - rows.from;
  const T *corner = x + cuda_at_x(&p, &at, rows.from, columns.from);
  double sum = 0;
  int64_t r = 0, s = first;
  for (;;) {
    while (s >= width && r < height) {
      s -= width;
      r++;
    }
    if (r >= height) return sum;
    sum += cuda_load(&corner[(r * p.extent[1] + s) * p.lanes]);
    s += step;
  }
}

/* For lanes = 1. Whole warps call it. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    large_plain_kernel(T *__restrict__ y, const T *__restrict__ x, const cuda_pool p, int64_t count)
{
  for (int64_t i = cuda_first() / CUDA_WARP; i < count; i += cuda_step_width() / CUDA_WARP) {
    const cuda_pixel at = cuda_pixel_of(&p, p.by_places, i);
    const cuda_range rows = cuda_window(&p, 0, at.row), columns = cuda_window(&p, 1, at.column);
    const int lane = threadIdx.x % CUDA_WARP;
    const double sum = cuda_warp_sum(sum_of(x, p, at, rows, columns, lane, CUDA_WARP));
    if (lane == 0) cuda_store(&y[i], (float)(sum * (double)share_of(p, at.row, at.column)));
  }
}

/* A block has a window of the channels of one slab; `slabs` is the number of slabs, groups of 32 channels. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    large_last_kernel(T *__restrict__ y, const T *__restrict__ x, const cuda_pool p, const cuda_divider slabs,
                      int64_t count)
{
  __shared__ double part[SHARES][CUDA_WARP];
  const int lane = threadIdx.x % CUDA_WARP, share = threadIdx.x / CUDA_WARP;
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    int64_t place = i;
    const int64_t channel = cuda_take(&slabs, &place) * CUDA_WARP + lane;
    cuda_pixel at = cuda_pixel_of(&p, p.by_places, place * p.lanes);
    at.lane = channel;
    const cuda_range rows = cuda_window(&p, 0, at.row), columns = cuda_window(&p, 1, at.column);
    part[share][lane] = channel < p.lanes ? sum_of(x, p, at, rows, columns, share, SHARES) : 0;
    __syncthreads();
    if (share == 0 && channel < p.lanes) {
      double sum = 0;
      for (int k = 0; k < SHARES; k++) sum += part[k][lane];
      cuda_store(&y[place * p.lanes + channel], (float)(sum * (double)share_of(p, at.row, at.column)));
    }
    __syncthreads();
  }
}

/* ---- gradient ---- */

/* At least 4 blocks share a multiprocessor, so a thread has at most 64 registers. By default the compiler aims at more
 * blocks, and spills registers. */
template <typename T, int V>
static __global__ void __launch_bounds__(CUDA_THREADS, 4)
    grad_kernel(T *__restrict__ dx, const T *__restrict__ dy, const cuda_pool p, int64_t count)
{
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    const cuda_pixel at = cuda_pixel_of(&p, p.by_extent, i);
    const cuda_range rows = cuda_windows_over(&p, 0, at.row), columns = cuda_windows_over(&p, 1, at.column);
    double sum[V] = {};
    float result[V];
    for (int64_t row = rows.from; row < rows.to; row++)
#pragma unroll 1 /* most elements are in few windows; unrolling would spill registers */
      for (int64_t column = columns.from; column < columns.to; column++) {
        const float share = share_of(p, row, column);
        float given[V];
        cuda_load_values(given, dy + cuda_at_y(&p, &at, row, column) * V);
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] += given[k] * share;
      }
#pragma unroll
    for (int k = 0; k < V; k++) result[k] = (float)sum[k];
    cuda_store_values(dx + i * V, result);
  }
}

/* ---- the operations ---- */

static cuda_pool pool_of(const brim_launch *launch, const brim_tensor *x, const brim_tensor *y, int64_t pack)
{
  const bool adaptive = launch->node->op[1] == 'd'; /* adaptive_avg_pool2d, avg_pool2d */
  return cuda_pool_of(&launch->node->attr.pool2d, adaptive, &x->shape, &y->shape, cuda_channels_last(x), pack);
}

template <typename T> static int64_t pack_of(const brim_tensor *x)
{
  constexpr int64_t pack = cuda_pack<T>::count;
  return cuda_channels_last(x) && x->shape.dim[1] % pack == 0 ? pack : 1;
}

template <typename T> static brim_status average(cuda_backend *b, const brim_launch *launch)
{
  const brim_tensor *x = launch->node->in[0];
  const int64_t count = brim_shape_count(&launch->node->out[0]->shape);
  T *y = (T *)launch->out[0];
  const T *from = (const T *)launch->in[0];
  const cuda_pool one = pool_of(launch, x, launch->node->out[0], 1);
  if (cuda_window_size(&one) > LARGE) {
    if (!cuda_channels_last(x))
      return cuda_launch(b, large_plain_kernel<T>, cuda_stride(count, CUDA_THREADS / 8, b->processors), y, from, one,
                         count);
    const cuda_divider slabs = cuda_divider_of(cuda_divide_up(one.lanes, CUDA_WARP));
    const int64_t blocks = count / one.lanes * slabs.by;
    return cuda_launch(b, large_last_kernel<T>, cuda_rows(blocks, CUDA_THREADS), y, from, one, slabs, blocks);
  }
  constexpr int V = cuda_pack<T>::count;
  if (pack_of<T>(x) == 1)
    return cuda_launch(b, small_kernel<T, 1>, cuda_stride(count, 1, b->processors), y, from, one, count);
  const cuda_pool packed = pool_of(launch, x, launch->node->out[0], V);
  return cuda_launch(b, small_kernel<T, V>, cuda_stride(count / V, 1, b->processors), y, from, packed, count / V);
}

template <typename T> static brim_status average_grad(cuda_backend *b, const brim_launch *launch)
{
  const brim_tensor *dy = launch->node->in[0], *dx = launch->node->out[0];
  const int64_t pack = pack_of<T>(dy), count = brim_shape_count(&dx->shape) / pack;
  cuda_pool p = cuda_pool_of(&launch->node->attr.pool2d, launch->node->op[1] == 'd', &dx->shape, &dy->shape,
                             cuda_channels_last(dy), pack);
  const cuda_geometry g = cuda_stride(count, 1, b->processors);
  if (pack == 1) return cuda_launch(b, grad_kernel<T, 1>, g, (T *)launch->out[0], (const T *)launch->in[0], p, count);
  return cuda_launch(b, grad_kernel<T, cuda_pack<T>::count>, g, (T *)launch->out[0], (const T *)launch->in[0], p,
                     count);
}

static CUDA_RUN(average_run)
{
  CUDA_WITH_TYPE(launch->node->in[0]->dtype, T, return average<T>((cuda_backend *)self, launch));
}
static CUDA_RUN(average_grad_run)
{
  CUDA_WITH_TYPE(launch->node->in[0]->dtype, T, return average_grad<T>((cuda_backend *)self, launch));
}
BRIM_KERNEL(avg_pool2d) = {.op = "avg_pool2d", .prepare = cuda_follow_prepare, .run = average_run};
BRIM_KERNEL(avg_pool2d_grad) = {.op = "avg_pool2d_grad", .prepare = cuda_follow_prepare, .run = average_grad_run};
BRIM_KERNEL(adaptive_avg_pool2d) = {.op = "adaptive_avg_pool2d", .prepare = cuda_follow_prepare, .run = average_run};
BRIM_KERNEL(adaptive_avg_pool2d_grad) = {
    .op = "adaptive_avg_pool2d_grad", .prepare = cuda_follow_prepare, .run = average_grad_run};
