#include "federate/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "brim/random.h"

static const char *const help[] = {
    [BRIM_METHOD_RANDOM] = "each client is as likely as another; federated averaging (the default)",
    [BRIM_METHOD_ROUND_ROBIN] = "clients take turns in the order of their numbers",
    [BRIM_METHOD_PROPORTIONAL] = "drawn one after another, each in proportion to its samples among those left",
};

const char *brim_method_help(int32_t method)
{
  return (size_t)method < sizeof help / sizeof help[0] ? help[method] : NULL;
}

const char *brim_method_name(brim_arena *arena, int32_t method)
{
  const char *name = BRIM_METHOD_NAMES;
  for (; method > 0; method--) name += strcspn(name, "|") + 1;
  return brim_arena_string_n(arena, name, strcspn(name, "|"));
}

static void select_random(uint64_t seed, int64_t clients, int64_t round, int64_t count, int64_t *out)
{
  brim_permutation order;
  brim_permutation_init(&order, seed, BRIM_STREAM_SELECT, (uint64_t)round, (uint64_t)clients);
  for (int64_t i = 0; i < count; i++) out[i] = (int64_t)brim_permutation_at(&order, (uint64_t)i);
}

static void select_in_turn(int64_t clients, int64_t round, int64_t count, int64_t *out)
{
  const int64_t first = round % clients * count % clients; /* below 2^30 each: no product overflows */
  for (int64_t i = 0; i < count; i++) out[i] = (first + i) % clients;
}

typedef struct lot {
  double key;
  int64_t client;
} lot;

/* Is a drawn before b? */
static bool is_before(const lot *a, const lot *b)
{
  return a->key > b->key || (a->key == b->key && a->client < b->client);
}

/* Puts the first of a heap, the lot that is drawn last, where it belongs. */
static void sink(lot *heap, int64_t count)
{
  for (int64_t i = 0;;) {
    int64_t last = i;
    for (int64_t child = 2 * i + 1; child <= 2 * i + 2 && child < count; child++)
      if (is_before(&heap[last], &heap[child])) last = child;
    if (last == i) return;
    const lot other = heap[i];
    heap[i] = heap[last];
    heap[last] = other;
    i = last;
  }
}

static int by_turn(const void *a, const void *b)
{
  return is_before(a, b) ? -1 : 1;
}

/* One after another without replacement, each in proportion to its samples among those that are left: the largest of
 * log(u) / samples (Efraimidis and Spirakis: Weighted Random Sampling with a Reservoir, 2006). */
static brim_status select_by_samples(uint64_t seed, const brim_partition *p, int64_t round, int64_t count, int64_t *out)
{
  lot *heap = brim_try_malloc((size_t)count * sizeof *heap);
  if (!heap) return brim_fail(BRIM_ENOMEM_HOST, "no host memory to select %lld clients", (long long)count);
  for (int64_t i = 0; i < count; i++) heap[i] = (lot){-INFINITY, INT64_MAX};
  for (int64_t client = 0; client < p->clients; client++) {
    const brim_philox r = brim_random4(seed, BRIM_STREAM_SELECT, 1 + (uint32_t)((uint64_t)round >> 32),
                                       (uint64_t)client, (uint32_t)round);
    const double u = ((double)r.v[0] + ((double)r.v[1] + 0.5) / 4294967296.0) / 4294967296.0;
    const lot one = {log(u) / (double)brim_partition_count(p, client), client};
    if (!is_before(&one, &heap[0])) continue;
    heap[0] = one;
    sink(heap, count);
  }
  qsort(heap, (size_t)count, sizeof *heap, by_turn);
  for (int64_t i = 0; i < count; i++) out[i] = heap[i].client;
  free(heap);
  return BRIM_OK;
}

brim_status brim_select_clients(const brim_settings *s, const brim_partition *p, int64_t round, int64_t count,
                                int64_t *out)
{
  const uint64_t seed = (uint64_t)s->seed;
  switch ((enum brim_method)s->method) {
  case BRIM_METHOD_RANDOM:
    select_random(seed, p->clients, round, count, out);
    return BRIM_OK;
  case BRIM_METHOD_ROUND_ROBIN:
    select_in_turn(p->clients, round, count, out);
    return BRIM_OK;
  case BRIM_METHOD_PROPORTIONAL:
    return select_by_samples(seed, p, round, count, out);
  }
  return brim_fail(BRIM_EINTERNAL, "there is no method %d", (int)s->method);
}
