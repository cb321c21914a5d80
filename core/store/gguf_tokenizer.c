/* Writes the tokenizer of a GGUF file as tokenizer.json. The conversion of each kind follows Hugging Face's
 * transformers (integrations/gguf/gguf_tokenizer_mapping.py), except for the steps before byte-pair encoding: these
 * follow llama.cpp's name for them, because transformers does not know all of these names. See gguf_tokenizer.h. */
#include "store/gguf_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "brim/host.h"

#define KEY(name) "tokenizer.ggml." name
#define TOKENS_MAX ((uint64_t)1 << 24)
#define LOW_LINE "\xe2\x96\x81" /* U+2581 */

enum token_type { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

typedef struct token {
  const char *text;
  uint64_t bytes;
  int64_t type;
} token;

typedef struct writer {
  const brim_gguf *file;
  brim_arena arena;
  brim_text *out;
  token *token;
  uint64_t count;
  const brim_gguf_pre *pre; /* rules of a byte-level vocabulary */
  bool is_llama, is_gemma;
  uint32_t *place; /* hash table of tokens by text; UINT32_MAX: free */
  uint64_t mask;
} writer;

static brim_status fail(const writer *w, const char *what)
{
  return brim_fail(BRIM_ELOAD, "'%s': %s", brim_gguf_path(w->file), what);
}

/* Appends a JSON string with its quotes. */
static void add_string(brim_text *out, const char *text, size_t bytes)
{
  brim_text_add(out, "\"");
  for (size_t i = 0, from = 0; i <= bytes; i++) {
    const unsigned char c = i < bytes ? (unsigned char)text[i] : '"';
    if (c != '"' && c != '\\' && c >= 0x20) continue;
    brim_text_add_n(out, text + from, i - from);
    from = i + 1;
    if (i == bytes) break;
    if (c < 0x20)
      brim_text_printf(out, "\\u%04x", c);
    else
      brim_text_printf(out, "\\%c", c);
  }
  brim_text_add(out, "\"");
}

/* ---- the vocabulary ---- */

static brim_status read_tokens(writer *w)
{
  const brim_gguf_value *v = brim_gguf_find(w->file, KEY("tokens"));
  const brim_gguf_value *types = brim_gguf_find(w->file, KEY("token_type"));
  if (!v || !v->is_array || v->kind != BRIM_GGUF_TEXT || v->count == 0 || v->count > TOKENS_MAX)
    return fail(w, KEY("tokens") " must be a list of 1 to 2^24 texts");
  if (types && types->count != v->count) return fail(w, KEY("token_type") " needs a number for each token");
  w->count = v->count;
  w->token = brim_arena_try(&w->arena, (w->count + 1) * sizeof *w->token);
  if (!w->token) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the tokens of '%s'", brim_gguf_path(w->file));
  uint64_t at = 0;
  for (uint64_t i = 0; i < w->count; i++) {
    token *t = &w->token[i];
    brim_gguf_next_text(v, &at, &t->text, &t->bytes);
    t->type = NORMAL;
    if (types && !brim_gguf_integer(types, i, &t->type))
      return fail(w, KEY("token_type") " must be a list of integers");
    if (memchr(t->text, 0, t->bytes) && t->type != UNUSED) return fail(w, "a token contains a NUL");
  }
  return BRIM_OK;
}

/* Reads a token id in the metadata; -1: none. */
static brim_status read_id(const writer *w, const char *key, int64_t *out)
{
  const brim_gguf_value *v = brim_gguf_find(w->file, key);
  *out = -1;
  if (!v) return BRIM_OK;
  if (!v->is_array && brim_gguf_integer(v, 0, out) && *out >= 0 && (uint64_t)*out < w->count) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s': %s must be the number of a token", brim_gguf_path(w->file), key);
}

static bool read_flag(const writer *w, const char *key, bool otherwise)
{
  const brim_gguf_value *v = brim_gguf_find(w->file, key);
  int64_t value = otherwise;
  return v && brim_gguf_integer(v, 0, &value) ? value != 0 : otherwise;
}

static int32_t next_character(const char *s, uint64_t bytes, size_t *length)
{
  const unsigned char *u = (const unsigned char *)s;
  const size_t n = u[0] < 0x80 ? 1 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;
  *length = n < bytes ? n : bytes;
  return n == 2 && bytes >= 2 ? (u[0] & 31) << 6 | (u[1] & 63) : n == 1 ? u[0] : 0x10000;
}

/* Whether the text is in GPT-2's alphabet, which writes each byte as a character. */
static bool is_spelled(const token *t)
{
  size_t length;
  for (uint64_t at = 0; at < t->bytes; at += length) {
    const int32_t c = next_character(t->text + at, t->bytes - at, &length);
    const bool good = (c > 32 && c < 127) || (c > 160 && c != 173 && c <= 0x143);
    if (!good) return false;
  }
  return true;
}

static void add_spelled(const token *t, brim_text *out)
{
  for (uint64_t i = 0; i < t->bytes; i++) {
    const unsigned char b = (unsigned char)t->text[i];
    const int c = b <= 32 ? 0x100 + b : b >= 127 && b <= 160 ? 0x100 + 33 + b - 127 : b == 173 ? 0x143 : b;
    const char text[] = {(char)(c < 0x80 ? c : 0xc0 | c >> 6), (char)(0x80 | (c & 63))};
    brim_text_add_n(out, text, c < 0x80 ? 1 : 2);
  }
}

/* Gemma's files have tokens with spaces, for which the tokenizer expects U+2581. */
static void respell(writer *w, token *t)
{
  brim_text text = {0};
  uint64_t spaces = 0;
  while (spaces < t->bytes && t->text[spaces] == ' ') spaces++;
  if (w->is_gemma && t->bytes > 0 && spaces == t->bytes)
    for (uint64_t i = 0; i < spaces; i++) brim_text_add(&text, LOW_LINE);
  else if (!w->is_llama && t->type == NORMAL && !is_spelled(t))
    add_spelled(t, &text);
  if (text.length > 0) {
    t->text = brim_arena_string_n(&w->arena, text.s, text.length);
    t->bytes = text.length;
  }
  brim_text_release(&text);
}

static void write_vocabulary(writer *w)
{
  bool first = true;
  brim_text_add(w->out, "\"vocab\":{");
  for (uint64_t i = 0; i < w->count; i++) {
    if (w->token[i].type == UNUSED) continue;
    if (!first) brim_text_add(w->out, ",");
    first = false;
    add_string(w->out, w->token[i].text, w->token[i].bytes);
    brim_text_printf(w->out, ":%llu", (unsigned long long)i);
  }
  brim_text_add(w->out, "}");
}

/* ---- merges that follow from scores ---- */

typedef struct merge {
  double score;
  uint32_t left, right, left_characters, right_characters;
  uint64_t order;
} merge;

/* Returns the place of the text in the table, or the free place for it. */
static uint64_t place_of(const writer *w, const char *text, uint64_t bytes)
{
  uint64_t at = brim_hash(BRIM_HASH_START, text, bytes) & w->mask;
  for (; w->place[at] != UINT32_MAX; at = (at + 1) & w->mask) {
    const token *t = &w->token[w->place[at]];
    if (t->bytes == bytes && memcmp(t->text, text, bytes) == 0) break;
  }
  return at;
}

static uint32_t find_token(const writer *w, const char *text, uint64_t bytes)
{
  return w->place[place_of(w, text, bytes)];
}

static brim_status index_tokens(writer *w)
{
  uint64_t places = 16;
  while (places < 2 * w->count) places *= 2;
  w->mask = places - 1;
  w->place = brim_arena_try(&w->arena, places * sizeof *w->place);
  if (!w->place) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the tokens of '%s'", brim_gguf_path(w->file));
  memset(w->place, 0xff, places * sizeof *w->place);
  for (uint32_t i = 0; i < w->count; i++) w->place[place_of(w, w->token[i].text, w->token[i].bytes)] = i;
  return BRIM_OK;
}

/* Orders the ways to cut a token: those whose left part has a lower number come first. */
static int compare_ways(const void *a, const void *b)
{
  const merge *x = a, *y = b;
  if (x->left != y->left) return x->left < y->left ? -1 : 1;
  return x->right < y->right ? -1 : x->right > y->right;
}

static int compare_merges(const void *a, const void *b)
{
  const merge *x = a, *y = b;
  if (x->score != y->score) return x->score > y->score ? -1 : 1;
  if (x->left_characters != y->left_characters) return x->left_characters > y->left_characters ? -1 : 1;
  if (x->right_characters != y->right_characters) return x->right_characters > y->right_characters ? -1 : 1;
  return x->order < y->order ? -1 : x->order > y->order;
}

typedef struct merges {
  merge *item;
  size_t count, room;
} merges;

static brim_status add_merge(const writer *w, merges *m, merge one)
{
  if (m->count == m->room) {
    const size_t room = m->room ? 2 * m->room : 4096;
    merge *grown = brim_try_realloc(m->item, room * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the merges of '%s'", brim_gguf_path(w->file));
    m->item = grown;
    m->room = room;
  }
  m->item[m->count++] = one;
  return BRIM_OK;
}

/* Adds the ways in which two tokens make this one. */
static brim_status cut_token(const writer *w, const token *t, double score, merges *m)
{
  const size_t from = m->count;
  uint32_t characters = 0, before = 0;
  size_t length;
  for (uint64_t at = 0; at < t->bytes; at += length, characters++) next_character(t->text + at, t->bytes - at, &length);
  for (uint64_t at = 0; at < t->bytes; at += length, before++) {
    next_character(t->text + at, t->bytes - at, &length);
    if (at == 0) continue;
    const uint32_t left = find_token(w, t->text, at);
    const uint32_t right = left == UINT32_MAX ? UINT32_MAX : find_token(w, t->text + at, t->bytes - at);
    if (right == UINT32_MAX) continue;
    BRIM_TRY(add_merge(w, m, (merge){score, left, right, before, characters - before, 0}));
  }
  if (m->count > from + 1) qsort(m->item + from, m->count - from, sizeof *m->item, compare_ways);
  return BRIM_OK;
}

static brim_status derive_merges(writer *w, merges *m)
{
  const brim_gguf_value *scores = brim_gguf_find(w->file, KEY("scores"));
  if (!w->is_gemma && (!scores || !scores->is_array || scores->count != w->count))
    return fail(w, "a SentencePiece vocabulary without " KEY("merges") " needs " KEY("scores") " for each token");
  BRIM_TRY(index_tokens(w));
  for (uint64_t i = 0; i < w->count; i++) {
    double score = -(double)i; /* Gemma's scores are not in the order of its merges */
    if (!w->is_gemma && !brim_gguf_number(scores, i, &score)) return fail(w, KEY("scores") " must be numbers");
    if (score != score) return fail(w, KEY("scores") " must be numbers");
    if (w->token[i].bytes < 1000) BRIM_TRY(cut_token(w, &w->token[i], score, m));
  }
  for (size_t i = 0; i < m->count; i++) m->item[i].order = i;
  if (m->count > 1) qsort(m->item, m->count, sizeof *m->item, compare_merges);
  return BRIM_OK;
}

static brim_status write_derived(writer *w)
{
  merges m = {0};
  const brim_status status = derive_merges(w, &m);
  for (size_t i = 0; i < m.count && status == BRIM_OK; i++) {
    const token *left = &w->token[m.item[i].left], *right = &w->token[m.item[i].right];
    brim_text_add(w->out, i ? ",[" : "[");
    add_string(w->out, left->text, left->bytes);
    brim_text_add(w->out, ",");
    add_string(w->out, right->text, right->bytes);
    brim_text_add(w->out, "]");
  }
  free(m.item);
  return status;
}

static brim_status write_merges(writer *w)
{
  const brim_gguf_value *v = brim_gguf_find(w->file, KEY("merges"));
  const char *text;
  uint64_t at = 0, bytes;
  bool first = true;
  brim_text_add(w->out, ",\"merges\":[");
  if (!v && !w->is_llama) return fail(w, "it has no " KEY("merges"));
  if (v && (!v->is_array || v->kind != BRIM_GGUF_TEXT)) return fail(w, KEY("merges") " must be a list of texts");
  if (!v) BRIM_TRY(write_derived(w));
  while (v && brim_gguf_next_text(v, &at, &text, &bytes)) {
    if (!first) brim_text_add(w->out, ",");
    first = false;
    add_string(w->out, text, bytes);
  }
  brim_text_add(w->out, "]");
  return BRIM_OK;
}

/* ---- added tokens, and the tokens around a text ---- */

static brim_status find_special(const writer *w, bool *special)
{
  static const char *const keys[] = {KEY("bos_token_id"), KEY("eos_token_id"), KEY("unknown_token_id"),
                                     KEY("padding_token_id")};
  for (uint64_t i = 0; i < w->count; i++)
    special[i] = w->token[i].type == CONTROL || (w->is_llama && w->token[i].type == UNKNOWN);
  for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
    int64_t id;
    BRIM_TRY(read_id(w, keys[k], &id));
    if (id >= 0 && w->token[id].type != UNUSED) special[id] = true;
  }
  return BRIM_OK;
}

static brim_status write_added(writer *w)
{
  bool *special = brim_arena_try(&w->arena, w->count + 1);
  if (!special) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the tokens of '%s'", brim_gguf_path(w->file));
  BRIM_TRY(find_special(w, special));
  bool first = true;
  brim_text_add(w->out, "\"added_tokens\":[");
  for (uint64_t i = 0; i < w->count; i++) {
    if (!special[i] && w->token[i].type != USER_DEFINED) continue;
    brim_text_printf(w->out, "%s{\"id\":%llu,\"content\":", first ? "" : ",", (unsigned long long)i);
    add_string(w->out, w->token[i].text, w->token[i].bytes);
    brim_text_printf(w->out,
                     ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":%s}",
                     special[i] ? "true" : "false");
    first = false;
  }
  brim_text_add(w->out, "],");
  return BRIM_OK;
}

static void write_special(writer *w, int64_t id)
{
  brim_text_add(w->out, "{\"SpecialToken\":{\"id\":");
  add_string(w->out, w->token[id].text, w->token[id].bytes);
  brim_text_add(w->out, ",\"type_id\":0}}");
}

static void write_ids(writer *w, int64_t id)
{
  add_string(w->out, w->token[id].text, w->token[id].bytes);
  brim_text_add(w->out, ":{\"id\":");
  add_string(w->out, w->token[id].text, w->token[id].bytes);
  brim_text_printf(w->out, ",\"ids\":[%lld],\"tokens\":[", (long long)id);
  add_string(w->out, w->token[id].text, w->token[id].bytes);
  brim_text_add(w->out, "]}");
}

typedef struct ends {
  int64_t begin, end; /* ids that are added; -1: none */
} ends;

static brim_status read_ends(const writer *w, ends *out)
{
  BRIM_TRY(read_id(w, KEY("bos_token_id"), &out->begin));
  BRIM_TRY(read_id(w, KEY("eos_token_id"), &out->end));
  if (!read_flag(w, KEY("add_bos_token"), w->is_llama || w->pre->add_bos)) out->begin = -1;
  if (!read_flag(w, KEY("add_eos_token"), false)) out->end = -1;
  return BRIM_OK;
}

static brim_status write_template(writer *w)
{
  ends e;
  BRIM_TRY(read_ends(w, &e));
  if (e.begin < 0 && e.end < 0) {
    brim_text_add(w->out, "\"post_processor\":null,");
    return BRIM_OK;
  }
  brim_text_add(w->out, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[");
  if (e.begin >= 0) write_special(w, e.begin);
  brim_text_printf(w->out, "%s{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", e.begin >= 0 ? "," : "");
  if (e.end >= 0) {
    brim_text_add(w->out, ",");
    write_special(w, e.end);
  }
  brim_text_add(w->out,
                "],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],"
                "\"special_tokens\":{");
  if (e.begin >= 0) write_ids(w, e.begin);
  if (e.begin >= 0 && e.end >= 0 && e.end != e.begin) brim_text_add(w->out, ",");
  if (e.end >= 0 && e.end != e.begin) write_ids(w, e.end);
  brim_text_add(w->out, "}},");
  return BRIM_OK;
}

/* ---- steps ---- */

static void write_byte_level_steps(writer *w)
{
  brim_text_printf(
      w->out,
      "\"normalizer\":%s,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[%s]},"
      "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},",
      w->pre->normalizer ? w->pre->normalizer : "null", w->pre->steps);
}

#define TO_SPACES "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" LOW_LINE "\"},\"content\":\" \"}"
#define TO_LOW_LINES "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" LOW_LINE "\"}"

static void write_sentencepiece_steps(writer *w)
{
  const bool prefix = read_flag(w, KEY("add_space_prefix"), !w->is_gemma) && !w->is_gemma;
  const bool is_phi = strcmp(brim_gguf_architecture(w->file), "phi3") == 0;
  if (w->is_gemma)
    brim_text_add(w->out, "\"normalizer\":" TO_LOW_LINES
                          ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},"
                          "\"behavior\":\"MergedWithPrevious\",\"invert\":false},");
  else if (is_phi)
    brim_text_printf(
        w->out, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s" TO_LOW_LINES "]},\"pre_tokenizer\":null,",
        prefix ? "{\"type\":\"Prepend\",\"prepend\":\"" LOW_LINE "\"}," : "");
  else
    brim_text_printf(w->out,
                     "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" LOW_LINE
                     "\",\"prepend_scheme\":\"%s\",\"split\":false},",
                     prefix ? "first" : "never");
  brim_text_printf(w->out,
                   "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" TO_SPACES
                   ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}%s]},",
                   prefix ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}" : "");
}

static brim_status write_model(writer *w)
{
  int64_t unknown = -1;
  if (w->is_llama) BRIM_TRY(read_id(w, KEY("unknown_token_id"), &unknown));
  for (uint64_t i = 0; w->is_llama && unknown < 0 && i < w->count; i++)
    if (w->token[i].type == UNKNOWN) unknown = (int64_t)i;
  brim_text_add(w->out, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":");
  if (unknown >= 0)
    add_string(w->out, w->token[unknown].text, w->token[unknown].bytes);
  else
    brim_text_add(w->out, "null");
  brim_text_printf(w->out,
                   ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":%s,"
                   "\"byte_fallback\":%s,\"ignore_merges\":%s,",
                   w->is_llama ? "true" : "false", w->is_llama ? "true" : "false",
                   !w->is_llama && w->pre->ignore_merges ? "true" : "false");
  write_vocabulary(w);
  BRIM_TRY(write_merges(w));
  brim_text_add(w->out, "}}\n");
  return BRIM_OK;
}

static brim_status write_tokenizer(writer *w)
{
  for (uint64_t i = 0; i < w->count; i++) respell(w, &w->token[i]);
  brim_text_add(w->out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,");
  BRIM_TRY(write_added(w));
  if (w->is_llama)
    write_sentencepiece_steps(w);
  else
    write_byte_level_steps(w);
  BRIM_TRY(write_template(w));
  return write_model(w);
}

/* ---- tokenizer_config.json ---- */

static void write_text_key(writer *w, const char *key, const char *text, size_t bytes)
{
  brim_text_printf(w->out, "  \"%s\": ", key);
  add_string(w->out, text, bytes);
  brim_text_add(w->out, ",\n");
}

static brim_status write_config(writer *w)
{
  static const struct {
    const char *key, *id;
  } names[] = {{"bos_token", KEY("bos_token_id")},
               {"eos_token", KEY("eos_token_id")},
               {"unk_token", KEY("unknown_token_id")},
               {"pad_token", KEY("padding_token_id")}};
  ends e;
  const brim_gguf_value *context = brim_gguf_find_own(w->file, "context_length");
  const brim_gguf_value *chat = brim_gguf_find(w->file, "tokenizer.chat_template");
  int64_t most = 0;
  uint64_t at = 0, bytes;
  const char *text;
  BRIM_TRY(read_ends(w, &e));
  brim_text_add(w->out, "{\n");
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    int64_t id;
    BRIM_TRY(read_id(w, names[i].id, &id));
    if (id >= 0) write_text_key(w, names[i].key, w->token[id].text, w->token[id].bytes);
  }
  brim_text_printf(w->out, "  \"add_bos_token\": %s,\n  \"add_eos_token\": %s,\n", e.begin >= 0 ? "true" : "false",
                   e.end >= 0 ? "true" : "false");
  if (chat && !chat->is_array && brim_gguf_next_text(chat, &at, &text, &bytes))
    write_text_key(w, "chat_template", text, bytes);
  if (context && brim_gguf_integer(context, 0, &most))
    brim_text_printf(w->out, "  \"model_max_length\": %lld,\n", (long long)most);
  brim_text_add(w->out, "  \"clean_up_tokenization_spaces\": false,\n"
                        "  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n");
  return BRIM_OK;
}

/* ---- all ---- */

static brim_status choose_pre(writer *w)
{
  const char *name = brim_gguf_text(w->file, KEY("pre"));
  w->pre = brim_gguf_pre_named(name);
  if (w->pre) return BRIM_OK;
  brim_text known = {0};
  brim_gguf_pre_list(&known);
  const brim_status status =
      brim_fail(BRIM_ELOAD,
                "'%s': brim does not know how " KEY("pre") " '%.100s' splits text into words\nit knows: %s\nset "
                                                           "dataset.tokenizer to the model's tokenizer.json",
                brim_gguf_path(w->file), name[0] ? name : "(none)", brim_text_str(&known));
  brim_text_release(&known);
  return status;
}

static brim_status choose_model(writer *w)
{
  const char *model = brim_gguf_text(w->file, KEY("model"));
  w->is_llama = strcmp(model, "llama") == 0;
  w->is_gemma = w->is_llama && brim_starts_with(brim_gguf_architecture(w->file), "gemma");
  if (w->is_llama) return BRIM_OK;
  if (strcmp(model, "gpt2") == 0) return choose_pre(w);
  return brim_fail(
      BRIM_ELOAD,
      "'%s': " KEY(
          "model") " is '%.100s'; brim reads gpt2 and llama\nset dataset.tokenizer to the model's tokenizer.json",
      brim_gguf_path(w->file), model[0] ? model : "(none)");
}

brim_status brim_gguf_tokenizer_text(const brim_gguf *file, brim_text *tokenizer, brim_text *config)
{
  writer w = {.file = file, .out = tokenizer};
  brim_status status = choose_model(&w);
  if (status == BRIM_OK) status = read_tokens(&w);
  if (status == BRIM_OK) status = write_tokenizer(&w);
  w.out = config;
  if (status == BRIM_OK) status = write_config(&w);
  brim_arena_release(&w.arena);
  return status;
}

/* ---- for plugins ---- */

brim_status brim_gguf_tokenizer(const char *path, char **tokenizer, char **config)
{
  brim_gguf *file = NULL;
  brim_text text[2] = {{0}, {0}};
  BRIM_TRY(brim_gguf_open(path, &file));
  const brim_status status = brim_gguf_tokenizer_text(file, &text[0], &text[1]);
  brim_gguf_close(file);
  if (status == BRIM_OK) {
    *tokenizer = text[0].s;
    *config = text[1].s;
  } else {
    brim_text_release(&text[0]);
    brim_text_release(&text[1]);
  }
  return status;
}
