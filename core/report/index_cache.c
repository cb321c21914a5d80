/* The cache of an index: one file for each folder of runs, in the user's cache folder. It has the arrays of the index
 * in their form in memory, with a hash. brim checks everything in it before use, and discards it if anything is wrong.
 * See index.h. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/text.h"
#include "brim/host.h"
#include "report/index.h"

#define CACHE_VERSION 1 /* raise it when the cells of a run change */
#define CACHE_BYTES_MAX ((off_t)1 << 32)

typedef struct header {
  char magic[8];
  uint32_t version, sizes;
  uint64_t string_bytes, cells, ids, keys, runs;
  uint64_t folder; /* offset of the folder's absolute path in the strings */
  uint64_t hash;   /* hash of everything after the header */
} header;
static const char magic[8] = "brimruns";
#define SIZES ((uint32_t)(sizeof(brim_index_cell) << 16 | sizeof(brim_index_run)))

/* Hashes 64 bits at a time. `bytes` is a multiple of 8: the writer rounds it up. */
static uint64_t hash_words(const void *data, size_t bytes)
{
  uint64_t hash = BRIM_HASH_START, word;
  for (size_t i = 0; i + sizeof word <= bytes; i += sizeof word) {
    memcpy(&word, (const char *)data + i, sizeof word);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

/* Finds the file of a folder's cache, and the folder's absolute path. False: there is no cache folder, or no such
 * folder. */
static bool find_file(const char *folder, char *path, char *real)
{
  char cache[BRIM_PATH_MAX];
  const int length = brim_cache_folder(cache, sizeof cache);
  if (length < 0 || length >= (int)sizeof cache || !realpath(folder, real)) return false;
  return snprintf(path, BRIM_PATH_MAX, "%s/runs/%016llx.index", cache,
                  (unsigned long long)brim_hash(BRIM_HASH_START, real, strlen(real))) < BRIM_PATH_MAX;
}

static size_t aligned(size_t bytes)
{
  return (bytes + 7) / 8 * 8;
}

/* Returns the array at *at of the file, which is `bytes` long; advances *at. */
static void *take(const char *data, size_t *at, size_t bytes)
{
  void *out = brim_xmalloc(bytes ? bytes : 1);
  memcpy(out, data + *at, bytes);
  *at += aligned(bytes);
  return out;
}

static bool is_sound(const brim_index *index)
{
  if (index->string_bytes < 2 || index->string[0] || index->string[1] || index->string[index->string_bytes - 1])
    return false;
  for (size_t i = 0; i < index->keys; i++)
    if (index->key[i] >= index->string_bytes) return false;
  for (size_t i = 0; i < index->cells; i++)
    if (index->cell[i].key >= index->string_bytes || index->cell[i].text >= index->string_bytes) return false;
  for (size_t i = 0; i < index->ids; i++)
    if (index->id[i] >= index->cells) return false;
  for (size_t i = 0; i < index->runs; i++) {
    const brim_index_run *run = &index->run[i];
    if (run->name >= index->string_bytes || run->problem >= index->string_bytes) return false;
    if (run->first > index->ids || run->count > index->ids - run->first || run->state > BRIM_INDEX_OPEN) return false;
  }
  return true;
}

/* Returns the length of the file that a header describes; 0: the header is invalid. */
static size_t length_of(const header *h)
{
  const uint64_t most = (uint64_t)CACHE_BYTES_MAX;
  if (memcmp(h->magic, magic, sizeof magic) != 0 || h->version != CACHE_VERSION || h->sizes != SIZES) return 0;
  if (h->string_bytes > most || h->cells > most || h->ids > most || h->keys > most || h->runs > most) return 0;
  return sizeof *h + aligned(h->string_bytes) + aligned(h->cells * sizeof(brim_index_cell)) +
         aligned(h->ids * sizeof(uint32_t)) + aligned(h->keys * sizeof(uint32_t)) +
         aligned(h->runs * sizeof(brim_index_run));
}

static void unpack(brim_index *index, const char *data, size_t bytes, const char *real)
{
  header h;
  if (bytes < sizeof h) return;
  memcpy(&h, data, sizeof h);
  if (length_of(&h) != bytes || hash_words(data + sizeof h, bytes - sizeof h) != h.hash) return;
  size_t at = sizeof h;
  index->string = take(data, &at, index->string_bytes = index->string_room = h.string_bytes);
  index->cell = take(data, &at, (index->cells = index->cell_room = h.cells) * sizeof *index->cell);
  index->id = take(data, &at, (index->ids = index->id_room = h.ids) * sizeof *index->id);
  index->key = take(data, &at, (index->keys = index->key_room = h.keys) * sizeof *index->key);
  index->run = take(data, &at, (index->runs = index->run_room = h.runs) * sizeof *index->run);
  if (!is_sound(index) || h.folder >= h.string_bytes || strcmp(index->string + h.folder, real) != 0)
    brim_index_clear(index);
}

void brim_index_load(brim_index *index, const char *folder)
{
  char path[BRIM_PATH_MAX], real[PATH_MAX];
  struct stat info;
  const int fd = find_file(folder, path, real) ? brim_open_to_read(path) : -1;
  if (fd < 0) return;
  if (fstat(fd, &info) == 0 && info.st_uid == geteuid() && info.st_size < CACHE_BYTES_MAX) {
    char *data = brim_xmalloc((size_t)info.st_size + 1);
    if (brim_file_read_at(fd, path, data, (size_t)info.st_size, 0) == BRIM_OK)
      unpack(index, data, (size_t)info.st_size, real);
    free(data);
  }
  close(fd);
}

static void put(char *data, size_t *at, const void *array, size_t bytes)
{
  if (bytes) memcpy(data + *at, array, bytes);
  *at += aligned(bytes);
}

/* Writes the runs that are not being written by a process. */
static void write_index(brim_index *index, const char *path, const char *real)
{
  const uint32_t folder = brim_index_intern(index, real);
  brim_index_run *run = brim_xcalloc(index->runs + 1, sizeof *run);
  header h = {.version = CACHE_VERSION,
              .sizes = SIZES,
              .string_bytes = index->string_bytes,
              .cells = index->cells,
              .ids = index->ids,
              .keys = index->keys,
              .folder = folder};
  memcpy(h.magic, magic, sizeof magic);
  for (size_t i = 0; i < index->runs; i++)
    if (index->run[i].state != BRIM_INDEX_OPEN) run[h.runs++] = index->run[i];
  const size_t bytes = length_of(&h);
  char *data = brim_xcalloc(bytes, 1);
  size_t at = sizeof h;
  put(data, &at, index->string, index->string_bytes);
  put(data, &at, index->cell, index->cells * sizeof *index->cell);
  put(data, &at, index->id, index->ids * sizeof *index->id);
  put(data, &at, index->key, index->keys * sizeof *index->key);
  put(data, &at, run, h.runs * sizeof *run);
  h.hash = hash_words(data + sizeof h, bytes - sizeof h);
  memcpy(data, &h, sizeof h);
  int fd = -1;
  if (brim_cache_begin(path, &fd) == BRIM_OK && fd >= 0) {
    const bool written = brim_file_write_all(fd, path, data, bytes) == BRIM_OK;
    if (brim_cache_end(path, &fd, written) != BRIM_OK) brim_log(BRIM_LOG_DEBUG, "%s", brim_error_text());
  }
  free(data);
  free(run);
}

void brim_index_save(brim_index *index, const char *folder)
{
  char path[BRIM_PATH_MAX], real[PATH_MAX];
  size_t used = 0;
  if (!find_file(folder, path, real)) return;
  for (size_t i = 0; i < index->runs; i++) used += index->run[i].count;
  if (index->ids - used <= used / 4) {
    write_index(index, path, real);
    return;
  }
  brim_index *compact = brim_xcalloc(1, sizeof *compact); /* without the cells of changed and deleted runs */
  for (size_t i = 0; i < index->runs; i++) brim_index_copy_run(compact, index, &index->run[i]);
  write_index(compact, path, real);
  brim_index_release(compact);
  free(compact);
}
