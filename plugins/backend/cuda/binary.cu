/* Sums, differences, products and quotients of shapes that broadcast to each other; and repeat, the gradient of sums
 * over axes, which is the product of a repeated tensor and a number.
 *
 * The bytes of the result and of each operand are moved once; a small operand that is repeated comes from the cache.
 * The result has the order in memory of an operand of its shape. The kernel goes over the result in rows, as long as
 * possible, along which each operand advances by one element, stays, or (if it has another order) advances by a stride.
 * Threads take 16 bytes of the result at a time if rows and operands are whole vectors, else single elements;
 * neighbouring threads take neighbouring elements. An operand of the result's size in another order would be read with
 * strides throughout, so it is converted into scratch first.
 *
 * Each operand may be fp32 or smaller: a parameter may be fp32 while activations are bf16. Operands smaller than fp32
 * all have the same type, which is also the result's type unless that is fp32. */
#include "broadcast.h"
#include "values.cuh"

enum op { ADD, SUB, MUL, DIV };

typedef struct operand {
  const void *values; /* NULL for `constant` everywhere */
  float constant;
  uint32_t dtype;
} operand;

typedef struct rows_walk {
  int32_t rank; /* the number of dimensions that count the rows */
  cuda_divider length, dim[BRIM_DIMS_MAX];
  int64_t step[2][BRIM_DIMS_MAX];
  int64_t inner[2]; /* each operand's step along a row */
} rows_walk;

template <enum op OP> static __device__ inline float combined(float a, float b)
{
  if constexpr (OP == ADD) return a + b;
  if constexpr (OP == SUB) return a - b;
  if constexpr (OP == MUL) return a * b;
  return a / b;
}

/* Loads V values of an operand, `step` apart. */
template <int V, typename T> static __device__ inline void load_typed(const T *p, int64_t step, float *v)
{
  if (step == 1) {
    cuda_load_values<V>(p, v);
  } else {
#pragma unroll
    for (int k = 0; k < V; k++) v[k] = cuda_load(p + k * step);
  }
}
template <int V, typename T> static __device__ inline void load_operand(operand o, int64_t at, int64_t step, float *v)
{
  if (!o.values) {
#pragma unroll
    for (int k = 0; k < V; k++) v[k] = o.constant;
  } else if (o.dtype == BRIM_DTYPE_F32) {
    load_typed<V>((const float *)o.values + at, step, v);
  } else if constexpr (sizeof(T) < sizeof(float)) {
    load_typed<V>((const T *)o.values + at, step, v);
  } else if (o.dtype == BRIM_DTYPE_BF16) {
    load_typed<V>((const cuda_bf16 *)o.values + at, step, v);
  } else {
    load_typed<V>((const cuda_f16 *)o.values + at, step, v);
  }
}

template <typename T, enum op OP, int V>
static __device__ inline void combine(T *y, operand a, operand b, const rows_walk &r, int64_t at)
{
  int64_t column = at, offset[2] = {0, 0};
  if (r.rank > 0) {
    int64_t row = at;
    column = cuda_take(&r.length, &row);
    for (int d = r.rank - 1; d >= 0; d--) {
      const int64_t place = cuda_take(&r.dim[d], &row);
      offset[0] += place * r.step[0][d];
      offset[1] += place * r.step[1][d];
    }
  }
  float va[V], vb[V];
  load_operand<V, T>(a, offset[0] + column * r.inner[0], r.inner[0], va);
  load_operand<V, T>(b, offset[1] + column * r.inner[1], r.inner[1], vb);
#pragma unroll
  for (int k = 0; k < V; k++) va[k] = combined<OP>(va[k], vb[k]);
  cuda_store_values<V>(y + at, va);
}

/* If `V` > 1, V divides the rows' length, or there is only one row, whose end is processed by elements. */
template <typename T, enum op OP, int V>
static __global__ void __launch_bounds__(CUDA_THREADS)
    combine_kernel(T *y, operand a, operand b, const __grid_constant__ rows_walk r, int64_t count)
{
  const int64_t whole = count / V;
  for (int64_t i = cuda_first(); i < whole; i += cuda_step_width()) combine<T, OP, V>(y, a, b, r, i * V);
  for (int64_t i = whole * V + cuda_first(); i < count; i += cuda_step_width()) combine<T, OP, 1>(y, a, b, r, i);
}

/* Returns whether an operand that advances along the rows starts each row at a whole vector. */
static bool is_vector(const rows_walk *r, int o, int64_t vector)
{
  if (r->inner[o] != 1) return true;
  for (int32_t d = 0; d < r->rank; d++)
    if (r->step[o][d] % vector != 0) return false;
  return true;
}

static rows_walk rows_of(const cuda_walk *w)
{
  rows_walk r = {};
  r.length = cuda_divider_of(w->rank > 0 ? w->dim[w->rank - 1] : 1);
  r.rank = w->rank > 0 ? w->rank - 1 : 0;
  for (int o = 0; o < 2; o++) {
    for (int32_t d = 0; d < r.rank; d++) r.step[o][d] = w->step[o][d];
    if (w->rank > 0) r.inner[o] = w->step[o][r.rank];
  }
  for (int32_t d = 0; d < r.rank; d++) r.dim[d] = cuda_divider_of(w->dim[d]);
  return r;
}

template <typename T, enum op OP>
static brim_status launch_combine(cuda_backend *b, T *y, const operand v[2], const cuda_walk *w, int64_t count)
{
  constexpr int P = cuda_pack<T>::count;
  const rows_walk r = rows_of(w);
  const bool whole = r.rank == 0 || r.length.by % P == 0;
  if (whole && is_vector(&r, 0, P) && is_vector(&r, 1, P))
    return cuda_launch(b, combine_kernel<T, OP, P>, cuda_stride(count, P, b->processors), y, v[0], v[1], r, count);
  return cuda_launch(b, combine_kernel<T, OP, 1>, cuda_stride(count, 1, b->processors), y, v[0], v[1], r, count);
}

/* ---- operations of two tensors ---- */

static bool has_size_of_result(const brim_node *node, uint32_t i)
{
  return brim_shape_count(&node->in[i]->shape) == brim_shape_count(&node->out[0]->shape);
}

/* Returns the result's order: that of the first operand of its size, or plain if both are repeated. */
static bool result_channels_last(const brim_node *node)
{
  for (uint32_t i = 0; i < 2; i++)
    if (node->in[i]->shape.rank == 4 && node->out[0]->shape.rank == 4 && has_size_of_result(node, i))
      return cuda_channels_last(node->in[i]);
  return false;
}

static bool is_converted(const brim_node *node, uint32_t i)
{
  return node->in[i]->shape.rank == 4 && node->out[0]->shape.rank == 4 && has_size_of_result(node, i) &&
         !cuda_in_order(node->in[i], result_channels_last(node));
}

static CUDA_PREPARE(combine_prepare)
{
  (void)self, (void)program, (void)state;
  const bool channels_last = result_channels_last(node);
  cuda_layout_set(node->out[0], channels_last);
  for (uint32_t i = 0; i < 2; i++)
    if (is_converted(node, i)) need->workspace_bytes += cuda_ordered_bytes(node->in[i], channels_last);
  return BRIM_OK;
}

template <enum op OP> static brim_status run(cuda_backend *b, const brim_launch *launch)
{
  const brim_node *node = launch->node;
  const brim_tensor *y = node->out[0];
  const bool channels_last = cuda_channels_last(y);
  const brim_shape *shape[2] = {&node->in[0]->shape, &node->in[1]->shape};
  void *scratch = launch->workspace;
  operand v[2] = {};
  bool last[2];
  for (uint32_t i = 0; i < 2; i++) {
    const brim_tensor *t = node->in[i];
    const bool converted = is_converted(node, i);
    v[i].values = converted ? cuda_ordered(b, t, launch->in[i], channels_last, &scratch) : launch->in[i];
    if (!v[i].values) return BRIM_EDEVICE;
    v[i].dtype = t->dtype;
    last[i] = converted ? channels_last : cuda_channels_last(t);
  }
  cuda_walk w;
  cuda_walk_init(&w, &y->shape, channels_last, shape, last);
  CUDA_WITH_TYPE(y->dtype, T, return launch_combine<T, OP>(b, (T *)launch->out[0], v, &w, brim_shape_count(&y->shape)));
}

#define KERNEL(id, op_)                                                                                                \
  static CUDA_RUN(id##_run)                                                                                            \
  {                                                                                                                    \
    return run<op_>((cuda_backend *)self, launch);                                                                     \
  }                                                                                                                    \
  BRIM_KERNEL(id) = {.op = #id, .prepare = combine_prepare, .run = id##_run}
KERNEL(add, ADD);
KERNEL(sub, SUB);
KERNEL(mul, MUL);
KERNEL(div, DIV);

/* ---- repeating ---- */

static bool keeps_axes(const brim_node *node)
{
  return node->in[0]->shape.rank == node->out[0]->shape.rank;
}

/* dx has the order of dy if dy has one. */
static CUDA_PREPARE(repeat_prepare)
{
  if (!keeps_axes(node)) return cuda_plain_prepare(self, program, node, need, state);
  return cuda_follow_prepare(self, program, node, need, state);
}

static brim_status repeat(cuda_backend *b, const brim_launch *launch, bool is_mean)
{
  const brim_tensor *dy = launch->node->in[0], *dx = launch->node->out[0];
  const brim_shape kept = cuda_reduced_shape(&dx->shape, launch->node->attr.reduce.axes), one = {};
  const brim_shape *shape[2] = {&kept, &one};
  const bool keeps = keeps_axes(launch->node), last[2] = {keeps && cuda_channels_last(dy), false};
  const void *values = keeps ? launch->in[0] : cuda_plain_input(b, launch, 0);
  if (!values) return BRIM_EDEVICE;
  const int64_t count = brim_shape_count(&dx->shape);
  const double factor = is_mean ? (double)brim_shape_count(&kept) / (double)count : 1;
  const operand v[2] = {{values, 0, dy->dtype}, {nullptr, (float)factor, 0}};
  cuda_walk w;
  cuda_walk_init(&w, &dx->shape, cuda_channels_last(dx), shape, last);
  CUDA_WITH_TYPE(dx->dtype, T, return launch_combine<T, MUL>(b, (T *)launch->out[0], v, &w, count));
}

static CUDA_RUN(sum_grad_run)
{
  return repeat((cuda_backend *)self, launch, false);
}
BRIM_KERNEL(sum_grad) = {.op = "sum_grad", .prepare = repeat_prepare, .run = sum_grad_run};

static CUDA_RUN(mean_grad_run)
{
  return repeat((cuda_backend *)self, launch, true);
}
BRIM_KERNEL(mean_grad) = {.op = "mean_grad", .prepare = repeat_prepare, .run = mean_grad_run};
