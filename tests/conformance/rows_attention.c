/* Rows of attention and rotary embedding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/bench.h"
#include "graph/fuse.h"
#include "graph/generate.h"

#define PRODUCTS_MAX                                                                                                   \
  40000 /* pairs of query and key of a sample, times the size of the heads: keeps the suite short                      \
         */

static int64_t pick_size(bench *b)
{
  static const int64_t sizes[] = {1, 3, 20, 33, 64};
  switch (b->o.size) {
  case SIZE_SMALL:
    return bench_pick(b, 1, 3);
  case SIZE_ONE:
    return 1;
  case SIZE_BLOCKED:
    return 16 * bench_pick(b, 1, 4);
  default:
    return sizes[bench_pick(b, 0, 4)];
  }
}

static int64_t pick_length(bench *b)
{
  if (b->o.size == SIZE_ONE) return 1;
  return bench_pick(b, 1, b->o.size == SIZE_SMALL ? 4 : 70);
}

static brim_attention_options pick_options(bench *b)
{
  brim_attention_options o = {.causal = (int32_t)bench_pick(b, 0, 1)};
  const int64_t kv_heads = b->o.size == SIZE_SMALL ? bench_pick(b, 1, 2) : bench_pick(b, 1, 4);
  o.heads = kv_heads * bench_pick(b, 1, 8 / kv_heads);
  if (o.heads != kv_heads || bench_pick(b, 0, 1)) o.kv_heads = kv_heads;
  if (bench_pick(b, 0, 1)) o.scale = (double)bench_pick(b, -2, 6) / 2;
  if (bench_pick(b, 0, 1)) o.dropout = (double)bench_pick(b, 1, 9) / 10;
  return o;
}

static brim_tensor *attend(bench *b, int64_t T, int64_t S, int64_t D, brim_attention_options o)
{
  const int64_t kv = o.kv_heads ? o.kv_heads : o.heads;
  const brim_shape q = {3, {b->o.batch, T, o.heads * D}}, k = {3, {b->o.batch, S, kv * D}};
  brim_tensor *x = bench_input(b, &q, "q");
  if (T == S && kv == o.heads && bench_pick(b, 0, 3) == 0) return brim_attention(b->g, x, x, x, o);
  brim_tensor *y = bench_input(b, &k, "k");
  return brim_attention(b->g, x, y, bench_input(b, &k, "v"), o);
}

/* Every query sees a key. */
static brim_tensor *make_attention(bench *b)
{
  const brim_attention_options o = pick_options(b);
  int64_t D = pick_size(b), T = pick_length(b), S = bench_pick(b, 0, 2) ? pick_length(b) : T;
  while (o.heads * T * S * D > PRODUCTS_MAX && D > 1) D = (D + 1) / 2;
  while (o.heads * T * S * D > PRODUCTS_MAX) T = (T + 1) / 2;
  return o.causal && S < T ? attend(b, S, T, D, o) : attend(b, T, S, D, o);
}
BENCH_ROW(attention) = {"attention", make_attention, .by_sample = true, .terms = 0.1};

/* With three key heads and an odd number of samples, neither 2 nor 5 threads can share the heads evenly, so they
 * compute the gradients of the remaining heads block by block. Most lengths have several blocks, the last of which is
 * short. */
static brim_tensor *make_attention_uneven(bench *b)
{
  brim_attention_options o = pick_options(b);
  const bool is_long = b->o.size == SIZE_ODD || b->o.size == SIZE_ANY;
  o.kv_heads = 3;
  o.heads = 3 * bench_pick(b, 1, 2);
  const int64_t T = is_long ? 85 : pick_length(b);
  return attend(b, T, T, bench_pick(b, 1, 2), o);
}
BENCH_ROW(attention_uneven) = {"attention, 3 key heads", make_attention_uneven, .by_sample = true, .skips = true,
                               .terms = 0.1};

/* Has more queries than keys, so the first queries see no key. */
static brim_tensor *make_attention_unseeing(bench *b)
{
  brim_attention_options o = pick_options(b);
  int64_t D = pick_size(b), S = pick_length(b), T = S + pick_length(b);
  o.causal = 1;
  while (o.heads * T * S * D > PRODUCTS_MAX && D > 1) D = (D + 1) / 2;
  while (o.heads * T * S * D > PRODUCTS_MAX && S > 1) S = (S + 1) / 2;
  return attend(b, T, S, D, o);
}
BENCH_ROW(attention_unseeing) = {"attention, queries that see no key", make_attention_unseeing, .by_sample = true,
                                 .skips = true, .terms = 0.1};

/* Has several blocks of queries and of keys, the last ones partly filled. */
static brim_tensor *make_attention_large(bench *b)
{
  return attend(b, 200, 200, 64, (brim_attention_options){.heads = 2, .kv_heads = 1, .causal = 1, .dropout = 0.1});
}
BENCH_ROW(attention_large) = {"attention, 200", make_attention_large, .by_sample = true, .large = true, .terms = 0.1};

static brim_attention_limits pick_limits(bench *b)
{
  brim_attention_limits l = {.size = sizeof l};
  if (bench_pick(b, 0, 1)) l.window = bench_pick(b, 1, 80);
  if (bench_pick(b, 0, 1)) l.softcap = (double)bench_pick(b, 1, 8) / 4;
  return l;
}

/* Queries see a part of the keys: a window of them, or their own document, with scores below a cap. */
static brim_tensor *limit(bench *b, int64_t T, int64_t S, int64_t D, brim_attention_options o,
                          brim_attention_limits limits)
{
  const int64_t kv = o.kv_heads ? o.kv_heads : o.heads;
  const brim_shape q = {3, {b->o.batch, T, o.heads * D}}, k = {3, {b->o.batch, S, kv * D}};
  brim_tensor *x = bench_input(b, &q, "q"), *y = bench_input(b, &k, "k");
  return brim_attention_limited(b->g, x, y, bench_input(b, &k, "v"), o, &limits);
}
static brim_tensor *make_attention_limited(bench *b)
{
  brim_attention_options o = pick_options(b);
  brim_attention_limits limits = pick_limits(b);
  int64_t D = pick_size(b), T = pick_length(b), S = bench_pick(b, 0, 2) ? T + bench_pick(b, 0, 20) : T;
  if (!o.causal) limits.window = 0;
  while (o.heads * T * S * D > PRODUCTS_MAX && D > 1) D = (D + 1) / 2;
  while (o.heads * T * S * D > PRODUCTS_MAX) T = (T + 1) / 2;
  return limit(b, T, S, D, o, limits);
}
BENCH_ROW(attention_limited) = {"attention, window and soft cap", make_attention_limited, .by_sample = true,
                                .skips = true, .terms = 0.1};

static brim_tensor *make_attention_documents(bench *b)
{
  brim_attention_options o = pick_options(b);
  int64_t D = pick_size(b), T = pick_length(b);
  o.causal = 1;
  while (o.heads * T * T * D > PRODUCTS_MAX && D > 1) D = (D + 1) / 2;
  while (o.heads * T * T * D > PRODUCTS_MAX) T = (T + 1) / 2;
  bench_places(b, T, bench_pick(b, 1, 30), 1);
  return limit(b, T, T, D, o, pick_limits(b));
}
BENCH_ROW(attention_documents) = {"attention, documents", make_attention_documents, .by_sample = true, .skips = true,
                                  .terms = 0.1};

/* Has several blocks, in some of which queries see no key. */
static brim_tensor *make_attention_documents_large(bench *b)
{
  const brim_attention_options o = {.heads = 2, .kv_heads = 1, .causal = 1, .dropout = 0.1};
  bench_places(b, 300, 90, 1);
  return limit(b, 300, 300, 64, o, (brim_attention_limits){sizeof(brim_attention_limits), 70, 2});
}
BENCH_ROW(attention_documents_large) = {"attention, documents, 300",
                                        make_attention_documents_large,
                                        .by_sample = true,
                                        .large = true,
                                        .skips = true,
                                        .terms = 0.1};

/* Reads keys from a cache: all keys since the beginning, or a ring with the keys of a window. */
static brim_tensor *make_attention_cached(bench *b)
{
  const int64_t kv = bench_pick(b, 1, 3), T = pick_length(b), D = pick_size(b), ring = bench_pick(b, 0, 1);
  const int64_t window = ring ? bench_pick(b, 1, 60) : bench_pick(b, 0, 60), first = bench_pick(b, 1, 90);
  const int64_t capacity = ring ? window + T : first + T;
  const brim_attr attr = {.attention = {.heads = 2 * kv,
                                        .kv_heads = kv,
                                        .scale = 0.25,
                                        .causal = 1,
                                        .cached = 1,
                                        .window = window,
                                        .softcap = (double)bench_pick(b, 0, 2)}};
  const brim_shape q = {3, {b->o.batch, T, 2 * kv * D}}, k = {3, {b->o.batch, capacity, kv * D}};
  brim_tensor *places = bench_places(b, T, INT32_MAX, first);
  brim_tensor *x = bench_input(b, &q, "q"), *y = bench_input(b, &k, "k");
  brim_tensor *const in[] = {x, y, bench_input(b, &k, "v"), places};
  brim_graph_apply(b->g, "attention", NULL, in, 4, &attr);
  return NULL;
}
BENCH_ROW(attention_cached) = {"attention, cached keys", make_attention_cached, .by_sample = true, .skips = true,
                               .terms = 0.1};

/* Writes some or all rows of a cache. Rows past its end wrap around to its start. */
static brim_tensor *make_cache_write(bench *b)
{
  const int64_t T = pick_length(b), first = bench_pick(b, 1, 90);
  const brim_shape shape = {3, {b->o.batch, T, pick_size(b)}};
  b->g->generation.capacity = T + bench_pick(b, 0, 30);
  bench_places(b, T, INT32_MAX, first);
  brim_generate_cache(b->g, "cache", bench_input(b, &shape, "x"), 0);
  return NULL;
}
BENCH_ROW(cache_write) = {"cache_write", make_cache_write, .by_sample = true, .skips = true};

/* ---- q, k and v in one tensor ---- */

/* Slices a tensor of q, k and v into its parts. */
static void cut(bench *b, brim_tensor *x, const brim_attention_options *o, int64_t D, brim_tensor *part[3])
{
  const int64_t keys = (o->kv_heads ? o->kv_heads : o->heads) * D, size[] = {o->heads * D, keys, keys};
  for (int64_t i = 0, at = 0; i < 3; at += size[i++]) part[i] = brim_slice(b->g, x, 2, at, size[i]);
}

/* The fusion pass must have left only attention_qkv and the nodes of its input. */
static brim_tensor *join(bench *b, brim_tensor *y)
{
  brim_graph_fuse(b->g, BRIM_FUSE_ALL, NULL, NULL);
  for (size_t i = 0; i < b->g->node_count && b->g->status == BRIM_OK; i++)
    if (strcmp(b->g->node[i]->op, "attention") == 0 || strcmp(b->g->node[i]->op, "slice") == 0)
      fail_msg("attention_qkv was not made: there is a node %s", b->g->node[i]->op);
  return y;
}

static brim_tensor *attend_joined(bench *b, int64_t T, int64_t D, brim_attention_options o,
                                  brim_attention_limits limits)
{
  const int64_t kv = o.kv_heads ? o.kv_heads : o.heads;
  brim_tensor *part[3];
  cut(b, bench_input(b, &(brim_shape){3, {b->o.batch, T, (o.heads + 2 * kv) * D}}, "qkv"), &o, D, part);
  return join(b, brim_attention_limited(b->g, part[0], part[1], part[2], o, &limits));
}

static brim_tensor *make_attention_qkv(bench *b)
{
  const brim_attention_options o = pick_options(b);
  int64_t D = pick_size(b), T = pick_length(b);
  brim_attention_limits limits = {sizeof limits};
  if (o.causal && bench_pick(b, 0, 1)) limits = pick_limits(b);
  while (o.heads * T * T * D > PRODUCTS_MAX && D > 1) D = (D + 1) / 2;
  while (o.heads * T * T * D > PRODUCTS_MAX) T = (T + 1) / 2;
  if (o.causal && bench_pick(b, 0, 1)) bench_places(b, T, bench_pick(b, 1, 30), 1);
  return attend_joined(b, T, D, o, limits);
}
BENCH_ROW(attention_qkv) = {"attention_qkv", make_attention_qkv, .by_sample = true, .skips = true, .terms = 0.1};

static brim_tensor *make_attention_qkv_large(bench *b)
{
  const brim_attention_options o = {.heads = 2, .kv_heads = 1, .causal = 1, .dropout = 0.1};
  return attend_joined(b, 200, 64, o, (brim_attention_limits){sizeof(brim_attention_limits)});
}
BENCH_ROW(attention_qkv_large) = {"attention_qkv, 200", make_attention_qkv_large, .by_sample = true, .large = true,
                                  .terms = 0.1};

/* Applies rotary embeddings to q and k; fusion makes them one node. */
static brim_tensor *make_attention_qkv_rotary(bench *b)
{
  const int64_t kv = bench_pick(b, 1, 3), heads = kv * bench_pick(b, 1, 2), T = b->o.size == SIZE_ONE ? 1 : 9;
  const int64_t D = 2 * bench_pick(b, 1, 12), dims = 2 * bench_pick(b, 1, D / 2);
  const brim_attention_options o = {.heads = heads, .kv_heads = kv, .causal = 1};
  if (bench_pick(b, 0, 1)) bench_places(b, T, bench_pick(b, 1, 30), 1);
  brim_tensor *part[3];
  cut(b, bench_input(b, &(brim_shape){3, {b->o.batch, T, (heads + 2 * kv) * D}}, "qkv"), &o, D, part);
  for (int i = 0; i < 2; i++)
    part[i] = brim_rotary(b->g, part[i], (brim_rotary_options){.heads = i ? kv : heads, .dims = dims});
  brim_tensor *y = join(b, brim_attention(b->g, part[0], part[1], part[2], o));
  if (b->g->status == BRIM_OK && b->g->node_count != 2) fail_msg("%zu nodes, not 2", b->g->node_count);
  return y;
}
BENCH_ROW(attention_qkv_rotary) = {"attention_qkv, rotary", make_attention_qkv_rotary, .by_sample = true, .skips = true,
                                   .terms = 0.1};

/* The keys and values of the tensor go to caches. Texts begin here, so the operation reads nothing else from the
 * caches. */
static brim_tensor *make_attention_qkv_cached(bench *b)
{
  const int64_t kv = bench_pick(b, 1, 3), T = pick_length(b), D = pick_size(b);
  const brim_attention_options o = {.heads = 2 * kv, .kv_heads = kv, .causal = 1};
  brim_tensor *part[3];
  b->g->generation.capacity = T + bench_pick(b, 0, 30);
  bench_places(b, T, INT32_MAX, 1);
  cut(b, bench_input(b, &(brim_shape){3, {b->o.batch, T, 4 * kv * D}}, "qkv"), &o, D, part);
  join(b, brim_attention(b->g, part[0], part[1], part[2], o));
  return NULL;
}
BENCH_ROW(attention_qkv_cached) = {"attention_qkv, cached keys", make_attention_qkv_cached, .by_sample = true,
                                   .skips = true, .terms = 0.1};

/* Uses head sizes between those for which kernels are built: 96 and 160. */
static brim_tensor *make_attention_96(bench *b)
{
  return attend(b, 70, 35, 96, (brim_attention_options){.heads = 1});
}
BENCH_ROW(attention_96) = {"attention, heads of 96", make_attention_96, .by_sample = true, .large = true, .terms = 0.1};

static brim_tensor *make_attention_160(bench *b)
{
  return attend(b, 35, 70, 160, (brim_attention_options){.heads = 1, .causal = 1});
}
BENCH_ROW(attention_160) = {"attention, heads of 160", make_attention_160, .by_sample = true, .large = true,
                            .terms = 0.1};

/* Head sizes for which a device uses tensor cores, with several tiles of queries and of keys, the last of them partly
 * filled. The cases cover every kind of attention, and half of them have dropout. */
static brim_tensor *attend_tiles(bench *b, int64_t D)
{
  for (int64_t i = 0; i < D / 16; i++) (void)bench_pick(b, 0, 1); /* so that each size gets other choices */
  brim_attention_options o = {.heads = 2, .causal = (int32_t)bench_pick(b, 0, 1)};
  brim_attention_limits limits = {.size = sizeof limits};
  const bool is_square = bench_pick(b, 0, 2) > 0;
  const int64_t T = bench_pick(b, 40, 100), S = is_square ? T : bench_pick(b, 40, 150);
  const bool is_joined = T == S && bench_pick(b, 0, 1);
  o.kv_heads = bench_pick(b, 1, 2);
  if (bench_pick(b, 0, 1)) o.scale = (double)bench_pick(b, -2, 6) / 16;
  if (bench_pick(b, 0, 1)) o.dropout = (double)bench_pick(b, 1, 9) / 10;
  if (bench_pick(b, 0, 1)) limits = pick_limits(b);
  if (!o.causal) limits.window = 0;
  if (o.causal && T == S && bench_pick(b, 0, 1)) bench_places(b, T, bench_pick(b, 5, 90), 1);
  return is_joined ? attend_joined(b, T, D, o, limits) : limit(b, T, S, D, o, limits);
}
#define TILES_ROW(size)                                                                                                \
  static brim_tensor *make_attention_tiles_##size(bench *b)                                                            \
  {                                                                                                                    \
    return attend_tiles(b, size);                                                                                      \
  }                                                                                                                    \
  BENCH_ROW(attention_tiles_##size) = {"attention, tiles, heads of " #size,                                            \
                                       make_attention_tiles_##size,                                                    \
                                       .by_sample = true,                                                              \
                                       .large = true,                                                                  \
                                       .skips = true,                                                                  \
                                       .terms = 0.1}
TILES_ROW(40);
TILES_ROW(64);
TILES_ROW(80);
TILES_ROW(96);
TILES_ROW(128);

static brim_tensor *make_rotary(bench *b)
{
  brim_rotary_options o = {.heads = b->o.size == SIZE_ONE ? 1 : bench_pick(b, 1, 5),
                           .interleaved = (int32_t)bench_pick(b, 0, 1)};
  int64_t D = pick_size(b) + 1;
  if (bench_pick(b, 0, 1)) o.base = (double)bench_pick(b, 1, 20) / 2;
  if (bench_pick(b, 0, 1) || D % 2) o.dims = 2 * bench_pick(b, 1, D / 2);
  return brim_rotary(b->g, bench_input(b, &(brim_shape){3, {b->o.batch, pick_length(b), o.heads * D}}, "x"), o);
}
static brim_tensor *make_rotary_scaled(bench *b)
{
  const int64_t heads = bench_pick(b, 1, 5), dims = 2 * bench_pick(b, 1, 40), original = bench_pick(b, 2, 300);
  const brim_rotary_options o = {
      .heads = heads, .base = (double)bench_pick(b, 2, 20000), .interleaved = (int32_t)bench_pick(b, 0, 1)};
  const brim_rotary_scaling scaling = {.size = sizeof scaling,
                                       .kind = (int32_t)bench_pick(b, BRIM_ROTARY_LINEAR, BRIM_ROTARY_YARN),
                                       .factor = (double)bench_pick(b, 2, 64) / 2,
                                       .low = (double)bench_pick(b, 1, 4) / 2,
                                       .high = (double)bench_pick(b, 3, 32),
                                       .original = (double)original,
                                       .amplitude = (double)bench_pick(b, 0, 6) / 4};
  brim_tensor *x = bench_input(b, &(brim_shape){3, {b->o.batch, pick_length(b), heads * dims}}, "x");
  return brim_rotary_scaled(b->g, x, o, &scaling);
}
static brim_tensor *make_rotary_longrope(bench *b)
{
  double divisor[40];
  const int64_t pairs = bench_pick(b, 1, 40), heads = bench_pick(b, 1, 5), rest = bench_pick(b, 0, 3);
  for (int64_t i = 0; i < pairs; i++) divisor[i] = (double)bench_pick(b, 2, 200) / 4;
  const brim_rotary_options o = {.heads = heads, .dims = 2 * pairs, .interleaved = (int32_t)bench_pick(b, 0, 1)};
  const brim_rotary_scaling scaling = {.size = sizeof scaling,
                                       .kind = BRIM_ROTARY_LONGROPE,
                                       .amplitude = (double)bench_pick(b, 0, 6) / 4,
                                       .divisor = divisor,
                                       .divisors = pairs};
  const brim_shape shape = {3, {b->o.batch, pick_length(b), heads * (2 * pairs + rest)}};
  return brim_rotary_scaled(b->g, bench_input(b, &shape, "x"), o, &scaling);
}
BENCH_ROW(rotary_longrope) = {"rotary, longrope", make_rotary_longrope, .by_sample = true};
static brim_tensor *make_rotary_places(bench *b)
{
  bench_places(b, b->o.size == SIZE_ONE ? 1 : bench_pick(b, 1, 40), bench_pick(b, 1, 20), bench_pick(b, 1, 50));
  const int64_t heads = bench_pick(b, 1, 3), size = 2 * bench_pick(b, 1, 20), T = b->g->places->shape.dim[1];
  const brim_rotary_options o = {.heads = heads, .interleaved = (int32_t)bench_pick(b, 0, 1)};
  return brim_rotary(b->g, bench_input(b, &(brim_shape){3, {b->o.batch, T, heads * size}}, "x"), o);
}
BENCH_ROW(rotary_places) = {"rotary, places", make_rotary_places, .by_sample = true};
BENCH_ROW(rotary_scaled) = {"rotary, scaled frequencies", make_rotary_scaled, .by_sample = true};
BENCH_ROW(rotary) = {"rotary", make_rotary, .by_sample = true};
