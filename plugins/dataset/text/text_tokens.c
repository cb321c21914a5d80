/* Tokenizes a text once. See text_tokens.h. */
#include "text_tokens.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "brim/host.h"
#include "cache.h"

#define CACHE_VERSION "tokens 2" /* must change when the same text and vocabulary give other tokens */

/* ---- the cache ---- */

static bool cache_name(const text_source *s, char out[CACHE_NAME_ROOM])
{
  uint64_t key = cache_key_add(s->files->key, CACHE_VERSION, sizeof CACHE_VERSION);
  const uint64_t how[] = {tokenizer_hash(s->vocabulary), (uint64_t)tokenizer_end_of_text(s->vocabulary), s->flags};
  key = cache_key_add(key, how, sizeof how);
  return cache_path(s->cache_folder, "tokens", key, out);
}

/* ---- making tokens ---- */

/* The destination of tokens. It reserves address space for about one token per byte; pages are allocated as tokens
 * arrive. */
typedef struct sink {
  unsigned char *to;
  size_t room; /* in tokens */
  token_file out;
} sink;

static void *map_room(size_t bytes)
{
  if (brim_fault_hit(BRIM_FAULT_ALLOC, NULL)) return MAP_FAILED;
  return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static brim_status sink_open(sink *s, size_t room, int32_t width)
{
  const size_t bytes = (room ? room : 1) * (size_t)width;
  void *p = map_room(bytes);
  if (p == MAP_FAILED) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the tokens of %zu bytes of text", room);
  *s = (sink){p, room, {.map = p, .map_bytes = bytes, .tokens = p, .width = width}};
  return BRIM_OK;
}

/* Doubles the room, because a normal form or a template may make more tokens than the text has bytes. */
static brim_status sink_grow(sink *s)
{
  void *p = brim_fault_hit(BRIM_FAULT_ALLOC, NULL)
                ? MAP_FAILED
                : mremap((void *)(uintptr_t)s->out.map, s->out.map_bytes, 2 * s->out.map_bytes, MREMAP_MAYMOVE);
  if (p == MAP_FAILED) return brim_fail(BRIM_ENOMEM_HOST, "no memory for %zu tokens", 2 * s->room);
  s->to = p;
  s->out.map = p;
  s->out.tokens = p;
  s->out.map_bytes *= 2;
  s->room = s->out.map_bytes / (size_t)s->out.width;
  return BRIM_OK;
}

static brim_status take(void *context, const int32_t *tokens, size_t count)
{
  sink *s = context;
  if (brim_stop_wanted()) return brim_fail(BRIM_EINTERRUPTED, "interrupted while tokenizing");
  while (count > s->room - (size_t)s->out.count) BRIM_TRY(sink_grow(s));
  for (size_t i = 0; i < count; i++) {
    unsigned char *to = s->to + (size_t)s->out.count++ * (size_t)s->out.width;
    for (int32_t b = 0; b < s->out.width; b++) to[b] = (unsigned char)((uint32_t)tokens[i] >> 8 * b);
  }
  return BRIM_OK;
}

static brim_status take_bytes(sink *s, const token_file *text)
{
  if ((size_t)text->count > s->room - (size_t)s->out.count)
    return brim_fail(BRIM_ELOAD, "the text became longer while it was read");
  memcpy(s->to + s->out.count, text->tokens, (size_t)text->count);
  s->out.count += text->count;
  return BRIM_OK;
}

static brim_status add_text(const text_source *s, const char *name, sink *to)
{
  token_file text;
  BRIM_TRY(token_file_open(name, TOKEN_FORMAT_BYTES, &text));
  const brim_status status = s->vocabulary ? tokenizer_encode(s->vocabulary, name, (const char *)text.tokens,
                                                              (size_t)text.count, s->flags, take, to)
                                           : take_bytes(to, &text);
  token_file_close(&text);
  return status;
}

int32_t text_token_width(const tokenizer *vocabulary)
{
  return !vocabulary ? 1 : tokenizer_rows(vocabulary) <= UINT16_MAX + 1 ? 2 : 4;
}

static brim_status make(const text_source *s, token_file *out)
{
  const int32_t end = s->vocabulary ? tokenizer_end_of_text(s->vocabulary) : -1;
  sink to = {0};
  BRIM_TRY(sink_open(&to, s->files->bytes + s->files->count, text_token_width(s->vocabulary)));
  brim_status status = BRIM_OK;
  int64_t before = 0; /* the tokens before the last text, which may itself end with the end of text */
  for (size_t i = 0; i < s->files->count && status == BRIM_OK; i++) {
    const bool ended = to.out.count > before && (int32_t)token_file_at(&to.out, to.out.count - 1) == end;
    if (i > 0 && end >= 0 && !ended) status = take(&to, &end, 1);
    before = to.out.count;
    if (status == BRIM_OK) status = add_text(s, s->files->name[i], &to);
  }
  *out = to.out;
  if (status != BRIM_OK) token_file_close(out);
  return status;
}

/* Makes the tokens and writes them to the cache. Afterwards they are mapped from there. */
static brim_status make_and_keep(const text_source *s, const char *name, token_file *out)
{
  brim_log(BRIM_LOG_INFO, "tokenizing '%s'%s, once", s->files->name[0], s->files->count > 1 ? " and others" : "");
  BRIM_TRY(make(s, out));
  if (!name || out->count > TOKEN_COUNT_MAX) return BRIM_OK;
  unsigned char header[TOKEN_HEADER_BYTES];
  token_file_header(header, out->count, out->width);
  const cache_part parts[2] = {{header, sizeof header}, {out->tokens, (size_t)out->count * (size_t)out->width}};
  if (!cache_write(name, parts)) return BRIM_OK;
  token_file kept;
  if (token_file_open(name, TOKEN_FORMAT_AUTO, &kept) != BRIM_OK) return BRIM_OK;
  token_file_close(out);
  *out = kept;
  return BRIM_OK;
}

/* Opens the cached tokens. If the file is damaged, they are made again. */
static bool cache_open(const text_source *s, const char *name, token_file *out)
{
  if (access(name, R_OK) != 0 || token_file_open(name, TOKEN_FORMAT_AUTO, out) != BRIM_OK) return false;
  if (token_file_find_beyond(out, tokenizer_rows(s->vocabulary)) < 0) return true;
  token_file_close(out);
  return false;
}

bool text_tokens_count(const text_source *s, int64_t *count)
{
  char name[CACHE_NAME_ROOM];
  token_file file;
  *count = (int64_t)s->files->bytes;
  if (!s->vocabulary) return true;
  if (!cache_name(s, name) || access(name, R_OK) != 0) return false;
  if (token_file_open(name, TOKEN_FORMAT_AUTO, &file) != BRIM_OK) return false;
  *count = file.count;
  token_file_close(&file);
  return true;
}

brim_status text_tokens_open(const text_source *s, token_file *out)
{
  char name[CACHE_NAME_ROOM];
  if (!s->vocabulary && s->files->count == 1) return token_file_open(s->files->name[0], TOKEN_FORMAT_BYTES, out);
  if (!s->vocabulary) return make(s, out);
  if (!cache_name(s, name)) return make_and_keep(s, NULL, out);
  return cache_open(s, name, out) ? BRIM_OK : make_and_keep(s, name, out);
}
