/* Values by index along an axis, and the sums of their gradients:
 *
 *     gather       y[o,j,i]  = x[o, index[o,j,i], i]
 *     gather_grad  dx[o, index[o,j,i], i] += dy[o,j,i]
 *
 * with o and i for all dimensions before and after the axis. gather reads index and the indexed values, and writes y.
 * gather_grad zeroes dx and reads index and dy once. A column (o,·,i) of dx belongs to one thread, or to one warp if
 * few columns are neighbours in memory, so no two threads add to the same value, and sums are in the order of j.
 * Gradients in bf16 and fp16 are added up in fp32 scratch. */
#include "divider.h"
#include "words.cuh"

/* The position of a column in index, dy and y, [outer][along][inner], and in x, [outer][x_along][inner]. */
typedef struct columns {
  int64_t outer, x_along, along, inner;
  cuda_divider by_inner, by_along, by_sample; /* by_sample: indices of a sample */
  cuda_control *control;
  uint64_t node; /* for cuda_report */
} columns;

static columns columns_of(const brim_launch *launch, const brim_tensor *x, const brim_tensor *index)
{
  const int32_t axis = launch->node->attr.move.axis;
  columns c = {};
  c.outer = c.inner = 1;
  for (int32_t d = 0; d < axis; d++) c.outer *= x->shape.dim[d];
  for (int32_t d = axis + 1; d < x->shape.rank; d++) c.inner *= x->shape.dim[d];
  c.x_along = x->shape.dim[axis];
  c.along = index->shape.dim[axis];
  c.by_inner = cuda_divider_of(c.inner);
  c.by_along = cuda_divider_of(c.along);
  c.by_sample = cuda_divider_of(brim_shape_count(&index->shape) / index->shape.dim[0]);
  c.node = (uint64_t)(uintptr_t)launch->node;
  return c;
}

/* Returns whether index[at], which is `value`, lies in x. If not, reports it. */
static __device__ inline bool is_inside(const columns &c, int64_t at, int32_t value)
{
  if (value >= 0 && value < c.x_along) return true;
  cuda_report(c.control, c.node, cuda_quotient(&c.by_sample, at), value, c.x_along);
  return false;
}

/* ---- gather ---- */

template <typename U>
static __global__ void __launch_bounds__(CUDA_THREADS)
    gather_kernel(U *__restrict__ y, const U *__restrict__ x, const int32_t *__restrict__ index, const columns c)
{
  const int64_t count = c.outer * c.along * c.inner;
  for (int64_t at = cuda_first(); at < count; at += cuda_step_width()) {
    int64_t o = at;
    const int64_t i = cuda_take(&c.by_inner, &o);
    o = cuda_quotient(&c.by_along, o);
    const int32_t value = index[at];
    if (is_inside(c, at, value)) y[at] = x[(o * c.x_along + value) * c.inner + i];
  }
}

static CUDA_RUN(gather_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const brim_node *node = launch->node;
  columns c = columns_of(launch, node->in[0], node->in[1]);
  const void *x = cuda_plain_input(b, launch, 0), *index = cuda_plain_input(b, launch, 1);
  c.control = cuda_control_of(b, launch);
  if (!x || !index || !c.control) return BRIM_EDEVICE;
  const cuda_geometry g = cuda_stride(c.outer * c.along * c.inner, 1, b->processors);
  CUDA_WITH_WORD(
      brim_dtype_bytes(node->out[0]->dtype), U,
      return cuda_launch(b, gather_kernel<U>, g, (U *)launch->out[0], (const U *)x, (const int32_t *)index, c));
}
BRIM_KERNEL(gather) = {.op = "gather", .prepare = cuda_plain_prepare, .run = gather_run};

/* ---- gather_grad ---- */

/* A thread for each column. Neighbouring threads read and write neighbouring values. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    add_by_thread_kernel(float *dx, const T *dy, const int32_t *index, const columns c)
{
  for (int64_t column = cuda_first(); column < c.outer * c.inner; column += cuda_step_width()) {
    int64_t o = column;
    const int64_t i = cuda_take(&c.by_inner, &o);
    for (int64_t j = 0; j < c.along; j++) {
      const int64_t at = (o * c.along + j) * c.inner + i;
      const int32_t value = index[at];
      if (is_inside(c, at, value)) dx[(o * c.x_along + value) * c.inner + i] += cuda_load(&dy[at]);
    }
  }
}

/* A warp for each column, 32 of its places at a time. Among lanes with the same index, the first one adds up the values
 * of all, in the order of j. Whole warps call it. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    add_by_warp_kernel(float *dx, const T *dy, const int32_t *index, const columns c)
{
  const int lane = threadIdx.x % CUDA_WARP;
  for (int64_t column = cuda_first() / CUDA_WARP; column < c.outer * c.inner; column += cuda_step_width() / CUDA_WARP) {
    int64_t o = column;
    const int64_t i = cuda_take(&c.by_inner, &o);
    for (int64_t first = 0; first < c.along; first += CUDA_WARP) {
      const int64_t at = (o * c.along + first + lane) * c.inner + i;
      int32_t value = -1;
      float given = 0;
      if (first + lane < c.along) {
        value = index[at];
        given = cuda_load(&dy[at]);
        if (!is_inside(c, at, value)) value = -1;
      }
      float *to = &dx[(o * c.x_along + (value < 0 ? 0 : value)) * c.inner + i];
      float sum = value < 0 ? 0 : *to;
      bool is_first = value >= 0;
      for (int k = 0; k < CUDA_WARP; k++) {
        const int32_t other = __shfl_sync(0xFFFFFFFFu, value, k);
        const float added = __shfl_sync(0xFFFFFFFFu, given, k);
        if (other != value) continue;
        sum += added;
        is_first = is_first && k >= lane;
      }
      __syncwarp();
      if (is_first) *to = sum;
      __syncwarp(); /* makes the sums visible to the next 32 */
    }
  }
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    store_kernel(T *__restrict__ to, const float *__restrict__ from, int64_t count)
{
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) cuda_store(&to[i], from[i]);
}

template <typename T>
static brim_status add_columns(cuda_backend *b, float *dx, const void *dy, const void *index, const columns &c)
{
  /* The choice must not depend on the number of samples, because it affects the bits of a sample's result. */
  if (c.inner >= CUDA_WARP || c.along <= 4)
    return cuda_launch(b, add_by_thread_kernel<T>, cuda_stride(c.outer * c.inner, 1, b->processors), dx, (const T *)dy,
                       (const int32_t *)index, c);
  return cuda_launch(b, add_by_warp_kernel<T>, cuda_stride(c.outer * c.inner * CUDA_WARP, 1, b->processors), dx,
                     (const T *)dy, (const int32_t *)index, c);
}

static CUDA_PREPARE(gather_grad_prepare)
{
  BRIM_TRY(cuda_plain_prepare(self, program, node, need, state));
  const brim_tensor *dx = node->out[0];
  if (dx->dtype != BRIM_DTYPE_F32) need->workspace_bytes += (uint64_t)brim_shape_count(&dx->shape) * sizeof(float);
  return BRIM_OK;
}

/* sums: fp32 scratch; dx itself if dx is fp32. */
template <typename T>
static brim_status add_up(cuda_backend *b, void *dx, float *sums, const void *dy, const void *index, const columns &c,
                          int64_t count)
{
  BRIM_TRY(add_columns<T>(b, sums, dy, index, c));
  if (sums == dx) return BRIM_OK;
  return cuda_launch(b, store_kernel<T>, cuda_stride(count, 1, b->processors), (T *)dx, sums, count);
}

static CUDA_RUN(gather_grad_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const brim_tensor *dx = launch->node->out[0];
  const int64_t count = brim_shape_count(&dx->shape);
  float *sums = (float *)(dx->dtype == BRIM_DTYPE_F32 ? launch->out[0] : cuda_scratch_end(launch, true));
  columns c = columns_of(launch, dx, launch->node->in[0]);
  const void *index = cuda_plain_input(b, launch, 0), *dy = cuda_plain_input(b, launch, 1);
  c.control = cuda_control_of(b, launch);
  if (!index || !dy || !c.control) return BRIM_EDEVICE;
  BRIM_TRY(cuda_zero(b, sums, (uint64_t)count * sizeof(float), "zeroing a gradient"));
  CUDA_WITH_TYPE(dx->dtype, T, return add_up<T>(b, launch->out[0], sums, dy, index, c, count));
}
BRIM_KERNEL(gather_grad) = {.op = "gather_grad", .prepare = gather_grad_prepare, .run = gather_grad_run};
