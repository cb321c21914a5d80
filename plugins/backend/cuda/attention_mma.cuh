/* Shared code of attention and its gradient on tensor cores (see mma.cuh). Blocks of four warps have 64 rows, a warp 16
 * of them, and loop over tiles of columns: queries and keys, or the reverse. Heads are padded with zeros to 64, 96 or
 * 128 numbers. The next tile is copied to shared memory while a tile is computed, so there are two of each. */
#ifndef CUDA_ATTENTION_MMA_CUH
#define CUDA_ATTENTION_MMA_CUH
#include "attention.cuh"
#include "mma.cuh"

#define ATTENTION_MMA_ROWS 64
#define ATTENTION_LOG2E 1.44269504f /* log2(e): exponentials are powers of two here */
#define ATTENTION_LN2 0.693147181f

/* For nodes for which cuda_attention_takes_tensor_cores returns true. T: cuda_bf16 or cuda_f16. [step] */
template <typename T>
brim_status attention_mma(cuda_backend *b, const brim_launch *launch, const attention_sizes &a,
                          const attention_inputs<T> &in);
template <typename T>
brim_status attention_mma_grad(cuda_backend *b, const brim_launch *launch, const attention_sizes &a,
                               const attention_operands<T> &o);

/* Returns the row, within the block's rows, of the upper (0) or lower (1) half of a thread's sums. */
static __device__ inline int attention_mma_row(int half)
{
  return (int)threadIdx.x / CUDA_WARP * 16 + half * 8 + (int)threadIdx.x % CUDA_WARP / 4;
}
/* Returns the column, within the tile, of sum [j][e]; its row is that of half e / 2. */
static __device__ inline int attention_mma_column(int j, int e)
{
  return 8 * j + (int)threadIdx.x % 4 * 2 + e % 2;
}
static __device__ inline bool attention_mma_is_in(const tile_range<2> &range, int j, int e)
{
  const int column = attention_mma_column(j, e);
  return column >= range.low[e / 2] && column < range.high[e / 2];
}

/* Returns the score as an exponent of two, from q . k. */
template <bool LIMITED> static __device__ inline float attention_exponent(const attention_sizes &a, float product)
{
  return LIMITED ? ATTENTION_LOG2E * attention_cap<LIMITED>(a, a.scale * product)
                 : (ATTENTION_LOG2E * a.scale) * product;
}

/* Hides from the compiler that all tiles have the same key: otherwise it would keep the keys of all ten rounds, in 20
 * registers. */
static __device__ inline attention_dropout attention_mma_hidden(attention_dropout z)
{
#ifndef CUDA_EMULATED
  asm volatile("" : "+r"(z.key.k0), "+r"(z.key.k1));
#endif
  return z;
}

/* Dropout's mask of the warp's 16 rows and 8 N columns (N at most 8): bit 4 j + e belongs to sum [j][e]. Each lane
 * draws four neighbouring keys at a time. row, column: the first of the tile, counted in the sequences.   Rows of
 * queries: each lane draws four of 16 x 8 pairs. Two lanes have sums of the same keys; each draws these keys for one of
 * the two rows, and the lanes exchange the results. */
template <int N>
static __device__ inline unsigned attention_mma_kept_keys(const attention_sizes &a, const attention_dropout &each,
                                                          int64_t n, int64_t h, int64_t row, int64_t column)
{
  const attention_dropout z = attention_mma_hidden(each);
  const int c = (int)threadIdx.x % 4, shift = c % 2 * 2;
  const int64_t t = row + attention_mma_row(c % 2), e = (h * a.queries + t) * a.keys + column + c / 2 * 4;
  unsigned own = 0;
#pragma unroll 2
  for (int j = 0; j < N; j++) own |= attention_keep4(z, z.first_sample + n, e + 8 * j) << 4 * j;
  const unsigned theirs = __shfl_xor_sync(0xFFFFFFFFu, own, 1);
  const unsigned upper = c % 2 ? theirs : own, lower = c % 2 ? own : theirs;
  return (upper >> shift & 0x33333333u) | (lower >> shift & 0x33333333u) << 2;
}
/* Rows of keys: four lanes have sums of the same keys and queries. Each draws numbers for one half of the keys and one
 * query, and the lanes exchange the results. */
template <int N>
static __device__ inline unsigned attention_mma_kept_queries(const attention_sizes &a, const attention_dropout &each,
                                                             int64_t n, int64_t h, int64_t row, int64_t column)
{
  const attention_dropout z = attention_mma_hidden(each);
  const int lane = (int)threadIdx.x % CUDA_WARP, among = lane / 4 % 4;
  const int64_t s = row + attention_mma_row(among / 2) - among, t = column + attention_mma_column(0, among);
  unsigned own = 0, kept = 0;
#pragma unroll 2
  for (int j = 0; j < N; j++)
    own |= attention_keep4(z, z.first_sample + n, (h * a.queries + t + 8 * j) * a.keys + s) << 4 * j;
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const unsigned theirs = __shfl_sync(0xFFFFFFFFu, own, lane / 16 * 16 + e * 4 + lane % 4);
    kept |= (theirs >> among & 0x11111111u) << e;
  }
  return kept;
}

/* Starts LAUNCH<T, DEPTH, LIMITED>(...) for the node's heads and limits. */
#define ATTENTION_MMA_LAUNCH(LAUNCH, T, a, ...)                                                                        \
  do {                                                                                                                 \
    const bool limited_ = attention_is_limited(a);                                                                     \
    if ((a).size <= 64) return limited_ ? LAUNCH<T, 64, true>(__VA_ARGS__) : LAUNCH<T, 64, false>(__VA_ARGS__);        \
    if ((a).size <= 96) return limited_ ? LAUNCH<T, 96, true>(__VA_ARGS__) : LAUNCH<T, 96, false>(__VA_ARGS__);        \
    return limited_ ? LAUNCH<T, 128, true>(__VA_ARGS__) : LAUNCH<T, 128, false>(__VA_ARGS__);                          \
  } while (0)
#endif
