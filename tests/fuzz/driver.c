/* Runs a fuzz target without libFuzzer: every file of a corpus, then a number of mutations, the same on every machine.
 * It is not guided by coverage, so it only finds errors near the corpus; the real search is a build with BRIM_FUZZ.
 * Usage: fuzz_X MUTATIONS [FOLDER]. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier.h"

#define SEEDS_MAX 256
#define SEED_BYTES_MAX 65536
#define INPUT_BYTES_MAX ((size_t)2 * SEED_BYTES_MAX)
#define CHANGES_MAX 8 /* changes in one mutation */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
  uint8_t *bytes;
  size_t count;
} input;

static input seeds[SEEDS_MAX];
static size_t seed_count;
static uint64_t random_state = 0x9e3779b97f4a7c15u;

static void fail(const char *what)
{
  fprintf(stderr, "fuzz driver: %s: %s\n", what, strerror(errno));
  exit(2);
}

/* Draws by xorshift64*, which gives the same numbers everywhere. */
static uint64_t next_random(void)
{
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return random_state * 0x2545f4914f6cdd1du;
}

static size_t below(size_t bound)
{
  return bound ? (size_t)(next_random() % bound) : 0;
}

static void add_seed(const char *path)
{
  FILE *file = fopen(path, "rb");
  if (!file) fail(path);
  uint8_t *bytes = malloc(SEED_BYTES_MAX);
  if (!bytes) fail(path);
  const size_t count = fread(bytes, 1, SEED_BYTES_MAX, file);
  if (ferror(file)) fail(path);
  fclose(file);
  if (seed_count == SEEDS_MAX) {
    fprintf(stderr, "fuzz driver: more than %d files\n", SEEDS_MAX);
    exit(2);
  }
  seeds[seed_count++] = (input){bytes, count};
}

static int is_visible(const struct dirent *entry)
{
  return entry->d_name[0] != '.';
}

/* Reads the files sorted by name, so that the mutations do not depend on the file system. */
static void read_corpus(const char *folder)
{
  struct dirent **entry;
  const int count = scandir(folder, &entry, is_visible, alphasort);
  if (count < 0) fail(folder);
  for (int i = 0; i < count; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
    add_seed(path);
    free(entry[i]);
  }
  free(entry);
}

/* Makes room for `count` bytes at `at`, if there is enough. Returns the number of bytes. */
static size_t open_gap(input *in, size_t at, size_t count)
{
  if (count > INPUT_BYTES_MAX - in->count) count = INPUT_BYTES_MAX - in->count;
  memmove(in->bytes + at + count, in->bytes + at, in->count - at);
  in->count += count;
  return count;
}

static void change(input *in)
{
  const size_t at = below(in->count + 1);
  const size_t rest = in->count - at;
  const size_t length = 1 + below(below(4) ? 4 : 64);
  const input *other = &seeds[below(seed_count)];
  const size_t from = below(other->count);
  const size_t available = other->count - from;
  switch (below(6)) {
  case 0: /* flips a bit */
    if (rest) in->bytes[at] ^= (uint8_t)(1u << below(8));
    break;
  case 1: /* changes a byte */
    if (rest) in->bytes[at] = (uint8_t)next_random();
    break;
  case 2: { /* deletes bytes */
    const size_t gone = length < rest ? length : rest;
    memmove(in->bytes + at, in->bytes + at + gone, rest - gone);
    in->count -= gone;
    break;
  }
  case 3: { /* inserts a piece of a seed */
    const size_t piece = open_gap(in, at, length < available ? length : available);
    memcpy(in->bytes + at, other->bytes + from, piece);
    break;
  }
  case 4: { /* overwrites with a piece of a seed */
    size_t piece = length < available ? length : available;
    if (piece > rest) piece = rest;
    memcpy(in->bytes + at, other->bytes + from, piece);
    break;
  }
  default: { /* repeats bytes */
    const size_t again = open_gap(in, at, length < rest ? length : rest);
    memmove(in->bytes + at, in->bytes + at + again, again);
  }
  }
}

static void run_mutation(uint8_t *room)
{
  const input *seed = &seeds[below(seed_count)];
  input in = {room, seed->count};
  if (seed->count) memcpy(room, seed->bytes, seed->count);
  for (size_t changes = 1 + below(CHANGES_MAX); changes > 0; changes--) change(&in);
  uint8_t *exact = malloc(in.count ? in.count : 1); /* so that AddressSanitizer detects a read past the end */
  if (!exact) fail("malloc");
  if (in.count) memcpy(exact, room, in.count);
  LLVMFuzzerTestOneInput(exact, in.count);
  free(exact);
}

int main(int argc, char **argv)
{
  static uint8_t room[INPUT_BYTES_MAX];
  static uint8_t nothing[1];
  if (argc < 2) {
    fprintf(stderr, "usage: %s MUTATIONS [FOLDER]\n", argv[0]);
    return 2;
  }
  const unsigned long share = is_tier("full") ? 1 : 4;
  const unsigned long mutations = strtoul(argv[1], NULL, 10) / share;
  if (argc > 2) read_corpus(argv[2]);
  if (seed_count == 0) seeds[seed_count++] = (input){nothing, 0};
  for (size_t i = 0; i < seed_count; i++) LLVMFuzzerTestOneInput(seeds[i].bytes, seeds[i].count);
  for (unsigned long i = 0; i < mutations; i++) run_mutation(room);
  printf("%zu files and %lu mutations: nothing found\n", seed_count, mutations);
  for (size_t i = 0; i < seed_count; i++)
    if (seeds[i].bytes != nothing) free(seeds[i].bytes);
  return 0;
}
