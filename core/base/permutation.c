/* Computes a permutation without a table, by a balanced Feistel network over [0, 4^half_bits), whose round function is
 * a Philox block keyed by (seed, use, round, item). A value outside [0, count) is mapped again until it lies inside
 * ("cycle walking": Black, Rogaway: Ciphers with Arbitrary Finite Domains, 2002); the domain is at most four times as
 * large, so this takes four passes or fewer on average. */
#include "base/permutation.h"

#include <assert.h>
#include <stddef.h>

#include "brim/random.h"

#define ROUNDS 8 /* with 6, permutations of 5 items are measurably uneven (the test counts them) */

static uint32_t half_bits_of(uint64_t count)
{
  uint32_t bits = 0;
  while (bits < 31 && ((uint64_t)1 << (2 * bits)) < count) bits++;
  return bits;
}

void brim_permutation_init(brim_permutation *p, uint64_t seed, uint32_t use, uint64_t item, uint64_t count)
{
  *p = (brim_permutation){.seed = seed, .item = item, .count = count, .use = use};
  p->half_bits = half_bits_of(count);
  assert(count <= (uint64_t)1 << 62);
}

/* Returns the value that a round adds to the other half. */
static uint32_t mix(const brim_permutation *p, uint32_t round, uint32_t half)
{
  if (p->table) return p->table[(uint64_t)round << p->half_bits | half];
  return brim_random4(p->seed, (enum brim_stream_use)p->use, round, p->item, half).v[0];
}

static uint64_t feistel(const brim_permutation *p, uint64_t x)
{
  const uint32_t mask = ((uint32_t)1 << p->half_bits) - 1;
  uint32_t left = (uint32_t)(x >> p->half_bits), right = (uint32_t)x & mask;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    const uint32_t next = left ^ (mix(p, round, right) & mask);
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

uint64_t brim_permutation_table_count(uint64_t count)
{
  return (uint64_t)ROUNDS << half_bits_of(count);
}

void brim_permutation_tabulate(brim_permutation *p, uint32_t *table)
{
  p->table = NULL;
  for (uint32_t round = 0; round < ROUNDS; round++)
    for (uint32_t half = 0; half < (uint32_t)1 << p->half_bits; half++)
      table[(uint64_t)round << p->half_bits | half] = mix(p, round, half);
  p->table = table;
}
