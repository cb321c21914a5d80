/* Reads the vocabulary, the merges and the added tokens. See parts.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"
#include "parts.h"

#define SHOWN(s) (int)((s).bytes < 100 ? (s).bytes : 100), (s).text

/* Makes room for one more entry of a list that grows. */
static brim_status grow(const reading *r, void **list, size_t count, size_t *room, size_t size)
{
  if (count < *room) return BRIM_OK;
  const size_t more = *room ? 2 * *room : 1024;
  void *grown = brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(*list, more * size);
  if (!grown) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the vocabulary '%s'", r->source->name);
  *list = grown;
  *room = more;
  return BRIM_OK;
}

/* ---- tokens ---- */

typedef struct entry {
  slice token;
  int64_t id;
  double score;
} entry;

typedef struct entries {
  entry *entry;
  size_t count, room;
} entries;

/* Reads a text into the tokenizer's memory, which never moves, because it has room for the whole file. */
static brim_status read_token(const reading *r, scan *s, slice *out)
{
  buffer *text = &r->t->text;
  const size_t from = text->count;
  if (!text->data) BRIM_TRY(buffer_reserve(text, r->source->count + 1));
  BRIM_TRY(scan_string(s, text));
  *out = (slice){text->data + from, text->count - from};
  return BRIM_OK;
}

static brim_status read_id(const reading *r, scan *s, slice token, int64_t *out)
{
  double value;
  BRIM_TRY(scan_number(s, &value));
  if (!(value >= 0 && value < (double)TOKENS_MAX) || value != (double)(int64_t)value)
    return brim_fail(BRIM_ELOAD, "'%s': the id of token '%.*s' must be a whole number from 0 to %" PRId64,
                     r->source->name, SHOWN(token), TOKENS_MAX - 1);
  *out = (int64_t)value;
  return BRIM_OK;
}

static brim_status name_token(const reading *r, slice token, int64_t id)
{
  tokenizer *t = r->t;
  if (t->token[id].text)
    return brim_fail(BRIM_ELOAD, "'%s': tokens '%.*s' and '%.*s' have the same id, %" PRId64, r->source->name,
                     SHOWN(token), SHOWN(t->token[id]), id);
  t->token[id] = token;
  if (names_add(t, (int32_t)id)) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s' has token '%.*s' twice", r->source->name, SHOWN(token));
}

static brim_status place_entries(const reading *r, const entries *list)
{
  tokenizer *t = r->t;
  if (list->count == 0)
    return brim_fail(BRIM_ELOAD, "'%s' has no tokens: an object of tokens and their ids is needed", r->source->name);
  for (size_t i = 0; i < list->count; i++)
    if (list->entry[i].id >= t->count) t->count = list->entry[i].id + 1;
  if (t->count > (int64_t)list->count + UNUSED_MAX)
    return brim_fail(BRIM_ELOAD, "'%s' has %zu tokens with ids up to %" PRId64 "; too many ids are unused",
                     r->source->name, list->count, t->count - 1);
  t->model_count = (int64_t)list->count;
  const size_t added = json_array_size(json_object_get(r->root, "added_tokens"));
  BRIM_TRY(names_reserve(t, list->count + added));
  t->token = brim_try_calloc((size_t)t->count + added, sizeof *t->token);
  if (!t->token)
    return brim_fail(BRIM_ENOMEM_HOST, "no memory for the %" PRId64 " tokens of '%s'", t->count, r->source->name);
  for (size_t i = 0; i < list->count; i++) BRIM_TRY(name_token(r, list->entry[i].token, list->entry[i].id));
  return BRIM_OK;
}

static brim_status read_entries(const reading *r, scan *s, entries *list)
{
  BRIM_TRY(scan_expect(s, '{'));
  if (scan_take(s, '}')) return BRIM_OK;
  do {
    BRIM_TRY(grow(r, (void **)&list->entry, list->count, &list->room, sizeof *list->entry));
    entry *e = &list->entry[list->count++];
    BRIM_TRY(read_token(r, s, &e->token));
    BRIM_TRY(scan_expect(s, ':'));
    BRIM_TRY(read_id(r, s, e->token, &e->id));
  } while (scan_take(s, ','));
  return scan_expect(s, '}');
}

brim_status read_vocabulary(reading *r, scan *s)
{
  entries list = {0};
  brim_status status = read_entries(r, s, &list);
  if (status == BRIM_OK) status = place_entries(r, &list);
  free(list.entry);
  return status;
}

/* ---- Unigram ---- */

static brim_status read_scores(const reading *r, scan *s, entries *list)
{
  BRIM_TRY(scan_expect(s, '['));
  if (scan_take(s, ']')) return BRIM_OK;
  do {
    BRIM_TRY(grow(r, (void **)&list->entry, list->count, &list->room, sizeof *list->entry));
    entry *e = &list->entry[list->count];
    e->id = (int64_t)list->count++;
    if (e->id >= TOKENS_MAX) return scan_fail(s, "there are too many tokens");
    BRIM_TRY(scan_expect(s, '['));
    BRIM_TRY(read_token(r, s, &e->token));
    BRIM_TRY(scan_expect(s, ','));
    BRIM_TRY(scan_number(s, &e->score));
    BRIM_TRY(scan_expect(s, ']'));
  } while (scan_take(s, ','));
  return scan_expect(s, ']');
}

#define UNKNOWN_PENALTY 10.0 /* an unknown character scores this much less than the lowest score */

static brim_status place_scores(const reading *r, const entries *list)
{
  tokenizer *t = r->t;
  t->score = brim_try_calloc(list->count + 1, sizeof *t->score);
  if (!t->score) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the scores of '%s'", r->source->name);
  t->unknown_score = list->count ? list->entry[0].score : 0;
  for (size_t i = 0; i < list->count; i++) {
    const entry *e = &list->entry[i];
    t->score[i] = e->score;
    if (e->score < t->unknown_score) t->unknown_score = e->score;
    if (e->token.bytes) BRIM_TRY(trie_add(&t->pieces_of_model, e->token.text, e->token.bytes, (int32_t)i));
  }
  t->unknown_score -= UNKNOWN_PENALTY;
  return BRIM_OK;
}

brim_status read_unigram_vocabulary(reading *r, scan *s)
{
  entries list = {0};
  brim_status status = read_scores(r, s, &list);
  if (status == BRIM_OK) status = place_entries(r, &list);
  if (status == BRIM_OK) status = place_scores(r, &list);
  free(list.entry);
  return status;
}

/* ---- merges ---- */

enum { WAITING_MAX = NAMES_TOGETHER / 3 };

typedef struct merges {
  bpe_merge *merge;
  size_t count, room;
  struct {
    size_t at, cut, bytes, number;
  } waiting[WAITING_MAX]; /* pairs in `text` whose tokens have not been looked up */
  size_t waiting_count;
  buffer text;
  size_t begin; /* the start of the pair that is being read */
} merges;

/* Fails with a message about a merge. Merges are numbered from 1, like lines. */
static brim_status fail_merge(const reading *r, size_t number, const char *what)
{
  return brim_fail(BRIM_ELOAD, "'%s', %s %zu: %s", (r->merges ? r->merges : r->source)->name,
                   r->merges ? "line" : "merge", number, what);
}

/* Looks up the tokens of the waiting pairs. */
static brim_status add_waiting(const reading *r, merges *m)
{
  slice text[NAMES_TOGETHER] = {{0}};
  int32_t id[NAMES_TOGETHER];
  const size_t count = m->waiting_count;
  for (size_t i = 0; i < count; i++) {
    const char *pair = m->text.data + m->waiting[i].at;
    const size_t cut = m->waiting[i].cut, bytes = m->waiting[i].bytes;
    text[3 * i] = (slice){pair, cut};
    text[3 * i + 1] = (slice){pair + cut, bytes - cut};
    text[3 * i + 2] = (slice){pair, bytes};
  }
  names_find(r->t, text, 3 * count, id);
  BRIM_TRY(grow(r, (void **)&m->merge, m->count + count, &m->room, sizeof *m->merge));
  for (size_t i = 0; i < count; i++) {
    const int32_t left = id[3 * i], right = id[3 * i + 1], both = id[3 * i + 2];
    if (left < 0 || right < 0 || both < 0)
      return fail_merge(r, m->waiting[i].number,
                        both < 0 ? "the merged token is not in the vocabulary"
                                 : "one of the two tokens is not in the vocabulary");
    m->merge[m->count] = (bpe_merge){left, right, both, (uint32_t)m->count};
    m->count++;
  }
  m->waiting_count = m->text.count = m->begin = 0;
  return BRIM_OK;
}

/* Adds the merge of the two tokens at the end of m->text. The second one begins after `cut` bytes. */
static brim_status add_merge(const reading *r, merges *m, size_t number, size_t cut)
{
  const size_t bytes = m->text.count - m->begin;
  if (cut == 0 || cut == bytes) return fail_merge(r, number, "two tokens with a space between them are needed");
  m->waiting[m->waiting_count].at = m->begin;
  m->waiting[m->waiting_count].cut = cut;
  m->waiting[m->waiting_count].bytes = bytes;
  m->waiting[m->waiting_count++].number = number;
  m->begin = m->text.count;
  return m->waiting_count == WAITING_MAX ? add_waiting(r, m) : BRIM_OK;
}

/* Adds the pair "Ä t" at the end of m->text. */
static brim_status add_pair(const reading *r, merges *m, size_t number)
{
  const size_t bytes = m->text.count - m->begin;
  char *text = bytes ? m->text.data + m->begin : NULL, *space = bytes ? memchr(text, ' ', bytes) : NULL;
  if (!space) return add_merge(r, m, number, 0);
  const size_t cut = (size_t)(space - text), rest = bytes - cut - 1;
  if (memchr(space + 1, ' ', rest)) return fail_merge(r, number, "there are more than two tokens");
  memmove(space, space + 1, rest);
  m->text.count--;
  return add_merge(r, m, number, cut);
}

/* Builds the table of merges. A later merge of the same pair replaces an earlier one. */
static brim_status place_merges(const reading *r, const merges *m)
{
  tokenizer *t = r->t;
  size_t places = 16;
  while (places < 2 * m->count + 2) places *= 2;
  t->merge = brim_try_calloc(places, sizeof *t->merge);
  if (!t->merge) return brim_fail(BRIM_ENOMEM_HOST, "no memory for %zu merges", m->count);
  for (size_t i = 0; i < places; i++) t->merge[i].left = -1;
  t->merge_mask = places - 1;
  for (size_t i = 0; i < m->count; i++) {
    const bpe_merge *soon = &m->merge[i + 16 < m->count ? i + 16 : i];
    merge_prefetch(t, soon->left, soon->right);
    *merge_place(t, m->merge[i].left, m->merge[i].right) = m->merge[i];
  }
  return BRIM_OK;
}

/* Each pair is "a b" or, in newer files, ["a", "b"]. */
static brim_status read_pairs(const reading *r, scan *s, merges *m)
{
  BRIM_TRY(scan_expect(s, '['));
  if (scan_take(s, ']')) return BRIM_OK;
  do {
    const size_t number = m->count + m->waiting_count + 1;
    if (scan_take(s, '[')) {
      BRIM_TRY(scan_string(s, &m->text));
      const size_t cut = m->text.count - m->begin;
      BRIM_TRY(scan_expect(s, ','));
      BRIM_TRY(scan_string(s, &m->text));
      BRIM_TRY(scan_expect(s, ']'));
      BRIM_TRY(add_merge(r, m, number, cut));
    } else {
      BRIM_TRY(scan_string(s, &m->text));
      BRIM_TRY(add_pair(r, m, number));
    }
  } while (scan_take(s, ','));
  return scan_expect(s, ']');
}

/* Each line has a merge; the first line may be a version. */
static brim_status read_lines(const reading *r, merges *m)
{
  const char *text = r->merges->bytes;
  const size_t bytes = r->merges->count;
  size_t number = 0;
  for (size_t at = 0, next; at < bytes; at = next) {
    const char *newline = memchr(text + at, '\n', bytes - at);
    size_t end = newline ? (size_t)(newline - text) : bytes;
    next = end + 1;
    number++;
    if (end > at && text[end - 1] == '\r') end--;
    const bool version = number == 1 && end - at >= 8 && memcmp(text + at, "#version", 8) == 0;
    if (end == at || version) continue;
    BRIM_TRY(buffer_add(&m->text, text + at, end - at));
    BRIM_TRY(add_pair(r, m, number));
  }
  return BRIM_OK;
}

brim_status read_merges(reading *r, scan *s)
{
  merges m = {0};
  brim_status status = s ? read_pairs(r, s, &m) : read_lines(r, &m);
  if (status == BRIM_OK) status = add_waiting(r, &m);
  if (status == BRIM_OK) status = place_merges(r, &m);
  free(m.merge);
  free(m.text.data);
  return status;
}

/* ---- added tokens ---- */

#define WORD_AT_START "\\A[\\w\\x{200c}\\x{200d}]" /* the start of a word as Rust's regular expressions define it */

/* If the model lacks a token, the library gives it the next free id, and ignores the id in the file. */
static brim_status check_added_id(const reading *r, const char *path, slice content, int64_t id, int64_t *next)
{
  const int32_t known = tokenizer_id(r->t, content.text, content.bytes);
  const int64_t expected = known >= 0 ? known : *next;
  if (id != expected)
    return read_fail(r, path, "token '%.*s' has id %" PRId64 ", but it would be numbered %" PRId64, SHOWN(content), id,
                     expected);
  if (id >= *next) *next = id + 1;
  if (known >= 0) return BRIM_OK;
  if (id >= r->t->count) r->t->count = id + 1;
  return name_token(r, content, id);
}

static brim_status read_added_one(reading *r, const json_t *from, const char *path, added_token *a, int64_t *next)
{
  static const char *const keys[] = {"iid",     "scontent", "bsingle_word", "blstrip",
                                     "brstrip", "bspecial", "bnormalized",  NULL};
  const json_t *content = json_object_get(from, "content"), *id = json_object_get(from, "id");
  if (!json_is_string(content) || json_string_length(content) == 0 || !json_is_integer(id))
    return read_fail(r, path, "an added token needs \"content\" and \"id\"");
  BRIM_TRY(read_check(r, from, path, keys));
  BRIM_TRY(read_keep(r, json_string_value(content), json_string_length(content), &a->content));
  BRIM_TRY(read_flag(r, from, path, "single_word", false, &a->single_word));
  BRIM_TRY(read_flag(r, from, path, "lstrip", false, &a->left));
  BRIM_TRY(read_flag(r, from, path, "rstrip", false, &a->right));
  BRIM_TRY(read_flag(r, from, path, "special", false, &a->special));
  BRIM_TRY(read_flag(r, from, path, "normalized", !a->special, &a->normalized));
  BRIM_TRY(check_added_id(r, path, a->content, json_integer_value(id), next));
  a->id = (int32_t)json_integer_value(id);
  return BRIM_OK;
}

/* Adds the token to the tree for the text as it is, or to the tree for the normalized text. */
static brim_status place_added(encoder *e, tokenizer *t, size_t i)
{
  const added_token *a = &t->added[i];
  slice text = a->content;
  if (a->normalized) BRIM_TRY(normalize(e, a->content.text, a->content.bytes, &text));
  if (text.bytes == 0) return BRIM_OK;
  (a->normalized ? t->after_byte : t->before_byte)[(unsigned char)text.text[0]] = true;
  return trie_add(a->normalized ? &t->after : &t->before, text.text, text.bytes, (int32_t)i);
}

brim_status read_added(reading *r, const json_t *list)
{
  tokenizer *t = r->t;
  int64_t next = t->model_count;
  const size_t count = json_array_size(list);
  encoder e = {.t = t, .name = r->source->name};
  brim_status status = BRIM_OK;
  t->added = brim_try_calloc(count + 1, sizeof *t->added);
  if (!t->added) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the added tokens of '%s'", r->source->name);
  for (size_t i = 0; i < count; i++) {
    char path[64];
    snprintf(path, sizeof path, "added_tokens[%zu]", i);
    BRIM_TRY(read_added_one(r, json_array_get(list, i), path, &t->added[i], &next));
  }
  t->special = brim_try_calloc((size_t)t->count + 1, sizeof *t->special);
  if (!t->special) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the added tokens of '%s'", r->source->name);
  if (count > 0) {
    BRIM_TRY(regex_compile(r, "added_tokens", WORD_AT_START, strlen(WORD_AT_START), &t->word_at_start));
    status = encoder_open(&e);
  }
  for (size_t i = 0; i < count && status == BRIM_OK; i++) {
    t->special[t->added[i].id] = t->added[i].special;
    status = place_added(&e, t, i);
  }
  encoder_release(&e);
  return status;
}

/* ---- tables that depend on the vocabulary ---- */

/* Finds all bytes that precede U+2581 in a token. */
static void find_cuts(tokenizer *t)
{
  t->may_cut =
      t->model == MODEL_BPE && !t->byte_level && !t->ignore_merges && tokenizer_id(t, LOW_LINE, LOW_LINE_BYTES) >= 0;
  for (int64_t id = 0; id < t->count && t->may_cut; id++) {
    const slice s = t->token[id];
    for (size_t at = 1; at < s.bytes; at++) {
      const char *place = memmem(s.text + at, s.bytes - at, LOW_LINE, LOW_LINE_BYTES);
      if (!place) break;
      at = (size_t)(place - s.text);
      t->joins_low_line[(unsigned char)s.text[at - 1]] = true;
    }
  }
}

static brim_status make_pieces(tokenizer *t)
{
  const bool spelled =
      (t->decode_count == 1 && t->decode[0].kind == DECODE_BYTES) || (!t->has_decoder && t->byte_level);
  t->piece = brim_try_calloc((size_t)t->count, sizeof *t->piece);
  if (!t->piece) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the text of %" PRId64 " tokens", t->count);
  BRIM_TRY(buffer_reserve(&t->pieces, t->text.count + 1));
  for (int64_t id = 0; id < t->count; id++) {
    const slice token = t->token[id];
    const size_t from = t->pieces.count;
    if (token.bytes == 0) continue;
    BRIM_TRY(spelled ? buffer_add_spelled(&t->pieces, token.text, token.bytes) : decode_piece(t, token, &t->pieces));
    t->piece[id].bytes = t->pieces.count - from;
  }
  size_t at = 0;
  for (int64_t id = 0; id < t->count; id++) {
    t->piece[id].text = t->pieces.data + at;
    at += t->piece[id].bytes;
  }
  return BRIM_OK;
}

brim_status read_finish(reading *r)
{
  tokenizer *t = r->t;
  for (int byte = 0; byte < 256; byte++) {
    char text[8];
    const int32_t c = symbol_of_byte((unsigned char)byte);
    size_t bytes = (size_t)snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
    if (t->byte_level) {
      bytes = c < 0x80 ? 1 : 2;
      text[0] = (char)(c < 0x80 ? c : 0xc0 | c >> 6);
      text[1] = (char)(0x80 | (c & 63));
    }
    t->byte_token[byte] = tokenizer_id(t, text, bytes);
  }
  find_cuts(t);
  for (int byte = 0; byte < 256 && t->byte_level && t->byte_fallback; byte++)
    if (t->byte_token[byte] < 0)
      return read_fail(r, "model", "byte_fallback with ByteLevel needs a token for each byte; byte %d has none", byte);
  return make_pieces(t);
}
