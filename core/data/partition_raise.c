/* Enforces the minimum number of samples per client in one pass, without drawing again. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "data/partition_parts.h"

typedef struct holding {
  int64_t count, client;
} holding;

static int most_first(const void *a, const void *b)
{
  const holding *x = a, *y = b;
  if (x->count != y->count) return x->count < y->count ? 1 : -1;
  return (x->client > y->client) - (x->client < y->client);
}

/* Returns the highest level such that the samples above it suffice if all clients with more give them away. */
static int64_t find_level(const holding *rich, int64_t clients, int64_t least, int64_t needed)
{
  int64_t low = least, high = rich[0].count;
  while (low < high) {
    const int64_t level = low + (high - low + 1) / 2;
    int64_t above = 0;
    for (int64_t k = 0; k < clients && rich[k].count > level; k++) above += rich[k].count - level;
    if (above >= needed)
      low = level;
    else
      high = level - 1;
  }
  return low;
}

/* Computes the number of samples that each client gives away. `rich` contains every client, sorted. */
static void choose_gifts(brim_partition *p, int64_t least, holding *rich, int64_t *gives)
{
  int64_t needed = 0;
  for (int64_t k = 0; k < p->clients; k++) needed += rich[k].count < least ? least - rich[k].count : 0;
  p->moved = needed;
  if (needed == 0) return;
  qsort(rich, (size_t)p->clients, sizeof *rich, most_first);
  const int64_t level = find_level(rich, p->clients, least, needed);
  for (int64_t k = 0; k < p->clients && needed > 0 && rich[k].count > level; k++) {
    const int64_t more = rich[k].count - level;
    gives[rich[k].client] = more < needed ? more : needed;
    needed -= gives[rich[k].client];
  }
}

static void move_samples(const brim_partition *p, int64_t least, holding *rich, int64_t *gives, int64_t *owner)
{
  int64_t poor = p->clients - 1;
  for (int64_t i = p->samples; i-- > 0;) {
    if (gives[owner[i]] == 0) continue;
    while (rich[poor].count >= least) poor--;
    gives[owner[i]]--;
    owner[i] = rich[poor].client;
    rich[poor].count++;
  }
}

static void move_counts(const brim_partition *p, int64_t least, const int64_t *gives, int64_t *count)
{
  for (int64_t k = 0; k < p->clients; k++) count[k] = count[k] < least ? least : count[k] - gives[k];
}

brim_status brim_partition_raise(brim_partition *p, int64_t least, int64_t *count, int64_t *owner)
{
  holding *rich = brim_try_calloc((size_t)p->clients, sizeof *rich);
  int64_t *gives = brim_try_calloc((size_t)p->clients, sizeof *gives);
  brim_status status = BRIM_OK;
  if (rich && gives) {
    for (int64_t k = 0; k < p->clients; k++) rich[k] = (holding){count ? count[k] : 0, k};
    for (int64_t i = 0; owner && i < p->samples; i++) rich[owner[i]].count++;
    choose_gifts(p, least, rich, gives);
    if (p->moved > 0 && owner) move_samples(p, least, rich, gives, owner);
    if (p->moved > 0 && count) move_counts(p, least, gives, count);
  } else {
    status = brim_fail(BRIM_ENOMEM_HOST, "no host memory to assign samples to %" PRId64 " clients", p->clients);
  }
  free(rich);
  free(gives);
  return status;
}
