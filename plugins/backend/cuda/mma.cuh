/* Products on tensor cores in bf16 and fp16, with fp32 sums: mma.sync m16n8k16 of compute capability 8.0.
 *
 * A warp multiplies A, 16 rows of 16 numbers, by B, 16 x 8. A thread holds a part of each matrix, a fragment. A
 * register of 32 bits has two neighbouring numbers of A or B (PTX: "Matrix fragments for mma.m16n8k16 with floating
 * point type"). With g = lane / 4 and c = lane % 4:
 *
 *     A     register 0: row g, columns 2c and 2c + 1;    1: row g + 8;    2 and 3: the same rows, columns 8 further on
 *     B     register 0: rows 2c and 2c + 1, column g;    1: rows 8 further on
 *     sum   0 and 1: row g, columns 2c and 2c + 1;       2 and 3: row g + 8
 *
 * So the rounded sums of two neighbouring products are the fragment of a 16 x 16 matrix A: the next product can use the
 * result of the previous one without exchange between lanes.
 *
 * A tile in shared memory has rows of DEPTH numbers and eight more, so that the eight rows of 16 bytes that a load of
 * fragments reads at a time are in different banks. Tiles are filled by asynchronous copies of 16 bytes, which do not
 * pass through registers.
 *
 * Each function is one instruction on a device; tests/cuda/emulated/emulated_mma.h does the same on the host. */
#ifndef CUDA_MMA_CUH
#define CUDA_MMA_CUH
#include <type_traits>

#include "kernel.cuh"
#ifdef CUDA_EMULATED
#include "emulated_mma.h"
#endif

#define MMA_PAD 8 /* numbers after each row of a tile */

/* sum += A B. */
template <typename T>
static __device__ inline void mma_add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
#ifdef CUDA_EMULATED
  emulated_mma<T>(sum, a, b0, b1);
#else
  if constexpr (std::is_same_v<T, cuda_bf16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

/* Loads four matrices of 8 x 8 numbers. Register i of a thread gets row g, columns 2c and 2c + 1 of matrix i; if
 * TURNED, it gets rows 2c and 2c + 1 of column g. Lane l passes the address of row l % 8 of matrix l / 8. */
template <bool TURNED, typename T> static __device__ inline void mma_load(uint32_t (&r)[4], const T *row)
{
#ifdef CUDA_EMULATED
  emulated_load_matrices(r, row, TURNED);
#else
  const unsigned at = (unsigned)__cvta_generic_to_shared(row);
  if constexpr (TURNED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
#endif
}

/* Starts a copy of BYTES (4 or 16) to shared memory, or of zeros if `is` is false. It has ended after this thread's
 * mma_wait. */
template <int BYTES> static __device__ inline void mma_copy(void *to, const void *from, bool is)
{
#ifdef CUDA_EMULATED
  emulated_copy_later(to, from, BYTES, is);
#else
  const unsigned at = (unsigned)__cvta_generic_to_shared(to);
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(is ? 16 : 0) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(BYTES), "r"(is ? BYTES : 0)
                 : "memory");
#endif
}
static __device__ inline void mma_wait()
{
#ifdef CUDA_EMULATED
  emulated_wait_copies();
#else
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* Returns 2^x, within two units in the last place; 0 for -infinity. */
static __device__ inline float mma_exp2(float x)
{
#ifdef CUDA_EMULATED
  return exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

/* Returns two numbers as a register of a fragment. */
template <typename T> static __device__ inline uint32_t mma_pair(float first, float second)
{
  T value[2];
  uint32_t raw;
  cuda_store(&value[0], first);
  cuda_store(&value[1], second);
  memcpy(&raw, value, sizeof raw);
  return raw;
}

/* ---- tiles ---- */

/* A block of THREADS starts copying the first `width` numbers of each of COUNT rows, which are `stride` apart. Only
 * `rows` rows exist; the rest of the tile becomes 0. Rows start at multiples of 16 bytes; width is a multiple of 8. */
template <int DEPTH, int COUNT, int THREADS, typename T>
static __device__ inline void mma_copy_tile(T *tile, const T *from, int64_t stride, int64_t rows, int width)
{
  constexpr int LANES = DEPTH <= 64 ? 8 : 16, STEP = THREADS / LANES; /* LANES: threads per row; STEP: rows at a time */
  const int first = (int)threadIdx.x / LANES, d = (int)threadIdx.x % LANES * 8;
  static_assert(COUNT % STEP == 0 && DEPTH % 16 == 0, "whole steps");
  if (d >= DEPTH) return;
  from += first * stride + d;
  tile += first * (DEPTH + MMA_PAD) + d;
#pragma unroll
  for (int i = 0; i < COUNT; i += STEP) {
    mma_copy<16>(tile + i * (DEPTH + MMA_PAD), from, first + i < rows && d < width);
    from += STEP * stride;
  }
}

/* These functions load fragments of a tile, from (row, d) on. mma_load_a: an A of 16 x 16. mma_load_columns: two Bs
 * whose columns are rows row .. row + 15 of the tile, and whose rows are d .. d + 15. mma_load_rows: two Bs whose rows
 * are rows of the tile, and whose columns are d .. d + 15. Registers 0 and 1 hold the first B. */
template <int DEPTH, typename T>
static __device__ inline void mma_load_a(uint32_t (&a)[4], const T *tile, int row, int d)
{
  const int lane = (int)threadIdx.x % CUDA_WARP;
  mma_load<false>(a, tile + (row + lane % 16) * (DEPTH + MMA_PAD) + d + lane / 16 * 8);
}
template <int DEPTH, typename T>
static __device__ inline void mma_load_columns(uint32_t (&b)[4], const T *tile, int row, int d)
{
  const int lane = (int)threadIdx.x % CUDA_WARP;
  mma_load<false>(b, tile + (row + lane / 16 * 8 + lane % 8) * (DEPTH + MMA_PAD) + d + lane / 8 % 2 * 8);
}
template <int DEPTH, typename T>
static __device__ inline void mma_load_rows(uint32_t (&b)[4], const T *tile, int row, int d)
{
  const int lane = (int)threadIdx.x % CUDA_WARP;
  mma_load<true>(b, tile + (row + lane % 16) * (DEPTH + MMA_PAD) + d + lane / 16 * 8);
}

/* ---- products of a warp's 16 rows ---- */

/* sum[row][column] += a[row] . b[column], for the rows of a from `row` on and 8 N rows of b. */
template <typename T, int DEPTH, int N>
static __device__ inline void mma_dot(float (&sum)[N][4], const T *a, int row, const T *b)
{
#pragma unroll
  for (int d = 0; d < DEPTH; d += 16) {
    uint32_t left[4], right[4];
    mma_load_a<DEPTH>(left, a, row, d);
#pragma unroll
    for (int j = 0; j < N; j += 2) {
      mma_load_columns<DEPTH>(right, b, 8 * j, d);
      mma_add<T>(sum[j], left, right[0], right[1]);
      mma_add<T>(sum[j + 1], left, right[2], right[3]);
    }
  }
}

/* Rounds the sums of columns 16 i .. 16 i + 15 to a fragment A. */
template <typename T, int N> static __device__ inline void mma_narrow(uint32_t (&a)[4], const float (&sum)[N][4], int i)
{
  a[0] = mma_pair<T>(sum[2 * i][0], sum[2 * i][1]);
  a[1] = mma_pair<T>(sum[2 * i][2], sum[2 * i][3]);
  a[2] = mma_pair<T>(sum[2 * i + 1][0], sum[2 * i + 1][1]);
  a[3] = mma_pair<T>(sum[2 * i + 1][2], sum[2 * i + 1][3]);
}

/* sum[row][d] += sum over columns of p[row][column] * b[column][d]. p is rounded. */
template <typename T, int DEPTH, int N>
static __device__ inline void mma_combine(float (&sum)[DEPTH / 8][4], const float (&p)[N][4], const T *b)
{
#pragma unroll
  for (int i = 0; i < N / 2; i++) {
    uint32_t left[4], right[4];
    mma_narrow<T>(left, p, i);
#pragma unroll
    for (int d = 0; d < DEPTH; d += 16) {
      mma_load_rows<DEPTH>(right, b, 16 * i, d);
      mma_add<T>(sum[d / 8], left, right[0], right[1]);
      mma_add<T>(sum[d / 8 + 1], left, right[2], right[3]);
    }
  }
}
/* Does the work of mma_combine for p and q together, so that b is read once. */
template <typename T, int DEPTH, int N>
static __device__ inline void mma_combine_both(float (&sum)[DEPTH / 8][4], const float (&p)[N][4],
                                               float (&other)[DEPTH / 8][4], const float (&q)[N][4], const T *b)
{
#pragma unroll
  for (int i = 0; i < N / 2; i++) {
    uint32_t left[4], second[4], right[4];
    mma_narrow<T>(left, p, i);
    mma_narrow<T>(second, q, i);
#pragma unroll
    for (int d = 0; d < DEPTH; d += 16) {
      mma_load_rows<DEPTH>(right, b, 16 * i, d);
      mma_add<T>(sum[d / 8], left, right[0], right[1]);
      mma_add<T>(sum[d / 8 + 1], left, right[2], right[3]);
      mma_add<T>(other[d / 8], second, right[0], right[1]);
      mma_add<T>(other[d / 8 + 1], second, right[2], right[3]);
    }
  }
}

/* Stores a thread's part of a row of sums times `factor`. half: 0 for row g, 1 for row g + 8. width: as in
 * mma_copy_tile. */
template <typename T, int N>
static __device__ inline void mma_store_row(T *to, const float (&sum)[N][4], int half, float factor, int width)
{
#pragma unroll
  for (int j = 0; j < N; j++) {
    const uint32_t pair = mma_pair<T>(sum[j][2 * half] * factor, sum[j][2 * half + 1] * factor);
    if (8 * j < width) *reinterpret_cast<uint32_t *>(to + 8 * j + (int)threadIdx.x % 4 * 2) = pair;
  }
}

/* Reduce a value over the four lanes of a row. The maximum ignores NaN. */
static __device__ inline float mma_row_sum(float value)
{
  value += __shfl_xor_sync(0xFFFFFFFFu, value, 2);
  return value + __shfl_xor_sync(0xFFFFFFFFu, value, 1);
}
static __device__ inline float mma_row_max(float value)
{
  value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 2));
  return fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 1));
}
#endif
