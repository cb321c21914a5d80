/* Attention (Dao: FlashAttention-2, 2023). Query head h uses key head g = h / (heads / kv_heads); D numbers each.
 *
 *     score[t,s] = cap(scale * q[t] . k[s])          for the keys s that query t sees
 *     lse[t]     = log(sum over s of exp(score[t,s]))
 *     y[t]       = sum over s of exp(score[t,s] - lse[t]) * z[t,s] * v[s]        z: dropout's mask / (1 - p)
 *
 * A block has a tile of queries of one head and loops over tiles of its keys. Scores exist in registers only, so memory
 * is linear in T and S. q is read once, k and v once for each tile of queries (mostly from the L2 cache, as
 * neighbouring blocks work on the same keys), and y and lse are written once. y and the sum of weights are relative to
 * the greatest score so far, and are rescaled when a greater one comes.
 *
 * Each pair of query and key takes 4 D fp32 multiply-adds. Their rate is the limit, so shared memory has to keep up
 * (see tile.cuh). Heads of up to 128 numbers are one chunk, padded with zeros to 32, 64 or 128. Larger heads have
 * several chunks: scores are added up over the chunks, and a block computes one chunk of y. So any size works, but
 * above 128 the scores are computed once for each chunk.
 *
 * Only tiles on the diagonal, at the end of the keys, or with queries that miss earlier keys check each pair. A block
 * skips tiles of keys that none of its queries sees.
 *
 * In bf16 and fp16 without dropout, documents, windows and soft caps, the library computes attention if it can
 * (sdpa.h): tensor cores are many times as fast. y and lse mean the same, so each may compute the gradient from the
 * other's results. */
#include "attention.cuh"
#include "attention_library.h"
#include "attention_mma.cuh"

template <int DEPTH_, int R_, int C_, bool LIMITED_> struct cut {
  static constexpr int DEPTH = DEPTH_, R = R_, C = C_, ROWS = 16 * R_, COLUMNS = 8 * C_;
  static constexpr bool LIMITED = LIMITED_;
  /* Blocks on a multiprocessor, so that a thread has at most 255 or 168 registers. */
  static constexpr int BLOCKS = LIMITED ? 2 : 3;
};

/* A thread's values of its rows during the loop over tiles of keys. */
template <typename X> struct result {
  float sum[X::R][X::DEPTH / 8];
  float greatest[X::R]; /* the greatest of the scores so far, or -infinity */
  float total[X::R];    /* the sum of exp(score - greatest) over the columns of this lane */
};

/* A tile of queries, and the chunk of y that the block computes. */
struct place {
  int64_t first;
  int sample, head, chunk; /* 32 bits, to save registers */
};

/* Returns whether the thread's row sees the column. */
template <typename X> static __device__ inline bool is_in(const tile_range<X::R> &range, int row, int column)
{
  return (!X::LIMITED || column >= range.low[row]) && column < range.high[row];
}

/* Turns a tile's scores into weights, which go to shared memory, and rescales the sums so far. */
template <typename X>
static __device__ inline void weigh(const attention_sizes &a, const attention_dropout &z, const place &at, int64_t key,
                                    const tile_range<X::R> &range, float (&score)[X::R][X::C], result<X> *r,
                                    float *weights)
{
  unsigned kept = ~0u;
  if (a.dropout_p > 0) kept = attention_kept_keys<X::R, X::C>(a, z, at.sample, at.head, at.first, key);
#pragma unroll
  for (int i = 0; i < X::R; i++) {
    float greatest = r->greatest[i];
#pragma unroll
    for (int j = 0; j < X::C; j++) {
      score[i][j] = attention_cap<X::LIMITED>(a, __fmul_rn(score[i][j], a.scale)); /* rounded as in the backward pass */
      if (is_in<X>(range, i, tile_column(j))) greatest = fmaxf(greatest, score[i][j]);
    }
    greatest = tile_row_max(greatest);
    const float base = greatest == -INFINITY ? 0 : greatest; /* no score yet */
    const float shrink = expf(r->greatest[i] - base);
    r->greatest[i] = greatest;
    r->total[i] *= shrink;
#pragma unroll
    for (int d = 0; d < X::DEPTH / 8; d++) r->sum[i][d] *= shrink;
#pragma unroll
    for (int j = 0; j < X::C; j++) {
      const float weight = is_in<X>(range, i, tile_column(j)) ? expf(score[i][j] - base) : 0;
      r->total[i] += weight;
      score[i][j] = weight * (kept >> (i * X::C + j) & 1 ? z.kept : 0);
    }
#pragma unroll
    for (int j = 0; j < X::C; j += 4)
      tile_store4(weights + tile_row<X::R>(i) * (X::COLUMNS + TILE_PAD) + tile_column(j), &score[i][j]);
  }
}

template <typename T, typename X>
static __device__ inline void store(const attention_sizes &a, const place &at, const result<X> &r, T *y, float *lse)
{
  const int64_t first = (int64_t)at.chunk * X::DEPTH;
#pragma unroll
  for (int i = 0; i < X::R; i++) {
    const float total = tile_row_sum(r.total[i]);
    const int64_t t = at.first + tile_row<X::R>(i);
    if (t >= a.queries) continue;
    const bool sees = attention_low<X::LIMITED>(a, at.sample, t) < attention_high<X::LIMITED>(a, at.sample, t);
    tile_store(y + attention_result(a, at.sample, at.head, t) + first, r.sum[i], sees ? 1 / total : 0,
               (int)cuda_min(a.size - first, X::DEPTH), a.vector);
    if (at.chunk == 0 && tile_lane() == 0)
      lse[attention_row(a, at.sample, at.head, t)] = sees ? r.greatest[i] + logf(total) : 0;
  }
}

/* Computes the scores of the tile of queries against the tile of keys that begins at `key`. The chunk that the block
 * computes comes last, so that its values of v are in shared memory afterwards. */
template <typename T, typename X>
static __device__ inline void score_tile(const attention_sizes &a, const place &at, int64_t key, bool q_there,
                                         const T *q, const T *k, const T *v, float *tiles, float (&score)[X::R][X::C])
{
  float *q_tile = tiles, *k_tile = q_tile + X::ROWS * (X::DEPTH + TILE_PAD),
        *v_tile = k_tile + X::COLUMNS * (X::DEPTH + TILE_PAD);
  const int64_t group = at.head / (a.heads / a.kv_heads), row = X::LIMITED ? key % a.keys : key;
  q += attention_query(a, at.sample, at.head, at.first);
  k += attention_key(a, at.sample, group, row);
  v += attention_key(a, at.sample, group, row);
  for (int step = 1; step <= a.chunks; step++) {
    const int chunk = (at.chunk + step) % a.chunks, first = chunk * X::DEPTH;
    const int width = a.size - first < X::DEPTH ? a.size - first : X::DEPTH;
    __syncthreads();
    if (a.chunks > 1 || !q_there)
      tile_load<T, X::DEPTH, X::ROWS, false>(q_tile, q + first, a.q_stride, a.queries - at.first, width, a.vector);
    tile_load<T, X::DEPTH, X::COLUMNS, true>(k_tile, k + first, a.k_stride, a.keys - row, width, a.vector);
    if (step == a.chunks)
      tile_load<T, X::DEPTH, X::COLUMNS, true>(v_tile, v + first, a.k_stride, a.keys - row, width, a.vector);
    __syncthreads();
    tile_dot<X::R, X::C, X::DEPTH>(score, q_tile, k_tile);
  }
}

template <typename T, typename X>
static __device__ inline void attend(const attention_sizes &a, const attention_dropout &z, const place &at, const T *q,
                                     const T *k, const T *v, T *y, float *lse)
{
  float *tiles = static_cast<float *>(cuda_dynamic_shared());
  float *v_tile = tiles + (X::ROWS + X::COLUMNS) * (X::DEPTH + TILE_PAD);
  float *weights = v_tile + X::COLUMNS * (X::DEPTH + TILE_PAD);
  const int64_t low = attention_low<X::LIMITED>(a, at.sample, at.first);
  const int64_t high = attention_high<X::LIMITED>(a, at.sample, at.first + X::ROWS - 1);
  const int64_t by_all = attention_high<X::LIMITED>(a, at.sample, at.first); /* every row sees the keys up to here */
  bool q_there = false;
  result<X> r = {};
#pragma unroll
  for (int i = 0; i < X::R; i++) r.greatest[i] = -INFINITY;
  int64_t next;
  for (int64_t key = X::LIMITED ? low - low % a.keys % X::COLUMNS : 0; key < high; key = next) {
    float score[X::R][X::C] = {};
    tile_range<X::R> range;
    next = key + (X::LIMITED ? cuda_min(X::COLUMNS, a.keys - key % a.keys) : X::COLUMNS); /* row 0 begins a tile */
    score_tile<T, X>(a, at, key, q_there, q, k, v, tiles, score);
    q_there = true;
#pragma unroll
    for (int i = 0; i < X::R; i++) {
      const int64_t t = at.first + tile_row<X::R>(i);
      range.low[i] = (int)cuda_min(X::COLUMNS, cuda_max(0, attention_low<X::LIMITED>(a, at.sample, t) - key));
      range.high[i] = (int)(cuda_min(next, attention_high<X::LIMITED>(a, at.sample, t)) - key);
    }
    weigh<X>(a, z, at, key, range, score, &r, weights);
    __syncwarp();
    if (key + X::COLUMNS > by_all || X::LIMITED)
      tile_combine<X::R, X::COLUMNS, X::DEPTH, true>(r.sum, weights, v_tile, range);
    else
      tile_combine<X::R, X::COLUMNS, X::DEPTH, false>(r.sum, weights, v_tile, range);
  }
  store<T, X>(a, at, r, y, lse);
}

/* Tiles with the most keys come first, so that the last blocks to start are the short ones. */
template <typename T, typename X>
static __global__ void __launch_bounds__(TILE_THREADS, X::BLOCKS)
    attention_kernel(const cuda_control *control, attention_sizes a, const T *__restrict__ q, const T *__restrict__ k,
                     const T *__restrict__ v, T *__restrict__ y, float *__restrict__ lse, int64_t blocks)
{
  const attention_dropout z = attention_dropout_of(control, a);
  for (int64_t i = blockIdx.x; i < blocks; i += gridDim.x) {
    const int64_t head = i / a.chunks, rest = head / a.heads / a.samples;
    place at;
    at.chunk = (int)(i % a.chunks);
    at.head = (int)(head % a.heads);
    at.sample = (int)(head / a.heads % a.samples);
    at.first = (cuda_divide_up(a.queries, X::ROWS) - 1 - rest) * X::ROWS;
    __syncthreads();
    attend<T, X>(a, z, at, q, k, v, y, lse);
  }
}

template <typename T, typename X>
static brim_status launch_cut(cuda_backend *b, const brim_launch *l, const attention_sizes &a,
                              const attention_inputs<T> &in)
{
  const attention_cut c = {X::ROWS, X::COLUMNS, X::DEPTH};
  const int64_t blocks = attention_blocks(c, a.samples, a.heads, a.queries, a.size);
  const cuda_control *control = cuda_control_of(b, l);
  if (!control) return BRIM_EDEVICE;
  return cuda_launch(b, attention_kernel<T, X>, attention_geometry(blocks, attention_shared_bytes(c)), control, a, in.q,
                     in.k, in.v, (T *)l->out[0], (float *)l->out[1], blocks);
}

template <typename T, bool LIMITED>
static brim_status launch_attention(cuda_backend *b, const brim_launch *l, const attention_sizes &a,
                                    const attention_inputs<T> &in)
{
  switch (attention_depth(a.size)) {
  case 32:
    return launch_cut<T, cut<32, 4, 8, LIMITED>>(b, l, a, in);
  case 64:
    return launch_cut<T, cut<64, 4, 8, LIMITED>>(b, l, a, in);
  default:
    return launch_cut<T, cut<128, 4, 4, LIMITED>>(b, l, a, in); /* 32 keys at a time: two blocks on a multiprocessor */
  }
}

static brim_status run(cuda_backend *b, const brim_launch *l, bool qkv, uint32_t places)
{
  if (l->state) return cuda_attention_run(b, l);
  const attention_form form = attention_form_of(l->node, qkv);
  const attention_sizes a = attention_sizes_of(l, form, places);
  CUDA_WITH_TYPE(l->node->in[0]->dtype, T, {
    const attention_inputs<T> in = attention_inputs_of<T>(l, form);
    if constexpr (sizeof(T) < sizeof(float)) {
      if (cuda_attention_takes_tensor_cores(b, l->node, &form)) return attention_mma(b, l, a, in);
    } else if (!attention_is_limited(a)) {
      return launch_attention<T, false>(b, l, a, in);
    }
    return launch_attention<T, true>(b, l, a, in);
  });
}

static CUDA_PREPARE(attention_prepare)
{
  (void)program;
  return cuda_attention_prepare((cuda_backend *)self, node, CUDA_SDPA_Y, false, state, need);
}
static CUDA_RUN(attention_run)
{
  return run((cuda_backend *)self, launch, false, 3);
}
BRIM_KERNEL(attention) = {
    .op = "attention", .prepare = attention_prepare, .run = attention_run, .release = cuda_attention_release};

static CUDA_PREPARE(attention_qkv_prepare)
{
  (void)program;
  return cuda_attention_prepare((cuda_backend *)self, node, CUDA_SDPA_Y, true, state, need);
}
static CUDA_RUN(attention_qkv_run)
{
  return run((cuda_backend *)self, launch, true, launch->node->attr.attention.cached ? 3 : 1);
}
BRIM_KERNEL(attention_qkv) = {.op = "attention_qkv",
                              .prepare = attention_qkv_prepare,
                              .run = attention_qkv_run,
                              .release = cuda_attention_release};
