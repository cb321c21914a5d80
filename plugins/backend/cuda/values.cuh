/* Loads and stores of V values at once, converted to and from float. For kernels that are compiled for vectors (p is a
 * multiple of the bytes of V values, at most 16) and for single elements (V = 1). */
#ifndef CUDA_VALUES_CUH
#define CUDA_VALUES_CUH
#include "kernel.cuh"

template <int V, typename T> static __device__ inline void cuda_load_values(const T *p, float *v)
{
  if constexpr (V == 1) {
    v[0] = cuda_load(p);
  } else if constexpr (V >= cuda_pack<T>::count) {
#pragma unroll
    for (int i = 0; i < V; i += cuda_pack<T>::count) {
      cuda_pack<T> pack;
      pack.load(p + i);
#pragma unroll
      for (int k = 0; k < cuda_pack<T>::count; k++) v[i + k] = pack.v[k];
    }
  } else { /* half a pack: bf16 or fp16 values that are processed with fp32 values */
    static_assert(V * sizeof(T) == sizeof(uint2), "a vector of 8 bytes");
    const uint2 raw = *reinterpret_cast<const uint2 *>(p);
    T value[V];
    memcpy(value, &raw, sizeof raw);
#pragma unroll
    for (int k = 0; k < V; k++) v[k] = cuda_load(&value[k]);
  }
}

template <int V, typename T> static __device__ inline void cuda_store_values(T *p, const float *v)
{
  if constexpr (V == 1) {
    cuda_store(p, v[0]);
  } else {
    static_assert(V % cuda_pack<T>::count == 0, "whole packs");
#pragma unroll
    for (int i = 0; i < V; i += cuda_pack<T>::count) {
      cuda_pack<T> pack;
#pragma unroll
      for (int k = 0; k < cuda_pack<T>::count; k++) pack.v[k] = v[i + k];
      pack.store(p + i);
    }
  }
}
#endif
