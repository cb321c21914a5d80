/* See xxh64.h. Words are little-endian, as on all machines that brim supports. */
#include "base/xxh64.h"

#include <string.h>

#define PRIME_1 0x9E3779B185EBCA87u
#define PRIME_2 0xC2B2AE3D27D4EB4Fu
#define PRIME_3 0x165667B19E3779F9u
#define PRIME_4 0x85EBCA77C2B2AE63u
#define PRIME_5 0x27D4EB2F165667C5u

enum { BLOCK = 32 };

static uint64_t rotated(uint64_t x, int by)
{
  return x << by | x >> (64 - by);
}

static uint64_t word_at(const unsigned char *p)
{
  uint64_t word;
  memcpy(&word, p, sizeof word);
  return word;
}

static uint64_t mixed(uint64_t lane, uint64_t word)
{
  return rotated(lane + word * PRIME_2, 31) * PRIME_1;
}

static void add_blocks(brim_xxh64 *x, const unsigned char *p, size_t count)
{
  uint64_t a = x->lane[0], b = x->lane[1], c = x->lane[2], d = x->lane[3];
  for (size_t i = 0; i < count; i++, p += BLOCK) {
    a = mixed(a, word_at(p));
    b = mixed(b, word_at(p + 8));
    c = mixed(c, word_at(p + 16));
    d = mixed(d, word_at(p + 24));
  }
  x->lane[0] = a;
  x->lane[1] = b;
  x->lane[2] = c;
  x->lane[3] = d;
}

void brim_xxh64_begin(brim_xxh64 *x)
{
  *x = (brim_xxh64){.lane = {PRIME_1 + PRIME_2, PRIME_2, 0, 0 - PRIME_1}};
}

void brim_xxh64_add(brim_xxh64 *x, const void *data, size_t bytes)
{
  const unsigned char *p = data;
  const size_t kept = x->total_bytes % BLOCK;
  if (bytes == 0) return; /* data may be NULL */
  x->total_bytes += bytes;
  if (kept > 0) {
    const size_t more = bytes < BLOCK - kept ? bytes : BLOCK - kept;
    memcpy(x->rest + kept, p, more);
    if (kept + more < BLOCK) return;
    add_blocks(x, x->rest, 1);
    p += more;
    bytes -= more;
  }
  add_blocks(x, p, bytes / BLOCK);
  if (bytes % BLOCK > 0) memcpy(x->rest, p + bytes / BLOCK * BLOCK, bytes % BLOCK);
}

static uint64_t sum_of_lanes(const brim_xxh64 *x)
{
  uint64_t hash = rotated(x->lane[0], 1) + rotated(x->lane[1], 7) + rotated(x->lane[2], 12) + rotated(x->lane[3], 18);
  for (int i = 0; i < 4; i++) hash = (hash ^ mixed(0, x->lane[i])) * PRIME_1 + PRIME_4;
  return hash;
}

uint64_t brim_xxh64_end(const brim_xxh64 *x)
{
  const unsigned char *p = x->rest, *end = p + x->total_bytes % BLOCK;
  uint64_t hash = (x->total_bytes < BLOCK ? PRIME_5 : sum_of_lanes(x)) + x->total_bytes;
  for (; p + 8 <= end; p += 8) hash = rotated(hash ^ mixed(0, word_at(p)), 27) * PRIME_1 + PRIME_4;
  if (p + 4 <= end) {
    uint32_t half;
    memcpy(&half, p, sizeof half);
    hash = rotated(hash ^ half * PRIME_1, 23) * PRIME_2 + PRIME_3;
    p += 4;
  }
  for (; p < end; p++) hash = rotated(hash ^ *p * PRIME_5, 11) * PRIME_1;
  hash = (hash ^ hash >> 33) * PRIME_2;
  hash = (hash ^ hash >> 29) * PRIME_3;
  return hash ^ hash >> 32;
}
