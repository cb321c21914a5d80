/* The gradient of attention, from lse. With p and z as in attention.cu:
 *
 *     p[t,s]   = exp(score[t,s] - lse[t]),  score[t,s] = cap(scale * q[t] . k[s])
 *     delta[t] = dy[t] . y[t]
 *     ds[t,s]  = scale * slope[t,s] * p[t,s] * (z[t,s] * dy[t] . v[s] - delta[t])
 *     dq[t]    = sum over s of ds[t,s] * k[s]
 *     dk[s]    = sum over h, t of ds[t,s] * q[t],   dv[s] = sum over h, t of p[t,s] * z[t,s] * dy[t]
 *
 * Three kernels: delta; dq, whose blocks take queries and loop over the keys; dk and dv, whose blocks take keys and
 * loop over the query heads that share them and their queries, in order. So every sum has one order and one owner,
 * which gives the same bits in every run without atomics, at the price of computing scores and dy v^T twice: 14 D
 * multiply-adds for each pair of query and key instead of 10. The last two kernels are one template, once with queries
 * as rows and keys as columns, once the reverse.
 *
 * In bf16 and fp16 the rounding of y would prevent cancellation in ds (for a single key, ds is 0). So the kernel of dq
 * computes delta from its own numbers, by 2 D multiply-adds more:
 *
 *     delta[t] = sum over s of p[t,s] * z[t,s] * dy[t] . v[s]
 *     w[t,s]   = slope[t,s] * p[t,s]
 *     dq[t]    = scale * (sum over s of w[t,s] * (z[t,s] * dy[t] . v[s]) * k[s]
 *                         - delta[t] * sum over s of w[t,s] * k[s])
 *
 * Tiles, chunks of large heads, checks of pairs, and the library's part are as in attention.cu. */
#include "attention.cuh"
#include "attention_library.h"
#include "attention_mma.cuh"

/* Rows are queries (with delta read, or computed by this kernel) or keys. */
enum rows { QUERIES, QUERIES_MAKE_DELTA, KEYS };
template <int DEPTH_, int R_, int C_, enum rows ROLE, bool LIMITED_>
struct cut {
  static constexpr int DEPTH = DEPTH_, R = R_, C = C_, ROWS = 16 * R_, COLUMNS = 8 * C_;
  static constexpr int BLOCKS = 2; /* blocks on a multiprocessor, so that a thread has at most 255 registers */
  static constexpr bool LIMITED = LIMITED_;
  static constexpr bool KEYS = ROLE == rows::KEYS, MAKES_DELTA = ROLE == QUERIES_MAKE_DELTA;
};

/* A tile: its sample, the head of its queries (`head`) and of its keys (`group`), its first row and column, and the
 * chunk that the block computes. */
struct place {
  int64_t sample, head, group, row, column;
  int chunk;
};

/* Parts of shared memory. first_: tiles of q or k, for scores; second_: tiles of v or dy. */
template <typename X> struct tiles {
  float *first_rows, *second_rows, *first_columns, *second_columns, *weights, *lse, *delta;
};
template <typename X> static __device__ inline tiles<X> tiles_of()
{
  tiles<X> m;
  m.first_rows = static_cast<float *>(cuda_dynamic_shared());
  m.second_rows = m.first_rows + X::ROWS * (X::DEPTH + TILE_PAD);
  m.first_columns = m.second_rows + X::ROWS * (X::DEPTH + TILE_PAD);
  m.second_columns = m.first_columns + X::COLUMNS * (X::DEPTH + TILE_PAD);
  m.weights = m.second_columns + X::COLUMNS * (X::DEPTH + TILE_PAD);
  m.lse = m.weights + X::ROWS * (X::COLUMNS + TILE_PAD);
  m.delta = m.lse + X::COLUMNS;
  return m;
}

/* Loads the chunk of queries and of dy from t on, or of keys and of v from s on. */
template <typename T, int DEPTH, int COUNT, bool COLUMNS>
static __device__ inline void load_queries(const attention_sizes &a, const place &at, int64_t t, int chunk,
                                           const attention_operands<T> &o, float *q, float *dy)
{
  const int64_t first = (int64_t)chunk * DEPTH;
  const int width = (int)cuda_min(a.size - first, DEPTH);
  tile_load<T, DEPTH, COUNT, COLUMNS>(q, o.q + attention_query(a, at.sample, at.head, t) + first, a.q_stride,
                                      a.queries - t, width, a.vector);
  tile_load<T, DEPTH, COUNT, COLUMNS>(dy, o.dy + attention_result(a, at.sample, at.head, t) + first, a.heads * a.size,
                                      a.queries - t, width, a.vector);
}
template <typename T, int DEPTH, int COUNT, bool COLUMNS>
static __device__ inline void load_keys(const attention_sizes &a, const place &at, int64_t s, int chunk,
                                        const attention_operands<T> &o, float *k, float *v)
{
  const int64_t from = attention_key(a, at.sample, at.group, s) + (int64_t)chunk * DEPTH;
  const int width = (int)cuda_min(a.size - (int64_t)chunk * DEPTH, DEPTH);
  tile_load<T, DEPTH, COUNT, COLUMNS>(k, o.k + from, a.k_stride, a.keys - s, width, a.vector);
  tile_load<T, DEPTH, COUNT, COLUMNS>(v, o.v + from, a.k_stride, a.keys - s, width, a.vector);
}

template <typename T, typename X>
static __device__ inline void load(const attention_sizes &a, const place &at, int chunk, bool rows,
                                   const attention_operands<T> &o, const tiles<X> &m)
{
  if constexpr (X::KEYS) {
    if (rows) load_keys<T, X::DEPTH, X::ROWS, false>(a, at, at.row, chunk, o, m.first_rows, m.second_rows);
    load_queries<T, X::DEPTH, X::COLUMNS, true>(a, at, at.column, chunk, o, m.first_columns, m.second_columns);
    for (int i = threadIdx.x; i < X::COLUMNS; i += TILE_THREADS) {
      const bool is = at.column + i < a.queries;
      const int64_t row = attention_row(a, at.sample, at.head, at.column + i);
      m.lse[i] = is ? o.lse[row] : 0;
      m.delta[i] = is ? o.delta[row] : 0;
    }
  } else {
    if (rows) load_queries<T, X::DEPTH, X::ROWS, false>(a, at, at.row, chunk, o, m.first_rows, m.second_rows);
    load_keys<T, X::DEPTH, X::COLUMNS, true>(a, at, at.column, chunk, o, m.first_columns, m.second_columns);
  }
}

/* Returns the columns that each row sees, or that see it. */
template <typename X> static __device__ inline tile_range<X::R> range_of(const attention_sizes &a, const place &at)
{
  tile_range<X::R> range;
#pragma unroll
  for (int i = 0; i < X::R; i++) {
    const int64_t row = at.row + tile_row<X::R>(i);
    const int64_t low = X::KEYS ? attention_first(a, row) : attention_low<X::LIMITED>(a, at.sample, row);
    const int64_t high = X::KEYS ? attention_end<X::LIMITED, X::COLUMNS>(a, at.sample, row, at.column)
                                 : attention_high<X::LIMITED>(a, at.sample, row);
    range.low[i] = (int)cuda_min(X::COLUMNS, cuda_max(0, low - at.column));
    range.high[i] = (int)cuda_min(X::COLUMNS, high - at.column);
  }
  return range;
}

/* Returns whether each row sees each column. */
template <typename X> static __device__ inline bool is_seen_whole(const attention_sizes &a, const place &at)
{
  if (X::LIMITED) return false;
  if (!X::KEYS) return at.column + X::COLUMNS <= attention_high<X::LIMITED>(a, at.sample, at.row);
  return at.column + X::COLUMNS <= a.queries && attention_first(a, at.row + X::ROWS - 1) <= at.column;
}

/* Values of the thread's rows, if they are queries. */
template <typename X> struct row_values {
  float lse[X::R], delta[X::R]; /* delta: this lane's part, if it is computed here */
};

/* Turns scores into p * z, and dy v^T into ds; if delta is computed here, into p and p * z * dy v^T. The score is
 * rounded as in the forward pass before lse is subtracted, so that a query's only key has the weight 1. */
template <typename X>
static __device__ inline void differentiate(const attention_sizes &a, const attention_dropout &z, const place &at,
                                            const tile_range<X::R> &range, const tiles<X> &m, row_values<X> *r,
                                            float (&p)[X::R][X::C], float (&ds)[X::R][X::C])
{
  unsigned kept = ~0u;
  if (a.dropout_p > 0)
    kept = X::KEYS ? attention_kept_queries<X::R, X::C>(a, z, at.sample, at.head, at.row, at.column)
                   : attention_kept_keys<X::R, X::C>(a, z, at.sample, at.head, at.row, at.column);
#pragma unroll
  for (int i = 0; i < X::R; i++)
#pragma unroll
    for (int j = 0; j < X::C; j++) {
      const int column = tile_column(j);
      const bool sees = column >= range.low[i] && column < range.high[i];
      const float mask = kept >> (i * X::C + j) & 1 ? z.kept : 0;
      const float score = attention_cap<X::LIMITED>(a, __fmul_rn(a.scale, p[i][j])),
                  slope = attention_slope<X::LIMITED>(a, score);
      const float weight = sees ? expf(score - (X::KEYS ? m.lse[column] : r->lse[i])) : 0;
      if (X::MAKES_DELTA) {
        const float term = sees ? weight * mask * ds[i][j] : 0;
        r->delta[i] += term;
        p[i][j] = sees ? slope * weight : 0;
        ds[i][j] = sees ? slope * term : 0;
      } else {
        p[i][j] = weight * mask;
        ds[i][j] = sees ? a.scale * slope * weight * (mask * ds[i][j] - (X::KEYS ? m.delta[column] : r->delta[i])) : 0;
      }
    }
}

/* sum += weights * columns. The weights go through shared memory, where only a row's own warp uses them. */
template <typename X>
static __device__ inline void add(float (&sum)[X::R][X::DEPTH / 8], const float (&weight)[X::R][X::C],
                                  const float *columns, bool whole, const tile_range<X::R> &range, float *weights)
{
  __syncwarp();
#pragma unroll
  for (int i = 0; i < X::R; i++)
#pragma unroll
    for (int j = 0; j < X::C; j += 4)
      tile_store4(weights + tile_row<X::R>(i) * (X::COLUMNS + TILE_PAD) + tile_column(j), &weight[i][j]);
  __syncwarp();
  if (whole)
    tile_combine<X::R, X::COLUMNS, X::DEPTH, false>(sum, weights, columns, range);
  else
    tile_combine<X::R, X::COLUMNS, X::DEPTH, true>(sum, weights, columns, range);
}

/* Adds a tile's part to dq, and to the sum of p * k if delta is computed here; or to dk and dv. The chunk that the
 * block computes comes last, so that its columns are in shared memory when they are needed. */
template <typename T, typename X>
static __device__ inline void add_tile(const attention_sizes &a, const attention_dropout &z, const place &at,
                                       bool rows_there, const attention_operands<T> &o, row_values<X> *r,
                                       float (&first)[X::R][X::DEPTH / 8], float (&second)[X::R][X::DEPTH / 8])
{
  const tiles<X> m = tiles_of<X>();
  float p[X::R][X::C] = {}, ds[X::R][X::C] = {};
  for (int step = 1; step <= a.chunks; step++) {
    __syncthreads();
    load<T, X>(a, at, (at.chunk + step) % a.chunks, !rows_there || a.chunks > 1, o, m);
    __syncthreads();
    tile_dot<X::R, X::C, X::DEPTH>(p, m.first_rows, m.first_columns);
    tile_dot<X::R, X::C, X::DEPTH>(ds, m.second_rows, m.second_columns);
  }
  const tile_range<X::R> range = range_of<X>(a, at);
  const bool whole = is_seen_whole<X>(a, at);
  differentiate<X>(a, z, at, range, m, r, p, ds);
  if constexpr (X::KEYS) add<X>(second, p, m.second_columns, whole, range, m.weights);
  if constexpr (X::MAKES_DELTA) add<X>(second, p, m.first_columns, whole, range, m.weights);
  add<X>(first, ds, m.first_columns, whole, range, m.weights);
}

template <typename T, typename X>
static __device__ inline void store(const attention_sizes &a, const place &at, const float (&sum)[X::R][X::DEPTH / 8],
                                    T *to)
{
  const int64_t d = (int64_t)at.chunk * X::DEPTH;
#pragma unroll
  for (int i = 0; i < X::R; i++) {
    const int64_t row = at.row + tile_row<X::R>(i);
    if (row >= (X::KEYS ? a.keys : a.queries)) continue;
    const int64_t start =
        X::KEYS ? attention_key(a, at.sample, at.group, row) : attention_query(a, at.sample, at.head, row);
    tile_store(to + start + d, sum[i], 1, (int)cuda_min(a.size - d, X::DEPTH), a.vector);
  }
}

/* Computes dq from the sums and delta. The product is rounded by itself, not in a fused multiply-add, because for a
 * single key it must cancel the sum exactly. */
template <typename X>
static __device__ inline void subtract_delta(const attention_sizes &a, const place &at, row_values<X> *r,
                                             float (&dq)[X::R][X::DEPTH / 8], const float (&pk)[X::R][X::DEPTH / 8],
                                             float *delta)
{
#pragma unroll
  for (int i = 0; i < X::R; i++) {
    const float sum = tile_row_sum(r->delta[i]);
    const int64_t t = at.row + tile_row<X::R>(i);
#pragma unroll
    for (int d = 0; d < X::DEPTH / 8; d++) dq[i][d] = a.scale * (dq[i][d] - __fmul_rn(sum, pk[i][d]));
    if (t < a.queries && at.chunk == 0 && tile_lane() == 0) delta[attention_row(a, at.sample, at.head, t)] = sum;
  }
}

template <typename T, typename X>
static __device__ inline void make_queries(const attention_sizes &a, const attention_dropout &z, place at,
                                           const attention_operands<T> &o)
{
  float dq[X::R][X::DEPTH / 8] = {}, pk[X::R][X::DEPTH / 8] = {};
  row_values<X> r;
#pragma unroll
  for (int i = 0; i < X::R; i++) {
    const int64_t t = at.row + tile_row<X::R>(i), row = attention_row(a, at.sample, at.head, t);
    r.lse[i] = t < a.queries ? o.lse[row] : 0;
    r.delta[i] = !X::MAKES_DELTA && t < a.queries ? o.delta[row] : 0;
  }
  const int64_t high = attention_high<X::LIMITED>(a, at.sample, at.row + X::ROWS - 1);
  const int64_t low = attention_low<X::LIMITED>(a, at.sample, at.row) / X::COLUMNS * X::COLUMNS;
  for (at.column = low; at.column < high; at.column += X::COLUMNS)
    add_tile<T, X>(a, z, at, at.column > low, o, &r, dq, pk);
  if constexpr (X::MAKES_DELTA) subtract_delta<X>(a, at, &r, dq, pk, o.delta);
  store<T, X>(a, at, dq, o.dq);
}

template <typename T, typename X>
static __device__ inline void make_keys(const attention_sizes &a, const attention_dropout &z, place at,
                                        const attention_operands<T> &o)
{
  float dk[X::R][X::DEPTH / 8] = {}, dv[X::R][X::DEPTH / 8] = {};
  row_values<X> none;
  const int64_t sharing = a.heads / a.kv_heads, first = attention_first(a, at.row);
  bool rows_there = false;
  for (at.head = at.group * sharing; at.head < (at.group + 1) * sharing; at.head++)
    for (at.column = first; at.column < a.queries; at.column += X::COLUMNS) {
      if (X::LIMITED && attention_low<true>(a, at.sample, at.column) >= at.row + X::ROWS)
        break; /* later queries do not see these keys either, so the loop ends */
      add_tile<T, X>(a, z, at, rows_there, o, &none, dk, dv);
      rows_there = true;
    }
  store<T, X>(a, at, dk, o.dk);
  store<T, X>(a, at, dv, o.dv);
}

/* Blocks with the most work come first: the last queries, the first keys. */
template <typename T, typename X>
static __global__ void __launch_bounds__(TILE_THREADS, X::BLOCKS)
    grad_kernel(const cuda_control *control, attention_sizes a, attention_operands<T> o, int64_t blocks)
{
  const attention_dropout z = attention_dropout_of(control, a);
  const int64_t heads = X::KEYS ? a.kv_heads : a.heads;
  for (int64_t i = blockIdx.x; i < blocks; i += gridDim.x) {
    const int64_t head = i / a.chunks % heads, rest = i / a.chunks / heads / a.samples;
    place at = {};
    at.chunk = (int)(i % a.chunks);
    at.sample = i / a.chunks / heads % a.samples;
    __syncthreads();
    if constexpr (X::KEYS) {
      at.group = head;
      at.row = rest * X::ROWS;
      make_keys<T, X>(a, z, at, o);
    } else {
      at.head = head;
      at.group = head / (a.heads / a.kv_heads);
      at.row = (cuda_divide_up(a.queries, X::ROWS) - 1 - rest) * X::ROWS;
      make_queries<T, X>(a, z, at, o);
    }
  }
}

/* delta: a warp for each query of each head. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS, 4)
    delta_kernel(attention_sizes a, const T *__restrict__ y, const T *__restrict__ dy, float *__restrict__ delta)
{
  const int64_t rows = a.samples * a.queries * a.heads;
  for (int64_t row = cuda_first() / CUDA_WARP; row < rows; row += cuda_step_width() / CUDA_WARP) {
    float sum = 0;
    for (int d = threadIdx.x % CUDA_WARP; d < a.size; d += CUDA_WARP)
      sum = fmaf(cuda_load(&dy[row * a.size + d]), cuda_load(&y[row * a.size + d]), sum);
    sum = cuda_warp_sum(sum);
    const int64_t h = row % a.heads, t = row / a.heads % a.queries, n = row / a.heads / a.queries;
    if (threadIdx.x % CUDA_WARP == 0) delta[attention_row(a, n, h, t)] = sum;
  }
}

template <typename T, typename X>
static brim_status launch_cut(cuda_backend *b, const cuda_control *control, const attention_sizes &a,
                              const attention_operands<T> &o)
{
  const attention_cut c = {X::ROWS, X::COLUMNS, X::DEPTH};
  const int64_t blocks =
      attention_blocks(c, a.samples, X::KEYS ? a.kv_heads : a.heads, X::KEYS ? a.keys : a.queries, a.size);
  return cuda_launch(b, grad_kernel<T, X>, attention_geometry(blocks, attention_grad_shared_bytes(c)), control, a, o,
                     blocks);
}
template <typename T, int DEPTH, int R, int C, bool LIMITED>
static brim_status launch_all(cuda_backend *b, const cuda_control *control, const attention_sizes &a,
                              const attention_operands<T> &o)
{
  constexpr enum rows ROLE = sizeof(T) < sizeof(float) ? QUERIES_MAKE_DELTA : QUERIES;
  if (ROLE == QUERIES)
    BRIM_TRY(cuda_launch(b, delta_kernel<T>, cuda_stride(a.samples * a.queries * a.heads * CUDA_WARP, 1, b->processors),
                         a, o.y, o.dy, o.delta));
  BRIM_TRY((launch_cut<T, cut<DEPTH, R, C, ROLE, LIMITED>>(b, control, a, o)));
  return launch_cut<T, cut<DEPTH, R, C, KEYS, LIMITED>>(b, control, a, o);
}

template <typename T, bool LIMITED>
static brim_status launch_grad(cuda_backend *b, const brim_launch *l, const attention_sizes &a,
                               const attention_operands<T> &o)
{
  const cuda_control *control = cuda_control_of(b, l);
  if (!control) return BRIM_EDEVICE;
  /* Sizes of which a multiprocessor's registers and shared memory hold two or three blocks. */
  if constexpr (sizeof(T) == sizeof(float))
    if (attention_depth(a.size) == 32) return launch_all<T, 32, 4, 8, LIMITED>(b, control, a, o);
  if (attention_depth(a.size) <= 64) return launch_all<T, 64, 4, 4, LIMITED>(b, control, a, o);
  return launch_all<T, 128, 2, 4, LIMITED>(b, control, a, o);
}

static brim_status run(cuda_backend *b, const brim_launch *l, bool qkv, uint32_t y)
{
  if (l->state) return cuda_attention_run(b, l);
  const attention_form form = attention_form_of(l->node, qkv);
  const attention_sizes a = attention_sizes_of(l, form, y + 3);
  CUDA_WITH_TYPE(l->node->in[0]->dtype, T, {
    const attention_operands<T> o = attention_operands_of<T>(l, form, y);
    if constexpr (sizeof(T) < sizeof(float)) {
      if (cuda_attention_takes_tensor_cores(b, l->node, &form)) return attention_mma_grad(b, l, a, o);
    } else if (!attention_is_limited(a)) {
      return launch_grad<T, false>(b, l, a, o);
    }
    return launch_grad<T, true>(b, l, a, o);
  });
}

static brim_status prepare(cuda_backend *b, const brim_node *node, bool qkv, void **state, brim_kernel_need *need)
{
  BRIM_TRY(cuda_attention_prepare(b, node, CUDA_SDPA_GRADIENTS, qkv, state, need));
  if (*state) return BRIM_OK;
  const uint32_t y = qkv ? 1 : 3;
  need->workspace_bytes = node->in[y + 1]->bytes; /* delta, of lse's shape */
  need->further_bytes = 2 * need->workspace_bytes + node->in[y + 1]->bytes + node->in[y + 2]->bytes;
  for (uint32_t i = 0; i < y; i++) need->further_bytes += node->in[i]->bytes; /* each kernel reads all but y */
  return BRIM_OK;
}

static CUDA_PREPARE(attention_grad_prepare)
{
  (void)program;
  return prepare((cuda_backend *)self, node, false, state, need);
}
static CUDA_RUN(attention_grad_run)
{
  return run((cuda_backend *)self, launch, false, 3);
}
BRIM_KERNEL(attention_grad) = {.op = "attention_grad",
                               .prepare = attention_grad_prepare,
                               .run = attention_grad_run,
                               .release = cuda_attention_release};

static CUDA_PREPARE(attention_qkv_grad_prepare)
{
  (void)program;
  return prepare((cuda_backend *)self, node, true, state, need);
}
static CUDA_RUN(attention_qkv_grad_run)
{
  return run((cuda_backend *)self, launch, true, 1);
}
BRIM_KERNEL(attention_qkv_grad) = {.op = "attention_qkv_grad",
                                   .prepare = attention_qkv_grad_prepare,
                                   .run = attention_qkv_grad_run,
                                   .release = cuda_attention_release};
