/* The hash XXH64 (Yann Collet, xxHash, doc/xxhash_spec.md) of long contents, such as weights: eight bytes at a time in
 * four lanes, some ten times as fast as brim_hash(), which suits names and keys. */
#ifndef BRIM_BASE_XXH64_H
#define BRIM_BASE_XXH64_H
#include <stddef.h>
#include <stdint.h>

typedef struct brim_xxh64 {
  uint64_t lane[4], total_bytes;
  unsigned char rest[32]; /* bytes that do not fill a block yet: total_bytes % 32 of them */
} brim_xxh64;

/* [any thread] Begins a hash with seed 0. */
void brim_xxh64_begin(brim_xxh64 *x);
/* [any thread] Adds bytes. How the contents are divided into calls does not change the hash. */
void brim_xxh64_add(brim_xxh64 *x, const void *data, size_t bytes);
/* [any thread] The hash of all bytes so far. */
uint64_t brim_xxh64_end(const brim_xxh64 *x);
#endif
