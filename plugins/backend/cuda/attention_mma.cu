/* Attention on tensor cores, in bf16 and fp16: the formulas, and the order of blocks, of attention.cu.
 *
 * Each pair of query and key takes 4 D multiply-adds of 16-bit numbers, an exponential and, with dropout, a quarter of
 * ten rounds of Philox. With heads of 64 that quarter, about 20 instructions, takes longer than the products. So each
 * mask is drawn once, and no lane repeats the draws of another.
 *
 * q stays in registers, and scores, weights and sums never leave them. Weights are rounded before they multiply v;
 * their sum is not. Dropout's factor multiplies the result.
 *
 * Masked keys have the weight 0, but they take part in the products of a tile that some query sees in part. So a key
 * that is not finite spreads NaN to queries of its tile (brim/ops.h allows that in 16 bits). */
#include "attention_mma.cuh"

template <int DEPTH_, bool LIMITED_> struct cut {
  static constexpr int DEPTH = DEPTH_, COLUMNS = 64, N = COLUMNS / 8, TILE = COLUMNS * (DEPTH + MMA_PAD);
  static constexpr bool LIMITED = LIMITED_;
  /* Blocks on a multiprocessor, so that a thread has at most 255 or 168 registers. */
  static constexpr int BLOCKS = DEPTH > 64 ? 2 : 3;
};

template <typename X> struct result {
  float sum[X::DEPTH / 8][4];
  float greatest[2]; /* the greatest of the exponents so far, or -infinity */
  float total[2];    /* the sum of the weights before dropout, over the columns of this lane */
};

struct place {
  int first, sample, head; /* 32 bits, to save registers */
};

/* Shared memory has two tiles of k and two of v. */
template <typename T, typename X> static __device__ inline T *tile_of(int stage, bool is_value)
{
  return static_cast<T *>(cuda_dynamic_shared()) + (2 * stage + is_value) * X::TILE;
}

template <typename T, typename X>
static __device__ inline void load(const attention_sizes &a, const place &at, int key, int stage,
                                   const attention_inputs<T> &in)
{
  const int64_t from = attention_key(a, at.sample, at.head / (a.heads / a.kv_heads), key);
  mma_copy_tile<X::DEPTH, X::COLUMNS, TILE_THREADS>(tile_of<T, X>(stage, false), in.k + from, a.k_stride, a.keys - key,
                                                    a.size);
  mma_copy_tile<X::DEPTH, X::COLUMNS, TILE_THREADS>(tile_of<T, X>(stage, true), in.v + from, a.k_stride, a.keys - key,
                                                    a.size);
}

/* Turns a tile's products into weights, and rescales the sums so far. ranged: some rows do not see the whole tile. */
template <typename X>
static __device__ inline void weigh(const attention_sizes &a, bool ranged, const tile_range<2> &range,
                                    float (&score)[X::N][4], result<X> *r)
{
#pragma unroll
  for (int j = 0; j < X::N; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      score[j][e] = attention_exponent<X::LIMITED>(a, score[j][e]);
      if (ranged && !attention_mma_is_in(range, j, e)) score[j][e] = -INFINITY;
    }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float greatest = r->greatest[half];
#pragma unroll
    for (int j = 0; j < X::N; j++) greatest = fmaxf(greatest, fmaxf(score[j][2 * half], score[j][2 * half + 1]));
    greatest = mma_row_max(greatest);
    const float base = greatest == -INFINITY ? 0 : greatest; /* no score yet */
    const float shrink = mma_exp2(r->greatest[half] - base);
    r->greatest[half] = greatest;
    r->total[half] *= shrink;
#pragma unroll
    for (int d = 0; d < X::DEPTH / 8; d++) {
      r->sum[d][2 * half] *= shrink;
      r->sum[d][2 * half + 1] *= shrink;
    }
#pragma unroll
    for (int j = 0; j < X::N; j++)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; e++) r->total[half] += score[j][e] = mma_exp2(score[j][e] - base);
  }
}

template <typename T, typename X>
static __device__ inline void add_tile(const attention_sizes &a, const attention_dropout &z, const place &at, int key,
                                       bool ranged, int stage, const uint32_t (&q)[X::DEPTH / 16][4], result<X> *r)
{
  const T *k = tile_of<T, X>(stage, false);
  float score[X::N][4] = {};
  tile_range<2> range = {};
  unsigned kept = ~0u; /* dropout's mask is drawn now, while few registers are in use */
  if (a.dropout_p > 0) kept = attention_mma_kept_keys<X::N>(a, z, at.sample, at.head, at.first, key);
#pragma unroll
  for (int d = 0; d < X::DEPTH / 16; d++)
#pragma unroll
    for (int j = 0; j < X::N; j += 2) {
      uint32_t right[4];
      mma_load_columns<X::DEPTH>(right, k, 8 * j, 16 * d);
      mma_add<T>(score[j], q[d], right[0], right[1]);
      mma_add<T>(score[j + 1], q[d], right[2], right[3]);
    }
#pragma unroll
  for (int half = 0; half < 2 && ranged; half++) {
    const int64_t t = at.first + attention_mma_row(half);
    range.low[half] = (int)cuda_max(0, attention_low<X::LIMITED>(a, at.sample, t) - key);
    range.high[half] = (int)cuda_min(X::COLUMNS, attention_high<X::LIMITED>(a, at.sample, t) - key);
  }
  weigh<X>(a, ranged, range, score, r);
  if (a.dropout_p > 0) {
#pragma unroll
    for (int j = 0; j < X::N; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (!(kept >> (4 * j + e) & 1)) score[j][e] = 0;
  }
  mma_combine<T, X::DEPTH>(r->sum, score, tile_of<T, X>(stage, true));
}

template <typename T, typename X>
static __device__ inline void store(const attention_sizes &a, const attention_dropout &z, const place &at,
                                    const result<X> &r, T *y, float *lse)
{
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const float total = mma_row_sum(r.total[half]);
    const int64_t t = at.first + attention_mma_row(half);
    if (t >= a.queries) continue;
    const bool sees = attention_low<X::LIMITED>(a, at.sample, t) < attention_high<X::LIMITED>(a, at.sample, t);
    mma_store_row(y + attention_result(a, at.sample, at.head, t), r.sum, half, sees ? z.kept / total : 0, a.size);
    if (threadIdx.x % 4 == 0)
      lse[attention_row(a, at.sample, at.head, t)] = sees ? ATTENTION_LN2 * (r.greatest[half] + log2f(total)) : 0;
  }
}

template <typename T, typename X>
static __device__ inline void attend(const attention_sizes &a, const attention_dropout &z, const place &at,
                                     const attention_inputs<T> &in, T *y, float *lse)
{
  const int high = (int)attention_high<X::LIMITED>(a, at.sample, at.first + ATTENTION_MMA_ROWS - 1);
  const int by_all = (int)attention_high<X::LIMITED>(a, at.sample, at.first); /* every row sees the keys up to here */
  int key = (int)attention_low<X::LIMITED>(a, at.sample, at.first) / X::COLUMNS * X::COLUMNS;
  uint32_t q[X::DEPTH / 16][4];
  result<X> r = {};
  r.greatest[0] = r.greatest[1] = -INFINITY;
  T *const q_tile = tile_of<T, X>(1, false); /* in shared memory, q lies where the second tile of k will lie */
  mma_copy_tile<X::DEPTH, ATTENTION_MMA_ROWS, TILE_THREADS>(
      q_tile, in.q + attention_query(a, at.sample, at.head, at.first), a.q_stride, a.queries - at.first, a.size);
  load<T, X>(a, at, key, 0, in);
  mma_wait();
  __syncthreads();
#pragma unroll
  for (int d = 0; d < X::DEPTH / 16; d++) mma_load_a<X::DEPTH>(q[d], q_tile, (int)threadIdx.x / CUDA_WARP * 16, 16 * d);
  for (int stage = 0; key < high; key += X::COLUMNS, stage ^= 1) {
    mma_wait();
    __syncthreads();
    if (key + X::COLUMNS < high) load<T, X>(a, at, key + X::COLUMNS, stage ^ 1, in);
    add_tile<T, X>(a, z, at, key, X::LIMITED || key + X::COLUMNS > by_all, stage, q, &r);
  }
  store<T, X>(a, z, at, r, y, lse);
}

/* Tiles with the most keys come first, so that the last blocks to start are the short ones. */
template <typename T, typename X>
static __global__ void __launch_bounds__(TILE_THREADS, X::BLOCKS)
    attention_mma_kernel(const cuda_control *control, attention_sizes a, attention_inputs<T> in, T *__restrict__ y,
                         float *__restrict__ lse, int64_t blocks)
{
  const attention_dropout z = attention_dropout_of(control, a);
  for (int64_t i = blockIdx.x; i < blocks; i += gridDim.x) {
    const int64_t rest = i / a.heads / a.samples;
    place at;
    at.head = (int)(i % a.heads);
    at.sample = (int)(i / a.heads % a.samples);
    at.first = (int)(cuda_divide_up(a.queries, ATTENTION_MMA_ROWS) - 1 - rest) * ATTENTION_MMA_ROWS;
    __syncthreads();
    attend<T, X>(a, z, at, in, y, lse);
  }
}

template <typename T, int DEPTH, bool LIMITED>
static brim_status launch_cut(cuda_backend *b, const brim_launch *l, const attention_sizes &a,
                              const attention_inputs<T> &in)
{
  using X = cut<DEPTH, LIMITED>;
  const int64_t blocks = a.samples * a.heads * cuda_divide_up(a.queries, ATTENTION_MMA_ROWS);
  const cuda_control *control = cuda_control_of(b, l);
  if (!control) return BRIM_EDEVICE;
  return cuda_launch(b, attention_mma_kernel<T, X>, attention_geometry(blocks, 4 * X::TILE * sizeof(T)), control, a, in,
                     (T *)l->out[0], (float *)l->out[1], blocks);
}

template <typename T>
brim_status attention_mma(cuda_backend *b, const brim_launch *launch, const attention_sizes &a,
                          const attention_inputs<T> &in)
{
  ATTENTION_MMA_LAUNCH(launch_cut, T, a, b, launch, a, in);
}
template brim_status attention_mma<cuda_bf16>(cuda_backend *, const brim_launch *, const attention_sizes &,
                                              const attention_inputs<cuda_bf16> &);
template brim_status attention_mma<cuda_f16>(cuda_backend *, const brim_launch *, const attention_sizes &,
                                             const attention_inputs<cuda_f16> &);
