/* Launch geometry: the division of a kernel's work into blocks and threads. Plain functions of sizes, tested on the
 * host. */
#ifndef CUDA_GEOMETRY_H
#define CUDA_GEOMETRY_H
#include <stddef.h>
#include <stdint.h>

#define CUDA_WARP 32
#define CUDA_THREADS 256 /* default number of threads of a block */

/* Arithmetic for kernels too. */
#ifdef __CUDACC__
#define CUDA_ANYWHERE static __host__ __device__ inline
#else
#define CUDA_ANYWHERE static inline
#endif

typedef struct cuda_geometry {
  unsigned blocks[3], threads; /* blocks[1], [2] at most 65535 */
  size_t shared_bytes;         /* dynamic shared memory of a block */
} cuda_geometry;

CUDA_ANYWHERE int64_t cuda_divide_up(int64_t a, int64_t b)
{
  return (a + b - 1) / b;
}
CUDA_ANYWHERE int64_t cuda_min(int64_t a, int64_t b)
{
  return a < b ? a : b;
}
CUDA_ANYWHERE int64_t cuda_max(int64_t a, int64_t b)
{
  return a > b ? a : b;
}
static inline uint64_t cuda_round_up(uint64_t bytes, uint64_t alignment)
{
  return (bytes + alignment - 1) / alignment * alignment;
}

/* For kernels whose threads stride over `count` items and take `per_thread` of them at a time. Returns enough blocks to
 * fill `processors` multiprocessors, at least one, and no block without work. */
static inline cuda_geometry cuda_stride(int64_t count, int64_t per_thread, int processors)
{
  const int64_t blocks = cuda_divide_up(cuda_divide_up(count, per_thread), CUDA_THREADS);
  const int64_t most = (int64_t)processors * 8; /* a multiprocessor holds at most 8 x 256 threads */
  cuda_geometry g = {{(unsigned)cuda_max(1, cuda_min(blocks, most)), 1, 1}, CUDA_THREADS, 0};
  return g;
}

/* Returns a block of `threads` for each of `count` rows. Blocks loop over rows if a grid cannot have that many. */
static inline cuda_geometry cuda_rows(int64_t count, unsigned threads)
{
  cuda_geometry g = {{(unsigned)cuda_max(1, cuda_min(count, 0x7FFFFFFF)), 1, 1}, threads, 0};
  return g;
}

/* Returns the threads of a block for a row of `length` items, `per_thread` at a time: whole warps, at most `most`. */
static inline unsigned cuda_row_threads(int64_t length, int64_t per_thread, unsigned most)
{
  const int64_t warps = cuda_divide_up(cuda_divide_up(length, per_thread), CUDA_WARP);
  return (unsigned)cuda_max(CUDA_WARP, cuda_min(warps * CUDA_WARP, most));
}
#endif
