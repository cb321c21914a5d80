/* Teams of threads that share a row: a warp, or a block if WIDE. */
#ifndef CUDA_TEAM_CUH
#define CUDA_TEAM_CUH
#include "kernel.cuh"

typedef struct cuda_team {
  int64_t row, step; /* the team's first row; the distance to its next row */
  int lane, lanes;
} cuda_team;

template <bool WIDE> static __device__ inline cuda_team cuda_my_team()
{
  if (WIDE) return {(int64_t)blockIdx.x, (int64_t)gridDim.x, (int)threadIdx.x, (int)blockDim.x};
  const int warps = blockDim.x / CUDA_WARP;
  return {(int64_t)blockIdx.x * warps + threadIdx.x / CUDA_WARP, (int64_t)gridDim.x * warps,
          (int)(threadIdx.x % CUDA_WARP), CUDA_WARP};
}
template <bool WIDE, typename T> static __device__ inline T cuda_team_sum(T value)
{
  if constexpr (WIDE)
    return cuda_block_sum(value);
  else
    return cuda_warp_sum(value);
}
template <bool WIDE> static __device__ inline float cuda_team_max(float value)
{
  if constexpr (WIDE)
    return cuda_block_max(value);
  else
    return cuda_warp_max(value);
}

/* Returns whether `value` replaces `best` in a search for the first greatest value. NaN is greater than every number,
 * and the first NaN stays. */
static __device__ inline bool cuda_is_greater(float value, float best)
{
  return value > best || (value != value && best == best);
}
/* Returns whether class k ranks before the label, whose logit is `own`. */
static __device__ inline bool cuda_is_before(float value, int64_t k, float own, int64_t label)
{
  return cuda_is_greater(value, own) || (k < label && !cuda_is_greater(own, value));
}
#endif
