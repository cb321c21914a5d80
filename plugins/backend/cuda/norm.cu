/* Layer norm and RMS norm over the last dimension, optionally of a sum or followed by relu. For each row x[0..F):
 *
 *     mean = sum of x / F      rstd = 1 / sqrt(sum of (x - mean)^2 / F + eps)
 *     y    = (x - mean) * rstd * weight + bias          RMS norm: mean is 0, weight is weight + offset, no bias
 *
 * A row is read once and held in registers: by a warp if it is short, otherwise by a block. So x and y are moved once
 * each; add+layer_norm also writes the sum. Rows that do not fit into a block's registers are read again in each pass,
 * mostly from the cache.
 *
 * The mean is computed in two steps: first m0, the mean of the values, then a correction, the mean of their differences
 * from m0. The correction is necessary because m0 has the rounding errors of a sum of F values, and these may be as
 * large as the deviation if the mean is large. The variance is the mean of (x - m0)^2 minus the square of the
 * correction. That square is tiny, so there is no cancellation.
 *
 * One kernel computes all combinations, so a fused operation gives the same bits as its two operations. */
#include "norm.cuh"

typedef struct forward {
  const void *a, *b; /* x is a + b, or a if b is NULL */
  void *sum, *y;
  const float *weight, *bias; /* bias may be NULL */
  float *mean, *rstd;         /* mean is NULL for RMS norm */
  float eps, offset;          /* offset: added to weight */
  bool relu;
  int64_t rows, length;
} forward;

/* The statistics of a row, computed from its sums of x - m0 and of (x - m0)^2. */
typedef struct statistics {
  float mean, rstd;
} statistics;

template <bool WARP>
static __device__ inline statistics finish(const forward &f, int64_t row, float m0, float s1, float s2)
{
  const float length = (float)f.length;
  const float correction = f.mean ? cuda_team_sum<!WARP>(s1) / length : 0.0f;
  const float variance = cuda_team_sum<!WARP>(s2) / length - correction * correction;
  const statistics s = {m0 + correction, 1.0f / sqrtf(variance + f.eps)};
  if (team_lane<WARP>() == 0) {
    if (f.mean) f.mean[row] = s.mean;
    f.rstd[row] = s.rstd;
  }
  return s;
}

template <typename T, int W>
static __device__ inline void write_result(const forward &f, int64_t row, int64_t i, const statistics &s,
                                           const float *x)
{
  float y[W], weight[W], bias[W] = {};
  cuda_load_values<W>(f.weight + i * W, weight);
  if (f.bias) cuda_load_values<W>(f.bias + i * W, bias);
#pragma unroll
  for (int k = 0; k < W; k++) {
    y[k] = (x[k] - s.mean) * s.rstd * (weight[k] + f.offset) + bias[k];
    if (f.relu) y[k] = rectified<T>(y[k]);
  }
  cuda_store_values<W>((T *)f.y + row * f.length + i * W, y);
}

/* Adds b. The sum is rounded to the type in which it is stored. */
template <typename T, int W> static __device__ inline void add_other(const forward &f, int64_t at, float *x)
{
  float other[W];
  cuda_load_values<W>((const T *)f.b + at, other);
#pragma unroll
  for (int k = 0; k < W; k++) x[k] = rounded<T>(x[k] + other[k]);
  cuda_store_values<W>((T *)f.sum + at, x);
}

template <typename T, int W, bool WARP>
static __global__ void __launch_bounds__(WARP ? CUDA_THREADS : CUDA_NORM_ROW_THREADS) held_rows(forward f)
{
  constexpr int PACKS = W > 1 ? CUDA_NORM_HELD / W : CUDA_NORM_NARROW_HELD;
  const int lane = team_lane<WARP>(), threads = team_size<WARP>(), packs = (int)(f.length / W);
  float x[PACKS][W];

  for (int64_t row = team_index<WARP>(); row < f.rows; row += team_count<WARP>()) {
    const int64_t at = row * f.length;
    float sum = 0, s1 = 0, s2 = 0;
#pragma unroll
    for (int j = 0; j < PACKS; j++)
      if (lane + j * threads < packs)
        cuda_load_values<W>((const T *)f.a + at + (int64_t)(lane + j * threads) * W, x[j]);
    if (f.b) {
#pragma unroll
      for (int j = 0; j < PACKS; j++)
        if (lane + j * threads < packs) add_other<T, W>(f, at + (int64_t)(lane + j * threads) * W, x[j]);
    }
    float m0 = 0;
    if (f.mean) {
#pragma unroll
      for (int j = 0; j < PACKS; j++)
#pragma unroll
        for (int k = 0; k < W; k++) sum += lane + j * threads < packs ? x[j][k] : 0.0f;
      m0 = cuda_team_sum<!WARP>(sum) / (float)f.length;
    }
#pragma unroll
    for (int j = 0; j < PACKS; j++)
#pragma unroll
      for (int k = 0; k < W; k++) {
        const float d = lane + j * threads < packs ? x[j][k] - m0 : 0.0f;
        s1 += d;
        s2 += d * d;
      }
    const statistics s = finish<WARP>(f, row, m0, s1, s2);
#pragma unroll
    for (int j = 0; j < PACKS; j++)
      if (lane + j * threads < packs) write_result<T, W>(f, row, lane + j * threads, s, x[j]);
  }
}

/* A thread has the same elements in every pass. So it reads only elements of the sum that it wrote itself. */
template <typename T, int W> static __global__ void __launch_bounds__(CUDA_NORM_ROW_THREADS, 1) long_rows(forward f)
{
  const int64_t packs = f.length / W;
  for (int64_t row = blockIdx.x; row < f.rows; row += gridDim.x) {
    const int64_t at = row * f.length;
    const T *from = (const T *)(f.b ? f.sum : f.a) + at;
    float x[W], m0 = 0, s1 = 0, s2 = 0;
    if (f.mean || f.b) {
      float sum = 0;
      for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
        cuda_load_values<W>((const T *)f.a + at + i * W, x);
        if (f.b) add_other<T, W>(f, at + i * W, x);
#pragma unroll
        for (int k = 0; k < W; k++) sum += x[k];
      }
      if (f.mean) m0 = cuda_block_sum(sum) / (float)f.length;
    }
    for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
      cuda_load_values<W>(from + i * W, x);
#pragma unroll
      for (int k = 0; k < W; k++) {
        s1 += x[k] - m0;
        s2 += (x[k] - m0) * (x[k] - m0);
      }
    }
    const statistics s = finish<false>(f, row, m0, s1, s2);
    for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
      cuda_load_values<W>(from + i * W, x);
      write_result<T, W>(f, row, i, s, x);
    }
  }
}

template <typename T, int W> static brim_status launch_rows(cuda_backend *b, const cuda_norm_rows *r, const forward &f)
{
  switch (r->team) {
  case CUDA_NORM_WARP:
    return cuda_launch(b, held_rows<T, W, true>, r->geometry, f);
  case CUDA_NORM_BLOCK:
    return cuda_launch(b, held_rows<T, W, false>, r->geometry, f);
  default:
    return cuda_launch(b, long_rows<T, W>, r->geometry, f);
  }
}

/* sum: whether the node has two inputs before the weight, and their sum as its first output. */
static brim_status run(cuda_backend *b, const brim_launch *launch, bool centred, bool sum, bool relu)
{
  const brim_tensor *x = launch->node->in[0];
  void *const *in = launch->in + (sum ? 1 : 0), *const *out = launch->out + (sum ? 1 : 0);
  forward f = {};
  f.rows = cuda_rows_of(x);
  f.length = cuda_last(x);
  f.a = cuda_plain_input(b, launch, 0);
  if (sum) f.b = cuda_plain_input(b, launch, 1);
  if (!f.a || (sum && !f.b)) return BRIM_EDEVICE;
  f.sum = sum ? launch->out[0] : NULL;
  f.weight = (const float *)in[1];
  f.bias = centred ? (const float *)in[2] : NULL;
  f.y = out[0];
  f.mean = centred ? (float *)out[1] : NULL;
  f.rstd = (float *)out[centred ? 2 : 1];
  f.eps = (float)launch->node->attr.norm.eps;
  f.offset = (float)launch->node->attr.norm.offset;
  f.relu = relu;
  const cuda_norm_rows r = cuda_norm_rows_of(f.rows, f.length, pack_of(x->dtype), CUDA_NORM_HELD);
  CUDA_WITH_TYPE(x->dtype, T, CUDA_WITH_WIDTH(r.wide, T, W, return (launch_rows<T, W>(b, &r, f))));
}

static CUDA_RUN(layer_norm_run)
{
  return run((cuda_backend *)self, launch, true, false, false);
}
static CUDA_RUN(layer_norm_relu_run)
{
  return run((cuda_backend *)self, launch, true, false, true);
}
static CUDA_RUN(rms_norm_run)
{
  return run((cuda_backend *)self, launch, false, false, false);
}
static CUDA_RUN(add_layer_norm_run)
{
  return run((cuda_backend *)self, launch, true, true, false);
}
static CUDA_RUN(add_rms_norm_run)
{
  return run((cuda_backend *)self, launch, false, true, false);
}
BRIM_KERNEL(layer_norm) = {.op = "layer_norm", .prepare = cuda_plain_prepare, .run = layer_norm_run};
BRIM_KERNEL(layer_norm_relu) = {.op = "layer_norm+relu", .prepare = cuda_plain_prepare, .run = layer_norm_relu_run};
BRIM_KERNEL(rms_norm) = {.op = "rms_norm", .prepare = cuda_plain_prepare, .run = rms_norm_run};
BRIM_KERNEL(add_layer_norm) = {.op = "add+layer_norm", .prepare = cuda_plain_prepare, .run = add_layer_norm_run};
BRIM_KERNEL(add_rms_norm) = {.op = "add+rms_norm", .prepare = cuda_plain_prepare, .run = add_rms_norm_run};
