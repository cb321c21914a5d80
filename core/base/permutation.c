/* A permutation by number: a balanced Feistel network over [0, 4^half_bits), whose round function is a
 * Philox block keyed by (seed, use, round, item). A value that lands outside [0, count) is put through
 * again until it lands inside ("cycle walking": Black, Rogaway: Ciphers with Arbitrary Finite Domains,
 * 2002); the domain is at most four times as large, so that is four passes or fewer on average. */
#include "base/permutation.h"

#include <assert.h>

#include "brim/random.h"

#define ROUNDS 8 /* with 6, permutations of 5 things are visibly uneven (the test counts them) */

void brim_permutation_init(brim_permutation *p, uint64_t seed, uint32_t use, uint64_t item, uint64_t count)
{
  *p = (brim_permutation){.seed = seed, .item = item, .count = count, .use = use};
  while (p->half_bits < 31 && ((uint64_t)1 << (2 * p->half_bits)) < count) p->half_bits++;
  assert(count <= (uint64_t)1 << 62);
}

static uint64_t feistel(const brim_permutation *p, uint64_t x)
{
  const uint32_t mask = ((uint32_t)1 << p->half_bits) - 1;
  uint32_t left = (uint32_t)(x >> p->half_bits), right = (uint32_t)x & mask;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    const brim_philox f = brim_random4(p->seed, (enum brim_stream_use)p->use, round, p->item, right);
    const uint32_t next = left ^ (f.v[0] & mask);
    left = right;
    right = next;
  }
  return (uint64_t)left << p->half_bits | right;
}

uint64_t brim_permutation_at(const brim_permutation *p, uint64_t i)
{
  assert(i < p->count);
  do i = feistel(p, i);
  while (i >= p->count);
  return i;
}
