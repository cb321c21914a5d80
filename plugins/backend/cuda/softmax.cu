/* softmax and its logarithm over the last dimension, rows of F numbers, and their gradients:
 *
 *     softmax      y[i] = exp(x[i] - m) / s          dx[i] = y[i] (dy[i] - sum over k of y[k] dy[k])
 *     log_softmax  y[i] = x[i] - m - log(s)          dx[i] = dy[i] - exp(y[i]) * sum over k of dy[k]
 *
 * where m is the row's greatest number and s = sum over k of exp(x[k] - m). Memory is read once and written once. Short
 * rows (up to SHORT) stay in the registers of a warp, or of a few of its lanes, so a warp may have several rows. A
 * longer row has a block, which reads it again for each sum, then from the cache. Sums are in double precision, in an
 * order that depends on F alone. A thread reads its elements before it writes them, so y may overwrite x. */
#include "values.cuh"

enum { SHORT = 512, LONG_THREADS = 512 };

/* ---- short rows: `lanes` of a warp, N values each ---- */

/* Returns the sum over `lanes` lanes, a power of 2, to each of them. */
static __device__ inline double lanes_sum(double value, int lanes)
{
  for (int other = lanes / 2; other > 0; other /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, other);
  return value;
}
static __device__ inline float lanes_max(float value, int lanes)
{
  for (int other = lanes / 2; other > 0; other /= 2)
    value = cuda_greater(value, __shfl_xor_sync(0xFFFFFFFFu, value, other));
  return value;
}

/* Loads a lane's values of a row of F numbers; values after the row's end are `none`. */
template <typename T, int N>
static __device__ inline void load_row(const T *row, int F, int lane, int lanes, float none, float v[N])
{
#pragma unroll
  for (int k = 0; k < N; k++) v[k] = lane + k * lanes < F ? cuda_load(&row[lane + k * lanes]) : none;
}
template <typename T, int N>
static __device__ inline void store_row(T *row, int F, int lane, int lanes, const float v[N])
{
#pragma unroll
  for (int k = 0; k < N; k++)
    if (lane + k * lanes < F) cuda_store(&row[lane + k * lanes], v[k]);
}

template <typename T, bool LOG, int N>
static __global__ void __launch_bounds__(CUDA_THREADS, 1) short_kernel(T *y, const T *x, int64_t rows, int F, int lanes)
{
  /* `before`: the rows before this one in its warp. */
  const int lane = threadIdx.x % lanes, before = threadIdx.x % CUDA_WARP / lanes;
  const int block = CUDA_THREADS / lanes; /* rows of a block */
  for (int64_t r = (int64_t)blockIdx.x * block + threadIdx.x / lanes; r - before < rows;
       r += (int64_t)gridDim.x * block) {
    const int length = r < rows ? F : 0; /* all lanes of a warp take part, even without a row */
    float v[N], greatest = -INFINITY;
    double sum = 0;
    load_row<T, N>(x + r * F, length, lane, lanes, -INFINITY, v);
#pragma unroll
    for (int k = 0; k < N; k++) greatest = cuda_greater(greatest, v[k]);
    greatest = lanes_max(greatest, lanes);
#pragma unroll
    for (int k = 0; k < N; k++) {
      if (lane + k * lanes >= length) continue;
      const float e = expf(v[k] - greatest);
      sum += (double)e;
      v[k] = LOG ? v[k] - greatest : e;
    }
    sum = lanes_sum(sum, lanes);
    const float all = LOG ? logf((float)sum) : (float)(1 / sum);
#pragma unroll
    for (int k = 0; k < N; k++) v[k] = LOG ? v[k] - all : v[k] * all;
    store_row<T, N>(y + r * F, length, lane, lanes, v);
  }
}

/* The term that the gradient sums, and the gradient. */
template <bool LOG> static __device__ inline double summand(float y, float dy)
{
  return LOG ? (double)dy : (double)y * (double)dy;
}
template <bool LOG> static __device__ inline float gradient(float y, float dy, float sum)
{
  return LOG ? dy - expf(y) * sum : y * (dy - sum);
}

template <typename T, bool LOG, int N>
static __global__ void __launch_bounds__(CUDA_THREADS)
    short_gradient_kernel(T *dx, const T *y, const T *dy, int64_t rows, int F, int lanes)
{
  const int lane = threadIdx.x % lanes, before = threadIdx.x % CUDA_WARP / lanes;
  const int block = CUDA_THREADS / lanes; /* rows of a block */
  for (int64_t r = (int64_t)blockIdx.x * block + threadIdx.x / lanes; r - before < rows;
       r += (int64_t)gridDim.x * block) {
    const int length = r < rows ? F : 0;
    float v[N], d[N];
    double sum = 0;
    load_row<T, N>(y + r * F, length, lane, lanes, 0, v);
    load_row<T, N>(dy + r * F, length, lane, lanes, 0, d);
#pragma unroll
    for (int k = 0; k < N; k++) sum += summand<LOG>(v[k], d[k]);
    sum = lanes_sum(sum, lanes);
#pragma unroll
    for (int k = 0; k < N; k++) d[k] = gradient<LOG>(v[k], d[k], (float)sum);
    store_row<T, N>(dx + r * F, length, lane, lanes, d);
  }
}

/* ---- long rows: a block for each, V values at a time; V divides F or is 1 ---- */

template <typename T, bool LOG, int V>
static __global__ void __launch_bounds__(LONG_THREADS) long_kernel(T *y, const T *x, int64_t rows, int64_t F)
{
  const int64_t first = (int64_t)threadIdx.x * V, step = (int64_t)blockDim.x * V;
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const T *from = x + r * F;
    T *to = y + r * F;
    float v[V], greatest = -INFINITY;
    double sum = 0;
    for (int64_t i = first; i < F; i += step) {
      cuda_load_values<V>(from + i, v);
#pragma unroll
      for (int k = 0; k < V; k++) greatest = cuda_greater(greatest, v[k]);
    }
    greatest = cuda_block_max(greatest);
    for (int64_t i = first; i < F; i += step) {
      cuda_load_values<V>(from + i, v);
#pragma unroll
      for (int k = 0; k < V; k++) sum += (double)expf(v[k] - greatest);
    }
    sum = cuda_block_sum(sum);
    const float all = LOG ? logf((float)sum) : (float)(1 / sum);
    for (int64_t i = first; i < F; i += step) {
      cuda_load_values<V>(from + i, v);
#pragma unroll
      for (int k = 0; k < V; k++) v[k] = LOG ? v[k] - greatest - all : expf(v[k] - greatest) * all;
      cuda_store_values<V>(to + i, v);
    }
  }
}

template <typename T, bool LOG, int V>
static __global__ void __launch_bounds__(LONG_THREADS)
    long_gradient_kernel(T *dx, const T *y, const T *dy, int64_t rows, int64_t F)
{
  const int64_t first = (int64_t)threadIdx.x * V, step = (int64_t)blockDim.x * V;
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    float v[V], d[V];
    double sum = 0;
    for (int64_t i = first; i < F; i += step) {
      cuda_load_values<V>(y + r * F + i, v);
      cuda_load_values<V>(dy + r * F + i, d);
#pragma unroll
      for (int k = 0; k < V; k++) sum += summand<LOG>(v[k], d[k]);
    }
    const float all = (float)cuda_block_sum(sum);
    for (int64_t i = first; i < F; i += step) {
      cuda_load_values<V>(y + r * F + i, v);
      cuda_load_values<V>(dy + r * F + i, d);
#pragma unroll
      for (int k = 0; k < V; k++) d[k] = gradient<LOG>(v[k], d[k], all);
      cuda_store_values<V>(dx + r * F + i, d);
    }
  }
}

/* ---- launching ---- */

/* dy is NULL in the forward pass. */
template <typename T, bool LOG, int N>
static brim_status launch_short(cuda_backend *b, T *out, const T *in, const T *dy, int64_t rows, int64_t F)
{
  int lanes = 1;
  while (lanes * N < F && lanes < CUDA_WARP) lanes *= 2;
  const cuda_geometry g = cuda_stride(rows * lanes, 1, b->processors);
  if (dy) return cuda_launch(b, short_gradient_kernel<T, LOG, N>, g, out, in, dy, rows, (int)F, lanes);
  return cuda_launch(b, short_kernel<T, LOG, N>, g, out, in, rows, (int)F, lanes);
}

template <typename T, bool LOG, int V>
static brim_status launch_long(cuda_backend *b, T *out, const T *in, const T *dy, int64_t rows, int64_t F)
{
  const cuda_geometry g = cuda_rows(rows, cuda_row_threads(F, V, LONG_THREADS));
  if (dy) return cuda_launch(b, long_gradient_kernel<T, LOG, V>, g, out, in, dy, rows, F);
  return cuda_launch(b, long_kernel<T, LOG, V>, g, out, in, rows, F);
}

template <typename T, bool LOG>
static brim_status launch_rows(cuda_backend *b, T *out, const T *in, const T *dy, int64_t rows, int64_t F)
{
  constexpr int P = cuda_pack<T>::count;
  if (F <= CUDA_WARP) return launch_short<T, LOG, 1>(b, out, in, dy, rows, F);
  if (F <= 8 * CUDA_WARP) return launch_short<T, LOG, 8>(b, out, in, dy, rows, F);
  if (F <= SHORT) return launch_short<T, LOG, SHORT / CUDA_WARP>(b, out, in, dy, rows, F);
  return F % P == 0 ? launch_long<T, LOG, P>(b, out, in, dy, rows, F) : launch_long<T, LOG, 1>(b, out, in, dy, rows, F);
}

template <bool LOG> static brim_status run(cuda_backend *b, const brim_launch *launch)
{
  const brim_tensor *t = launch->node->in[0];
  const void *in[2] = {};
  for (uint32_t i = 0; i < launch->node->in_count; i++) {
    in[i] = cuda_plain_input(b, launch, i);
    if (!in[i]) return BRIM_EDEVICE;
  }
  CUDA_WITH_TYPE(t->dtype, T,
                 return launch_rows<T, LOG>(b, (T *)launch->out[0], (const T *)in[0], (const T *)in[1], cuda_rows_of(t),
                                            cuda_last(t)));
}

#define KERNEL(id, is_log)                                                                                             \
  static CUDA_RUN(id##_run)                                                                                            \
  {                                                                                                                    \
    return run<is_log>((cuda_backend *)self, launch);                                                                  \
  }                                                                                                                    \
  BRIM_KERNEL(id) = {.op = #id, .prepare = cuda_plain_prepare, .run = id##_run}
KERNEL(softmax, false);
KERNEL(softmax_grad, false);
KERNEL(log_softmax, true);
KERNEL(log_softmax_grad, true);
