/* relu and its gradient. */
#include "kernel.cuh"

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS) relu_kernel(T *y, const T *x, int64_t count)
{
  constexpr int P = cuda_pack<T>::count;
  const int64_t whole = count / P;
  for (int64_t i = cuda_first(); i < whole; i += cuda_step_width()) {
    cuda_pack<T> v;
    v.load(x + i * P);
#pragma unroll
    for (int k = 0; k < P; k++) v.v[k] = v.v[k] < 0 ? 0 : v.v[k];
    v.store(y + i * P);
  }
  for (int64_t i = whole * P + cuda_first(); i < count; i += cuda_step_width()) {
    const float v = cuda_load(&x[i]);
    cuda_store(&y[i], v < 0 ? 0 : v);
  }
}

template <typename T> static brim_status launch_relu(cuda_backend *b, const brim_launch *l)
{
  const int64_t count = brim_shape_count(&l->node->out[0]->shape);
  return cuda_launch(b, relu_kernel<T>, cuda_stride(count, cuda_pack<T>::count, b->processors), (T *)l->out[0],
                     (const T *)l->in[0], count);
}

static CUDA_RUN(relu_run)
{
  CUDA_WITH_TYPE(launch->node->in[0]->dtype, T, return launch_relu<T>((cuda_backend *)self, launch));
}
BRIM_KERNEL(relu) = {.op = "relu", .prepare = cuda_follow_prepare, .run = relu_run};

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS) relu_grad_kernel(T *dx, const T *y, const T *dy, int64_t count)
{
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width())
    cuda_store(&dx[i], cuda_load(&y[i]) > 0 ? cuda_load(&dy[i]) : 0);
}

static CUDA_RUN(relu_grad_run)
{
  cuda_backend *b = (cuda_backend *)self;
  const int64_t count = brim_shape_count(&launch->node->out[0]->shape);
  const void *dy = cuda_same_order_input(b, launch, 1);
  if (!dy) return BRIM_EDEVICE;
  CUDA_WITH_TYPE(launch->node->in[0]->dtype, T,
                 return cuda_launch(b, relu_grad_kernel<T>, cuda_stride(count, 1, b->processors), (T *)launch->out[0],
                                    (const T *)launch->in[0], (const T *)dy, count));
}
BRIM_KERNEL(relu_grad) = {.op = "relu_grad", .prepare = cuda_same_order_prepare, .run = relu_grad_run};
