/* Builds a vocabulary from the bytes of its files. See bpe.h.
 *
 * The files write tokens in printable characters, one for each byte: a byte that is printable in Latin-1 is written as
 * itself, the others, in order, as U+0100 and the following characters. */
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bpe_parts.h"
#include "brim/host.h"

#define SYMBOLS 324 /* characters up to the last that represents a byte */
#define PAIR_BYTES_MAX 4096
#define UNUSED_MAX 65536 /* ids without a token */
#define SHOWN "%.100s"

typedef struct builder {
  const bpe_source *vocabulary, *merges;
  json_t *root, *ids;       /* ids: token -> id; in root */
  json_t *added, *pairs;    /* of a tokenizer.json, in root; or NULL */
  int16_t byte_of[SYMBOLS]; /* -1 if it represents none */
  size_t merge_count;
  bpe *out;
} builder;

static bool can_be_seen(int byte)
{
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static void number_symbols(builder *b)
{
  int next = 256;
  for (int i = 0; i < SYMBOLS; i++) b->byte_of[i] = -1;
  for (int byte = 0; byte < 256; byte++) b->byte_of[can_be_seen(byte) ? byte : next++] = (int16_t)byte;
}

/* Returns the character of at most two bytes at *s, or -1 if it is longer. jansson has checked the UTF-8. */
static int next_symbol(const char **s)
{
  const unsigned char *u = (const unsigned char *)*s;
  if (u[0] >= 0xe0) return -1;
  *s += u[0] < 0x80 ? 1 : 2;
  return u[0] < 0x80 ? u[0] : (u[0] & 31) << 6 | (u[1] & 63);
}

/* Writes the bytes that a token's characters represent and returns their number. A token with other characters, such as
 * a special token, is its own text. */
static size_t spell_out(const builder *b, const char *symbols, char *out)
{
  size_t count = 0;
  for (const char *s = symbols; *s;) {
    const int symbol = next_symbol(&s);
    if (symbol < 0 || symbol >= SYMBOLS || b->byte_of[symbol] < 0) {
      count = strlen(symbols);
      memcpy(out, symbols, count); /* NOLINT(bugprone-not-null-terminated-result): no string */
      return count;
    }
    out[count++] = (char)b->byte_of[symbol];
  }
  return count;
}

/* ---- tokens ---- */

static brim_status check_id(const builder *b, const char *token, const json_t *id)
{
  const json_int_t value = json_integer_value(id);
  if (!json_is_integer(id) || value < 0 || value >= BPE_TOKENS_MAX)
    return brim_fail(BRIM_ELOAD, "'%s': the id of token '" SHOWN "' must be a whole number from 0 to %" PRId64,
                     b->vocabulary->name, token, BPE_TOKENS_MAX - 1);
  return BRIM_OK;
}

/* Computes the number of ids and the bytes of all tokens. */
static brim_status measure(builder *b, size_t *bytes)
{
  const char *token;
  json_t *id;
  json_object_foreach(b->ids, token, id)
  {
    BRIM_TRY(check_id(b, token, id));
    if (json_integer_value(id) >= b->out->count) b->out->count = json_integer_value(id) + 1;
    *bytes += strlen(token);
  }
  if (json_object_size(b->ids) == 0)
    return brim_fail(BRIM_ELOAD, "'%s' has no tokens: an object of tokens and their ids is needed",
                     b->vocabulary->name);
  if (b->out->count > (int64_t)json_object_size(b->ids) + UNUSED_MAX)
    return brim_fail(BRIM_ELOAD, "'%s' has %zu tokens with ids up to %" PRId64 "; too many ids are unused",
                     b->vocabulary->name, json_object_size(b->ids), b->out->count - 1);
  return BRIM_OK;
}

static brim_status add_token(builder *b, const char *token, int64_t id, size_t *used)
{
  bpe_token *t = &b->out->token[id];
  if (t->text)
    return brim_fail(BRIM_ELOAD, "'%s': tokens '" SHOWN "' and '%.*s' have the same id, %" PRId64, b->vocabulary->name,
                     token, (int)(t->bytes < 100 ? t->bytes : 100), t->text, id);
  t->text = b->out->text + *used;
  t->bytes = (uint32_t)spell_out(b, token, b->out->text + *used);
  *used += t->bytes;
  return BRIM_OK;
}

/* Finds the token of a single byte by the character that represents it. */
static brim_status find_byte(builder *b, int symbol)
{
  const char text[] = {(char)(symbol < 0x80 ? symbol : 0xc0 | symbol >> 6), (char)(0x80 | (symbol & 63))};
  const json_t *id = json_object_getn(b->ids, text, symbol < 0x80 ? 1 : 2);
  const int byte = b->byte_of[symbol];
  if (!id)
    return brim_fail(BRIM_ELOAD, "'%s' has no token for byte %d; GPT-2's encoding needs one for each of the 256",
                     b->vocabulary->name, byte);
  b->out->byte_token[byte] = (int32_t)json_integer_value(id);
  return BRIM_OK;
}

static brim_status add_tokens(builder *b)
{
  const char *token;
  json_t *id;
  size_t bytes = 0, used = 0;
  BRIM_TRY(measure(b, &bytes));
  b->out->token = brim_try_calloc((size_t)b->out->count, sizeof *b->out->token);
  b->out->text = brim_try_calloc(bytes + 1, 1);
  if (!b->out->token || !b->out->text)
    return brim_fail(BRIM_ENOMEM_HOST, "no memory for the %" PRId64 " tokens of '%s'", b->out->count,
                     b->vocabulary->name);
  json_object_foreach(b->ids, token, id) BRIM_TRY(add_token(b, token, json_integer_value(id), &used));
  const json_t *end = json_object_get(b->ids, "<|endoftext|>");
  b->out->end_of_text = end ? (int32_t)json_integer_value(end) : -1;
  for (int symbol = 0; symbol < SYMBOLS; symbol++)
    if (b->byte_of[symbol] >= 0) BRIM_TRY(find_byte(b, symbol));
  return BRIM_OK;
}

/* ---- merges ---- */

/* Fails for a merge, numbered from 1 like lines. */
static brim_status fail_merge(const builder *b, size_t number, const char *what)
{
  return brim_fail(BRIM_ELOAD, "'%s', %s %zu: %s", (b->merges ? b->merges : b->vocabulary)->name,
                   b->merges ? "line" : "merge", number, what);
}

static brim_status add_merge(builder *b, size_t number, const char *left, size_t left_bytes, const char *right,
                             size_t right_bytes)
{
  char pair[2 * PAIR_BYTES_MAX + 1];
  if (left_bytes == 0 || right_bytes == 0 || left_bytes > PAIR_BYTES_MAX || right_bytes > PAIR_BYTES_MAX)
    return fail_merge(b, number, "two tokens with a space between them are needed");
  memcpy(pair, left, left_bytes);
  memcpy(pair + left_bytes, right, right_bytes);
  const json_t *l = json_object_getn(b->ids, left, left_bytes), *r = json_object_getn(b->ids, right, right_bytes);
  const json_t *both = json_object_getn(b->ids, pair, left_bytes + right_bytes);
  if (!l || !r || !both)
    return fail_merge(b, number,
                      !both ? "the merged token is not in the vocabulary"
                            : "one of the two tokens is not in the vocabulary");
  const int32_t ids[] = {(int32_t)json_integer_value(l), (int32_t)json_integer_value(r)};
  *bpe_place(b->out, ids[0], ids[1]) =
      (bpe_merge){ids[0], ids[1], (int32_t)json_integer_value(both), (uint32_t)b->merge_count++};
  return BRIM_OK;
}

static brim_status reserve_merges(builder *b, size_t count)
{
  size_t places = 16;
  while (places < 2 * count + 2) places *= 2;
  b->out->merge = brim_try_calloc(places, sizeof *b->out->merge);
  if (!b->out->merge) return brim_fail(BRIM_ENOMEM_HOST, "no memory for %zu merges", count);
  for (size_t i = 0; i < places; i++) b->out->merge[i].left = -1;
  b->out->merge_mask = places - 1;
  return BRIM_OK;
}

/* "Ä t" */
static brim_status add_pair(builder *b, size_t number, const char *pair, size_t bytes)
{
  const char *space = memchr(pair, ' ', bytes);
  const size_t left = space ? (size_t)(space - pair) : 0;
  if (space && memchr(space + 1, ' ', bytes - left - 1)) return fail_merge(b, number, "there are more than two tokens");
  return add_merge(b, number, pair, left, space ? space + 1 : "", space ? bytes - left - 1 : 0);
}

/* Reads a merge from each line; the first may be a version. */
static brim_status read_lines(builder *b)
{
  const char *text = b->merges->bytes;
  const size_t bytes = b->merges->count;
  size_t number = 0, lines = 1;
  for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
  BRIM_TRY(reserve_merges(b, lines));
  for (size_t at = 0, next; at < bytes; at = next) {
    const char *newline = memchr(text + at, '\n', bytes - at);
    size_t end = newline ? (size_t)(newline - text) : bytes;
    next = end + 1;
    number++;
    if (end > at && text[end - 1] == '\r') end--;
    const bool version = number == 1 && end - at >= 8 && memcmp(text + at, "#version", 8) == 0;
    if (end > at && !version) BRIM_TRY(add_pair(b, number, text + at, end - at));
  }
  return BRIM_OK;
}

/* Reads "a b" or, in newer files, ["a", "b"]. */
static brim_status read_pairs(builder *b)
{
  BRIM_TRY(reserve_merges(b, json_array_size(b->pairs)));
  for (size_t i = 0; i < json_array_size(b->pairs); i++) {
    const json_t *pair = json_array_get(b->pairs, i), *l = json_array_get(pair, 0), *r = json_array_get(pair, 1);
    if (json_is_string(pair))
      BRIM_TRY(add_pair(b, i + 1, json_string_value(pair), json_string_length(pair)));
    else if (json_array_size(pair) == 2 && json_is_string(l) && json_is_string(r))
      BRIM_TRY(add_merge(b, i + 1, json_string_value(l), json_string_length(l), json_string_value(r),
                         json_string_length(r)));
    else
      return fail_merge(b, i + 1, "a text or a list of two texts is needed");
  }
  return BRIM_OK;
}

/* ---- tokenizer.json ---- */

/* Returns whether a key exists and is neither null nor false. */
static bool is_set(const json_t *object, const char *key)
{
  const json_t *value = json_object_get(object, key);
  return value && !json_is_null(value) && !json_is_false(value);
}

static bool is_text(const json_t *object, const char *key, const char *text)
{
  const char *value = json_string_value(json_object_get(object, key));
  return value && strcmp(value, text) == 0;
}

static brim_status fail_other(const builder *b, const char *what)
{
  return brim_fail(BRIM_ELOAD, "'%s' is not for GPT-2's byte-pair encoding, the only one supported: %s",
                   b->vocabulary->name, what);
}

/* Refuses settings that would give other ids. */
static brim_status check_tokenizer(const builder *b, const json_t *model)
{
  const json_t *words = json_object_get(b->root, "pre_tokenizer"), *regex = json_object_get(words, "use_regex");
  if (!json_is_object(model)) return fail_other(b, "it has no \"model\"");
  if (json_object_get(model, "type") && !is_text(model, "type", "BPE"))
    return fail_other(b, "its model's type is not \"BPE\"");
  if (!json_is_object(json_object_get(model, "vocab")) || !json_is_array(json_object_get(model, "merges")))
    return fail_other(b, "its model has no \"vocab\" and \"merges\"");
  if (is_set(model, "ignore_merges") || is_set(model, "byte_fallback") || is_set(model, "dropout"))
    return fail_other(b, "its model has ignore_merges, byte_fallback or dropout");
  if (is_set(b->root, "normalizer")) return fail_other(b, "it has a normalizer");
  if (!is_text(words, "type", "ByteLevel") || (regex && !json_is_true(regex)))
    return fail_other(b, "its pre_tokenizer is not \"ByteLevel\"");
  return is_set(words, "add_prefix_space") ? fail_other(b, "it adds a space before texts") : BRIM_OK;
}

/* Adds tokens that are not in the model's vocabulary. */
static brim_status add_added(const builder *b)
{
  for (size_t i = 0; i < json_array_size(b->added); i++) {
    const json_t *entry = json_array_get(b->added, i);
    const char *content = json_string_value(json_object_get(entry, "content"));
    json_t *id = json_object_get(entry, "id");
    if (!content || !json_is_integer(id))
      return brim_fail(BRIM_ELOAD, "'%s': added token %zu has no content or no id", b->vocabulary->name, i + 1);
    if (!json_object_get(b->ids, content) && json_object_set(b->ids, content, id) != 0)
      return brim_fail(BRIM_ENOMEM_HOST, "no memory for the tokens of '%s'", b->vocabulary->name);
  }
  return BRIM_OK;
}

static brim_status take_tokenizer(builder *b)
{
  json_t *model = json_object_get(b->root, "model");
  BRIM_TRY(check_tokenizer(b, model));
  b->ids = json_object_get(model, "vocab");
  b->pairs = json_object_get(model, "merges");
  b->added = json_object_get(b->root, "added_tokens");
  return add_added(b);
}

/* ---- building ---- */

static brim_status parse(builder *b)
{
  json_error_t error;
  b->root = json_loadb(b->vocabulary->bytes, b->vocabulary->count, JSON_REJECT_DUPLICATES, &error);
  if (!b->root)
    return brim_fail(BRIM_ELOAD, "'%s' is not JSON: line %d, column %d: %s", b->vocabulary->name, error.line,
                     error.column, error.text);
  if (!json_is_object(b->root))
    return brim_fail(BRIM_ELOAD, "'%s' has no tokens: an object of tokens and their ids is needed",
                     b->vocabulary->name);
  if (!b->merges) return take_tokenizer(b);
  b->ids = b->root;
  return BRIM_OK;
}

static brim_status build(builder *b)
{
  number_symbols(b);
  BRIM_TRY(parse(b));
  BRIM_TRY(add_tokens(b));
  BRIM_TRY(b->merges ? read_lines(b) : read_pairs(b));
  b->out->hash = bpe_hash_add(BPE_HASH_START, b->vocabulary->bytes, b->vocabulary->count);
  if (b->merges) b->out->hash = bpe_hash_add(b->out->hash, b->merges->bytes, b->merges->count);
  return bpe_words_compile(&b->out->words);
}

brim_status bpe_build(const bpe_source *vocabulary, const bpe_source *merges, bpe **out)
{
  builder b = {.vocabulary = vocabulary, .merges = merges, .out = brim_try_calloc(1, sizeof(bpe))};
  if (!b.out) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the vocabulary '%s'", vocabulary->name);
  const brim_status status = build(&b);
  json_decref(b.root);
  if (status == BRIM_OK)
    *out = b.out;
  else
    bpe_free(b.out);
  return status;
}

void bpe_free(bpe *b)
{
  if (!b) return;
  pcre2_code_free(b->words);
  free(b->token);
  free(b->text);
  free(b->merge);
  free(b);
}

int64_t bpe_vocabulary(const bpe *b)
{
  return b->count;
}
int32_t bpe_end_of_text(const bpe *b)
{
  return b->end_of_text;
}
uint64_t bpe_hash(const bpe *b)
{
  return b->hash;
}
