#include "dist/collectives.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/table.h"
#include "base/text.h"

/* Returns numbers of very different magnitudes, so that another order of additions would give other bits. */
static double value_of(int32_t rank, uint64_t i, uint64_t salt)
{
  uint64_t x = (i + 1) * 0x9E3779B97F4A7C15U ^ (uint64_t)(rank + 1) * 0xBF58476D1CE4E5B9U ^ salt * 0x94D049BB133111EBU;
  x ^= x >> 31;
  x *= 0xD6E8FEB86659FD93U;
  x ^= x >> 32;
  return ((double)(x >> 11) / (double)(1ULL << 53) - 0.5) * (double)(1 << (x & 15));
}

static size_t element_bytes(uint32_t dtype)
{
  return dtype == BRIM_DTYPE_F64 ? 8 : dtype == BRIM_DTYPE_F32 ? 4 : 1;
}

static void set(void *buffer, uint32_t dtype, uint64_t i, double value)
{
  if (dtype == BRIM_DTYPE_F64)
    ((double *)buffer)[i] = value;
  else if (dtype == BRIM_DTYPE_F32)
    ((float *)buffer)[i] = (float)value;
  else
    ((uint8_t *)buffer)[i] = (uint8_t)(int64_t)value;
}

static bool is_same(const void *buffer, uint32_t dtype, uint64_t i, const void *expected)
{
  const size_t bytes = element_bytes(dtype);
  return memcmp((const char *)buffer + i * bytes, expected, bytes) == 0;
}

/* Computes the sum over ranks in their order, in the type's own arithmetic. */
static void expect_sum(uint32_t dtype, int32_t ranks, uint64_t i, uint64_t salt, void *out)
{
  float f = (float)value_of(0, i, salt);
  double d = value_of(0, i, salt);
  for (int32_t r = 1; r < ranks; r++) {
    f += (float)value_of(r, i, salt);
    d += value_of(r, i, salt);
  }
  set(out, dtype, 0, dtype == BRIM_DTYPE_F64 ? d : (double)f);
}

/* Returns the rank whose number must be at place `i`; -1: the sum of all ranks; -2: undefined. */
static int32_t whose(const rank_under_test *rank, const brim_collective *c, uint64_t i)
{
  const int32_t part =
      c->count >= (uint64_t)rank->world.ranks ? (int32_t)(i / (c->count / (uint64_t)rank->world.ranks)) : 0;
  if (c->kind == BRIM_BROADCAST) return 0;
  if (c->kind == BRIM_ALL_GATHER) return part;
  return c->kind == BRIM_ALL_REDUCE || part == rank->world.rank ? -1 : -2;
}

static void fill(const rank_under_test *rank, const brim_collective *c, uint64_t salt)
{
  for (uint64_t i = 0; i < c->count; i++) set(c->buffer, c->dtype, i, value_of(rank->world.rank, i, salt));
}

static void check(const rank_under_test *rank, const brim_collective *c, uint64_t salt)
{
  char text[160], expected[8];
  for (uint64_t i = 0; i < c->count; i++) {
    const int32_t of = whose(rank, c, i);
    if (of == -2) continue;
    if (of == -1)
      expect_sum(c->dtype, rank->world.ranks, i, salt, expected);
    else
      set(expected, c->dtype, 0, value_of(of, i, salt));
    if (is_same(c->buffer, c->dtype, i, expected)) continue;
    snprintf(text, sizeof text, "collective %u of %llu elements of type %u: element %llu is wrong", c->kind,
             (unsigned long long)c->count, c->dtype, (unsigned long long)i);
    rank_check(rank, false, text);
  }
}

static uint64_t finish(const rank_under_test *rank, uint64_t ticket)
{
  uint64_t done = 0;
  for (;;) {
    rank_check(rank, rank->ops->poll(rank->self, &done) == BRIM_OK, brim_error_text());
    if (done >= ticket) return done;
    usleep(10); /* gives the processor to the other ranks, which may have no other one */
  }
}

/* Lists one collective of every kind and type for each count. Counts are zero, less than the number of ranks, odd, or
 * more than a piece. */
static size_t list(const rank_under_test *rank, brim_collective *out)
{
  static const uint64_t counts[] = {0, 1, 2, 3, 4, 5, 127, 1021, 65537, 300007, 700001};
  static const uint32_t types[] = {BRIM_DTYPE_F32, BRIM_DTYPE_F64, BRIM_DTYPE_U8};
  const uint64_t ranks = (uint64_t)rank->world.ranks;
  size_t n = 0;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    for (uint32_t kind = BRIM_ALL_REDUCE; kind <= BRIM_BROADCAST; kind++)
      for (int t = 0; t < (kind <= BRIM_REDUCE_SCATTER ? 2 : 3); t++) {
        const bool has_parts = kind == BRIM_REDUCE_SCATTER || kind == BRIM_ALL_GATHER;
        out[n++] =
            (brim_collective){kind, types[t], NULL, has_parts ? (counts[i] + ranks - 1) / ranks * ranks : counts[i]};
      }
  return n;
}

/* Runs all collectives of the list, `depth` at a time. *hash: the hash of all sums. */
static void check_list(const rank_under_test *rank, size_t depth, uint64_t *tickets, uint64_t *hash)
{
  brim_collective c[256];
  const size_t n = list(rank, c);
  for (size_t first = 0; first < n; first += depth) {
    const size_t end = first + depth < n ? first + depth : n;
    for (size_t i = first; i < end; i++) {
      c[i].buffer = malloc(c[i].count * element_bytes(c[i].dtype) + 1);
      fill(rank, &c[i], i);
    }
    for (size_t i = first; i < end; i++)
      rank_check(rank, rank->ops->start(rank->self, &c[i], NULL) == BRIM_OK, brim_error_text());
    *tickets += end - first;
    rank_check(rank, finish(rank, *tickets) == *tickets, "more are done than were started");
    for (size_t i = first; i < end; i++) {
      check(rank, &c[i], i);
      if (c[i].kind == BRIM_ALL_REDUCE) *hash = brim_hash(*hash, c[i].buffer, c[i].count * element_bytes(c[i].dtype));
      free(c[i].buffer);
    }
  }
}

static void refuse(const rank_under_test *rank)
{
  float buffer[8] = {0};
  brim_collective odd = {BRIM_ALL_GATHER, BRIM_DTYPE_F32, buffer, (uint64_t)rank->world.ranks + 1};
  brim_collective bytes = {BRIM_ALL_REDUCE, BRIM_DTYPE_U8, buffer, 1};
  rank_check(rank, rank->ops->start(rank->self, &odd, NULL) == BRIM_EINVAL, "parts of unequal size");
  rank_check(rank, rank->ops->start(rank->self, &bytes, NULL) == BRIM_ENOTSUP, "a sum of bytes");
}

void rank_check_collectives(const rank_under_test *rank)
{
  uint64_t tickets = 0, hash[2] = {BRIM_HASH_START, BRIM_HASH_START};
  uint64_t *all = calloc((size_t)rank->world.ranks, sizeof *all);
  if (rank->world.ranks > 1) refuse(rank);
  check_list(rank, 1, &tickets, &hash[0]);
  check_list(rank, BRIM_COLLECTIVES, &tickets, &hash[1]);
  rank_exchange(rank, &hash[0], sizeof hash[0], all);
  for (int32_t r = 0; r < rank->world.ranks; r++) rank_check(rank, all[r] == hash[0], "ranks have other bits");
  rank_check(rank, hash[0] == hash[1], "several at a time have other bits");
  if (rank->world.rank == 0) printf("%016llx\n", (unsigned long long)hash[0]);
  free(all);
}

void rank_time_sums(const rank_under_test *rank, size_t bytes, int times)
{
  float *buffer = malloc(bytes);
  char all[4096];
  double best = INFINITY, total = 0;
  const brim_collective sum = {BRIM_ALL_REDUCE, BRIM_DTYPE_F32, buffer, bytes / sizeof *buffer};
  memset(buffer, 0, bytes);
  for (int i = 0; i < times; i++) {
    rank_exchange(rank, "x", 1, all);
    const double start = brim_now();
    rank_check(rank, rank->ops->start(rank->self, &sum, NULL) == BRIM_OK, brim_error_text());
    for (uint64_t done = 0; done < (uint64_t)i + 1;)
      rank_check(rank, rank->ops->poll(rank->self, &done) == BRIM_OK, brim_error_text());
    const double took = brim_now() - start;
    best = fmin(best, took);
    total += took;
  }
  if (rank->world.rank == 0)
    printf("%zu bytes: %.3f ms at best, %.3f on average\n", bytes, best * 1e3, total / times * 1e3);
  free(buffer);
}
