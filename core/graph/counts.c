#include "graph/counts.h"

#include <stdatomic.h>

static _Atomic uint64_t counted[BRIM_COUNTED];

void brim_count(enum brim_counted what)
{
  atomic_fetch_add_explicit(&counted[what], 1, memory_order_relaxed);
}

uint64_t brim_count_of(enum brim_counted what)
{
  return atomic_load_explicit(&counted[what], memory_order_relaxed);
}
