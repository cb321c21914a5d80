/* Shared code of the norms. */
#ifndef CUDA_NORM_CUH
#define CUDA_NORM_CUH
#include "arithmetic.h"
#include "kernel.cuh"
#include "norm_geometry.h"
#include "team.cuh"
#include "values.cuh"

/* Loads W values, or `count` values of a tensor's last pack. */
template <int W, typename T> static __device__ inline void load_some(float *v, const T *p, int count)
{
  if (count == W) {
    cuda_load_values<W>(p, v);
    return;
  }
#pragma unroll
  for (int k = 0; k < W - 1; k++)
    if (k < count) v[k] = cuda_load(p + k);
}
template <int W, typename T> static __device__ inline void store_some(T *p, const float *v, int count)
{
  if (count == W) {
    cuda_store_values<W>(p, v);
    return;
  }
#pragma unroll
  for (int k = 0; k < W - 1; k++)
    if (k < count) cuda_store(p + k, v[k]);
}

/* Returns the value rounded to the type T, as a second operation would read it. */
template <typename T> static __device__ inline float rounded(float value)
{
  T stored;
  cuda_store(&stored, value);
  return cuda_load(&stored);
}
template <typename T> static __device__ inline float rectified(float value)
{
  return cuda_activate({CUDA_RELU, 0}, rounded<T>(value));
}

/* Teams are warps or blocks. These functions return the index of the thread's team in the grid, the number of teams,
 * the thread's place in its team, and the team's size. */
template <bool WARP> static __device__ inline int64_t team_index()
{
  return WARP ? cuda_first() / CUDA_WARP : blockIdx.x;
}
template <bool WARP> static __device__ inline int64_t team_count()
{
  return WARP ? cuda_step_width() / CUDA_WARP : gridDim.x;
}
template <bool WARP> static __device__ inline int team_lane()
{
  return WARP ? threadIdx.x % CUDA_WARP : threadIdx.x;
}
template <bool WARP> static __device__ inline int team_size()
{
  return WARP ? CUDA_WARP : (int)blockDim.x;
}

/* Defines W, the values of type T that are loaded at once: CUDA_WITH_WIDTH(wide, T, W, return launch_it<T, W>(...)). */
#define CUDA_WITH_WIDTH(wide_, T, W, ...)                                                                              \
  do {                                                                                                                 \
    if (wide_) {                                                                                                       \
      constexpr int W = cuda_pack<T>::count;                                                                           \
      __VA_ARGS__;                                                                                                     \
    } else {                                                                                                           \
      constexpr int W = 1;                                                                                             \
      __VA_ARGS__;                                                                                                     \
    }                                                                                                                  \
  } while (0)

static inline int64_t pack_of(uint32_t dtype)
{
  return 16 / brim_dtype_bytes(dtype);
}
#endif
