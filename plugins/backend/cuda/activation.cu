/* Functions of single elements, and their gradients: y = f(x), and dx = dy f'(x), or f' as a function of y if possible
 * (arithmetic.h has the formulas, core/graph/ops/activation.c declares which is kept).
 *
 * A kernel takes the time of moving 2 or 3 times the tensor's bytes. So every thread moves 16 bytes at a time of each
 * tensor, neighbouring threads neighbouring bytes, in the order of memory. The function is a template argument, because
 * in bf16 and fp16 a branch for each element would take longer than the memory. A thread reads its elements before it
 * writes them, so y may overwrite x, and dx may overwrite dy or the kept tensor. */
#include "arithmetic.h"
#include "kernel.cuh"

template <typename T, int KIND>
static __global__ void __launch_bounds__(CUDA_THREADS) function_kernel(T *y, const T *x, float factor, int64_t count)
{
  constexpr int P = cuda_pack<T>::count;
  const cuda_activation a = {KIND, factor};
  const int64_t whole = count / P;
  for (int64_t i = cuda_first(); i < whole; i += cuda_step_width()) {
    cuda_pack<T> v;
    v.load(x + i * P);
#pragma unroll
    for (int k = 0; k < P; k++) v.v[k] = cuda_activate(a, v.v[k]);
    v.store(y + i * P);
  }
  for (int64_t i = whole * P + cuda_first(); i < count; i += cuda_step_width())
    cuda_store(&y[i], cuda_activate(a, cuda_load(&x[i])));
}

template <typename T, int KIND>
static __global__ void __launch_bounds__(CUDA_THREADS)
    gradient_kernel(T *dx, const T *kept, const T *dy, float factor, int64_t count)
{
  constexpr int P = cuda_pack<T>::count;
  const cuda_activation a = {KIND, factor};
  const int64_t whole = count / P;
  for (int64_t i = cuda_first(); i < whole; i += cuda_step_width()) {
    cuda_pack<T> v, d;
    v.load(kept + i * P);
    d.load(dy + i * P);
#pragma unroll
    for (int k = 0; k < P; k++) d.v[k] = cuda_activation_gradient(a, v.v[k], d.v[k]);
    d.store(dx + i * P);
  }
  for (int64_t i = whole * P + cuda_first(); i < count; i += cuda_step_width())
    cuda_store(&dx[i], cuda_activation_gradient(a, cuda_load(&kept[i]), cuda_load(&dy[i])));
}

template <int KIND> static brim_status function(cuda_backend *b, const brim_launch *l)
{
  const int64_t count = brim_shape_count(&l->node->out[0]->shape);
  const float factor = (float)l->node->attr.activation.factor;
  CUDA_WITH_TYPE(l->node->in[0]->dtype, T,
                 return cuda_launch(b, function_kernel<T, KIND>, cuda_stride(count, cuda_pack<T>::count, b->processors),
                                    (T *)l->out[0], (const T *)l->in[0], factor, count));
}

template <int KIND> static brim_status gradient(cuda_backend *b, const brim_launch *l)
{
  const int64_t count = brim_shape_count(&l->node->out[0]->shape);
  const brim_attr *attr = &l->node->attr;
  const float factor = (float)(KIND == CUDA_DROPPED_RELU ? 1 / (1 - attr->dropout.p) : attr->activation.factor);
  const void *dy = cuda_same_order_input(b, l, 1);
  if (!dy) return BRIM_EDEVICE;
  CUDA_WITH_TYPE(l->node->in[0]->dtype, T,
                 return cuda_launch(b, gradient_kernel<T, KIND>, cuda_stride(count, cuda_pack<T>::count, b->processors),
                                    (T *)l->out[0], (const T *)l->in[0], (const T *)dy, factor, count));
}

/* how: the template `function` or `gradient`. */
#define KERNEL(id, op_, how, kind, prepare_)                                                                           \
  static CUDA_RUN(id##_run)                                                                                            \
  {                                                                                                                    \
    return how<kind>((cuda_backend *)self, launch);                                                                    \
  }                                                                                                                    \
  BRIM_KERNEL(id) = {.op = op_, .prepare = prepare_, .run = id##_run}
#define FUNCTION(id, kind) KERNEL(id, #id, function, kind, cuda_follow_prepare)
#define GRADIENT(id, kind) KERNEL(id, #id, gradient, kind, cuda_same_order_prepare)
FUNCTION(relu, CUDA_RELU);
FUNCTION(leaky_relu, CUDA_LEAKY_RELU);
FUNCTION(silu, CUDA_SILU);
FUNCTION(sigmoid, CUDA_SIGMOID);
FUNCTION(tanh, CUDA_TANH);
FUNCTION(exp, CUDA_EXP);
FUNCTION(scale, CUDA_SCALE);
GRADIENT(relu_grad, CUDA_RELU);
KERNEL(dropout_relu_grad, "dropout+relu_grad", gradient, CUDA_DROPPED_RELU, cuda_same_order_prepare);
GRADIENT(leaky_relu_grad, CUDA_LEAKY_RELU);
GRADIENT(silu_grad, CUDA_SILU);
GRADIENT(sigmoid_grad, CUDA_SIGMOID);
GRADIENT(tanh_grad, CUDA_TANH);

/* An operation with three functions, one for each approximation. */
#define BY_APPROXIMATION(id, how, prepare_)                                                                            \
  static CUDA_RUN(id##_run)                                                                                            \
  {                                                                                                                    \
    cuda_backend *b = (cuda_backend *)self;                                                                            \
    switch (launch->node->attr.activation.approximate) {                                                               \
    case BRIM_GELU_TANH:                                                                                               \
      return how<CUDA_GELU_TANH>(b, launch);                                                                           \
    case BRIM_GELU_QUICK:                                                                                              \
      return how<CUDA_GELU_QUICK>(b, launch);                                                                          \
    default:                                                                                                           \
      return how<CUDA_GELU>(b, launch);                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  BRIM_KERNEL(id) = {.op = #id, .prepare = prepare_, .run = id##_run}
BY_APPROXIMATION(gelu, function, cuda_follow_prepare);
BY_APPROXIMATION(gelu_grad, gradient, cuda_same_order_prepare);
