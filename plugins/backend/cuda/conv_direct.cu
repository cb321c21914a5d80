/* Convolutions that the library refuses. A thread computes one result of y or dx, summed over its window; one or more
 * blocks compute an element of dweight, summed over all places of all samples. Windows read mostly from the caches. The
 * kernels are simple and far slower than a product, but they take any size and either memory layout, and the order of
 * every sum depends on the sizes alone.
 *
 *     y[n,k,p,q] = sum over c,r,s of x[n,first+c,h,w] * weight[k,c,r,s],   h = p*stride - padding + r*dilation */
#include "conv.h"

#include "divider.h"
#include "kernel.cuh"
#include "product.h"

/* The strides of a tensor of 4 dimensions. */
typedef struct strides {
  int64_t n, c, h, w;
} strides;

static strides strides_of(int64_t channels, int64_t height, int64_t width, bool last)
{
  if (last) return strides{height * width * channels, 1, width * channels, channels};
  return strides{channels * height * width, height * width, width, 1};
}
static strides strides_x(const cuda_conv *v)
{
  return strides_of(v->C, v->H, v->W, v->x_last);
}
static strides strides_y(const cuda_conv *v)
{
  return strides_of(v->K, v->P, v->Q, v->y_last);
}

/* Place i of a tensor, in the order of its memory, so that neighbouring threads write neighbouring elements. */
typedef struct place {
  int64_t n, c, h, w;
} place;

static __device__ inline place place_of(int64_t i, int64_t channels, int64_t height, int64_t width, bool last)
{
  place at;
  if (last) {
    at.c = i % channels;
    i /= channels;
  }
  at.w = i % width;
  i /= width;
  at.h = i % height;
  i /= height;
  if (!last) {
    at.c = i % channels;
    i /= channels;
  }
  at.n = i;
  return at;
}

/* ---- y ---- */

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    forward_kernel(cuda_conv v, strides sx, const T *__restrict__ x, const T *__restrict__ weight, T *__restrict__ y)
{
  const int64_t count = v.N * v.K * v.P * v.Q, taps = v.R * v.S;
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    const place at = place_of(i, v.K, v.P, v.Q, v.y_last);
    const T *window = x + at.n * sx.n + at.c / (v.K / v.groups) * v.D * sx.c, *filter = weight + at.c * v.D * taps;
    const int64_t top = at.h * v.stride[0] - v.padding[0], left = at.w * v.stride[1] - v.padding[1];
    float sum = 0;
    for (int64_t r = 0; r < v.R; r++)
      for (int64_t s = 0; s < v.S; s++) {
        const int64_t h = top + r * v.dilation[0], w = left + s * v.dilation[1];
        if (h < 0 || h >= v.H || w < 0 || w >= v.W) continue;
        float tap = 0; /* sums each tap separately, for precision */
        for (int64_t c = 0; c < v.D; c++)
          tap += cuda_load(&window[c * sx.c + h * sx.h + w * sx.w]) * cuda_load(&filter[c * taps + r * v.S + s]);
        sum += tap;
      }
    cuda_store(&y[i], sum);
  }
}

extern "C" brim_status cuda_conv_direct(cuda_backend *b, const cuda_conv *v, const void *x, const void *weight, void *y)
{
  const cuda_geometry g = cuda_stride(v->N * v->K * v->P * v->Q, 1, b->processors);
  CUDA_WITH_TYPE(
      v->dtype, T,
      return cuda_launch(b, forward_kernel<T>, g, *v, strides_x(v), (const T *)x, (const T *)weight, (T *)y));
}

/* ---- dx ---- */

/* Returns the output p whose window has x's position h at distance `offset`, or -1. */
static __device__ inline int64_t output_of(int64_t h, int64_t offset, int64_t padding, int64_t stride, int64_t outputs)
{
  const int64_t from = h + padding - offset;
  if (from < 0 || from % stride != 0) return -1;
  return from / stride < outputs ? from / stride : -1;
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS, 1)
    grad_input_kernel(cuda_conv v, strides sy, const T *__restrict__ dy, const T *__restrict__ weight,
                      T *__restrict__ dx)
{
  const int64_t count = v.N * v.C * v.H * v.W, taps = v.R * v.S, filters = v.K / v.groups;
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    const place at = place_of(i, v.C, v.H, v.W, v.x_last);
    const int64_t first = at.c / v.D * filters;
    const T *from = dy + at.n * sy.n + first * sy.c, *filter = weight + (first * v.D + at.c % v.D) * taps;
    float sum = 0;
    for (int64_t r = 0; r < v.R; r++) {
      const int64_t p = output_of(at.h, r * v.dilation[0], v.padding[0], v.stride[0], v.P);
      if (p < 0) continue;
      for (int64_t s = 0; s < v.S; s++) {
        const int64_t q = output_of(at.w, s * v.dilation[1], v.padding[1], v.stride[1], v.Q);
        if (q < 0) continue;
        float tap = 0;
        for (int64_t k = 0; k < filters; k++)
          tap += cuda_load(&from[k * sy.c + p * sy.h + q * sy.w]) * cuda_load(&filter[k * v.D * taps + r * v.S + s]);
        sum += tap;
      }
    }
    cuda_store(&dx[i], sum);
  }
}

extern "C" brim_status cuda_conv_direct_grad_input(cuda_backend *b, const cuda_conv *v, const void *dy,
                                                   const void *weight, void *dx)
{
  const cuda_geometry g = cuda_stride(v->N * v->C * v->H * v->W, 1, b->processors);
  CUDA_WITH_TYPE(
      v->dtype, T,
      return cuda_launch(b, grad_input_kernel<T>, g, *v, strides_y(v), (const T *)dy, (const T *)weight, (T *)dx));
}

/* ---- dweight ---- */

/* Parts of the places of all samples, one for each block: enough to fill a device even if there are few weights. */
enum { PART_BLOCKS = 1024, PART_PLACES = 4096, PARTS_MAX = 1024 };

static int64_t parts_of(const cuda_conv *v, int64_t sums)
{
  const int64_t wanted = cuda_divide_up(PART_BLOCKS, sums);
  return cuda_min(cuda_min(wanted, PARTS_MAX), cuda_divide_up(v->N * v->P * v->Q, PART_PLACES));
}

static uint64_t part_bytes(const cuda_conv *v, int64_t sums)
{
  return cuda_round_up((uint64_t)(parts_of(v, sums) * sums) * sizeof(double), CUDA_ALIGNMENT);
}

extern "C" uint64_t cuda_conv_direct_bytes(const cuda_conv *v)
{
  return part_bytes(v, cuda_conv_weights(v));
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    grad_weight_kernel(cuda_conv v, strides sx, strides sy, const T *__restrict__ x, const T *__restrict__ dy,
                       double *__restrict__ part)
{
  const int64_t weight = blockIdx.x, s = weight % v.S, r = weight / v.S % v.R, c = weight / (v.S * v.R) % v.D;
  const int64_t k = weight / (v.S * v.R * v.D);
  const int64_t places = v.N * v.P * v.Q, each = cuda_divide_up(places, gridDim.y);
  const int64_t to = cuda_min(places, (blockIdx.y + 1) * each);
  const T *from_x = x + (k / (v.K / v.groups) * v.D + c) * sx.c, *from_y = dy + k * sy.c;
  double sum = 0;
  for (int64_t i = blockIdx.y * each + threadIdx.x; i < to; i += blockDim.x) {
    const place at = place_of(i, 1, v.P, v.Q, true);
    const int64_t h = at.h * v.stride[0] - v.padding[0] + r * v.dilation[0];
    const int64_t w = at.w * v.stride[1] - v.padding[1] + s * v.dilation[1];
    if (h < 0 || h >= v.H || w < 0 || w >= v.W) continue;
    sum += cuda_load(&from_x[at.n * sx.n + h * sx.h + w * sx.w]) *
           cuda_load(&from_y[at.n * sy.n + at.h * sy.h + at.w * sy.w]);
  }
  sum = cuda_block_sum(sum);
  if (threadIdx.x == 0) part[blockIdx.y * (int64_t)gridDim.x + weight] = sum;
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    add_parts_kernel(const double *__restrict__ part, int64_t parts, int64_t weights, float *__restrict__ dweight,
                     bool adds)
{
  for (int64_t i = cuda_first(); i < weights; i += cuda_step_width()) {
    double sum = 0;
    for (int64_t p = 0; p < parts; p++) sum += part[p * weights + i];
    dweight[i] = (float)((adds ? dweight[i] : 0) + sum);
  }
}

extern "C" brim_status cuda_conv_direct_grad_weight(cuda_backend *b, const cuda_conv *v, const void *x, const void *dy,
                                                    float *dweight, bool adds, void *scratch)
{
  const int64_t weights = cuda_conv_weights(v), parts = parts_of(v, weights);
  const cuda_geometry g = {{(unsigned)weights, (unsigned)parts, 1}, CUDA_THREADS, 0};
  double *part = (double *)scratch;
  CUDA_WITH_TYPE(v->dtype, T,
                 BRIM_TRY(cuda_launch(b, grad_weight_kernel<T>, g, *v, strides_x(v), strides_y(v), (const T *)x,
                                      (const T *)dy, part)));
  return cuda_launch(b, add_parts_kernel, cuda_stride(weights, 1, b->processors), (const double *)part, parts, weights,
                     dweight, adds);
}

/* ---- dbias ---- */

/* For plain values; channels-last it is a sum of columns. The last block of a channel adds up the parts. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    grad_bias_kernel(const T *__restrict__ dy, int64_t samples, const cuda_divider pixels, double *part, float *dbias,
                     bool adds, cuda_control *control)
{
  const int64_t channel = blockIdx.x, channels = gridDim.x, places = samples * pixels.by;
  const int64_t each = cuda_divide_up(places, gridDim.y), to = cuda_min(places, (blockIdx.y + 1) * each);
  double sum = 0;
#pragma unroll 4
  for (int64_t i = blockIdx.y * each + threadIdx.x; i < to; i += blockDim.x) {
    int64_t sample = i;
    const int64_t pixel = cuda_take(&pixels, &sample);
    sum += cuda_load(&dy[(sample * channels + channel) * pixels.by + pixel]);
  }
  sum = cuda_block_sum(sum);
  if (gridDim.y > 1) {
    if (threadIdx.x == 0) part[blockIdx.y * channels + channel] = sum;
    if (!cuda_last_block(control, blockIdx.x, gridDim.y)) return;
    sum = 0;
    for (int64_t p = threadIdx.x; p < gridDim.y; p += blockDim.x) sum += __ldcg(&part[p * channels + channel]);
    sum = cuda_block_sum(sum);
  }
  if (threadIdx.x == 0) dbias[channel] = (float)((adds ? dbias[channel] : 0) + sum);
}

/* Returns the number of blocks of a channel; each channel that has several needs a ticket. */
static int64_t bias_parts_of(const cuda_conv *v)
{
  return v->K > CUDA_TICKETS ? 1 : parts_of(v, v->K);
}

extern "C" uint64_t cuda_conv_bias_bytes(const cuda_conv *v)
{
  if (v->y_last) return cuda_column_sum_bytes(v->dtype, v->N * v->P * v->Q, v->K);
  return cuda_round_up((uint64_t)(bias_parts_of(v) * v->K) * sizeof(double), CUDA_ALIGNMENT);
}

extern "C" brim_status cuda_conv_grad_bias(cuda_backend *b, const cuda_conv *v, const void *dy, float *dbias, bool adds,
                                           void *scratch)
{
  if (v->y_last) return cuda_column_sum(b, v->dtype, dy, v->N * v->P * v->Q, v->K, v->K, dbias, adds, scratch);
  const cuda_geometry g = {{(unsigned)v->K, (unsigned)bias_parts_of(v), 1}, CUDA_THREADS, 0};
  CUDA_WITH_TYPE(v->dtype, T,
                 return cuda_launch(b, grad_bias_kernel<T>, g, (const T *)dy, v->N, cuda_divider_of(v->P * v->Q),
                                    (double *)scratch, dbias, adds, b->control));
}
