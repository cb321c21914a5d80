/* Converts tokenizer.json to a GGUF file's metadata. See base.h. Rejects a tokenizer that GGUF cannot express. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "export/base.h"
#include "store/gguf_tokenizer.h"

#define KEY(name) "tokenizer.ggml." name
#define LOW_LINE "\xe2\x96\x81"

enum token_type { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

typedef struct vocabulary {
  const brim_export_base *base;
  brim_arena arena;
  const char **text; /* by id */
  size_t *bytes;
  int32_t *type;
  float *score;
  int64_t rows;
  bool is_llama;
  const char *pre;
} vocabulary;

static brim_status refuse(const vocabulary *v, const char *what)
{
  return brim_fail(BRIM_ECONFIG, "'%s': brim cannot write this tokenizer into a GGUF file: %s", v->base->path, what);
}

/* ---- tokens ---- */

static brim_status place(vocabulary *v, const char *text, size_t bytes, int64_t id, int32_t type)
{
  if (id < 0 || id >= v->rows) return refuse(v, "it has more tokens than the model's table has rows");
  v->text[id] = text;
  v->bytes[id] = bytes;
  v->type[id] = type;
  return BRIM_OK;
}

static bool is_byte(const char *text, size_t bytes)
{
  return bytes == 6 && strncmp(text, "<0x", 3) == 0 && text[5] == '>';
}

static brim_status read_tokens(vocabulary *v, json_t *model)
{
  const char *text;
  json_t *id;
  const char *unknown = json_string_value(json_object_get(model, "unk_token"));
  json_object_foreach(json_object_get(model, "vocab"), text, id)
  {
    const size_t bytes = strlen(text);
    const int32_t type = v->is_llama && is_byte(text, bytes)                    ? BYTE
                         : v->is_llama && unknown && strcmp(text, unknown) == 0 ? UNKNOWN
                                                                                : NORMAL;
    BRIM_TRY(place(v, text, bytes, json_integer_value(id), type));
  }
  json_t *added = json_object_get(v->base->tokenizer, "added_tokens");
  for (size_t i = 0; i < json_array_size(added); i++) {
    const json_t *token = json_array_get(added, i), *content = json_object_get(token, "content");
    const int64_t at = json_integer_value(json_object_get(token, "id"));
    const bool special = json_is_true(json_object_get(token, "special"));
    if (!json_is_string(content)) return refuse(v, "an added token has no text");
    if (at >= 0 && at < v->rows && v->type[at] == UNKNOWN) continue;
    BRIM_TRY(place(v, json_string_value(content), json_string_length(content), at, special ? CONTROL : USER_DEFINED));
  }
  for (int64_t i = 0; i < v->rows; i++) {
    if (v->text[i]) continue;
    const char *pad = brim_arena_printf(&v->arena, "[PAD%lld]", (long long)i);
    BRIM_TRY(place(v, pad, strlen(pad), i, UNUSED));
  }
  return BRIM_OK;
}

static void put_tokens(const vocabulary *v, brim_gguf_head *head)
{
  brim_gguf_put_array(head, KEY("tokens"), BRIM_GGUF_TEXT, (uint64_t)v->rows);
  for (int64_t i = 0; i < v->rows; i++) brim_gguf_add_text(head, v->text[i], v->bytes[i]);
  brim_gguf_put_array(head, KEY("token_type"), BRIM_GGUF_I32, (uint64_t)v->rows);
  for (int64_t i = 0; i < v->rows; i++) brim_gguf_add_i32(head, v->type[i]);
}

/* ---- merges ---- */

/* Returns "left right" for a merge, which files store as one text or as two. */
static const char *merge_text(vocabulary *v, const json_t *merge)
{
  if (json_is_string(merge)) return json_string_value(merge);
  const char *left = json_string_value(json_array_get(merge, 0)), *right = json_string_value(json_array_get(merge, 1));
  return left && right && !strchr(left, ' ') && !strchr(right, ' ') ? brim_arena_printf(&v->arena, "%s %s", left, right)
                                                                    : NULL;
}

/* Sets SentencePiece's scores: earlier merges have higher scores. */
static void score_merge(vocabulary *v, json_t *vocab, const char *merge, size_t rank)
{
  const char *space = strchr(merge, ' ');
  if (!space) return;
  const char *whole = brim_arena_printf(&v->arena, "%.*s%s", (int)(space - merge), merge, space + 1);
  const json_t *id = json_object_get(vocab, whole);
  const int64_t at = id ? json_integer_value(id) : -1;
  if (at >= 0 && at < v->rows && v->score[at] == 0) v->score[at] = -(float)(rank + 1);
}

static brim_status put_merges(vocabulary *v, json_t *model, brim_gguf_head *head)
{
  json_t *merges = json_object_get(model, "merges"), *vocab = json_object_get(model, "vocab");
  const size_t count = json_array_size(merges);
  brim_gguf_put_array(head, KEY("merges"), BRIM_GGUF_TEXT, count);
  for (size_t i = 0; i < count; i++) {
    const char *text = merge_text(v, json_array_get(merges, i));
    if (!text) return refuse(v, "a token in its merges contains a space");
    brim_gguf_add_text(head, text, strlen(text));
    if (v->is_llama) score_merge(v, vocab, text, i);
  }
  if (!v->is_llama) return BRIM_OK;
  brim_gguf_put_array(head, KEY("scores"), BRIM_GGUF_F32, (uint64_t)v->rows);
  for (int64_t i = 0; i < v->rows; i++) brim_gguf_add_f32(head, v->score[i]);
  return BRIM_OK;
}

/* ---- steps ---- */

static bool is_step(const json_t *step, const char *type)
{
  const char *name = json_string_value(json_object_get(step, "type"));
  return name && strcmp(name, type) == 0;
}

static bool is_empty(const json_t *step, const char *list)
{
  return !step || json_is_null(step) ||
         (is_step(step, "Sequence") && json_array_size(json_object_get(step, list)) == 0);
}

static brim_status choose_byte_level(vocabulary *v)
{
  const json_t *normalizer = json_object_get(v->base->tokenizer, "normalizer");
  char *steps = json_dumps(json_object_get(v->base->tokenizer, "pre_tokenizer"), JSON_ENCODE_ANY);
  v->pre = brim_gguf_pre_of(steps ? steps : "null");
  free(steps);
  if (!v->pre) return refuse(v, "brim knows no name of llama.cpp for its pre_tokenizer");
  const bool composes = brim_gguf_pre_named(v->pre)->normalizer != NULL;
  if (composes ? is_step(normalizer, "NFC") : is_empty(normalizer, "normalizers")) return BRIM_OK;
  return refuse(v, "its normalizer is not the one that llama.cpp uses with its pre_tokenizer");
}

/* Decides whether a space is added before the text: older files have a normalizer for that, newer ones Metaspace. */
static brim_status choose_prefix(const vocabulary *v, bool *prefix)
{
  const json_t *normalizer = json_object_get(v->base->tokenizer, "normalizer");
  const json_t *pre = json_object_get(v->base->tokenizer, "pre_tokenizer");
  const json_t *list = json_object_get(normalizer, "normalizers");
  const char *scheme = json_string_value(json_object_get(pre, "prepend_scheme"));
  *prefix = false;
  if (is_step(pre, "Metaspace") && is_empty(normalizer, "normalizers")) {
    *prefix = !scheme || strcmp(scheme, "never") != 0;
    return BRIM_OK;
  }
  if (is_step(json_array_get(list, 0), "Prepend") && is_step(json_array_get(list, 1), "Replace") &&
      json_array_size(list) == 2) {
    *prefix = true;
    return BRIM_OK;
  }
  if (is_step(normalizer, "Replace")) return BRIM_OK; /* Gemma's */
  return refuse(v, "its normalizer is not SentencePiece's");
}

/* ---- special tokens ---- */

static int64_t id_of(const vocabulary *v, const char *about_key, const char *config_key)
{
  const json_t *text = json_object_get(v->base->about, about_key), *id = json_object_get(v->base->config, config_key);
  if (json_is_object(text)) text = json_object_get(text, "content");
  const char *want = json_string_value(text);
  for (int64_t i = 0; want && i < v->rows; i++)
    if (v->bytes[i] == strlen(want) && memcmp(v->text[i], want, v->bytes[i]) == 0) return i;
  if (json_is_array(id)) id = json_array_get(id, 0);
  return json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) < v->rows ? json_integer_value(id)
                                                                                                : -1;
}

/* Whether the template puts the token before a text, or after it. */
static bool template_has(const vocabulary *v, int64_t id, bool before)
{
  const json_t *post = json_object_get(v->base->tokenizer, "post_processor");
  const json_t *list = json_object_get(post, "processors");
  for (size_t i = 0; i < json_array_size(list); i++)
    if (is_step(json_array_get(list, i), "TemplateProcessing")) post = json_array_get(list, i);
  const json_t *single = json_object_get(post, "single");
  const size_t count = json_array_size(single);
  const json_t *piece = json_object_get(json_array_get(single, before || count == 0 ? 0 : count - 1), "SpecialToken");
  const char *name = json_string_value(json_object_get(piece, "id"));
  return id >= 0 && name && v->bytes[id] == strlen(name) && memcmp(v->text[id], name, v->bytes[id]) == 0;
}

static void put_ids(const vocabulary *v, brim_gguf_head *head)
{
  static const struct {
    const char *key, *about, *config;
  } names[] = {{KEY("bos_token_id"), "bos_token", "bos_token_id"},
               {KEY("eos_token_id"), "eos_token", "eos_token_id"},
               {KEY("unknown_token_id"), "unk_token", "unk_token_id"},
               {KEY("padding_token_id"), "pad_token", "pad_token_id"}};
  int64_t id[4];
  for (size_t i = 0; i < 4; i++) {
    id[i] = id_of(v, names[i].about, names[i].config);
    if (id[i] >= 0) brim_gguf_put_u32(head, names[i].key, (uint32_t)id[i]);
  }
  brim_gguf_put_bool(head, KEY("add_bos_token"), template_has(v, id[0], true));
  brim_gguf_put_bool(head, KEY("add_eos_token"), template_has(v, id[1], false));
  const char *chat = v->base->chat_template;
  if (chat) brim_gguf_put_text(head, "tokenizer.chat_template", chat, strlen(chat));
}

/* ---- all ---- */

static bool is_byte_level(const json_t *tokenizer)
{
  const json_t *pre = json_object_get(tokenizer, "pre_tokenizer"), *list = json_object_get(pre, "pretokenizers");
  const size_t count = json_array_size(list);
  return is_step(pre, "ByteLevel") || (count > 0 && is_step(json_array_get(list, count - 1), "ByteLevel"));
}

static brim_status put_all(vocabulary *v, brim_gguf_head *head)
{
  json_t *model = json_object_get(v->base->tokenizer, "model");
  bool prefix = false;
  v->is_llama = !is_byte_level(v->base->tokenizer);
  if (!is_step(model, "BPE")) return refuse(v, "its model is not BPE");
  if (v->is_llama && !json_is_true(json_object_get(model, "byte_fallback")))
    return refuse(v, "it is neither byte-level nor has byte_fallback");
  BRIM_TRY(v->is_llama ? choose_prefix(v, &prefix) : choose_byte_level(v));
  BRIM_TRY(read_tokens(v, model));
  const char *kind = v->is_llama ? "llama" : "gpt2", *pre = v->is_llama ? "default" : v->pre;
  brim_gguf_put_text(head, KEY("model"), kind, strlen(kind));
  brim_gguf_put_text(head, KEY("pre"), pre, strlen(pre));
  put_tokens(v, head);
  BRIM_TRY(put_merges(v, model, head));
  put_ids(v, head);
  brim_gguf_put_bool(head, KEY("add_space_prefix"), prefix);
  return BRIM_OK;
}

brim_status brim_export_put_tokenizer(const brim_export_base *b, int64_t rows, brim_gguf_head *head)
{
  vocabulary v = {.base = b, .rows = rows};
  if (!b->tokenizer) return brim_fail(BRIM_ECONFIG, "no tokenizer.json in '%s', which a GGUF file needs", b->path);
  v.text = brim_arena_try(&v.arena, (size_t)rows * sizeof *v.text);
  v.bytes = brim_arena_try(&v.arena, (size_t)rows * sizeof *v.bytes);
  v.type = brim_arena_try(&v.arena, (size_t)rows * sizeof *v.type);
  v.score = brim_arena_try(&v.arena, (size_t)rows * sizeof *v.score);
  const brim_status status = v.text && v.bytes && v.type && v.score
                                 ? put_all(&v, head)
                                 : brim_fail(BRIM_ENOMEM_HOST, "no host memory for %lld tokens", (long long)rows);
  brim_arena_release(&v.arena);
  return status;
}

/* ---- checking a written file ---- */

/* Compares merges, each as one text. */
static bool are_same_merges(vocabulary *v, const json_t *a, const json_t *b)
{
  bool same = json_array_size(a) == json_array_size(b);
  for (size_t i = 0; same && i < json_array_size(a); i++) {
    const char *x = merge_text(v, json_array_get(a, i)), *y = merge_text(v, json_array_get(b, i));
    same = x && y && strcmp(x, y) == 0;
  }
  return same;
}

static bool are_same_tokens(json_t *want, json_t *have)
{
  const char *text;
  json_t *id;
  json_object_foreach(want, text, id) if (!json_equal(id, json_object_get(have, text))) return false;
  return true;
}

brim_status brim_export_check_tokenizer(const brim_export_base *b, const brim_gguf *file)
{
  brim_text text = {0}, about = {0};
  vocabulary v = {.base = b};
  brim_status status = brim_gguf_tokenizer_text(file, &text, &about);
  json_t *again = status == BRIM_OK ? json_loadb(brim_text_str(&text), text.length, 0, NULL) : NULL;
  json_t *want = json_object_get(b->tokenizer, "model"), *have = json_object_get(again, "model");
  if (status == BRIM_OK && (!are_same_tokens(json_object_get(want, "vocab"), json_object_get(have, "vocab")) ||
                            !are_same_merges(&v, json_object_get(want, "merges"), json_object_get(have, "merges"))))
    status = brim_fail(BRIM_EINTERNAL, "reading '%s' again gave another tokenizer", brim_gguf_path(file));
  json_decref(again);
  brim_text_release(&text);
  brim_text_release(&about);
  brim_arena_release(&v.arena);
  return status;
}
