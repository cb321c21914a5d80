/* Converts values from one storage type to another, rounded to nearest. Each element is read and written once, eight by
 * a thread, so that both sides move at least 16 bytes at a time. */
#include "kernel.cuh"

enum { PER_THREAD = 8 };

template <typename To, typename From>
static __global__ void __launch_bounds__(CUDA_THREADS) cast_kernel(To *y, const From *x, int64_t count)
{
  const int64_t whole = count / PER_THREAD;
  for (int64_t i = cuda_first(); i < whole; i += cuda_step_width()) {
    float v[PER_THREAD];
    constexpr int in = cuda_pack<From>::count, out = cuda_pack<To>::count;
#pragma unroll
    for (int k = 0; k < PER_THREAD; k += in) {
      cuda_pack<From> p;
      p.load(x + i * PER_THREAD + k);
#pragma unroll
      for (int j = 0; j < in; j++) v[k + j] = p.v[j];
    }
#pragma unroll
    for (int k = 0; k < PER_THREAD; k += out) {
      cuda_pack<To> p;
#pragma unroll
      for (int j = 0; j < out; j++) p.v[j] = v[k + j];
      p.store(y + i * PER_THREAD + k);
    }
  }
  for (int64_t i = whole * PER_THREAD + cuda_first(); i < count; i += cuda_step_width())
    cuda_store(&y[i], cuda_load(&x[i]));
}

template <typename To> static brim_status launch_cast(cuda_backend *b, const brim_launch *l)
{
  const int64_t count = brim_shape_count(&l->node->out[0]->shape);
  const cuda_geometry g = cuda_stride(count, PER_THREAD, b->processors);
  CUDA_WITH_TYPE(l->node->in[0]->dtype, From,
                 return cuda_launch(b, cast_kernel<To, From>, g, (To *)l->out[0], (const From *)l->in[0], count));
}

static CUDA_RUN(run)
{
  CUDA_WITH_TYPE(launch->node->out[0]->dtype, To, return launch_cast<To>((cuda_backend *)self, launch));
}
BRIM_KERNEL(cast) = {.op = "cast", .prepare = cuda_follow_prepare, .run = run};
