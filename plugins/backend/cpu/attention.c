/* Attention and its gradient, tile by tile (Dao: FlashAttention-2, 2023): a tile holds the scores of a block of queries
 * against a block of keys of one head, so memory does not grow with T*S; each thread has scratch for two tiles.
 *
 * Forward, for each block of queries: y and the sum of weights are computed over the blocks of keys in
 * order, relative to the greatest score so far, and rescaled when a greater one comes. Backward, tiles are recomputed
 * from lse. dq adds up over blocks of keys, dk and dv over the query heads that share them and blocks of queries,
 * always in that order. So the bits do not depend on whether one task does a head's whole backward pass, which computes
 * each tile once, or separate tasks do each block of dq and of dk and dv, which computes each tile twice but employs
 * more threads.
 *
 * q, k and v are tensors of their own, as are dq, dk and dv, or parts of one (attention_qkv), read and written by
 * strides.
 *
 * Tiles in which no query sees a key are skipped, so with documents or a window the time is proportional to the number
 * of pairs that see each other. */
#include <math.h>

#include "cpu.h"
#include "simd_attention.h"

enum { QUERIES = CPU_ATTENTION_QUERIES, KEYS = CPU_ATTENTION_KEYS, BLOCK = 64 };

typedef struct attention {
  cpu_backend *backend;
  const cpu_attention_simd *simd;
  const brim_attention_attr *attr;
  int64_t samples, queries, keys, size; /* N, T, S, D */
  /* Distances between neighbouring positions: in q and dq; in y and dy; in k, v, dk and dv. */
  int64_t q_stride, y_stride, k_stride;
  int64_t q_block, k_block; /* positions of a block */
  int64_t q_blocks, k_blocks;
  const float *q, *k, *v, *dy;
  const int32_t *places; /* [N,T], or NULL */
  float *y, *lse;        /* backward only reads them */
  float *dq, *dk, *dv;
  brim_dropout_key key;
  int64_t first_sample;
  int64_t first_head; /* In the backward pass: the first key head of a job, counted over all samples. */
  char *workspace;
} attention;

/* A block of queries of one head of one sample, and a block of keys. Key `key` is in row key modulo `keys`: only cached
 * keys have numbers from `keys` on. */
typedef struct tile {
  int64_t sample, head, query, rows, key, columns;
} tile;

/* A thread's scratch. */
typedef struct scratch {
  cpu_attention_tile tile;
  bool sees_all; /* each query of the tile sees each of its keys */
  _Alignas(CPU_ALIGNMENT) float score[QUERIES * KEYS], dz[QUERIES * KEYS];
  float mask[KEYS + 16]; /* The mask of a row, and of up to three elements before the row. */
  _Alignas(CPU_ALIGNMENT) float gemm[];
} scratch;

static uint64_t scratch_bytes(const cpu_backend *b)
{
  return sizeof(scratch) + cpu_aligned(b->simd->gemm_scratch_bytes);
}

static scratch *scratch_of(const attention *a, int32_t thread)
{
  return (scratch *)(void *)(a->workspace + (uint64_t)thread * scratch_bytes(a->backend));
}

const cpu_attention_simd *cpu_attention_simd_of(int32_t isa)
{
  static const cpu_attention_simd *const tables[] = {CPU_OF_ISAS(&, cpu_attention)};
  return tables[isa];
}

static CPU_PREPARE(attention_prepare)
{
  (void)program;
  (void)node;
  (void)state;
  const cpu_backend *b = self;
  need->workspace_bytes = (uint64_t)b->threads * scratch_bytes(b);
  return BRIM_OK;
}

static uint64_t lse_bytes(const brim_tensor *lse)
{
  return cpu_aligned((uint64_t)brim_shape_count(&lse->shape) * sizeof(float));
}

/* Results stored in 16 bits are rounded, but their products with dy must cancel against others that are not rounded. So
 * they are recomputed, with their lse, after the scratch. */
static brim_status prepare_grad(const cpu_backend *b, const brim_tensor *y, const brim_tensor *lse,
                                brim_kernel_need *need)
{
  need->workspace_bytes = (uint64_t)b->threads * scratch_bytes(b);
  if (cpu_is_widened(y)) need->workspace_bytes = cpu_aligned(need->workspace_bytes) + lse_bytes(lse);
  return BRIM_OK;
}
static CPU_PREPARE(attention_grad_prepare)
{
  (void)program;
  (void)state;
  return prepare_grad(self, node->in[3], node->in[4], need);
}
static CPU_PREPARE(attention_qkv_grad_prepare)
{
  (void)program;
  (void)state;
  return prepare_grad(self, node->in[1], node->in[2], need);
}

/* Returns the size of a block: usually BLOCK, but a tile's maximum if fewer blocks suffice then. So 65 positions (8 x 8
 * patches and a class) are one block, not two. */
static int64_t block_of(int64_t positions, int64_t most)
{
  return cpu_divide_up(positions, most) < cpu_divide_up(positions, BLOCK) ? most : BLOCK;
}

/* Finds keys and values that are inputs of the node. */
static void read_keys(attention *a, const brim_launch *launch)
{
  const brim_shape *k = &launch->node->in[1]->shape;
  a->keys = k->dim[1];
  a->k_stride = k->dim[2];
  a->k = launch->in[1];
  a->v = launch->in[2];
}

static void cut_into_blocks(attention *a)
{
  a->q_block = block_of(a->queries, QUERIES);
  a->k_block = block_of(a->keys, KEYS);
  a->q_blocks = cpu_divide_up(a->queries, a->q_block);
  a->k_blocks = cpu_divide_up(a->keys, a->k_block);
}

/* `heads`: the number of heads in a row of in[0]. */
static attention attention_with(cpu_backend *b, const brim_launch *launch, int64_t heads)
{
  const brim_shape *q = &launch->node->in[0]->shape;
  const brim_attention_attr *attr = &launch->node->attr.attention;
  return (attention){.backend = b,
                     .simd = cpu_attention_simd_of(b->isa),
                     .attr = attr,
                     .samples = q->dim[0],
                     .queries = q->dim[1],
                     .size = q->dim[2] / heads,
                     .q_stride = q->dim[2],
                     .y_stride = q->dim[2] / heads * attr->heads,
                     .q = launch->in[0],
                     .key =
                         brim_dropout_key_make(launch->step->seed, launch->step->step, attr->stream, attr->dropout_p),
                     .first_sample = launch->step->first_sample,
                     .workspace = launch->workspace};
}

static attention attention_of(cpu_backend *b, const brim_launch *launch)
{
  attention a = attention_with(b, launch, launch->node->attr.attention.heads);
  read_keys(&a, launch);
  cut_into_blocks(&a);
  return a;
}

/* Prepares attention whose q, k and v are in one tensor, or in three if keys are cached. */
static attention attention_qkv_of(cpu_backend *b, const brim_launch *launch)
{
  const brim_attention_attr *attr = &launch->node->attr.attention;
  attention a = attention_with(b, launch, attr->heads + 2 * attr->kv_heads);
  a.keys = a.queries;
  a.k_stride = a.q_stride;
  a.k = a.q + attr->heads * a.size;
  a.v = a.k + attr->kv_heads * a.size;
  if (attr->cached) read_keys(&a, launch);
  cut_into_blocks(&a);
  return a;
}

/* ---- a tile's places ---- */

static int64_t sharing(const attention *a)
{
  return a->attr->heads / a->attr->kv_heads;
}
static int64_t at_query(const attention *a, const tile *t)
{
  return (t->sample * a->queries + t->query) * a->q_stride + t->head * a->size;
}
static int64_t at_result(const attention *a, const tile *t)
{
  return (t->sample * a->queries + t->query) * a->y_stride + t->head * a->size;
}
static int64_t at_key(const attention *a, const tile *t)
{
  return (t->sample * a->keys + t->key % a->keys) * a->k_stride + t->head / sharing(a) * a->size;
}
static int64_t at_lse(const attention *a, const tile *t)
{
  return (t->sample * a->attr->heads + t->head) * a->queries + t->query;
}

/* The keys first .. end - 1. */
typedef struct range {
  int64_t first, end;
} range;

/* Returns the keys that a query sees. Neither end is less than that of the query before: see places in brim/ops.h. */
static range seen_by(const attention *a, int64_t sample, int64_t query)
{
  const brim_attention_attr *attr = a->attr;
  const int64_t place = a->places ? a->places[sample * a->queries + query] : query;
  if (!attr->causal) return (range){0, a->keys};
  range seen = {0, attr->cached ? place + 1 : cpu_max(0, query + a->keys - a->queries + 1)};
  if (!attr->cached) seen.first = cpu_max(0, query - place);
  if (attr->window > 0) seen.first = cpu_max(seen.first, seen.end - attr->window);
  return seen;
}

static tile tile_at(const attention *a, int64_t sample, int64_t head, int64_t q_block, int64_t key)
{
  tile t = {.sample = sample, .head = head, .query = q_block * a->q_block, .key = key};
  t.rows = cpu_min(a->q_block, a->queries - t.query);
  t.columns = cpu_min(a->k_block, a->keys - key % a->keys);
  return t;
}
static tile tile_of(const attention *a, int64_t sample, int64_t head, int64_t q_block, int64_t k_block)
{
  return tile_at(a, sample, head, q_block, k_block * a->k_block);
}

/* Returns the keys that any of the tile's queries sees. */
static range seen_by_rows(const attention *a, const tile *t)
{
  return (range){seen_by(a, t->sample, t->query).first, seen_by(a, t->sample, t->query + t->rows - 1).end};
}
static bool is_empty(const attention *a, const tile *t)
{
  const range seen = seen_by_rows(a, t);
  return seen.end <= t->key || seen.first >= t->key + t->columns;
}

/* Sets the keys that each of the tile's queries sees. */
static void find_seen(const attention *a, const tile *t, scratch *s)
{
  s->tile.rows = t->rows;
  s->tile.columns = t->columns;
  s->tile.scale = (float)a->attr->scale;
  s->tile.softcap = (float)a->attr->softcap;
  s->sees_all = true;
  for (int64_t r = 0; r < t->rows; r++) {
    const range all = seen_by(a, t->sample, t->query + r);
    range in = {cpu_max(0, all.first - t->key), cpu_min(all.end - t->key, t->columns)};
    if (in.first >= in.end) in = (range){0, 0};
    s->tile.from[r] = in.first;
    s->tile.seen[r] = in.end;
    s->sees_all = s->sees_all && in.first == 0 && in.end == t->columns;
  }
}

static void zero_rows(const attention *a, float *to, int64_t stride, int64_t rows)
{
  for (int64_t r = 0; r < rows; r++) memset(to + r * stride, 0, (size_t)a->size * sizeof *to);
}

/* ---- products ---- */

/* The positions of the D numbers of a tile's queries. */
typedef struct rows {
  int64_t first, stride;
} rows;

/* In q and dq. */
static rows query_rows(const attention *a, const tile *t)
{
  return (rows){at_query(a, t), a->q_stride};
}
/* In y and dy. */
static rows result_rows(const attention *a, const tile *t)
{
  return (rows){at_result(a, t), a->y_stride};
}

/* c[rows,columns] = x y^T, over the D numbers of a head. */
static void multiply_heads(const attention *a, const tile *t, const float *x, rows at, const float *y, float *c,
                           float *gemm)
{
  const cpu_gemm g = {.m = t->rows,
                      .n = t->columns,
                      .k = a->size,
                      .a = x + at.first,
                      .lda = at.stride,
                      .b = y + at_key(a, t),
                      .ldb = a->k_stride,
                      .b_transposed = true,
                      .c = c,
                      .ldc = KEYS};
  a->backend->simd->gemm(&g, 0, g.m, 0, g.n, gemm);
}

/* Adds the product g without its masked keys. If b has values that are not finite, a weight of 0
 * would make them NaN. */
static void add_seen(const attention *a, const cpu_attention_tile *t, const cpu_gemm *g)
{
  for (int64_t r = 0; r < t->rows; r++)
    for (int64_t s = t->from[r]; s < t->seen[r]; s++) {
      const float *from = g->b + (g->a_transposed ? r : s) * g->ldb, weight = g->a[r * KEYS + s];
      float *to = g->c + (g->a_transposed ? s : r) * g->ldc;
      for (int64_t d = 0; d < a->size; d++) to[d] += weight * from[d];
    }
}

static void add_product(const attention *a, const cpu_gemm *g, scratch *s)
{
  if (s->sees_all || a->simd->is_finite(g->b, g->ldb, g->k, g->n))
    a->backend->simd->gemm(g, 0, g->m, 0, g->n, s->gemm);
  else
    add_seen(a, &s->tile, g);
}

/* to[rows,D] += weight from[columns,D] */
static void add_to_queries(const attention *a, const tile *t, const float *weight, const float *from, float *to,
                           rows at, scratch *s)
{
  const cpu_gemm g = {.m = t->rows,
                      .n = a->size,
                      .k = t->columns,
                      .a = weight,
                      .lda = KEYS,
                      .b = from + at_key(a, t),
                      .ldb = a->k_stride,
                      .c = to + at.first,
                      .ldc = at.stride,
                      .accumulate = true};
  add_product(a, &g, s);
}

/* to[columns,D] += weight^T from[rows,D] */
static void add_to_keys(const attention *a, const tile *t, const float *weight, const float *from, rows at, float *to,
                        scratch *s)
{
  const cpu_gemm g = {.m = t->columns,
                      .n = a->size,
                      .k = t->rows,
                      .a = weight,
                      .lda = KEYS,
                      .a_transposed = true,
                      .b = from + at.first,
                      .ldb = at.stride,
                      .c = to + at_key(a, t),
                      .ldc = a->k_stride,
                      .accumulate = true};
  add_product(a, &g, s);
}

/* Returns dropout's factors for a row of the tile, or NULL. Random numbers come in fours, not aligned to the tile. */
static const float *mask_of(const attention *a, const tile *t, int64_t row, float *mask)
{
  static const float ones[KEYS + 4] = {
#define ONES_8 1, 1, 1, 1, 1, 1, 1, 1
      ONES_8, ONES_8, ONES_8, ONES_8, ONES_8, ONES_8, ONES_8, ONES_8, ONES_8, ONES_8, 1, 1, 1, 1};
  if (a->attr->dropout_p == 0) return NULL;
  const int64_t element = (t->head * a->queries + t->query + row) * a->keys + t->key, before = element % 4;
  a->backend->simd->dropout_run(&a->key, (float)(1 / (1 - a->attr->dropout_p)), a->first_sample + t->sample,
                                element / 4, 1, 1, ones, NULL, mask, before + t->columns);
  return mask + before;
}

/* ---- forward ---- */

static void weigh_values(const attention *a, const tile *t, scratch *s)
{
  cpu_attention_tile *f = &s->tile;
  find_seen(a, t, s);
  multiply_heads(a, t, a->q, query_rows(a, t), a->k, s->score, s->gemm);
  a->simd->weigh(f);
  for (int64_t r = 0; r < t->rows; r++) {
    if (f->factor[r] != 1) a->simd->multiply(a->y + at_result(a, t) + r * a->y_stride, f->factor[r], a->size);
    const float *mask = mask_of(a, t, r, s->mask);
    if (mask) a->simd->multiply_by(s->score + r * KEYS, mask, f->seen[r]);
  }
  add_to_queries(a, t, s->score, a->v, a->y, result_rows(a, t), s);
}

/* Computes a block of queries of one head. */
static void attend(void *arg, int64_t task, int32_t thread)
{
  const attention *a = arg;
  scratch *s = scratch_of(a, thread);
  const int64_t block = task % a->q_blocks, head = task / a->q_blocks % a->attr->heads;
  tile t = tile_of(a, task / a->q_blocks / a->attr->heads, head, block, 0);
  zero_rows(a, a->y + at_result(a, &t), a->y_stride, t.rows);
  s->tile.score = s->score;
  for (int64_t r = 0; r < QUERIES; r++) { /* including padding rows */
    s->tile.greatest[r] = -INFINITY;
    s->tile.sum[r] = 0;
  }
  const range seen = seen_by_rows(a, &t);
  for (int64_t key = seen.first - seen.first % a->keys % a->k_block; key < seen.end; key += t.columns) {
    t = tile_at(a, t.sample, head, block, key);
    weigh_values(a, &t, s);
  }
  for (int64_t r = 0; r < t.rows; r++) {
    const range keys = seen_by(a, t.sample, t.query + r);
    const bool sees = keys.first < keys.end;
    if (sees) a->simd->multiply(a->y + at_result(a, &t) + r * a->y_stride, 1 / s->tile.sum[r], a->size);
    a->lse[at_lse(a, &t) + r] = sees ? s->tile.greatest[r] + logf(s->tile.sum[r]) : 0;
  }
}

static void attend_all(attention *a, float *y, float *lse)
{
  a->y = y;
  a->lse = lse;
  cpu_pool_run(a->backend->pool, a->samples * a->attr->heads * a->q_blocks, attend, a);
}

static CPU_RUN(attention_run)
{
  attention a = attention_of(self, launch);
  if (launch->node->in_count > 3) a.places = launch->in[3];
  attend_all(&a, launch->out[0], launch->out[1]);
  return BRIM_OK;
}

static CPU_RUN(attention_qkv_run)
{
  attention a = attention_qkv_of(self, launch);
  const uint32_t places = a.attr->cached ? 3 : 1;
  if (launch->node->in_count > places) a.places = launch->in[places];
  attend_all(&a, launch->out[0], launch->out[1]);
  return BRIM_OK;
}

/* ---- backward ---- */

/* Adds a tile's part to dq, and to dk and dv. */
static void send_back(const attention *a, const tile *t, scratch *s, bool to_queries, bool to_keys)
{
  if (is_empty(a, t)) return;
  find_seen(a, t, s);
  multiply_heads(a, t, a->q, query_rows(a, t), a->k, s->score, s->gemm);
  multiply_heads(a, t, a->dy, result_rows(a, t), a->v, s->dz, s->gemm);
  for (int64_t r = 0; r < t->rows; r++) {
    const int64_t at = at_result(a, t) + r * a->y_stride;
    const cpu_attention_row row = {.score = s->score + r * KEYS,
                                   .dz = s->dz + r * KEYS,
                                   .mask = mask_of(a, t, r, s->mask),
                                   .from = s->tile.from[r],
                                   .seen = s->tile.seen[r],
                                   .columns = t->columns,
                                   .scale = s->tile.scale,
                                   .softcap = s->tile.softcap,
                                   .lse = a->lse[at_lse(a, t) + r],
                                   .dy_y = a->simd->dot(a->dy + at, a->y + at, a->size)};
    a->simd->weigh_back(&row);
  }
  if (to_queries) add_to_queries(a, t, s->dz, a->k, a->dq, query_rows(a, t), s);
  if (!to_keys) return;
  add_to_keys(a, t, s->dz, a->q, query_rows(a, t), a->dk, s);
  add_to_keys(a, t, s->score, a->dy, result_rows(a, t), a->dv, s);
}

/* Computes a block of dq of one head. */
static void send_to_queries(void *arg, int64_t task, int32_t thread)
{
  const attention *a = arg;
  task += a->first_head * sharing(a) * a->q_blocks;
  const int64_t block = task % a->q_blocks, head = task / a->q_blocks % a->attr->heads;
  tile t = tile_of(a, task / a->q_blocks / a->attr->heads, head, block, 0);
  zero_rows(a, a->dq + at_query(a, &t), a->q_stride, t.rows);
  for (int64_t k = 0; k < a->k_blocks; k++) {
    t = tile_of(a, t.sample, head, block, k);
    send_back(a, &t, scratch_of(a, thread), true, false);
  }
}

/* Computes a block of dk and dv of one key head and, if requested, its tiles' part of dq. */
static void send_to_keys_of(const attention *a, int64_t sample, int64_t kv_head, int64_t block, bool to_queries,
                            scratch *s)
{
  const int64_t first = kv_head * sharing(a);
  tile t = tile_of(a, sample, first, 0, block);
  zero_rows(a, a->dk + at_key(a, &t), a->k_stride, t.columns);
  zero_rows(a, a->dv + at_key(a, &t), a->k_stride, t.columns);
  for (int64_t head = first; head < first + sharing(a); head++)
    for (int64_t q = 0; q < a->q_blocks; q++) {
      t = tile_of(a, sample, head, q, block);
      send_back(a, &t, s, to_queries, true);
    }
}

static void send_to_keys(void *arg, int64_t task, int32_t thread)
{
  const attention *a = arg;
  task += a->first_head * a->k_blocks;
  const int64_t kv_head = task / a->k_blocks % a->attr->kv_heads;
  send_to_keys_of(a, task / a->k_blocks / a->attr->kv_heads, kv_head, task % a->k_blocks, false, scratch_of(a, thread));
}

/* Computes dk and dv of one key head, and dq of the query heads that share it. */
static void send_to_head(void *arg, int64_t task, int32_t thread)
{
  const attention *a = arg;
  const int64_t sample = task / a->attr->kv_heads, kv_head = task % a->attr->kv_heads;
  for (int64_t head = kv_head * sharing(a); head < (kv_head + 1) * sharing(a); head++) {
    const tile t = tile_of(a, sample, head, 0, 0);
    zero_rows(a, a->dq + at_query(a, &t), a->q_stride, a->queries);
  }
  for (int64_t k = 0; k < a->k_blocks; k++) send_to_keys_of(a, sample, kv_head, k, true, scratch_of(a, thread));
}

/* `y`: the tensor in which y is stored, followed by lse and dy among the inputs. */
static void send_all_back(attention *a, const brim_launch *launch, uint32_t y)
{
  const uint64_t scratch_end = cpu_aligned((uint64_t)a->backend->threads * scratch_bytes(a->backend));
  a->y = launch->in[y];
  a->lse = launch->in[y + 1];
  a->dy = launch->in[y + 2];
  if (launch->node->in_count > y + 3) a->places = launch->in[y + 3];
  if (cpu_is_widened(launch->node->in[y]))
    attend_all(a, launch->in[y], (float *)((char *)launch->workspace + scratch_end));
  cpu_pool *pool = a->backend->pool;
  const int64_t heads = a->samples * a->attr->kv_heads, threads = a->backend->threads;
  /* Each thread has the same number of whole heads; the rest is divided. A tile takes five products, or seven if
   * computed twice. Threads without work cost more from 5/7 on. */
  int64_t rest = heads % threads;
  if (7 * rest >= 5 * threads) rest = 0;
  if (heads > rest) cpu_pool_run(pool, heads - rest, send_to_head, a);
  if (rest == 0) return;
  a->first_head = heads - rest;
  cpu_pool_run(pool, rest * sharing(a) * a->q_blocks, send_to_queries, a);
  cpu_pool_run(pool, rest * a->k_blocks, send_to_keys, a);
}

static CPU_RUN(attention_grad_run)
{
  attention a = attention_of(self, launch);
  a.dq = launch->out[0];
  a.dk = launch->out[1];
  a.dv = launch->out[2];
  send_all_back(&a, launch, 3);
  return BRIM_OK;
}

static CPU_RUN(attention_qkv_grad_run)
{
  attention a = attention_qkv_of(self, launch);
  a.dq = launch->out[0];
  a.dk = a.dq + (a.k - a.q);
  a.dv = a.dq + (a.v - a.q);
  send_all_back(&a, launch, 1);
  return BRIM_OK;
}

CPU_KERNEL(attention) = {.op = "attention", .prepare = attention_prepare, .run = attention_run};
CPU_KERNEL(attention_grad) = {.op = "attention_grad", .prepare = attention_grad_prepare, .run = attention_grad_run};
CPU_KERNEL(attention_qkv) = {.op = "attention_qkv", .prepare = attention_prepare, .run = attention_qkv_run};
CPU_KERNEL(attention_qkv_grad) = {
    .op = "attention_qkv_grad", .prepare = attention_qkv_grad_prepare, .run = attention_qkv_grad_run};
