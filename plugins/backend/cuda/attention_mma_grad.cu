/* The gradient of attention on tensor cores, in bf16 and fp16: the formulas of attention_grad.cu, in two kernels, dq
 * and dk with dv, so that every sum has one order and one owner. They take 16 D multiply-adds for each pair of query
 * and key; a single kernel would take 10 but needs atomics, or memory for a dq of each tile of keys.
 *
 * delta[t] = dy[t] . y[t] is off by the rounding of y, which would prevent cancellation in ds (for a single key, ds is
 * 0). So the kernel of dq also adds up
 *
 *     error[t] = sum over s of p[t,s] * (z[t,s] * dy[t] . v[s] - delta[t])
 *     pk[t]    = sum over s of slope[t,s] * p[t,s] * k[s]
 *
 * subtracts error[t] * pk[t] from the sum of dq, and gives delta[t] + error[t], whose error is that of fp32, to the
 * kernel of dk and dv. The numbers that tensor cores multiply, ds and p, are rounded to 16 bits only after the
 * subtraction of delta. */
#include "attention_mma.cuh"

/* Rows are queries or keys. */
template <int DEPTH_, bool KEYS_, bool LIMITED_> struct cut {
  static constexpr int DEPTH = DEPTH_, COLUMNS = DEPTH > 96 ? 16 : 32, N = COLUMNS / 8;
  static constexpr int ROWS_TILE = ATTENTION_MMA_ROWS * (DEPTH + MMA_PAD), TILE = COLUMNS * (DEPTH + MMA_PAD);
  static constexpr bool KEYS = KEYS_, LIMITED = LIMITED_;
  static constexpr int BLOCKS = 2; /* blocks on a multiprocessor, so that a thread has at most 255 registers */
};

/* A tile: its sample, the head of its queries (`head`) and of its keys (`group`), its first row and column. */
struct place {
  int row, column, sample, head, group; /* 32 bits, to save registers */
};

/* Parts of shared memory. first_: tiles of q or k, for scores; second_: tiles of v or dy. lse and delta belong to
 * columns that are queries. If rows are queries, delta of the rows is at the beginning of lse. */
template <typename T, typename X> struct tiles {
  T *first_rows, *second_rows, *first_columns, *second_columns;
  float *lse, *delta;
};
template <typename T, typename X> static __device__ inline tiles<T, X> tiles_of(int stage)
{
  tiles<T, X> m;
  m.first_rows = static_cast<T *>(cuda_dynamic_shared());
  m.second_rows = m.first_rows + X::ROWS_TILE;
  m.first_columns = m.second_rows + X::ROWS_TILE + 2 * stage * X::TILE;
  m.second_columns = m.first_columns + X::TILE;
  m.lse = reinterpret_cast<float *>(m.second_rows + X::ROWS_TILE + 4 * X::TILE) + 2 * stage * X::COLUMNS;
  m.delta = m.lse + X::COLUMNS;
  return m;
}
template <typename T, typename X> static constexpr size_t shared_bytes()
{
  return (2 * X::ROWS_TILE + 4 * X::TILE) * sizeof(T) + 4 * X::COLUMNS * sizeof(float);
}

/* Loads queries and dy from t on, or keys and v from s on. */
template <typename T, typename X, int COUNT>
static __device__ inline void load_queries(const attention_sizes &a, const place &at, int64_t t,
                                           const attention_operands<T> &o, T *q, T *dy)
{
  mma_copy_tile<X::DEPTH, COUNT, TILE_THREADS>(q, o.q + attention_query(a, at.sample, at.head, t), a.q_stride,
                                               a.queries - t, a.size);
  mma_copy_tile<X::DEPTH, COUNT, TILE_THREADS>(dy, o.dy + attention_result(a, at.sample, at.head, t), a.heads * a.size,
                                               a.queries - t, a.size);
}
template <typename T, typename X, int COUNT>
static __device__ inline void load_keys(const attention_sizes &a, const place &at, int64_t s,
                                        const attention_operands<T> &o, T *k, T *v)
{
  const int64_t from = attention_key(a, at.sample, at.group, s);
  mma_copy_tile<X::DEPTH, COUNT, TILE_THREADS>(k, o.k + from, a.k_stride, a.keys - s, a.size);
  mma_copy_tile<X::DEPTH, COUNT, TILE_THREADS>(v, o.v + from, a.k_stride, a.keys - s, a.size);
}

template <typename T, typename X>
static __device__ inline void load_rows(const attention_sizes &a, const place &at, const attention_operands<T> &o)
{
  const tiles<T, X> m = tiles_of<T, X>(0);
  if constexpr (X::KEYS)
    load_keys<T, X, ATTENTION_MMA_ROWS>(a, at, at.row, o, m.first_rows, m.second_rows);
  else
    load_queries<T, X, ATTENTION_MMA_ROWS>(a, at, at.row, o, m.first_rows, m.second_rows);
}
template <typename T, typename X>
static __device__ inline void load_columns(const attention_sizes &a, const place &at, int stage,
                                           const attention_operands<T> &o)
{
  const tiles<T, X> m = tiles_of<T, X>(stage);
  if constexpr (X::KEYS) {
    const int i = (int)threadIdx.x;
    const int64_t row = attention_row(a, at.sample, at.head, at.column + i);
    load_queries<T, X, X::COLUMNS>(a, at, at.column, o, m.first_columns, m.second_columns);
    if (i < X::COLUMNS) {
      mma_copy<4>(m.lse + i, o.lse + row, at.column + i < a.queries);
      mma_copy<4>(m.delta + i, o.delta + row, at.column + i < a.queries);
    }
  } else {
    load_keys<T, X, X::COLUMNS>(a, at, at.column, o, m.first_columns, m.second_columns);
  }
}

/* Returns the columns that each row sees, or that see it. */
template <typename X> static __device__ inline tile_range<2> range_of(const attention_sizes &a, const place &at)
{
  tile_range<2> range;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int64_t row = at.row + attention_mma_row(half);
    const int64_t low = X::KEYS ? attention_first(a, row) : attention_low<X::LIMITED>(a, at.sample, row);
    const int64_t high = X::KEYS ? attention_end<X::LIMITED, X::COLUMNS>(a, at.sample, row, at.column)
                                 : attention_high<X::LIMITED>(a, at.sample, row);
    range.low[half] = (int)cuda_min(X::COLUMNS, cuda_max(0, low - at.column));
    range.high[half] = (int)cuda_min(X::COLUMNS, high - at.column);
  }
  return range;
}

/* Returns whether each row sees each column. */
template <typename X> static __device__ inline bool is_seen_whole(const attention_sizes &a, const place &at)
{
  if (X::LIMITED) return false;
  if (!X::KEYS) return at.column + X::COLUMNS <= attention_high<X::LIMITED>(a, at.sample, at.row);
  return at.column + X::COLUMNS <= a.queries && attention_first(a, at.row + ATTENTION_MMA_ROWS - 1) <= at.column;
}

/* Values of the thread's rows, if these are queries. lse is an exponent of two; error is this lane's part of the
 * sum. */
struct row_values {
  float lse[2], delta[2], error[2];
};

/* Replaces products. Rows of keys: by p * z / kept and ds / scale. Rows of queries: by slope * p, and by ds / scale
 * with the uncorrected delta. */
template <typename T, typename X>
static __device__ inline void differentiate(const attention_sizes &a, const attention_dropout &z, const place &at,
                                            unsigned kept, const tiles<T, X> &m, row_values *r, float (&p)[X::N][4],
                                            float (&ds)[X::N][4])
{
  const bool ranged = !is_seen_whole<X>(a, at);
  tile_range<2> range = {};
  if (ranged) range = range_of<X>(a, at);
#pragma unroll
  for (int j = 0; j < X::N; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int column = attention_mma_column(j, e);
      const bool sees = !ranged || attention_mma_is_in(range, j, e), keeps = kept >> (4 * j + e) & 1;
      const float exponent = attention_exponent<X::LIMITED>(a, p[j][e]);
      const float slope = attention_slope<X::LIMITED>(a, exponent * ATTENTION_LN2);
      const float lse = X::KEYS ? ATTENTION_LOG2E * m.lse[column] : r->lse[e / 2];
      const float delta = X::KEYS ? m.delta[column] : r->delta[e / 2];
      const float weight = sees ? mma_exp2(exponent - lse) : 0;
      const float term = sees ? weight * ((keeps ? z.kept * ds[j][e] : 0) - delta) : 0;
      if (!X::KEYS) r->error[e / 2] += term;
      p[j][e] = X::KEYS ? (keeps ? weight : 0) : slope * weight;
      ds[j][e] = slope * term;
    }
}

/* Adds a tile's part to the sums of dq and pk, or of dk and dv. */
template <typename T, typename X>
static __device__ inline void add_tile(const attention_sizes &a, const attention_dropout &z, const place &at, int stage,
                                       row_values *r, float (&first)[X::DEPTH / 8][4], float (&second)[X::DEPTH / 8][4])
{
  const tiles<T, X> m = tiles_of<T, X>(stage);
  const int row = (int)threadIdx.x / CUDA_WARP * 16;
  unsigned kept = ~0u; /* dropout's mask is drawn now, while few registers are in use */
  if (a.dropout_p > 0)
    kept = X::KEYS ? attention_mma_kept_queries<X::N>(a, z, at.sample, at.head, at.row, at.column)
                   : attention_mma_kept_keys<X::N>(a, z, at.sample, at.head, at.row, at.column);
  float p[X::N][4] = {}, ds[X::N][4] = {};
  mma_dot<T, X::DEPTH>(p, m.first_rows, row, m.first_columns);
  mma_dot<T, X::DEPTH>(ds, m.second_rows, row, m.second_columns);
  differentiate<T, X>(a, z, at, kept, m, r, p, ds);
  if constexpr (X::KEYS) {
    mma_combine<T, X::DEPTH>(second, p, m.second_columns);
    mma_combine<T, X::DEPTH>(first, ds, m.first_columns);
  } else {
    mma_combine_both<T, X::DEPTH>(first, ds, second, p, m.first_columns);
  }
}

/* Moves to the next tile of columns. For keys, the tiles of each query head that shares them follow. Returns false if
 * no tile is left. low, high: the range of columns. Once a query no longer sees the keys, later queries do not see them
 * either. */
template <typename X> static __device__ inline bool advance(const attention_sizes &a, int low, int high, place *at)
{
  at->column += X::COLUMNS;
  const bool is_past = X::KEYS && X::LIMITED && at->column < high &&
                       attention_low<true>(a, at->sample, at->column) >= at->row + ATTENTION_MMA_ROWS;
  if (at->column < high && !is_past) return true;
  if (!X::KEYS) return false;
  at->column = low;
  return ++at->head < (at->group + 1) * (int)(a.heads / a.kv_heads);
}

/* Adds all tiles of columns in [low, high). The caller has started to load the rows and the first tile, if any. */
template <typename T, typename X>
static __device__ inline void add_tiles(const attention_sizes &a, const attention_dropout &z, place at, int low,
                                        int high, const attention_operands<T> &o, row_values *r,
                                        float (&first)[X::DEPTH / 8][4], float (&second)[X::DEPTH / 8][4])
{
  bool is_there = low < high;
  for (int stage = 0; is_there; stage ^= 1) {
    place next = at;
    is_there = advance<X>(a, low, high, &next);
    mma_wait();
    __syncthreads();
    if (is_there) load_columns<T, X>(a, next, stage ^ 1, o);
    add_tile<T, X>(a, z, at, stage, r, first, second);
    at = next;
  }
}

/* Computes dy . y of the block's queries, and stores it in shared memory. */
template <typename T, typename X>
static __device__ inline void make_delta(const attention_sizes &a, const place &at, const attention_operands<T> &o)
{
  const tiles<T, X> m = tiles_of<T, X>(0);
  for (int i = 0; i < ATTENTION_MMA_ROWS; i += TILE_THREADS / 8) {
    const int row = i + (int)threadIdx.x / 8;
    float sum = 0;
    for (int d = tile_lane() * 8; d < a.size && at.row + row < a.queries; d += 64) {
      cuda_pack<T> y, dy;
      y.load(o.y + attention_result(a, at.sample, at.head, at.row + row) + d);
      dy.load(m.second_rows + row * (X::DEPTH + MMA_PAD) + d);
#pragma unroll
      for (int e = 0; e < 8; e++) sum = fmaf(dy.v[e], y.v[e], sum);
    }
    sum = tile_row_sum(sum);
    if (tile_lane() == 0) m.lse[row] = sum;
  }
}

template <typename T, typename X>
static __device__ inline void make_queries(const attention_sizes &a, const attention_dropout &z, place at,
                                           const attention_operands<T> &o)
{
  float dq[X::DEPTH / 8][4] = {}, pk[X::DEPTH / 8][4] = {};
  row_values r = {};
  const int high = (int)attention_high<X::LIMITED>(a, at.sample, at.row + ATTENTION_MMA_ROWS - 1);
  at.column = (int)attention_low<X::LIMITED>(a, at.sample, at.row) / X::COLUMNS * X::COLUMNS;
  load_rows<T, X>(a, at, o);
  load_columns<T, X>(a, at, 0, o);
  mma_wait();
  __syncthreads();
  make_delta<T, X>(a, at, o);
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int64_t t = at.row + attention_mma_row(half);
    r.lse[half] = t < a.queries ? ATTENTION_LOG2E * o.lse[attention_row(a, at.sample, at.head, t)] : 0;
    r.delta[half] = tiles_of<T, X>(0).lse[attention_mma_row(half)];
  }
  add_tiles<T, X>(a, z, at, at.column, high, o, &r, dq, pk);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const float error = mma_row_sum(r.error[half]);
    const int64_t t = at.row + attention_mma_row(half);
    if (t >= a.queries) continue;
#pragma unroll
    for (int d = 0; d < X::DEPTH / 8; d++)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; e++) dq[d][e] -= error * pk[d][e];
    mma_store_row(o.dq + attention_query(a, at.sample, at.head, t), dq, half, a.scale, a.size);
    if (threadIdx.x % 4 == 0) o.delta[attention_row(a, at.sample, at.head, t)] = r.delta[half] + error;
  }
}

template <typename T, typename X>
static __device__ inline void make_keys(const attention_sizes &a, const attention_dropout &z, place at,
                                        const attention_operands<T> &o)
{
  float dk[X::DEPTH / 8][4] = {}, dv[X::DEPTH / 8][4] = {};
  row_values none = {};
  at.head = at.group * (int)(a.heads / a.kv_heads);
  at.column = (int)attention_first(a, at.row);
  load_rows<T, X>(a, at, o);
  load_columns<T, X>(a, at, 0, o);
  add_tiles<T, X>(a, z, at, at.column, (int)a.queries, o, &none, dk, dv);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int64_t s = at.row + attention_mma_row(half), to = attention_key(a, at.sample, at.group, s);
    if (s >= a.keys) continue;
    mma_store_row(o.dk + to, dk, half, a.scale, a.size);
    mma_store_row(o.dv + to, dv, half, z.kept, a.size);
  }
}

/* Blocks with the most work come first: the last queries, the first keys. */
template <typename T, typename X>
static __global__ void __launch_bounds__(TILE_THREADS, X::BLOCKS)
    attention_mma_grad_kernel(const cuda_control *control, attention_sizes a, attention_operands<T> o, int64_t blocks)
{
  const attention_dropout z = attention_dropout_of(control, a);
  const int64_t heads = X::KEYS ? a.kv_heads : a.heads;
  for (int64_t i = blockIdx.x; i < blocks; i += gridDim.x) {
    const int head = (int)(i % heads);
    const int64_t rest = i / heads / a.samples;
    place at = {};
    at.sample = (int)(i / heads % a.samples);
    __syncthreads();
    if constexpr (X::KEYS) {
      at.group = head;
      at.row = (int)rest * ATTENTION_MMA_ROWS;
      make_keys<T, X>(a, z, at, o);
    } else {
      at.head = head;
      at.group = head / (int)(a.heads / a.kv_heads);
      at.row = (int)(cuda_divide_up(a.queries, ATTENTION_MMA_ROWS) - 1 - rest) * ATTENTION_MMA_ROWS;
      make_queries<T, X>(a, z, at, o);
    }
  }
}

template <typename T, typename X>
static brim_status launch_cut(cuda_backend *b, const cuda_control *control, const attention_sizes &a,
                              const attention_operands<T> &o)
{
  const int64_t length = X::KEYS ? a.keys : a.queries, heads = X::KEYS ? a.kv_heads : a.heads;
  const int64_t blocks = a.samples * heads * cuda_divide_up(length, ATTENTION_MMA_ROWS);
  return cuda_launch(b, attention_mma_grad_kernel<T, X>, attention_geometry(blocks, shared_bytes<T, X>()), control, a,
                     o, blocks);
}
template <typename T, int DEPTH, bool LIMITED>
static brim_status launch_both(cuda_backend *b, const cuda_control *control, const attention_sizes &a,
                               const attention_operands<T> &o)
{
  BRIM_TRY((launch_cut<T, cut<DEPTH, false, LIMITED>>(b, control, a, o)));
  return launch_cut<T, cut<DEPTH, true, LIMITED>>(b, control, a, o);
}

template <typename T>
brim_status attention_mma_grad(cuda_backend *b, const brim_launch *launch, const attention_sizes &a,
                               const attention_operands<T> &o)
{
  const cuda_control *control = cuda_control_of(b, launch);
  if (!control) return BRIM_EDEVICE;
  ATTENTION_MMA_LAUNCH(launch_both, T, a, b, control, a, o);
}
template brim_status attention_mma_grad<cuda_bf16>(cuda_backend *, const brim_launch *, const attention_sizes &,
                                                   const attention_operands<cuda_bf16> &);
template brim_status attention_mma_grad<cuda_f16>(cuda_backend *, const brim_launch *, const attention_sizes &,
                                                  const attention_operands<cuda_f16> &);
