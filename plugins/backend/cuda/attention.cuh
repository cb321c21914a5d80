/* Shared code of attention and its gradient: sizes, the keys that a query sees, dropout's mask. */
#ifndef CUDA_ATTENTION_CUH
#define CUDA_ATTENTION_CUH
#include "attention_form.h"
#include "tile.cuh"

/* Sizes; a kernel's argument. q, y, dy, dq [N,T,heads,D], k, v, dk, dv [N,S,kv_heads,D], lse and delta [N,heads,T]. q,
 * k and v may be parts of one tensor [N,T,heads + 2*kv_heads,D], as are dq, dk and dv then (attention_qkv). */
typedef struct attention_sizes {
  int64_t samples, queries, keys, heads, kv_heads; /* N, T, S */
  int64_t q_stride, k_stride; /* distances between neighbouring positions: in q and dq; in k, v, dk and dv */
  int32_t size, chunks;       /* D; see tile_geometry.h */
  float scale, softcap;       /* softcap 0: none */
  bool causal, cached;
  int64_t window;        /* 0: none */
  const int32_t *places; /* [N,T], or NULL */
  bool vector;           /* every row of D numbers starts at a multiple of 16 bytes */
  double dropout_p;
  uint64_t stream;
} attention_sizes;

/* places: the input that holds them, if the node has it. */
static inline attention_sizes attention_sizes_of(const brim_launch *launch, const attention_form &form, uint32_t places)
{
  const brim_node *node = launch->node;
  const brim_attention_attr *attr = &node->attr.attention;
  const brim_shape *q = &node->in[0]->shape;
  attention_sizes a = {};
  a.samples = q->dim[0];
  a.queries = q->dim[1];
  a.keys = form.keys;
  a.heads = attr->heads;
  a.kv_heads = attr->kv_heads;
  a.q_stride = form.q_stride;
  a.k_stride = form.k_stride;
  a.size = (int32_t)form.size;
  a.chunks = (int32_t)attention_chunks(a.size);
  a.scale = (float)attr->scale;
  a.softcap = (float)attr->softcap;
  a.causal = attr->causal != 0;
  a.cached = attr->cached != 0;
  a.window = attr->window;
  if (node->in_count > places) a.places = (const int32_t *)launch->in[places];
  a.vector = a.size * brim_dtype_bytes(node->in[0]->dtype) % 16 == 0;
  a.dropout_p = attr->dropout_p;
  a.stream = attr->stream;
  return a;
}

/* The operands of a launch. `y`: in the gradient, the input that holds it, followed by lse and dy. */
template <typename T> struct attention_inputs {
  const T *q, *k, *v;
};
template <typename T>
static inline attention_inputs<T> attention_inputs_of(const brim_launch *launch, const attention_form &form)
{
  const T *q = (const T *)launch->in[0];
  if (!form.joined) return {q, (const T *)launch->in[1], (const T *)launch->in[2]};
  return {q, q + attention_first_key(launch->node, &form), q + attention_first_value(launch->node, &form)};
}
template <typename T> struct attention_operands {
  const T *q, *k, *v, *y, *dy;
  const float *lse;
  float *delta; /* scratch */
  T *dq, *dk, *dv;
};
template <typename T>
static inline attention_operands<T> attention_operands_of(const brim_launch *launch, const attention_form &form,
                                                          uint32_t y)
{
  const attention_inputs<T> in = attention_inputs_of<T>(launch, form);
  T *dq = (T *)launch->out[0];
  attention_operands<T> o = {};
  o.q = in.q;
  o.k = in.k;
  o.v = in.v;
  o.y = (const T *)launch->in[y];
  o.dy = (const T *)launch->in[y + 2];
  o.lse = (const float *)launch->in[y + 1];
  o.delta = (float *)launch->workspace;
  o.dq = dq;
  o.dk = form.joined ? dq + attention_first_key(launch->node, &form) : (T *)launch->out[1];
  o.dv = form.joined ? dq + attention_first_value(launch->node, &form) : (T *)launch->out[2];
  return o;
}

/* Kernels are built twice: LIMITED for places, a window or a soft cap, which take more registers. In 16 bits the
 * kernels with fp32 arithmetic are only built LIMITED, because they serve what tensor cores do not: cached keys,
 * unusual heads and backend.attention=own_fp32. */
static inline bool attention_is_limited(const attention_sizes &a)
{
  return a.places || a.window > 0 || a.softcap > 0;
}

/* Query t sees the keys attention_low .. attention_high - 1. Neither bound is less than that of
 * the query before (see places in brim/ops.h). Queries after the last count as the last. Cached keys count from the
 * beginning of the text. */
template <bool LIMITED> static __device__ inline int64_t attention_high(const attention_sizes &a, int64_t n, int64_t t)
{
  if (LIMITED && a.cached) return a.places[n * a.queries + cuda_min(t, a.queries - 1)] + 1;
  return a.causal ? cuda_max(0, cuda_min(a.keys, t + a.keys - a.queries + 1)) : a.keys;
}
template <bool LIMITED> static __device__ inline int64_t attention_low(const attention_sizes &a, int64_t n, int64_t t)
{
  int64_t low = 0;
  if (!LIMITED) return 0;
  t = cuda_min(t, a.queries - 1);
  if (a.places && !a.cached) low = cuda_max(0, t - a.places[n * a.queries + t]);
  return a.window > 0 ? cuda_max(low, attention_high<true>(a, n, t) - a.window) : low;
}
/* Returns the first query that sees key s or a later key; all queries after it do too. Not for cached keys. */
static __device__ inline int64_t attention_first(const attention_sizes &a, int64_t s)
{
  return a.causal ? cuda_max(0, s + a.queries - a.keys) : 0;
}

/* Returns the end of the queries, from `column` on and at most COLUMNS of them, that see key s or an earlier one. A
 * binary search, because attention_low never decreases from query to query. Not for cached keys. */
template <bool LIMITED, int COLUMNS>
static __device__ inline int64_t attention_end(const attention_sizes &a, int64_t n, int64_t s, int64_t column)
{
  int low = 0, high = (int)cuda_min(COLUMNS, a.queries - column);
  while (LIMITED && low < high) {
    const int middle = (low + high) / 2;
    if (attention_low<LIMITED>(a, n, column + middle) <= s)
      low = middle + 1;
    else
      high = middle;
  }
  return column + high;
}

/* Returns the score after the soft cap; x is scale * q . k. */
template <bool LIMITED> static __device__ inline float attention_cap(const attention_sizes &a, float x)
{
  return LIMITED && a.softcap > 0 ? a.softcap * tanhf(x / a.softcap) : x;
}
/* Returns the cap's derivative for the capped score. */
template <bool LIMITED> static __device__ inline float attention_slope(const attention_sizes &a, float capped)
{
  if (!LIMITED || !(a.softcap > 0)) return 1;
  return 1 - capped / a.softcap * (capped / a.softcap);
}

/* Return the index of the first of a query's D numbers in q; of a key's in k and v; of a query's in y and dy; and of a
 * query's number in lse and delta. */
static __device__ inline int64_t attention_query(const attention_sizes &a, int64_t n, int64_t h, int64_t t)
{
  return (n * a.queries + t) * a.q_stride + h * a.size;
}
static __device__ inline int64_t attention_key(const attention_sizes &a, int64_t n, int64_t g, int64_t s)
{
  return (n * a.keys + s) * a.k_stride + g * a.size;
}
static __device__ inline int64_t attention_result(const attention_sizes &a, int64_t n, int64_t h, int64_t t)
{
  return ((n * a.queries + t) * a.heads + h) * a.size;
}
static __device__ inline int64_t attention_row(const attention_sizes &a, int64_t n, int64_t h, int64_t t)
{
  return (n * a.heads + h) * a.queries + t;
}

/* ---- dropout ---- */

typedef struct attention_dropout {
  brim_dropout_key key;
  int64_t first_sample;
  float kept; /* the factor of a kept weight; 1 without dropout */
} attention_dropout;

static __device__ inline attention_dropout attention_dropout_of(const cuda_control *control, const attention_sizes &a)
{
  attention_dropout z = {};
  z.kept = 1;
  if (a.dropout_p == 0) return z;
  z.key = brim_dropout_key_make(control->step.seed, control->step.step, a.stream, a.dropout_p);
  z.first_sample = control->step.first_sample;
  z.kept = (float)(1 / (1 - a.dropout_p));
  return z;
}

/* Returns a bit for each of the elements e .. e+3: 1 if the element is kept. The random numbers of these elements are
 * one block, or parts of two blocks. */
static __device__ inline unsigned attention_keep4(const attention_dropout &z, int64_t sample, int64_t e)
{
  const int skip = (int)(e & 3);
  unsigned bits = 0;
  brim_philox r = brim_dropout_block(&z.key, sample, e >> 2);
#pragma unroll
  for (int i = 0; i < 4; i++) bits |= (unsigned)(r.v[i] >= z.key.threshold) << i;
  if (skip == 0) return bits;
  r = brim_dropout_block(&z.key, sample, (e >> 2) + 1);
#pragma unroll
  for (int i = 0; i < 4; i++) bits |= (unsigned)(r.v[i] >= z.key.threshold) << (4 + i);
  return bits >> skip & 15;
}

/* For rows of queries: bit i*C + j belongs to the thread's row i, column j. row, column: the first of the tile, counted
 * in the sequences. */
template <int R, int C>
static __device__ inline unsigned attention_kept_keys(const attention_sizes &a, const attention_dropout &z, int64_t n,
                                                      int64_t h, int64_t row, int64_t column)
{
  unsigned bits = 0;
#pragma unroll 1
  for (int four = 0; four < R * C / 4; four++) {
    const int64_t t = row + tile_row<R>(four / (C / 4)), s = column + tile_column(four % (C / 4) * 4);
    bits |= attention_keep4(z, z.first_sample + n, (h * a.queries + t) * a.keys + s) << 4 * four;
  }
  return bits;
}

/* For rows of keys. Four neighbouring keys are rows of four lanes. Each lane draws the numbers for a quarter of the
 * columns, and the four lanes exchange the results. */
template <int R, int C>
static __device__ inline unsigned attention_kept_queries(const attention_sizes &a, const attention_dropout &z,
                                                         int64_t n, int64_t h, int64_t row, int64_t column)
{
  constexpr int SHARE = C / 4;
  const int lane = (int)threadIdx.x % CUDA_WARP, quarter = lane / 8;
  const int64_t first = row + tile_row<R>(0) - quarter;
  unsigned own = 0, bits = 0;
#pragma unroll 1
  for (int four = 0; four < R * SHARE; four++) {
    const int64_t s = first + four / SHARE * 4, t = column + tile_column(quarter * SHARE + four % SHARE);
    own |= attention_keep4(z, z.first_sample + n, (h * a.queries + t) * a.keys + s) << 4 * four;
  }
#pragma unroll
  for (int from = 0; from < 4; from++) {
    const unsigned theirs = __shfl_sync(0xFFFFFFFFu, own, from * 8 + lane % 8) >> quarter;
#pragma unroll
    for (int four = 0; four < R * SHARE; four++)
      bits |= (theirs >> 4 * four & 1) << (four / SHARE * C + from * SHARE + four % SHARE);
  }
  return bits;
}
#endif
