/* CUDA's device side on the host, for tests without a GPU: enough of the language that brim's kernels can be compiled
 * as C++ and run, with every thread of a block as a fiber.
 *
 * Blocks run one after another, and so do the warps of a block, each until all of its threads wait at a barrier. The
 * threads of a warp take turns too: each runs until it waits at a barrier or for the other lanes. The orders of blocks,
 * warps and threads are ascending, or with EMULATED_ORDER=<seed> shuffled, so that a kernel that lacks a barrier, or
 * whose blocks depend on each other, gives other numbers.
 *
 * A barrier that not all threads reach, lanes that wait for one that has ended, and an address that is not a multiple
 * of its type's alignment (-fsanitize=alignment) end the program with a message. Calls that CUDA refuses while a stream
 * is captured fail, and so does the capture. Streams run their work as late as their order and events allow;
 * EMULATED_STREAMS changes that (emulated.cpp). Not emulated: caches, memory consistency, speed. */
#ifndef EMULATED_H
#define EMULATED_H
#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>
#include <vector_types.h>

#include <functional>

#include "brim/status.h"
#include "geometry.h"

#undef __shared__
#define __shared__ static
#undef __global__
#define __global__
#undef __device__
#define __device__
#undef __host__
#define __host__
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#undef __restrict__
#define __restrict__ __restrict

#define EMULATED_THREADS_MAX 1024 /* of a block */
#define EMULATED_SHARED_BYTES_MAX (227 << 10)

enum emulated_state { EMULATED_READY, EMULATED_AT_BARRIER, EMULATED_AT_WARP, EMULATED_DONE };
typedef struct emulated_thread {
  uint3 index;
#define EMULATED_THREADS_MAX 1024 /* of a block */
#define EMULATED_SHARED_BYTES_MAX (227 << 10)

  enum emulated_state state;
  /* used when the lanes of a warp exchange values: */
  unsigned mask;
  int source; /* the lane to read; -1: a vote */
  uint64_t given, taken;
  struct emulated_fiber *fiber; /* the fiber that runs it, once it has begun */
} emulated_thread;
extern emulated_thread *emulated_self;
extern uint3 emulated_block_index;
extern dim3 emulated_block_size, emulated_grid_size;
#define threadIdx (emulated_self->index)
#define blockIdx emulated_block_index
#define blockDim emulated_block_size
#define gridDim emulated_grid_size

/* Number of kernels run so far, for tests, which find it with dlsym. */
extern "C" BRIM_EXPORT uint64_t emulated_kernels;

/* Puts a kernel into a stream. `body` runs one thread. */
brim_status emulated_launch(cudaStream_t stream, cuda_geometry g, const std::function<void()> &body);
/* Puts other work into a stream. */
void emulated_enqueue(cudaStream_t stream, std::function<void()> work);
/* Puts work into a stream that may have to wait for another process: the stream calls it again until it returns true.
 * Once there is such work, a thread advances the streams while the host is busy elsewhere, as a device does. */
void emulated_enqueue_until(cudaStream_t stream, std::function<bool()> work);
/* Allocates on the chosen device the memory that a library or a communicator's connections take; see EMULATED_TAKES. */
void emulated_load_library();
void emulated_connect(bool begins);
/* Runs a kernel now (emulated_threads.cpp). */
void emulated_run_grid(const cuda_geometry &g, const std::function<void()> &body);
void *cuda_dynamic_shared();
void __syncthreads();
/* Each lane of the mask gives a value and receives the value of lane `source`. In a vote it receives one bit of each
 * lane's value. */
uint64_t emulated_exchange(unsigned mask, uint64_t given, int source);

static inline int emulated_lane()
{
  return (int)(threadIdx.x % CUDA_WARP);
}
template <typename T> static inline T emulated_shuffle(unsigned mask, T value, int source)
{
  uint64_t bits = 0;
  static_assert(sizeof(T) <= sizeof bits, "too wide");
  memcpy(&bits, &value, sizeof value);
  bits = emulated_exchange(mask, bits, source);
  memcpy(&value, &bits, sizeof value);
  return value;
}
template <typename T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = CUDA_WARP)
{
  return emulated_shuffle(mask, value, emulated_lane() / width * width + source % width);
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = CUDA_WARP)
{
  const int source = emulated_lane() ^ lanes;
  return emulated_shuffle(mask, value, source / width == emulated_lane() / width ? source : emulated_lane());
}
template <typename T> static inline T __shfl_down_sync(unsigned mask, T value, int lanes, int width = CUDA_WARP)
{
  const int source = emulated_lane() + lanes;
  return emulated_shuffle(mask, value, source / width == emulated_lane() / width ? source : emulated_lane());
}
template <typename T> static inline T __shfl_up_sync(unsigned mask, T value, int lanes, int width = CUDA_WARP)
{
  const int source = emulated_lane() - lanes;
  return emulated_shuffle(mask, value,
                          source >= 0 && source / width == emulated_lane() / width ? source : emulated_lane());
}
static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
  return (unsigned)emulated_exchange(mask, predicate != 0, -1);
}
static inline int __any_sync(unsigned mask, int predicate)
{
  return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
  return __ballot_sync(mask, !predicate) == 0;
}
static inline void __syncwarp(unsigned mask = 0xFFFFFFFFu)
{
  emulated_exchange(mask, 0, emulated_lane());
}
static inline int __syncthreads_or(int predicate)
{
  static int any; /* of the running block */
  __syncthreads();
  if (threadIdx.x == 0) any = 0;
  __syncthreads();
  if (predicate) any = 1;
  __syncthreads();
  return any;
}
static inline void __threadfence() {}

template <typename T> static inline T atomicCAS(T *p, T expected, T value)
{
  const T old = *p;
  if (old == expected) *p = value;
  return old;
}
template <typename T> static inline T atomicAdd(T *p, T value)
{
  const T old = *p;
  *p = old + value;
  return old;
}
template <typename T> static inline T atomicMax(T *p, T value)
{
  const T old = *p;
  if (value > old) *p = value;
  return old;
}
template <typename T> static inline T atomicMin(T *p, T value)
{
  const T old = *p;
  if (value < old) *p = value;
  return old;
}
template <typename T> static inline T __ldcg(const T *p)
{
  return *p;
}
template <typename T> static inline T __ldg(const T *p)
{
  return *p;
}
static inline float rsqrtf(float x)
{
  return 1.0f / sqrtf(x);
}
static inline double rsqrt(double x)
{
  return 1.0 / sqrt(x);
}
/* Of pi * x. */
static inline void sincospi(double x, double *sine, double *cosine)
{
  const double angle = M_PI * remainder(x, 2);
  *sine = sin(angle);
  *cosine = cos(angle);
}
/* glibc has internal functions with these names. */
#define __expf expf
#define __logf logf
#define __powf powf
#define __sinf sinf
#define __cosf cosf
static inline float __fdividef(float x, float y)
{
  return x / y;
}
static inline float __fmaf_rn(float a, float b, float c)
{
  return fmaf(a, b, c);
}
/* The product and the sum are rounded separately, even if the compiler contracts expressions as nvcc does. */
static inline float __fmul_rn(float a, float b)
{
  volatile float product = a * b;
  return product;
}
static inline double __dmul_rn(double a, double b)
{
  volatile double product = a * b;
  return product;
}
static inline float __fadd_rn(float a, float b)
{
  return a + b;
}
template <typename To, typename From> static inline To emulated_bits(From value)
{
  To bits;
  static_assert(sizeof bits == sizeof value, "of one size");
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
static inline int __float_as_int(float x)
{
  return emulated_bits<int>(x);
}
static inline unsigned __float_as_uint(float x)
{
  return emulated_bits<unsigned>(x);
}
static inline float __int_as_float(int bits)
{
  return emulated_bits<float>(bits);
}
static inline float __uint_as_float(unsigned bits)
{
  return emulated_bits<float>(bits);
}
static inline int __ffs(int x)
{
  return __builtin_ffs(x);
}
static inline int __popc(unsigned x)
{
  return __builtin_popcount(x);
}
#define EMULATED_MIN_MAX(T)                                                                                            \
  static inline T min(T a, T b)                                                                                        \
  {                                                                                                                    \
    return b < a ? b : a;                                                                                              \
  }                                                                                                                    \
  static inline T max(T a, T b)                                                                                        \
  {                                                                                                                    \
    return a < b ? b : a;                                                                                              \
  }
EMULATED_MIN_MAX(int)
EMULATED_MIN_MAX(unsigned)
EMULATED_MIN_MAX(long)
EMULATED_MIN_MAX(unsigned long)
EMULATED_MIN_MAX(float)
EMULATED_MIN_MAX(double)
#endif
