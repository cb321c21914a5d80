/* From text to tokens and back. See bpe.h.
 *
 * A word's tokens are a linked list. A heap holds all pairs of neighbours that can be merged, by rank and place; a pair
 * that has changed since is skipped. So a word of n bytes takes n log n steps. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bpe_parts.h"
#include "brim/host.h"

/* Unicode's White_Space, the meaning of \s in Python's regex and in Rust; PCRE2's \s also has U+180E. */
#define SPACES                                                                                                         \
  "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
/* OpenAI's encoder.py, with \s expanded. */
#define WORDS                                                                                                          \
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|[" SPACES "]+(?![^" SPACES "])|[" SPACES   \
  "]+"

brim_status bpe_words_compile(pcre2_code **out)
{
  int error = 0;
  PCRE2_SIZE at = 0;
  *out = pcre2_compile((PCRE2_SPTR)WORDS, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_ANCHORED, &error, &at, NULL);
  if (*out) {
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); /* optional: without a JIT it is only slower */
    return BRIM_OK;
  }
  PCRE2_UCHAR text[160];
  pcre2_get_error_message(error, text, sizeof text);
  return brim_fail(BRIM_EINTERNAL, "the regular expression of words is refused by PCRE2: %s", (const char *)text);
}

static uint64_t mixed(int32_t left, int32_t right)
{
  uint64_t x = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  x = (x ^ x >> 31) * 0x9E3779B97F4A7C15u;
  return x ^ x >> 29;
}

bpe_merge *bpe_place(const bpe *b, int32_t left, int32_t right)
{
  size_t at = mixed(left, right) & b->merge_mask;
  while (b->merge[at].left >= 0 && (b->merge[at].left != left || b->merge[at].right != right))
    at = (at + 1) & b->merge_mask;
  return &b->merge[at];
}

/* ---- a word ---- */

/* A pair of neighbours at the time of its insertion into the heap. */
typedef struct waiting {
  uint32_t rank;
  int32_t at, left, right, token; /* at: place of the left one */
} waiting;

typedef struct word {
  const bpe *bpe;
  int32_t *token, *next, *before; /* of each place; next and before: places, -1 at the ends */
  waiting *heap;
  size_t heap_count, room; /* room: bytes of the longest word so far */
} word;

#define HEAP_FACTOR 3 /* n - 1 pairs at first, and each of at most n - 1 merges adds two */

static void word_release(word *w)
{
  free(w->token);
  free(w->next);
  free(w->before);
  free(w->heap);
}

static brim_status word_reserve(word *w, size_t bytes)
{
  if (bytes <= w->room) return BRIM_OK;
  size_t room = w->room ? w->room : 64;
  while (room < bytes) room *= 2;
  const word grown = {.bpe = w->bpe,
                      .token = brim_try_calloc(room, sizeof *w->token),
                      .next = brim_try_calloc(room, sizeof *w->next),
                      .before = brim_try_calloc(room, sizeof *w->before),
                      .heap = brim_try_calloc(room, HEAP_FACTOR * sizeof *w->heap),
                      .room = room};
  word_release(w);
  *w = grown;
  if (w->token && w->next && w->before && w->heap) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "no memory for a word of %zu bytes", bytes);
}

static bool comes_first(const waiting *a, const waiting *b)
{
  return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(word *w, waiting item)
{
  size_t at = w->heap_count++;
  for (; at > 0 && comes_first(&item, &w->heap[(at - 1) / 2]); at = (at - 1) / 2) w->heap[at] = w->heap[(at - 1) / 2];
  w->heap[at] = item;
}

static waiting pop(word *w)
{
  const waiting top = w->heap[0], item = w->heap[--w->heap_count];
  size_t at = 0;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= w->heap_count) break;
    if (child + 1 < w->heap_count && comes_first(&w->heap[child + 1], &w->heap[child])) child++;
    if (!comes_first(&w->heap[child], &item)) break;
    w->heap[at] = w->heap[child];
    at = child;
  }
  w->heap[at] = item;
  return top;
}

/* Inserts the pair that begins at a place into the heap if it can be merged. */
static void offer(word *w, int32_t at)
{
  if (at < 0 || w->next[at] < 0) return;
  const int32_t left = w->token[at], right = w->token[w->next[at]];
  const bpe_merge *m = bpe_place(w->bpe, left, right);
  if (m->left >= 0) push(w, (waiting){m->rank, at, left, right, m->token});
}

static void merge(word *w, const waiting *p)
{
  const int32_t right = w->next[p->at], after = w->next[right];
  w->token[p->at] = p->token;
  w->token[right] = -1;
  w->next[p->at] = after;
  if (after >= 0) w->before[after] = p->at;
  offer(w, w->before[p->at]);
  offer(w, p->at);
}

/* Writes the word's tokens to the front of w->token, and returns their number. */
static size_t encode_word(word *w, const unsigned char *text, size_t bytes)
{
  const int32_t n = (int32_t)bytes;
  for (int32_t i = 0; i < n; i++) {
    w->token[i] = w->bpe->byte_token[text[i]];
    w->next[i] = i + 1 < n ? i + 1 : -1;
    w->before[i] = i - 1;
  }
  w->heap_count = 0;
  for (int32_t i = 0; i + 1 < n; i++) offer(w, i);
  while (w->heap_count > 0) {
    const waiting p = pop(w);
    const int32_t right = w->next[p.at];
    if (w->token[p.at] == p.left && right >= 0 && w->token[right] == p.right) merge(w, &p);
  }
  size_t count = 0;
  for (int32_t i = 0; i >= 0; i = w->next[i]) w->token[count++] = w->token[i];
  return count;
}

/* ---- a text ---- */

static brim_status fail_match(const char *name, int error, size_t at)
{
  if (error <= PCRE2_ERROR_UTF8_ERR1 && error >= PCRE2_ERROR_UTF8_ERR21)
    return brim_fail(BRIM_ELOAD,
                     "'%s' is not UTF-8 at byte %zu\nconvert it (iconv -t UTF-8), or take bytes for tokens: "
                     "dataset.tokens=bytes",
                     name, at);
  if (error == PCRE2_ERROR_NOMEMORY || error == PCRE2_ERROR_HEAPLIMIT)
    return brim_fail(BRIM_ENOMEM_HOST, "no memory to cut '%s' into words at byte %zu", name, at);
  PCRE2_UCHAR text[160];
  pcre2_get_error_message(error, text, sizeof text);
  return brim_fail(BRIM_EINTERNAL, "'%s' cannot be cut into words at byte %zu: %s", name, at, (const char *)text);
}

static brim_status encode(word *w, const char *name, const char *text, size_t bytes, pcre2_match_data *match,
                          bpe_take_fn take, void *context)
{
  const PCRE2_SIZE *range = pcre2_get_ovector_pointer(match);
  uint32_t options = 0; /* the first match checks that the whole text is UTF-8 */
  for (size_t at = 0; at < bytes; at = range[1]) {
    const int found = pcre2_match(w->bpe->words, (PCRE2_SPTR)text, bytes, at, options, match, NULL);
    if (found < 0) return fail_match(name, found, at == 0 ? pcre2_get_startchar(match) : at);
    options = PCRE2_NO_UTF_CHECK;
    const size_t length = range[1] - range[0];
    if (length > INT32_MAX) return brim_fail(BRIM_ELOAD, "'%s': the word at byte %zu is too long", name, range[0]);
    BRIM_TRY(word_reserve(w, length));
    BRIM_TRY(take(context, w->token, encode_word(w, (const unsigned char *)text + range[0], length)));
  }
  return BRIM_OK;
}

brim_status bpe_encode(const bpe *b, const char *name, const char *text, size_t bytes, bpe_take_fn take, void *context)
{
  word w = {.bpe = b};
  pcre2_match_data *match = pcre2_match_data_create(1, NULL);
  const brim_status status = match ? encode(&w, name, text, bytes, match, take, context)
                                   : brim_fail(BRIM_ENOMEM_HOST, "no memory to cut '%s' into words", name);
  pcre2_match_data_free(match);
  word_release(&w);
  return status;
}

const char *bpe_text(const bpe *b, int32_t token, size_t *bytes)
{
  *bytes = token >= 0 && token < b->count ? b->token[token].bytes : 0;
  return *bytes ? b->token[token].text : "";
}
