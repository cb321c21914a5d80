/* to = f(from + bias) and, if needed, kept = from + bias, for a library's results. It moves 2 or 3 times the bytes of
 * these results, most of which are still in the L2 cache. */
#include "epilogue.h"

#include "kernel.cuh"

/* Returns the channel of value i. Divides in 32 bits if it can, because 64 bits take far longer. */
static __device__ inline int64_t channel_of(int64_t i, int64_t channels, int64_t inner)
{
  if (i <= 0xFFFFFFFF) return (uint32_t)i / (uint32_t)inner % (uint32_t)channels;
  return i / inner % channels;
}

/* With a bias, packs are used only if each lies within one channel or one row of channels (see packs_fit). */
template <typename T, typename B>
static __global__ void __launch_bounds__(CUDA_THREADS)
    epilogue_kernel(T *to, T *kept, const T *from, const B *__restrict__ bias, int64_t whole, int64_t count,
                    int64_t channels, int64_t inner, cuda_activation f)
{
  constexpr int P = cuda_pack<T>::count;
  for (int64_t i = cuda_first(); i < whole; i += cuda_step_width()) {
    cuda_pack<T> v;
    v.load(from + i * P);
    if (bias) {
      const int64_t c = channel_of(i * P, channels, inner);
#pragma unroll
      for (int k = 0; k < P; k++) v.v[k] += cuda_load(&bias[inner == 1 ? c + k : c]);
    }
    if (kept) v.store(kept + i * P);
#pragma unroll
    for (int k = 0; k < P; k++) v.v[k] = cuda_activate(f, v.v[k]);
    v.store(to + i * P);
  }
  for (int64_t i = whole * P + cuda_first(); i < count; i += cuda_step_width()) {
    const float v = cuda_load(&from[i]) + (bias ? cuda_load(&bias[channel_of(i, channels, inner)]) : 0);
    if (kept) cuda_store(&kept[i], v);
    cuda_store(&to[i], cuda_activate(f, v));
  }
}

/* Whether no pack crosses the end of a channel's `inner` values, or of a row if channels come last. */
static bool packs_fit(const cuda_epilogue *v, int64_t pack)
{
  if (!v->bias) return true;
  return v->inner == 1 ? v->channels % pack == 0 : v->inner % pack == 0;
}

template <typename T, typename B> static brim_status launch(cuda_backend *b, const cuda_epilogue *v)
{
  constexpr int P = cuda_pack<T>::count;
  const int64_t whole = packs_fit(v, P) ? v->count / P : 0;
  return cuda_launch(b, epilogue_kernel<T, B>, cuda_stride(v->count, whole > 0 ? P : 1, b->processors), (T *)v->to,
                     (T *)v->kept, (const T *)v->from, (const B *)v->bias, whole, v->count, v->channels, v->inner,
                     v->activation);
}

extern "C" brim_status cuda_epilogue_run(cuda_backend *b, const cuda_epilogue *epilogue)
{
  CUDA_WITH_TYPE(epilogue->dtype, T, CUDA_WITH_TYPE(epilogue->bias_dtype, B, return launch<T, B>(b, epilogue)));
}

template <typename From, typename To>
static __global__ void __launch_bounds__(CUDA_THREADS) convert_kernel(To *to, const From *from, int64_t count)
{
  for (int64_t i = cuda_first(); i < count; i += cuda_step_width()) cuda_store(&to[i], cuda_load(&from[i]));
}

extern "C" brim_status cuda_convert(cuda_backend *b, uint32_t from_dtype, const void *from, uint32_t to_dtype, void *to,
                                    int64_t count)
{
  const cuda_geometry g = cuda_stride(count, 1, b->processors);
  CUDA_WITH_TYPE(
      from_dtype, From,
      CUDA_WITH_TYPE(to_dtype, To,
                     return cuda_launch(b, convert_kernel<From, To>, g, (To *)to, (const From *)from, count)));
}
