/* upsample2d and its gradient.
 *
 * A thread computes one place of y, or in channels-last order a pack of channels of a place. It reads up to four values
 * of x around the place. The gradient is gathered: a thread has an element of x and adds up dy of the places of y to
 * which the element contributes, in double precision. So dx is written once, with the same bits in every run.
 * Neighbouring threads read from the cache. */
#include "pool_windows.h"
#include "words.cuh"

/* The positions of places in x, along one dimension, as fractions of whole numbers: place p is at (scale * p + start) /
 * below. */
typedef struct dimension {
  int64_t extent, places, scale, start;
  int32_t nearest;
  cuda_divider by_below, by_scale;
} dimension;

/* A position between x[at] and the next value. `share` is the weight of the next value, which is not read if its weight
 * is 0. */
typedef struct tap {
  int64_t at;
  float share;
} tap;

typedef struct resizing {
  cuda_pool planes; /* the layout of x and y */
  dimension axis[2];
} resizing;

static dimension dimension_of(const brim_upsample2d_attr *attr, int64_t extent, int64_t places)
{
  dimension a = {extent, places, extent, 0, attr->mode == BRIM_UPSAMPLE_NEAREST};
  int64_t below = places;
  if (!a.nearest && attr->align_corners) {
    a.scale = places > 1 ? extent - 1 : 0;
    below = cuda_max(1, places - 1);
  } else if (!a.nearest) {
    a.scale = 2 * extent;
    a.start = extent - places;
    below = 2 * places;
  }
  a.by_below = cuda_divider_of(below);
  a.by_scale = cuda_divider_of(cuda_max(1, a.scale));
  return a;
}

static __device__ inline tap tap_of(const dimension &a, int64_t place)
{
  int64_t at = cuda_max(0, a.scale * place + a.start);
  const int64_t rest = cuda_take(&a.by_below, &at);
  if (at >= a.extent - 1) return {a.extent - 1, 0.0f};
  return {at, a.nearest ? 0.0f : (float)((double)rest / (double)a.by_below.by)};
}

/* Returns the first place at or after n / scale. */
static __device__ inline int64_t place_from(const dimension &a, int64_t n)
{
  return n <= 0 ? 0 : cuda_quotient(&a.by_scale, n + a.scale - 1);
}

/* Returns the places to which x[at] may contribute: the positions of these places are less than 1 from `at`, or in [at,
 * at + 1). */
static __device__ inline cuda_range places_of(const dimension &a, int64_t at)
{
  if (a.scale == 0) return {0, at == 0 ? a.places : 0}; /* all places lie at 0 */
  const int64_t below = a.by_below.by, first = (a.nearest ? at : at - 1) * below - a.start;
  return {place_from(a, first), cuda_min(a.places, place_from(a, (at + 1) * below - a.start))};
}

static __device__ inline float share_of(const tap &t, int64_t at)
{
  return t.at == at ? 1.0f - t.share : t.at + 1 == at ? t.share : 0.0f;
}

template <int V> static __device__ inline void blend(float (&v)[V], const float (&next)[V], float share)
{
#pragma unroll
  for (int k = 0; k < V; k++) v[k] = (1.0f - share) * v[k] + share * next[k];
}

/* Computes the value of a row at a column. */
template <typename T, int V>
static __device__ inline void value_of(float (&v)[V], const T *x, const resizing &u, const cuda_pixel &at, int64_t row,
                                       const tap &column)
{
  cuda_load_values(v, x + cuda_at_x(&u.planes, &at, row, column.at) * V);
  if (column.share == 0) return;
  float next[V];
  cuda_load_values(next, x + cuda_at_x(&u.planes, &at, row, column.at + 1) * V);
  blend(v, next, column.share);
}

template <typename T, int V>
static __global__ void __launch_bounds__(CUDA_THREADS)
    upsample_kernel(T *__restrict__ y, const T *__restrict__ x, const __grid_constant__ resizing u, int64_t count)
{
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    const cuda_pixel at = cuda_pixel_of(&u.planes, u.planes.by_places, i);
    const tap row = tap_of(u.axis[0], at.row), column = tap_of(u.axis[1], at.column);
    float v[V];
    value_of(v, x, u, at, row.at, column);
    if (row.share > 0) {
      float next[V];
      value_of(next, x, u, at, row.at + 1, column);
      blend(v, next, row.share);
    }
    cuda_store_values(y + i * V, v);
  }
}

/* At least 3 blocks share a multiprocessor, so a thread has at most 80 registers. By default the compiler aims at more
 * blocks, and spills registers. */
template <typename T, int V>
static __global__ void __launch_bounds__(CUDA_THREADS, 3)
    grad_kernel(T *__restrict__ dx, const T *__restrict__ dy, const __grid_constant__ resizing u, int64_t count)
{
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    const cuda_pixel at = cuda_pixel_of(&u.planes, u.planes.by_extent, i);
    const cuda_range rows = places_of(u.axis[0], at.row), columns = places_of(u.axis[1], at.column);
    double sum[V] = {};
    float result[V];
    for (int64_t row = rows.from; row < rows.to; row++) {
      const float of_row = share_of(tap_of(u.axis[0], row), at.row);
#pragma unroll 1
      for (int64_t column = columns.from; column < columns.to; column++) {
        const float share = of_row * share_of(tap_of(u.axis[1], column), at.column);
        float given[V];
        if (share == 0) continue;
        cuda_load_values(given, dy + cuda_at_y(&u.planes, &at, row, column) * V);
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] += given[k] * share;
      }
    }
#pragma unroll
    for (int k = 0; k < V; k++) result[k] = (float)sum[k];
    cuda_store_values(dx + i * V, result);
  }
}

/* Describes x and y, or their gradients. Both are in the order in which they are read. */
static resizing resizing_of(const brim_launch *launch, const brim_tensor *x, const brim_tensor *y, int64_t pack)
{
  const brim_pool2d_attr none = {};
  resizing u;
  u.planes = cuda_pool_of(&none, true, &x->shape, &y->shape, cuda_channels_last(launch->node->in[0]), pack);
  for (int d = 0; d < 2; d++)
    u.axis[d] = dimension_of(&launch->node->attr.upsample2d, x->shape.dim[2 + d], y->shape.dim[2 + d]);
  return u;
}

template <typename T, int V> static brim_status launch_with(cuda_backend *b, const brim_launch *launch, bool back)
{
  const brim_tensor *from = launch->node->in[0], *to = launch->node->out[0];
  const resizing u = resizing_of(launch, back ? to : from, back ? from : to, V);
  const int64_t count = brim_shape_count(&to->shape) / V;
  return cuda_launch(b, back ? grad_kernel<T, V> : upsample_kernel<T, V>, cuda_stride(count, 1, b->processors),
                     (T *)launch->out[0], (const T *)launch->in[0], u, count);
}

template <typename T> static brim_status run(cuda_backend *b, const brim_launch *launch, bool back)
{
  constexpr int pack = cuda_pack<T>::count;
  const brim_tensor *from = launch->node->in[0];
  if (cuda_channels_last(from) && from->shape.dim[1] % pack == 0) return launch_with<T, pack>(b, launch, back);
  return launch_with<T, 1>(b, launch, back);
}

static CUDA_RUN(upsample_run)
{
  CUDA_WITH_TYPE(launch->node->in[0]->dtype, T, return run<T>((cuda_backend *)self, launch, false));
}
static CUDA_RUN(upsample_grad_run)
{
  CUDA_WITH_TYPE(launch->node->in[0]->dtype, T, return run<T>((cuda_backend *)self, launch, true));
}
BRIM_KERNEL(upsample2d) = {.op = "upsample2d", .prepare = cuda_follow_prepare, .run = upsample_run};
BRIM_KERNEL(upsample2d_grad) = {.op = "upsample2d_grad", .prepare = cuda_follow_prepare, .run = upsample_grad_run};
