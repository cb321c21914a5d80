/* Shared code of kernels: launching, loading and storing values, sums within a block.
 *
 * A kernel file opens with the math of its family, the bytes it moves, and the reasons for its design. A kernel must
 * give the same bits in every run: no floating-point atomics, and sums in an order that depends on shapes alone. It
 * computes in fp32 (sums of many values in double where it matters), whatever type the values are stored in. A kernel
 * reads values that change from step to step from cuda_control on the device, never from launch->step, because a
 * recorded program is launched repeatedly with the same arguments.
 *
 * tests/cuda/emulated builds this code a second time for the host, with CUDA_EMULATED: a block's threads run one after
 * another, and every kernel is tested without a GPU. Therefore shared memory is declared `__shared__` with a fixed size
 * or comes from cuda_dynamic_shared(), and kernels are started with cuda_launch(). */
#ifndef CUDA_KERNEL_CUH
#define CUDA_KERNEL_CUH
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#ifdef CUDA_EMULATED
#include "emulated.h"
#endif

#include "brim/random.h"
#include "cuda.h"

typedef __nv_bfloat16 cuda_bf16;
typedef __half cuda_f16;

/* ---- launching ---- */

/* Starts a kernel on the compute stream: cuda_launch(b, relu_kernel<float>, geometry, x, y, count). */
template <typename... P, typename... A>
static inline brim_status cuda_launch(cuda_backend *b, void (*kernel)(P...), cuda_geometry g, A... args)
{
  if (cuda_counts(b)) return BRIM_OK;
  BRIM_TRY(cuda_check(CUDA_CALL("kernel", cudaSuccess), "launching a kernel"));
#ifdef CUDA_EMULATED
  return emulated_launch(b->compute, g, [=] { kernel(static_cast<P>(args)...); });
#else
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(g.blocks[0], g.blocks[1], g.blocks[2]);
  config.blockDim = dim3(g.threads);
  config.dynamicSmemBytes = g.shared_bytes;
  config.stream = b->compute;
  if (g.shared_bytes > 48 * 1024) { /* more than 48 KiB must be requested */
    BRIM_TRY(cuda_check(cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)g.shared_bytes),
                        "requesting shared memory"));
  }
  return cuda_check(cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...), "launching a kernel");
#endif
}

/* Start a copy within the device, and fill memory with zeros, on the compute stream. */
static inline brim_status cuda_copy(cuda_backend *b, void *to, const void *from, uint64_t bytes, const char *what)
{
  if (cuda_counts(b)) return BRIM_OK;
  return cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, b->compute), what);
}
static inline brim_status cuda_zero(cuda_backend *b, void *to, uint64_t bytes, const char *what)
{
  if (cuda_counts(b)) return BRIM_OK;
  return cuda_check(cudaMemsetAsync(to, 0, bytes, b->compute), what);
}

#ifndef CUDA_EMULATED
/* Returns the block's dynamic shared memory, 16-byte aligned. */
static __device__ inline void *cuda_dynamic_shared()
{
  extern __shared__ float4 cuda_dynamic_shared_memory[];
  return cuda_dynamic_shared_memory;
}
#endif

/* Calls f with a value of the storage type of dtype: CUDA_WITH_TYPE(x->dtype, T, return launch_relu<T>(b, launch)). */
#define CUDA_WITH_TYPE(dtype_, T, ...)                                                                                 \
  do {                                                                                                                 \
    if ((dtype_) == BRIM_DTYPE_BF16) {                                                                                 \
      using T = cuda_bf16;                                                                                             \
      __VA_ARGS__;                                                                                                     \
    } else if ((dtype_) == BRIM_DTYPE_F16) {                                                                           \
      using T = cuda_f16;                                                                                              \
      __VA_ARGS__;                                                                                                     \
    } else {                                                                                                           \
      using T = float;                                                                                                 \
      __VA_ARGS__;                                                                                                     \
    }                                                                                                                  \
  } while (0)

/* ---- values ---- */

static __device__ inline float cuda_load(const float *p)
{
  return *p;
}
static __device__ inline float cuda_load(const cuda_bf16 *p)
{
  return __bfloat162float(*p);
}
static __device__ inline float cuda_load(const cuda_f16 *p)
{
  return __half2float(*p);
}
/* Rounds to nearest. Too large values become infinite, which the loss scale depends on (brim_step). */
static __device__ inline void cuda_store(float *p, float value)
{
  *p = value;
}
static __device__ inline void cuda_store(cuda_bf16 *p, float value)
{
  *p = __float2bfloat16_rn(value);
}
static __device__ inline void cuda_store(cuda_f16 *p, float value)
{
  *p = __float2half_rn(value);
}

/* 16 bytes of values, loaded and stored at once from an address that is a multiple of 16. */
template <typename T> struct cuda_pack {
  static constexpr int count = 16 / (int)sizeof(T);
  float v[count];

  __device__ inline void load(const T *p)
  {
    const uint4 raw = *reinterpret_cast<const uint4 *>(p);
    T value[count];
    memcpy(value, &raw, 16);
#pragma unroll
    for (int i = 0; i < count; i++) v[i] = cuda_load(&value[i]);
  }
  __device__ inline void store(T *p) const
  {
    T value[count];
    uint4 raw;
#pragma unroll
    for (int i = 0; i < count; i++) cuda_store(&value[i], v[i]);
    memcpy(&raw, value, 16);
    *reinterpret_cast<uint4 *>(p) = raw;
  }
};

/* For grid-stride loops: the thread's index among all threads of a one-dimensional grid, and the number of threads. */
static __device__ inline int64_t cuda_first()
{
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ inline int64_t cuda_step_width()
{
  return (int64_t)gridDim.x * blockDim.x;
}

/* ---- sums within a warp and a block ---- */

/* Returns the sum over the warp's 32 lanes, to every lane; always adds in the same order. T: float, double, int. */
template <typename T> static __device__ inline T cuda_warp_sum(T value)
{
#pragma unroll
  for (int lane = CUDA_WARP / 2; lane > 0; lane /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, lane);
  return value;
}
/* Returns the maximum; NaN if either is NaN. */
static __device__ inline float cuda_greater(float a, float b)
{
  return a > b || a != a ? a : b;
}
static __device__ inline float cuda_warp_max(float value)
{
#pragma unroll
  for (int lane = CUDA_WARP / 2; lane > 0; lane /= 2)
    value = cuda_greater(value, __shfl_xor_sync(0xFFFFFFFFu, value, lane));
  return value;
}
/* Returns the sum over the block, whose size is a multiple of 32, at most 1024. All threads must call it, and all get
 * the result. It may be called again at once. */
template <typename T> static __device__ inline T cuda_block_sum(T value)
{
  __shared__ T part[CUDA_WARP];
  const int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP, warps = blockDim.x / CUDA_WARP;
  value = cuda_warp_sum(value);
  if (lane == 0) part[warp] = value;
  __syncthreads();
  value = cuda_warp_sum(lane < warps ? part[lane] : T(0));
  __syncthreads();
  return value;
}
static __device__ inline float cuda_block_max(float value)
{
  __shared__ float part[CUDA_WARP];
  const int lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP, warps = blockDim.x / CUDA_WARP;
  value = cuda_warp_max(value);
  if (lane == 0) part[warp] = value;
  __syncthreads();
  value = cuda_warp_max(lane < warps ? part[lane] : part[0]);
  __syncthreads();
  return value;
}

/* ---- sums of blocks ---- */

/* For a kernel whose blocks write parts of sums. The block that ends last adds up the parts, always in the same order,
 * so no second launch is needed. All threads of a block must call this function once. It returns whether the block is
 * the last of `blocks` blocks with this ticket. If so, the block can read the others' parts with __ldcg; the
 * first-level cache may hold older values. */
static __device__ inline bool cuda_last_block(cuda_control *control, unsigned ticket, unsigned blocks)
{
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(&control->ticket[ticket], 1u) == blocks - 1;
    if (last) control->ticket[ticket] = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

/* ---- reports of kernels ---- */

/* Reports an index out of range. The first report is kept and becomes the run's error. `sample`: the sample's index in
 * the micro-batch; `node`: (uint64_t)launch->node. */
static __device__ inline void cuda_report_fault(cuda_control *control, uint64_t node, enum cuda_fault_kind kind,
                                                int64_t sample, int32_t value, int64_t limit)
{
  if (atomicCAS(&control->flags.fault.set, 0, (int32_t)kind) != 0) return;
  control->flags.fault.value = value;
  control->flags.fault.sample = sample;
  control->flags.fault.limit = limit;
  control->flags.fault.node = node;
}
static __device__ inline void cuda_report(cuda_control *control, uint64_t node, int64_t sample, int32_t value,
                                          int64_t limit)
{
  cuda_report_fault(control, node, CUDA_FAULT_INDEX, sample, value, limit);
}
/* Reports a label that is not below `classes`, in the same way. */
static __device__ inline void cuda_report_label(cuda_control *control, uint64_t node, int64_t sample, int32_t label,
                                                int64_t classes)
{
  cuda_report_fault(control, node, CUDA_FAULT_LABEL, sample, label, classes);
}

/* Returns whether this kernel must not change persistent values (parameters, optimizer states, averages). */
static __device__ inline bool cuda_refused(const cuda_control *control)
{
  return control->proved && control->flags.refused;
}
#endif
