/* Packed documents, in memory or in a mapped file. See set.h. */
#include "set.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "brim/dataset.h"
#include "brim/host.h"
#include "cache.h"

#define MAGIC 0x3154414843494D42u /* "BMICHAT1"; must change when the parts change */
#define TOKENS_MAX ((int64_t)1 << 40)

/* ---- parts ---- */

static uint64_t part_of(uint64_t *at, uint64_t count, uint64_t bytes)
{
  const uint64_t offset = *at;
  *at += (count * bytes + 7) & ~(uint64_t)7;
  return offset;
}

/* Sets the pointers of a set whose head is at `base`. Returns the bytes of the whole set. */
static uint64_t lay_out(const chat_head *h, const char *base, chat_set *out)
{
  const uint64_t tokens = (uint64_t)h->tokens, documents = (uint64_t)h->documents;
  uint64_t at = 0;
  part_of(&at, 1, sizeof *h);
  const uint64_t of_tokens = part_of(&at, tokens, (uint64_t)h->width);
  const uint64_t of_counts = part_of(&at, (tokens + 7) / 8, 1);
  const uint64_t of_start = part_of(&at, documents + 1, sizeof *out->start);
  const uint64_t of_line = part_of(&at, documents, sizeof *out->line);
  const uint64_t of_file = part_of(&at, documents, sizeof *out->file);
  const uint64_t of_first = part_of(&at, (uint64_t)h->rows + 1, sizeof *out->first);
  const uint64_t of_document = part_of(&at, documents, sizeof *out->document);
  if (!base) return at;
  out->head = (const chat_head *)(const void *)base;
  out->tokens = base + of_tokens;
  out->counts = (const uint8_t *)base + of_counts;
  out->start = (const uint64_t *)(const void *)(base + of_start);
  out->line = (const uint32_t *)(const void *)(base + of_line);
  out->file = (const uint32_t *)(const void *)(base + of_file);
  out->first = (const uint32_t *)(const void *)(base + of_first);
  out->document = (const uint32_t *)(const void *)(base + of_document);
  return at;
}

/* Returns a hash of whole words. It detects damage, but not forgery. */
static uint64_t hash_words(uint64_t hash, const void *from, uint64_t bytes)
{
  const char *at = from, *end = at + bytes;
  uint64_t word;
  for (; at < end; at += sizeof word) {
    memcpy(&word, at, sizeof word);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

static uint64_t checksum_of(const chat_head *h)
{
  return hash_words(h->key, h + 1, h->bytes - sizeof *h);
}

static uint64_t head_checksum_of(const chat_head *h)
{
  chat_head copy = *h;
  copy.head_checksum = 0;
  return hash_words(h->key, &copy, sizeof copy);
}

brim_status chat_set_create(const chat_head *head, chat_set *out)
{
  *out = (chat_set){0};
  const uint64_t bytes = lay_out(head, NULL, out);
  chat_head *base = brim_try_calloc(1, bytes);
  if (!base) return brim_fail(BRIM_ENOMEM_HOST, "no memory for %" PRId64 " tokens", head->tokens);
  *base = *head;
  base->magic = MAGIC;
  base->bytes = bytes;
  lay_out(base, (const char *)base, out);
  return BRIM_OK;
}

void chat_set_seal(chat_set *set)
{
  chat_head *head = (chat_head *)(uintptr_t)set->head;
  head->checksum = checksum_of(head);
  head->head_checksum = head_checksum_of(head);
}

void chat_set_close(chat_set *set)
{
  void *base = (void *)(uintptr_t)set->head;
  if (base && set->mapped) munmap(base, set->head->bytes);
  if (base && !set->mapped) free(base);
  *set = (chat_set){0};
}

/* ---- the file ---- */

/* Returns whether a head can belong to a file of this size. */
static bool is_possible(const chat_head *h, uint64_t key, uint64_t bytes)
{
  chat_set none;
  return h->magic == MAGIC && h->head_checksum == head_checksum_of(h) && h->key == key && h->bytes == bytes &&
         (h->width == 2 || h->width == 4) && h->tokens > 0 && h->tokens <= TOKENS_MAX && h->documents > 0 &&
         h->documents <= UINT32_MAX && h->rows > 0 && h->rows <= h->documents && h->context > 0 &&
         lay_out(h, NULL, &none) == bytes;
}

static bool read_head(int fd, const char *path, uint64_t key, chat_head *out)
{
  struct stat st;
  if (fstat(fd, &st) == 0 && pread(fd, out, sizeof *out, 0) == (ssize_t)sizeof *out &&
      is_possible(out, key, (uint64_t)st.st_size))
    return true;
  brim_log(BRIM_LOG_WARN, "'%s' is damaged, so brim makes the tokens again", path);
  return false;
}

bool chat_set_peek(const char *path, uint64_t key, chat_head *out)
{
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool good = read_head(fd, path, key, out);
  close(fd);
  return good;
}

bool chat_set_open(const char *path, uint64_t key, chat_set *out)
{
  chat_head head;
  void *map = MAP_FAILED;
  *out = (chat_set){0};
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  if (read_head(fd, path, key, &head)) map = mmap(NULL, head.bytes, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (map == MAP_FAILED) return false;
  lay_out(&head, map, out);
  out->mapped = true;
  if (checksum_of(out->head) == out->head->checksum) return true;
  brim_log(BRIM_LOG_WARN, "'%s' is damaged, so brim makes the tokens again", path);
  chat_set_close(out);
  return false;
}

void chat_set_keep(const char *path, chat_set *set)
{
  chat_set kept;
  if (!cache_write(path, (const cache_part[2]){{set->head, set->head->bytes}, {NULL, 0}})) return;
  if (access(path, R_OK) != 0 || !chat_set_open(path, set->head->key, &kept)) return;
  chat_set_close(set);
  *set = kept;
}

/* ---- rows ---- */

static int32_t token_at(const chat_set *s, uint64_t i)
{
  if (s->head->width == 2) return ((const uint16_t *)s->tokens)[i];
  return (int32_t)((const uint32_t *)s->tokens)[i];
}

/* [any thread] Returns the number of tokens that a document takes in a row. Its last token is only predicted, so it
 * takes no place. */
static int64_t places_of(const chat_set *set, int64_t document)
{
  return (int64_t)(set->start[document + 1] - set->start[document]) - 1;
}

void chat_set_read(const chat_set *set, int64_t row, int32_t *tokens, int32_t *places, int32_t *labels)
{
  int64_t at = 0;
  for (uint32_t k = set->first[row]; k < set->first[row + 1]; k++) {
    const uint32_t d = set->document[k];
    const uint64_t start = set->start[d];
    const int64_t count = places_of(set, d);
    for (int64_t i = 0; i < count; i++, at++) {
      const uint64_t next = start + (uint64_t)i + 1;
      tokens[at] = token_at(set, next - 1);
      if (places) places[at] = (int32_t)i;
      labels[at] = (set->counts[next / 8] >> next % 8 & 1) ? token_at(set, next) : BRIM_NO_TOKEN;
    }
  }
  for (; at < set->head->context; at++) {
    tokens[at] = 0;
    if (places) places[at] = 0;
    labels[at] = BRIM_NO_TOKEN;
  }
}
