/* max_pool2d and its gradient, alone or with a relu after max_pool2d.
 *
 *     y[n,c,p,q] = the greatest x[n,c,h,w] in the window of (p, q); index: its place in the window, r * S + s
 *
 * Of equal values the first counts; NaN is greater than every number, and the first NaN counts. A thread computes one
 * place of y; in channels-last order, it computes a pack of channels of a place (16 bytes if C is a multiple of a
 * pack). Overlapping windows read from the cache, so x is read from memory once. The gradient is gathered: each element
 * of dx adds up dy of the windows that selected it, in the order of y. So dx is written once, without being zeroed
 * first, and every sum has one order. */
#include "arithmetic.h"
#include "pool_windows.h"
#include "words.cuh"

template <typename T, int V>
static __global__ void __launch_bounds__(CUDA_THREADS, 1)
    max_pool_kernel(T *__restrict__ y, uint8_t *__restrict__ index, const T *__restrict__ x, const cuda_pool p,
                    int64_t count, bool relu)
{
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    const cuda_pixel at = cuda_pixel_of(&p, p.by_places, i);
    const cuda_range rows = cuda_window(&p, 0, at.row), columns = cuda_window(&p, 1, at.column);
    /* First row, inside the window, of the part that lies in x. */
    const int top = (int)(rows.from - cuda_window_start(&p, 0, at.row));
    const int left = (int)(columns.from - cuda_window_start(&p, 1, at.column)), kernel = (int)p.kernel[1];
    const int height = (int)(rows.to - rows.from), width = (int)(columns.to - columns.from);
    const T *corner = x + cuda_at_x(&p, &at, rows.from, columns.from) * V;
    float best[V], value[V];
    int which[V];
    cuda_load_values(best, corner);
#pragma unroll
    for (int k = 0; k < V; k++) which[k] = top * kernel + left;
    for (int r = 0; r < height; r++)
      for (int s = 0; s < width; s++) {
        cuda_load_values(value, corner + (r * p.extent[1] + s) * p.lanes * V);
#pragma unroll
        for (int k = 0; k < V; k++) {
          const bool better = value[k] > best[k] || (value[k] != value[k] && best[k] == best[k]);
          best[k] = better ? value[k] : best[k];
          which[k] = better ? (top + r) * kernel + left + s : which[k];
        }
      }
    if (relu)
#pragma unroll
      for (int k = 0; k < V; k++) best[k] = cuda_activate({CUDA_RELU, 0}, best[k]);
    cuda_store_values(y + i * V, best);
    uint8_t bytes[V];
    typename cuda_word<V>::type word;
#pragma unroll
    for (int k = 0; k < V; k++) bytes[k] = (uint8_t)which[k];
    memcpy(&word, bytes, sizeof word);
    *reinterpret_cast<typename cuda_word<V>::type *>(index + i * V) = word;
  }
}

/* y: the result of the relu, which masks dy; NULL if no relu follows. */
template <typename T, int V>
static __global__ void __launch_bounds__(CUDA_THREADS)
    max_pool_grad_kernel(T *__restrict__ dx, const T *__restrict__ dy, const T *__restrict__ y,
                         const uint8_t *__restrict__ index, const cuda_pool p, int64_t count)
{
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) {
    const cuda_pixel at = cuda_pixel_of(&p, p.by_extent, i);
    const cuda_range rows = cuda_windows_over(&p, 0, at.row), columns = cuda_windows_over(&p, 1, at.column);
    float sum[V] = {};
    for (int64_t row = rows.from; row < rows.to; row++)
      for (int64_t column = columns.from; column < columns.to; column++) {
        const int64_t place = cuda_at_y(&p, &at, row, column) * V;
        const int r = (int)(at.row - cuda_window_start(&p, 0, row));
        const int here = r * (int)p.kernel[1] + (int)(at.column - cuda_window_start(&p, 1, column));
        const auto word = *reinterpret_cast<const typename cuda_word<V>::type *>(index + place);
        uint8_t bytes[V];
        float given[V];
        memcpy(bytes, &word, sizeof word);
        cuda_load_values(given, dy + place);
        if (y) {
          float result[V];
          cuda_load_values(result, y + place);
#pragma unroll
          for (int k = 0; k < V; k++) given[k] = cuda_activation_gradient({CUDA_RELU, 0}, result[k], given[k]);
        }
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] += bytes[k] == here ? given[k] : 0;
      }
    cuda_store_values(dx + i * V, sum);
  }
}

template <typename T, int V> static brim_status pool(cuda_backend *b, const brim_launch *launch, bool relu)
{
  const brim_tensor *x = launch->node->in[0], *y = launch->node->out[0];
  const cuda_pool p = cuda_pool_of(&launch->node->attr.pool2d, false, &x->shape, &y->shape, cuda_channels_last(x), V);
  const int64_t count = brim_shape_count(&y->shape) / V;
  return cuda_launch(b, max_pool_kernel<T, V>, cuda_stride(count, 1, b->processors), (T *)launch->out[0],
                     (uint8_t *)launch->out[1], (const T *)launch->in[0], p, count, relu);
}

/* Returns whether a tensor is channels-last and its channels fill whole packs. */
template <typename T> static bool has_packs(const brim_tensor *t)
{
  return cuda_channels_last(t) && t->shape.dim[1] % cuda_pack<T>::count == 0;
}

static brim_status run(cuda_backend *b, const brim_launch *launch, bool relu)
{
  const brim_tensor *x = launch->node->in[0];
  CUDA_WITH_TYPE(x->dtype, T, {
    if (has_packs<T>(x)) return pool<T, cuda_pack<T>::count>(b, launch, relu);
    return pool<T, 1>(b, launch, relu);
  });
}
static CUDA_RUN(max_pool2d_run)
{
  return run((cuda_backend *)self, launch, false);
}
static CUDA_RUN(max_pool2d_relu_run)
{
  return run((cuda_backend *)self, launch, true);
}
BRIM_KERNEL(max_pool2d) = {.op = "max_pool2d", .prepare = cuda_follow_prepare, .run = max_pool2d_run};
BRIM_KERNEL(max_pool2d_relu) = {.op = "max_pool2d+relu", .prepare = cuda_follow_prepare, .run = max_pool2d_relu_run};

/* The result has the memory order of the index, which the forward pass chose. The result of the relu, if any, has the
 * same order. */
static CUDA_PREPARE(max_pool2d_grad_prepare)
{
  (void)self, (void)program, (void)state;
  const bool channels_last = cuda_channels_last(node->in[1]);
  cuda_layout_set(node->out[0], channels_last);
  need->workspace_bytes = cuda_ordered_bytes(node->in[0], channels_last);
  if (node->in_count > 2) need->workspace_bytes += cuda_ordered_bytes(node->in[2], channels_last);
  return BRIM_OK;
}

template <typename T, int V>
static brim_status pool_grad(cuda_backend *b, const brim_launch *launch, const void *dy, const void *y)
{
  const brim_tensor *index = launch->node->in[1], *dx = launch->node->out[0];
  const cuda_pool p =
      cuda_pool_of(&launch->node->attr.pool2d, false, &dx->shape, &index->shape, cuda_channels_last(index), V);
  const int64_t count = brim_shape_count(&dx->shape) / V;
  return cuda_launch(b, max_pool_grad_kernel<T, V>, cuda_stride(count, 1, b->processors), (T *)launch->out[0],
                     (const T *)dy, (const T *)y, (const uint8_t *)launch->in[1], p, count);
}

static CUDA_RUN(max_pool2d_grad_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const brim_node *node = launch->node;
  const brim_tensor *dx = node->out[0], *index = node->in[1];
  const bool last = cuda_channels_last(index), masked = node->in_count > 2;
  void *scratch = launch->workspace;
  const void *dy = cuda_ordered(b, node->in[0], launch->in[0], last, &scratch);
  const void *y = masked ? cuda_ordered(b, node->in[2], launch->in[2], last, &scratch) : NULL;
  if (!dy || (masked && !y)) return BRIM_EDEVICE;
  CUDA_WITH_TYPE(dx->dtype, T, {
    if (has_packs<T>(index)) return pool_grad<T, cuda_pack<T>::count>(b, launch, dy, y);
    return pool_grad<T, 1>(b, launch, dy, y);
  });
}
BRIM_KERNEL(max_pool2d_grad) = {
    .op = "max_pool2d_grad", .prepare = max_pool2d_grad_prepare, .run = max_pool2d_grad_run};
BRIM_KERNEL(max_pool2d_relu_grad) = {
    .op = "max_pool2d+relu_grad", .prepare = max_pool2d_grad_prepare, .run = max_pool2d_grad_run};
