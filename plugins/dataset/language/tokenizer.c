/* Builds a tokenizer from the bytes of its files. See tokenizer.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"
#include "parts.h"

/* ---- the model ---- */

/* Refuses an option that is set: it must be null, false, zero or empty. */
static brim_status check_unset(const reading *r, const json_t *model, const char *key)
{
  const json_t *value = json_object_get(model, key);
  const bool unset = !value || json_is_null(value) || json_is_false(value) ||
                     (json_is_number(value) && json_number_value(value) == 0) ||
                     (json_is_string(value) && json_string_length(value) == 0);
  return unset ? BRIM_OK : read_fail(r, "model", "\"%s\" is not supported", key);
}

static brim_status read_bpe(reading *r, const json_t *model, scan_sections *parts)
{
  static const char *const keys[] = {"xdropout",
                                     "xunk_token",
                                     "xcontinuing_subword_prefix",
                                     "xend_of_word_suffix",
                                     "xfuse_unk",
                                     "xbyte_fallback",
                                     "xignore_merges",
                                     "xvocab",
                                     "xmerges",
                                     NULL};
  static const char *const unset[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
  tokenizer *t = r->t;
  t->model = MODEL_BPE;
  BRIM_TRY(read_check(r, model, "model", keys));
  for (size_t i = 0; i < sizeof unset / sizeof unset[0]; i++) BRIM_TRY(check_unset(r, model, unset[i]));
  BRIM_TRY(read_flag(r, model, "model", "fuse_unk", false, &t->fuse_unknown));
  BRIM_TRY(read_flag(r, model, "model", "byte_fallback", false, &t->byte_fallback));
  BRIM_TRY(read_flag(r, model, "model", "ignore_merges", false, &t->ignore_merges));
  if (!parts->vocabulary.text || !parts->merges.text)
    return read_fail(r, "model", "it has no \"vocab\" and \"merges\"");
  BRIM_TRY(read_vocabulary(r, &parts->vocabulary));
  BRIM_TRY(read_merges(r, &parts->merges));
  const json_t *token = json_object_get(model, "unk_token");
  if (!token || json_is_null(token)) return BRIM_OK;
  r->t->unknown = json_is_string(token) ? tokenizer_id(r->t, json_string_value(token), json_string_length(token)) : -1;
  return r->t->unknown >= 0 ? BRIM_OK : read_fail(r, "model", "\"unk_token\" is not in the vocabulary");
}

static brim_status read_unigram(reading *r, const json_t *model, scan_sections *parts)
{
  static const char *const keys[] = {"xunk_id", "xbyte_fallback", "xvocab", NULL};
  tokenizer *t = r->t;
  const json_t *unknown = json_object_get(model, "unk_id");
  t->model = MODEL_UNIGRAM;
  BRIM_TRY(read_check(r, model, "model", keys));
  BRIM_TRY(read_flag(r, model, "model", "byte_fallback", false, &t->byte_fallback));
  if (t->byte_level) return read_fail(r, "model", "Unigram with ByteLevel is not supported");
  if (!parts->vocabulary.text) return read_fail(r, "model", "it has no \"vocab\"");
  BRIM_TRY(read_unigram_vocabulary(r, &parts->vocabulary));
  const json_int_t id = json_is_integer(unknown) ? json_integer_value(unknown) : -1;
  if (id < 0 || id >= t->count)
    return read_fail(r, "model", "\"unk_id\" must be the number of a token, which unknown text gets");
  t->unknown = (int32_t)id;
  return BRIM_OK;
}

/* Files of older versions have no type. A model with merges is then BPE. */
static brim_status read_model(reading *r, scan_sections *parts)
{
  const json_t *model = json_object_get(r->root, "model");
  const char *type = json_string_value(json_object_get(model, "type"));
  if (!json_is_object(model)) return read_fail(r, "model", "an object is needed");
  if (read_is(model, "type", "BPE") || (!type && parts->merges.text)) return read_bpe(r, model, parts);
  if (read_is(model, "type", "Unigram")) return read_unigram(r, model, parts);
  return read_fail(r, "model", "type \"%.100s\" is not supported; BPE and Unigram are", type ? type : "(none)");
}

/* ---- tokenizer.json ---- */

static brim_status read_root(reading *r, scan_sections *parts)
{
  /* truncation and padding are ignored: they are for batches of samples, which brim makes itself */
  static const char *const keys[] = {"xversion",       "xtruncation",     "xpadding", "xadded_tokens", "xnormalizer",
                                     "xpre_tokenizer", "xpost_processor", "xdecoder", "xmodel",        NULL};
  const json_t *root = r->root;
  BRIM_TRY(read_check(r, root, "the file", keys));
  BRIM_TRY(read_normalizer(r, json_object_get(root, "normalizer"), "normalizer"));
  BRIM_TRY(read_pre_tokenizer(r, json_object_get(root, "pre_tokenizer"), "pre_tokenizer"));
  BRIM_TRY(read_decoder(r, json_object_get(root, "decoder"), "decoder"));
  BRIM_TRY(read_model(r, parts));
  BRIM_TRY(read_added(r, json_object_get(root, "added_tokens")));
  return read_post_processor(r, json_object_get(root, "post_processor"), "post_processor");
}

static brim_status parse(const tokenizer_source *from, const char *bytes, size_t count, size_t flags, json_t **out)
{
  json_error_t error;
  const size_t wrong = utf8_check(from->bytes, from->count);
  if (wrong < from->count) return brim_fail(BRIM_ELOAD, "'%s' is not UTF-8 at byte %zu", from->name, wrong);
  *out = json_loadb(bytes, count, flags | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (*out && json_is_object(*out)) return BRIM_OK;
  if (*out) return brim_fail(BRIM_ELOAD, "'%s' must be a JSON object", from->name);
  return brim_fail(BRIM_ELOAD, "'%s' is not JSON: line %d, column %d: %s", from->name, error.line, error.column,
                   error.text);
}

static brim_status read_json(reading *r)
{
  scan_sections parts;
  bool found = false;
  brim_status status = scan_cut(r->source, &parts, &found);
  if (status == BRIM_OK && found)
    status = parse(r->source, parts.rest.data, parts.rest.count, 0, &r->root);
  else if (status == BRIM_OK)
    status = parse(r->source, r->source->bytes, r->source->count, 0, &r->root);
  if (status == BRIM_OK) status = read_root(r, &parts);
  free(parts.rest.data);
  return status;
}

/* ---- GPT-2's files ---- */

static brim_status read_gpt2(reading *r)
{
  scan s = {r->source->name, r->source->bytes, r->source->count, 0};
  const size_t wrong = utf8_check(s.text, s.count);
  if (wrong < s.count) return brim_fail(BRIM_ELOAD, "'%s' is not UTF-8 at byte %zu", s.name, wrong);
  BRIM_TRY(read_gpt2_steps(r));
  BRIM_TRY(read_vocabulary(r, &s));
  BRIM_TRY(scan_end(&s));
  BRIM_TRY(read_merges(r, NULL));
  return read_added(r, NULL);
}

/* ---- building ---- */

/* Reads eos_token, which is a text or an object with "content". */
static brim_status read_end_of_text(reading *r, const tokenizer_source *config)
{
  static const char *const usual[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
  tokenizer *t = r->t;
  json_t *root = NULL;
  /* model_max_length is often 1e30, written as an integer, so integers are read as real numbers. */
  if (config) BRIM_TRY(parse(config, config->bytes, config->count, JSON_DECODE_INT_AS_REAL, &root));
  const json_t *end = json_object_get(root, "eos_token");
  if (json_is_object(end)) end = json_object_get(end, "content");
  if (json_is_string(end)) t->end_of_text = tokenizer_id(t, json_string_value(end), json_string_length(end));
  const bool missing = json_is_string(end) && t->end_of_text < 0;
  json_decref(root);
  if (missing) return brim_fail(BRIM_ELOAD, "'%s': the eos_token is not in '%s'", config->name, r->source->name);
  for (size_t i = 0; i < sizeof usual / sizeof usual[0] && t->end_of_text < 0; i++)
    t->end_of_text = tokenizer_id(t, usual[i], strlen(usual[i]));
  return BRIM_OK;
}

static brim_status build(reading *r, const tokenizer_source *config)
{
  tokenizer *t = r->t;
  t->unknown = t->end_of_text = -1;
  BRIM_TRY(r->merges ? read_gpt2(r) : read_json(r));
  BRIM_TRY(read_finish(r));
  t->hash = hash_add(HASH_START, r->source->bytes, r->source->count);
  if (r->merges) t->hash = hash_add(t->hash, r->merges->bytes, r->merges->count);
  return read_end_of_text(r, config);
}

brim_status tokenizer_build(const tokenizer_source *vocabulary, const tokenizer_source *merges,
                            const tokenizer_source *config, tokenizer **out)
{
  reading r = {.t = brim_try_calloc(1, sizeof(tokenizer)), .source = vocabulary, .merges = merges};
  if (!r.t) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the vocabulary '%s'", vocabulary->name);
  const brim_status status = build(&r, config);
  json_decref(r.root);
  if (status == BRIM_OK)
    *out = r.t;
  else
    tokenizer_free(r.t);
  return status;
}

void tokenizer_free(tokenizer *t)
{
  if (!t) return;
  for (size_t i = 0; i < STEPS_MAX; i++) {
    pcre2_code_free(t->normalize[i].find.regex);
    pcre2_code_free(t->split[i].find.regex);
    pcre2_code_free(t->decode[i].find.regex);
  }
  for (size_t i = 0; i < t->kept_count; i++) free((char *)(uintptr_t)t->kept[i].text);
  pcre2_code_free(t->word_at_start);
  trie_free(&t->before);
  trie_free(&t->after);
  trie_free(&t->pieces_of_model);
  free(t->kept);
  free(t->token);
  free(t->piece);
  free(t->text.data);
  free(t->pieces.data);
  free(t->names.entry);
  free(t->added);
  free(t->special);
  free(t->prefix);
  free(t->suffix);
  free(t->merge);
  free(t->score);
  free(t);
}

int64_t tokenizer_rows(const tokenizer *t)
{
  return t->count;
}
int32_t tokenizer_end_of_text(const tokenizer *t)
{
  return t->end_of_text;
}
uint64_t tokenizer_hash(const tokenizer *t)
{
  return t->hash;
}
bool tokenizer_is_special(const tokenizer *t, int32_t id)
{
  return id >= 0 && id < t->count && t->special[id];
}

bool tokenizer_is_gpt2(const tokenizer *t)
{
  bool bytes = t->model == MODEL_BPE && t->byte_level && t->gpt2_words && t->normalize_count == 0 && !t->ignore_merges;
  for (int byte = 0; byte < 256 && bytes; byte++) bytes = t->byte_token[byte] >= 0;
  return bytes;
}

const char *tokenizer_identity(int64_t rows, uint64_t hash, char out[TOKENIZER_IDENTITY_ROOM])
{
  snprintf(out, TOKENIZER_IDENTITY_ROOM,
           "{\"vocabulary of dataset.tokenizer\": \"%" PRId64 " tokens, fnv1a64:%016" PRIx64 "\"}", rows, hash);
  return out;
}
