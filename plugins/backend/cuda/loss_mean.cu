/* Losses that compare y with a target t element by element, each the mean over the elements of a sample; and their
 * gradients, times loss_scale. With d = y - t:
 *
 *     mse    d^2                                          2 d
 *     mae    |d|                                          sign(d), 0 at 0
 *     huber  d^2 / 2 where |d| <= delta,                  d cut off at -delta and delta
 *            else delta * (|d| - delta / 2)
 *     bce    max(y, 0) - t y + log(1 + exp(-|y|))         1 / (1 + exp(-y)) - t
 *
 * The target has y's shape and type, or is a label for each sample: 1 at its element, 0 elsewhere.
 *
 * A loss reads y and t once. A sample may be a number or an image, so it is divided into pieces of fixed size. A block
 * adds up a piece, and a second kernel adds the pieces of a sample if there are several (8 bytes for each 16384
 * elements). A gradient reads y and t and writes dy, all three in y's order. */
#include "kernel.cuh"
#include "loss_geometry.h"

enum mean_loss { MSE, MAE, HUBER, BCE };

template <enum mean_loss L> static __device__ inline float loss_of(float y, float t, float delta)
{
  const float d = y - t, size = fabsf(d);
  if (L == MSE) return d * d;
  if (L == MAE) return size;
  if (L == HUBER) return size <= delta ? d * d / 2 : delta * (size - delta / 2);
  return (y > 0 ? y : 0) - t * y + log1pf(expf(-fabsf(y)));
}

template <enum mean_loss L> static __device__ inline float slope_of(float y, float t, float delta)
{
  const float d = y - t;
  if (L == MSE) return 2 * d;
  if (L == MAE) return d > 0 ? 1 : d < 0 ? -1 : d; /* 0 and NaN stay */
  if (L == HUBER) return d > delta ? delta : d < -delta ? -delta : d;
  const float e = expf(-fabsf(y)), far = e / (1 + e); /* for y > 0: 1 - sigmoid(y), without losing digits near 1 */
  return y > 0 ? (1 - t) - far : far - t;
}

typedef struct comparison {
  const void *y;
  const void *target;   /* target values in y's type, or */
  const int32_t *label; /* labels instead */
  int64_t samples, each;
  float delta;
  uint64_t node;
  cuda_control *control;
} comparison;

static __device__ inline void check_label(const comparison &p, int64_t sample, int32_t label)
{
  if (label < 0 || label >= p.each) cuda_report_label(p.control, p.node, sample, label, p.each);
}

/* ---- losses ---- */

/* Returns the sum over elements [from, to) of a sample. Takes packs if each sample starts at a multiple of a pack. */
template <typename T, enum mean_loss L>
static __device__ inline double sum_piece(const comparison &p, int64_t sample, int64_t from, int64_t to)
{
  constexpr int P = cuda_pack<T>::count;
  const T *y = (const T *)p.y + sample * p.each, *t = (const T *)p.target + sample * p.each;
  const int64_t packed = !p.label && p.each % P == 0 ? to : from; /* in this case pieces are whole packs */
  const int32_t hot = p.label ? p.label[sample] : 0;
  double sum = 0;
  for (int64_t i = from + (int64_t)threadIdx.x * P; i < packed; i += (int64_t)blockDim.x * P) {
    cuda_pack<T> a, b;
    float part = 0;
    a.load(y + i);
    b.load(t + i);
#pragma unroll
    for (int k = 0; k < P; k++) part += loss_of<L>(a.v[k], b.v[k], p.delta);
    sum += (double)part;
  }
  for (int64_t i = packed + threadIdx.x; i < to; i += blockDim.x)
    sum += (double)loss_of<L>(cuda_load(&y[i]), p.label ? (float)(i == hot) : cuda_load(&t[i]), p.delta);
  return sum;
}

/* part: [samples, pieces]; not used if there is one piece. */
template <typename T, enum mean_loss L>
static __global__ void __launch_bounds__(CUDA_THREADS)
    mean_kernel(comparison p, int64_t pieces, float *__restrict__ loss, double *__restrict__ part)
{
  for (int64_t i = blockIdx.x; i < p.samples * pieces; i += gridDim.x) {
    const int64_t sample = i / pieces, from = i % pieces * CUDA_LOSS_PIECE;
    if (p.label && from == 0 && threadIdx.x == 0) check_label(p, sample, p.label[sample]);
    const double sum = cuda_block_sum(sum_piece<T, L>(p, sample, from, cuda_min(from + CUDA_LOSS_PIECE, p.each)));
    if (threadIdx.x > 0) continue;
    if (pieces == 1)
      loss[sample] = (float)(sum / (double)p.each);
    else
      part[i] = sum;
  }
}

/* One warp adds the pieces of one sample. */
static __global__ void __launch_bounds__(CUDA_THREADS)
    add_pieces_kernel(const double *__restrict__ part, int64_t samples, int64_t pieces, int64_t each,
                      float *__restrict__ loss)
{
  const int lane = threadIdx.x % CUDA_WARP;
  for (int64_t n = cuda_first() / CUDA_WARP; n < samples; n += cuda_step_width() / CUDA_WARP) {
    double sum = 0;
    for (int64_t i = lane; i < pieces; i += CUDA_WARP) sum += part[n * pieces + i];
    sum = cuda_warp_sum(sum);
    if (lane == 0) loss[n] = (float)(sum / (double)each);
  }
}

/* ---- gradients ---- */

/* dy may overwrite y, so nothing is declared __restrict__. */
template <typename T, enum mean_loss L>
static __global__ void __launch_bounds__(CUDA_THREADS) mean_grad_kernel(comparison p, T *dy)
{
  constexpr int P = cuda_pack<T>::count;
  const int64_t count = p.samples * p.each, packed = p.label ? 0 : count / P * P;
  const float scale = (float)(p.control->step.loss_scale / (double)p.each);
  const T *y = (const T *)p.y, *t = (const T *)p.target;
  for (int64_t i = cuda_first() * P; i < packed; i += cuda_step_width() * P) {
    cuda_pack<T> a, b;
    a.load(y + i);
    b.load(t + i);
#pragma unroll
    for (int k = 0; k < P; k++) a.v[k] = slope_of<L>(a.v[k], b.v[k], p.delta) * scale;
    a.store(dy + i);
  }
  for (int64_t i = packed + cuda_first(); i < count; i += cuda_step_width()) {
    const int64_t sample = i / p.each, place = i % p.each;
    if (p.label && place == 0) check_label(p, sample, p.label[sample]);
    const float target = p.label ? (float)(p.label[sample] == place) : cuda_load(&t[i]);
    cuda_store(&dy[i], slope_of<L>(cuda_load(&y[i]), target, p.delta) * scale);
  }
}

/* ---- the operations ---- */

static CUDA_PREPARE(mean_prepare)
{
  const int64_t samples = node->in[0]->shape.dim[0];
  const int64_t pieces = cuda_loss_pieces(brim_shape_count(&node->in[0]->shape) / samples);
  BRIM_TRY(cuda_same_order_prepare(self, program, node, need, state));
  if (pieces > 1) need->workspace_bytes += (uint64_t)(samples * pieces) * sizeof(double);
  return BRIM_OK;
}

static brim_status comparison_of(cuda_backend *b, const brim_launch *launch, comparison *p)
{
  const brim_tensor *y = launch->node->in[0];
  const void *target = cuda_same_order_input(b, launch, 1);
  *p = {};
  p->control = cuda_control_of(b, launch);
  if (!target || !p->control) return BRIM_EDEVICE;
  p->y = launch->in[0];
  if (launch->node->in[1]->dtype == BRIM_DTYPE_I32)
    p->label = (const int32_t *)target;
  else
    p->target = target;
  p->samples = y->shape.dim[0];
  p->each = brim_shape_count(&y->shape) / p->samples;
  p->delta = (float)launch->node->attr.loss.delta;
  p->node = (uint64_t)launch->node;
  return BRIM_OK;
}

template <enum mean_loss L> static brim_status run_mean(cuda_backend *b, const brim_launch *launch)
{
  comparison p;
  BRIM_TRY(comparison_of(b, launch, &p));
  const int64_t pieces = cuda_loss_pieces(p.each);
  float *loss = (float *)launch->out[0];
  double *part = (double *)cuda_scratch_end(launch, false);
  CUDA_WITH_TYPE(launch->node->in[0]->dtype, T,
                 const cuda_geometry g =
                     cuda_rows(p.samples * pieces,
                               cuda_row_threads(cuda_min(p.each, CUDA_LOSS_PIECE), cuda_pack<T>::count, CUDA_THREADS));
                 BRIM_TRY(cuda_launch(b, mean_kernel<T, L>, g, p, pieces, loss, part)));
  if (pieces == 1) return BRIM_OK;
  return cuda_launch(b, add_pieces_kernel, cuda_stride(p.samples * CUDA_WARP, 1, b->processors), (const double *)part,
                     p.samples, pieces, p.each, loss);
}

template <enum mean_loss L> static brim_status run_mean_grad(cuda_backend *b, const brim_launch *launch)
{
  comparison p;
  BRIM_TRY(comparison_of(b, launch, &p));
  CUDA_WITH_TYPE(launch->node->in[0]->dtype, T,
                 return cuda_launch(b, mean_grad_kernel<T, L>,
                                    cuda_stride(p.samples * p.each, cuda_pack<T>::count, b->processors), p,
                                    (T *)launch->out[0]));
}

#define LOSS(id, kind)                                                                                                 \
  static CUDA_RUN(id##_run)                                                                                            \
  {                                                                                                                    \
    return run_mean<kind>((cuda_backend *)self, launch);                                                               \
  }                                                                                                                    \
  static CUDA_RUN(id##_grad_run)                                                                                       \
  {                                                                                                                    \
    return run_mean_grad<kind>((cuda_backend *)self, launch);                                                          \
  }                                                                                                                    \
  BRIM_KERNEL(id) = {.op = #id, .prepare = mean_prepare, .run = id##_run};                                             \
  BRIM_KERNEL(id##_grad) = {.op = #id "_grad", .prepare = cuda_same_order_prepare, .run = id##_grad_run}
LOSS(mse, MSE);
LOSS(mae, MAE);
LOSS(huber, HUBER);
LOSS(bce, BCE);
