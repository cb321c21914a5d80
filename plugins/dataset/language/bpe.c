/* Byte-pair encoding. See parts.h.
 *
 * At first, a piece is one token for each byte or character. The pair of neighbours whose merge has the lowest rank
 * becomes one token, again and again, until no pair can be merged. The tokens are a linked list. A heap holds all pairs
 * of neighbours that can be merged, by rank and place; a pair that has changed since its insertion is skipped. So a
 * piece of n bytes takes n log n steps. The tokens of short pieces are cached. */
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"
#include "parts.h"

#define HEAP_FACTOR 3   /* at most 3n pairs: n - 1 at first, and two more for each of at most n - 1 merges */
#define SYMBOL_TOKENS 4 /* maximum tokens of a character: one for each byte */

static brim_status reserve(encoder *e, size_t tokens)
{
  if (tokens <= e->room) return BRIM_OK;
  size_t room = e->room ? e->room : 64;
  while (room < tokens) room *= 2;
  free(e->token);
  free(e->next);
  free(e->last);
  free(e->heap);
  e->token = brim_try_calloc(room, sizeof *e->token);
  e->next = brim_try_calloc(room, sizeof *e->next);
  e->last = brim_try_calloc(room, sizeof *e->last);
  e->heap = brim_try_calloc(room, HEAP_FACTOR * sizeof *e->heap);
  e->room = room;
  if (e->token && e->next && e->last && e->heap) return BRIM_OK;
  e->room = 0;
  return brim_fail(BRIM_ENOMEM_HOST, "no memory for a piece of %zu bytes", tokens);
}

/* ---- merging ---- */

static bool comes_first(const waiting *a, const waiting *b)
{
  return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(encoder *e, waiting item)
{
  size_t at = e->heap_count++;
  for (; at > 0 && comes_first(&item, &e->heap[(at - 1) / 2]); at = (at - 1) / 2) e->heap[at] = e->heap[(at - 1) / 2];
  e->heap[at] = item;
}

static waiting pop(encoder *e)
{
  const waiting top = e->heap[0], item = e->heap[--e->heap_count];
  size_t at = 0;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= e->heap_count) break;
    if (child + 1 < e->heap_count && comes_first(&e->heap[child + 1], &e->heap[child])) child++;
    if (!comes_first(&e->heap[child], &item)) break;
    e->heap[at] = e->heap[child];
    at = child;
  }
  e->heap[at] = item;
  return top;
}

/* Inserts the pair that begins at a place into the heap, if it can be merged. */
static void offer(encoder *e, int32_t at)
{
  if (at < 0 || e->next[at] < 0) return;
  const int32_t left = e->token[at], right = e->token[e->next[at]];
  const bpe_merge *m = merge_place(e->t, left, right);
  if (m->left >= 0) push(e, (waiting){m->rank, at, left, right, m->token});
}

static void merge(encoder *e, const waiting *p)
{
  const int32_t right = e->next[p->at], after = e->next[right];
  e->token[p->at] = p->token;
  e->token[right] = -1;
  e->next[p->at] = after;
  if (after >= 0) e->last[after] = p->at;
  offer(e, e->last[p->at]);
  offer(e, p->at);
}

/* Returns whether the neighbours at p->at still become p->token. They may have changed since p was inserted. */
static bool is_current(const encoder *e, const waiting *p)
{
  const int32_t left = e->token[p->at], right = left >= 0 ? e->next[p->at] : -1;
  if (right < 0) return false;
  if (left == p->left && e->token[right] == p->right) return true;
  const bpe_merge *m = merge_place(e->t, left, e->token[right]);
  return m->left >= 0 && m->token == p->token;
}

/* Merges the first n tokens. Returns how many tokens are left. */
static size_t merge_all(encoder *e, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    e->next[i] = i + 1 < n ? (int32_t)i + 1 : -1;
    e->last[i] = (int32_t)i - 1;
  }
  e->heap_count = 0;
  for (size_t i = 0; i + 1 < n; i++) offer(e, (int32_t)i);
  while (e->heap_count > 0) {
    const waiting p = pop(e);
    if (is_current(e, &p)) merge(e, &p);
  }
  size_t count = 0;
  for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = e->next[i]) e->token[count++] = e->token[i];
  return count;
}

/* ---- the first tokens ---- */

/* Writes the tokens of a character's bytes. Returns 0 if the vocabulary lacks one of them. */
static size_t add_fallback(const tokenizer *t, const char *text, size_t bytes, int32_t *out)
{
  if (!t->byte_fallback) return 0;
  for (size_t i = 0; i < bytes; i++) {
    out[i] = t->byte_token[(unsigned char)text[i]];
    if (out[i] < 0) return 0;
  }
  return bytes;
}

/* Returns the token of the text's first byte if the model is byte-level, otherwise of its first character. Returns -1
 * if there is none. */
static int32_t first_token(const tokenizer *t, const char *text, size_t bytes, size_t *length)
{
  *length = t->byte_level ? 1 : (size_t)utf8_length(text, bytes);
  return t->byte_level ? t->byte_token[(unsigned char)*text] : tokenizer_id(t, text, *length);
}

/* Writes the first tokens of a piece and returns their number. If fuse_unknown is set, consecutive unknown characters
 * become one unknown token. Unknown characters are left out if the vocabulary has no unknown token. */
static size_t add_first(encoder *e, const char *text, size_t bytes)
{
  const tokenizer *t = e->t;
  size_t n = 0, length;
  bool waits = false; /* an unknown token must still be written */
  for (size_t at = 0; at < bytes; at += length) {
    const int32_t id = first_token(t, text + at, bytes - at, &length);
    if (id >= 0) {
      if (waits) e->token[n++] = t->unknown;
      waits = false;
      e->token[n++] = id;
      continue;
    }
    const size_t count = t->byte_level ? 0 : add_fallback(t, text + at, length, e->token + n);
    n += count;
    if (count > 0 || t->unknown < 0) continue;
    if (waits && !t->fuse_unknown) e->token[n++] = t->unknown;
    waits = true;
  }
  if (waits) e->token[n++] = t->unknown;
  return n;
}

static bool find_whole(encoder *e, const char *text, size_t bytes, int32_t *out, brim_status *status)
{
  if (!e->t->byte_level) return (*out = tokenizer_id(e->t, text, bytes)) >= 0;
  e->symbols.count = 0;
  *status = buffer_add_symbols(&e->symbols, text, bytes);
  return *status == BRIM_OK && (*out = tokenizer_id(e->t, e->symbols.data, e->symbols.count)) >= 0;
}

/* ---- pieces ---- */

static brim_status encode_piece(encoder *e, const char *text, size_t bytes, cached *place)
{
  brim_status status = BRIM_OK;
  size_t count = 1;
  if (bytes > INT32_MAX / SYMBOL_TOKENS) return brim_fail(BRIM_ELOAD, "'%s' has a word that is too long", e->name);
  BRIM_TRY(reserve(e, bytes + SYMBOL_TOKENS));
  if (!e->t->ignore_merges || !find_whole(e, text, bytes, e->token, &status))
    count = status == BRIM_OK ? merge_all(e, add_first(e, text, bytes)) : 0;
  BRIM_TRY(status);
  if (place && count <= CACHE_IDS) {
    place->bytes = (uint8_t)bytes;
    place->count = (uint8_t)count;
    memcpy(place->text, text, bytes);
    memcpy(place->id, e->token, count * sizeof *e->token);
  }
  return e->take(e->context, e->token, count);
}

static brim_status encode_cached(encoder *e, const char *text, size_t bytes)
{
  if (bytes > CACHE_BYTES) return encode_piece(e, text, bytes, NULL);
  cached *c = &e->cache[hash_bytes(text, bytes) >> (64 - CACHE_BITS)];
  if (c->bytes == bytes && memcmp(c->text, text, bytes) == 0) return e->take(e->context, c->id, c->count);
  return encode_piece(e, text, bytes, c);
}

/* Cuts before each U+2581 that no token contains after the preceding byte. No merge crosses such a place, so both sides
 * can be encoded separately. */
brim_status bpe_encode(encoder *e, const char *text, size_t bytes)
{
  size_t done = 0, at = LOW_LINE_BYTES;
  while (e->t->may_cut && at < bytes) {
    const char *place = memmem(text + at, bytes - at, LOW_LINE, LOW_LINE_BYTES);
    if (!place) break;
    at = (size_t)(place - text);
    if (!e->t->joins_low_line[(unsigned char)text[at - 1]]) {
      BRIM_TRY(encode_cached(e, text + done, at - done));
      done = at;
    }
    at += LOW_LINE_BYTES;
  }
  return encode_cached(e, text + done, bytes - done);
}
