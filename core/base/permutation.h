/* A random order of many items. The place of an item is computed from its index, without a table. */
#ifndef BRIM_BASE_PERMUTATION_H
#define BRIM_BASE_PERMUTATION_H
#include <stdint.h>

/* A bijection of [0, count): a Feistel network of Philox rounds over the next power of four; an image outside the range
 * is mapped again until it lies in it (cycle walking). */
typedef struct brim_permutation {
  uint64_t seed, item, count;
  uint32_t use, half_bits;
  const uint32_t *table; /* NULL, or for each half, the result of each round for every input */
} brim_permutation;
void brim_permutation_init(brim_permutation *p, uint64_t seed, uint32_t use, uint64_t item, uint64_t count);
uint64_t brim_permutation_at(const brim_permutation *p, uint64_t i);
/* Tabulates the round function: worthwhile if most of a permutation is read. `table` has room for
 * brim_permutation_table_count(count) values, at most 32 * sqrt(count), and outlives the permutation. */
uint64_t brim_permutation_table_count(uint64_t count);
void brim_permutation_tabulate(brim_permutation *p, uint32_t *table);
#endif
