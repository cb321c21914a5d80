/* Computes the places of sharded parameters, and the ranks' parts of them. See shard.h. */
#include "graph/shard.h"

#include "base/align.h"

static uint64_t elements_of(const brim_tensor *t)
{
  return brim_round_up((uint64_t)brim_shape_count(&t->shape), BRIM_SHARD_ELEMENTS);
}

/* Ends the bucket, which has `elements` elements of parameters. */
static void close_bucket(brim_shards *s, uint64_t elements)
{
  brim_shard_bucket *b = &s->bucket[s->bucket_count++];
  const uint64_t ranks = (uint64_t)s->world.ranks;
  b->first = s->value_count;
  b->part = brim_round_up((elements + ranks - 1) / ranks, BRIM_SHARD_ELEMENTS);
  b->own = s->gradients ? s->gradient_count : b->first + (uint64_t)s->world.rank * b->part;
  s->value_count += b->part * ranks;
  s->gradient_count += s->gradients ? b->part : b->part * ranks;
}

/* ---- the size of buckets ---- */

#define SIZE_LEAST 65536u /* bytes; smaller messages take longer than their contents justify */

/* The most bytes of two consecutive buckets, because two exist at the same time. */
static uint64_t most_alive(const brim_graph *g, uint64_t bucket_bytes)
{
  uint64_t before = 0, now = 0, most = 0;
  for (size_t i = g->parameter_count; i-- > 0;) {
    if (!brim_parameter_is_trained(&g->parameter[i])) continue;
    now += elements_of(g->parameter[i].value) * brim_dtype_bytes(g->real);
    most = before + now > most ? before + now : most;
    if (now < bucket_bytes) continue;
    before = now;
    now = 0;
  }
  return most;
}

uint64_t brim_shards_bucket_bytes(const brim_graph *g, uint64_t most)
{
  uint64_t all = 0, least = UINT64_MAX, size = most;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (brim_parameter_is_trained(&g->parameter[i])) all += g->parameter[i].value->bytes;
  for (uint64_t s = most; s >= SIZE_LEAST; s /= 2) {
    const uint64_t alive = most_alive(g, s);
    if (alive < least) least = alive;
  }
  while (size / 2 >= SIZE_LEAST && most_alive(g, size) > least + all / 64) size /= 2;
  return size;
}

/* ---- places ---- */

static void fill_buckets(brim_shards *s, const brim_graph *g, uint64_t bucket_bytes)
{
  uint64_t elements = 0;
  for (size_t i = g->parameter_count; i-- > 0;) {
    s->bucket_of[i] = SIZE_MAX;
    s->elements[i] = (uint64_t)brim_shape_count(&g->parameter[i].value->shape);
    if (!brim_parameter_is_trained(&g->parameter[i])) continue;
    s->bucket_of[i] = s->bucket_count;
    s->value_at[i] = s->gradient_at[i] = s->value_count + elements;
    elements += elements_of(g->parameter[i].value);
    if (elements * brim_dtype_bytes(g->real) < bucket_bytes) continue;
    close_bucket(s, elements);
    elements = 0;
  }
  if (elements > 0) close_bucket(s, elements);
}

static void place_replicated(brim_shards *s, const brim_graph *g)
{
  s->replicated_at = s->gradient_count;
  for (size_t i = 0; i < g->parameter_count; i++) {
    if (!g->parameter[i].is_buffer || g->parameter[i].is_frozen) continue;
    s->value_at[i] = s->value_count;
    s->gradient_at[i] = s->gradient_count;
    s->value_count += elements_of(g->parameter[i].value);
    s->gradient_count += elements_of(g->parameter[i].value);
  }
  for (size_t i = 0; i < g->further_count; i++) {
    if (s->gradients && !g->further[i].of) continue;
    s->further_at[i] = s->gradient_count;
    s->gradient_count += elements_of(g->further[i].gradient);
  }
}

brim_shards *brim_shards_make(brim_arena *arena, const brim_graph *g, const brim_world *world, bool gradients,
                              uint64_t bucket_bytes)
{
  brim_shards *s = BRIM_ARENA_NEW(arena, brim_shards, 1);
  *s = (brim_shards){.world = *world,
                     .gradients = gradients,
                     .bucket = BRIM_ARENA_NEW(arena, brim_shard_bucket, g->parameter_count),
                     .bucket_of = BRIM_ARENA_NEW(arena, size_t, g->parameter_count),
                     .elements = BRIM_ARENA_NEW(arena, uint64_t, g->parameter_count),
                     .value_at = BRIM_ARENA_NEW(arena, uint64_t, g->parameter_count),
                     .gradient_at = BRIM_ARENA_NEW(arena, uint64_t, g->parameter_count),
                     .further_at = BRIM_ARENA_NEW(arena, uint64_t, g->further_count),
                     .parameter_count = g->parameter_count,
                     .further_count = g->further_count};
  fill_buckets(s, g, bucket_bytes);
  place_replicated(s, g);
  return s;
}

bool brim_shards_own(const brim_shards *s, size_t parameter, int64_t *first, int64_t *count)
{
  if (s->bucket_of[parameter] == SIZE_MAX) return false;
  const brim_shard_bucket *b = &s->bucket[s->bucket_of[parameter]];
  const uint64_t own = b->first + (uint64_t)s->world.rank * b->part, start = s->value_at[parameter];
  const uint64_t end = start + s->elements[parameter];
  const uint64_t from = start > own ? start : own, to = end < own + b->part ? end : own + b->part;
  if (from >= to) return false;
  *first = (int64_t)(from - start);
  *count = (int64_t)(to - from);
  return true;
}

static void find_slices(const brim_shards *s, const brim_graph *g, uint64_t *at)
{
  const uint64_t rank = (uint64_t)s->world.rank;
  for (size_t i = 0; i < g->parameter_count; i++) {
    if (!g->slice[i].value) continue;
    const brim_shard_bucket *b = &s->bucket[s->bucket_of[i]];
    const uint64_t value = s->value_at[i] + (uint64_t)g->slice[i].first;
    at[g->slice[i].value->id] = value;
    at[g->slice[i].gradient->id] = b->own + value - (b->first + rank * b->part);
  }
}

void brim_shards_find_places(const brim_shards *s, const brim_graph *g, uint64_t *at)
{
  for (size_t i = 0; i < g->parameter_count; i++) {
    at[g->parameter[i].value->id] = s->value_at[i];
    if (g->parameter[i].gradient) at[g->parameter[i].gradient->id] = s->gradient_at[i];
  }
  for (size_t i = 0; i < s->further_count;
       i++) { /* a graph may have further gradients than these; those are transient */
    if (!g->further || !g->further[i].gradient) continue;
    const brim_own_slice *slice = g->slice && !g->further[i].of ? &g->slice[g->further[i].parameter] : NULL;
    at[g->further[i].gradient->id] = s->further_at[i] + (slice ? (uint64_t)slice->first : 0);
  }
  for (size_t k = 0; k < g->shard_count; k++) at[g->shard[k].own->id] = s->bucket[k].own;
  if (g->slice) find_slices(s, g, at);
}
