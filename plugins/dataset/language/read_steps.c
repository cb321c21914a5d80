/* Reads the steps of a tokenizer.json: normalizer, pre_tokenizer, post_processor, decoder. See parts.h.
 *
 * Each kind of step has a table of types. A type that is not in the table, or a key that the type does not have, is
 * refused. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "brim/host.h"
#include "parts.h"

#define GPT2_WORDS "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

brim_status read_fail(const reading *r, const char *path, const char *format, ...)
{
  char what[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  return brim_fail(BRIM_ELOAD, "'%s', %s: %s", r->source->name, path, what);
}

bool read_is(const json_t *object, const char *key, const char *text)
{
  const char *value = json_string_value(json_object_get(object, key));
  return value && strcmp(value, text) == 0;
}

/* Each entry of `keys` is a letter and a name. The letter is the type: s text, b true or false, i whole number, l list,
 * o object, x anything. */
static bool has_type(const json_t *value, char type)
{
  switch (type) {
  case 's':
    return json_is_string(value);
  case 'b':
    return json_is_boolean(value);
  case 'i':
    return json_is_integer(value) && json_integer_value(value) >= 0;
  case 'l':
    return json_is_array(value);
  case 'o':
    return json_is_object(value);
  default:
    return true;
  }
}

brim_status read_check(const reading *r, const json_t *object, const char *path, const char *const *keys)
{
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, key, value)
  {
    size_t i = 0;
    while (keys[i] && strcmp(keys[i] + 1, key) != 0) i++;
    if (!keys[i] && strcmp(key, "type") != 0) return read_fail(r, path, "key \"%.100s\" is not supported", key);
    if (keys[i] && !has_type(value, keys[i][0])) return read_fail(r, path, "\"%s\" has a value of another type", key);
  }
  return BRIM_OK;
}

brim_status read_flag(const reading *r, const json_t *object, const char *path, const char *key, bool otherwise,
                      bool *out)
{
  const json_t *value = json_object_get(object, key);
  if (value && !json_is_null(value) && !json_is_boolean(value))
    return read_fail(r, path, "\"%s\" must be true or false", key);
  *out = value && !json_is_null(value) ? json_is_true(value) : otherwise;
  return BRIM_OK;
}

brim_status read_keep(const reading *r, const char *text, size_t bytes, slice *out)
{
  tokenizer *t = r->t;
  slice *grown = brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(t->kept, (t->kept_count + 1) * sizeof *grown);
  if (grown) t->kept = grown;
  char *copy = grown ? brim_try_calloc(bytes + 1, 1) : NULL;
  if (!copy) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the tokenizer '%s'", r->source->name);
  memcpy(copy, text, bytes);
  *out = t->kept[t->kept_count++] = (slice){copy, bytes};
  return BRIM_OK;
}

static brim_status read_text(const reading *r, const json_t *object, const char *path, const char *key, slice *out)
{
  const json_t *value = json_object_get(object, key);
  if (!json_is_string(value)) return read_fail(r, path, "\"%s\" must be a text", key);
  return read_keep(r, json_string_value(value), json_string_length(value), out);
}

/* Reads {"String": "a"} or {"Regex": "a"}. */
static brim_status read_pattern(const reading *r, const json_t *object, const char *path, pattern *out)
{
  const json_t *from = json_object_get(object, "pattern");
  const json_t *text = json_object_get(from, "String"), *regex = json_object_get(from, "Regex");
  const json_t *value = text ? text : regex;
  if (!json_is_string(value) || json_object_size(from) != 1 || json_string_length(value) == 0)
    return read_fail(r, path, "\"pattern\" must be {\"String\": ...} or {\"Regex\": ...}");
  if (text) return read_keep(r, json_string_value(text), json_string_length(text), &out->literal);
  return regex_compile(r, path, json_string_value(regex), json_string_length(regex), &out->regex);
}

/* ---- lists of types ---- */

typedef brim_status (*read_fn)(reading *r, const json_t *from, const char *path);
typedef struct step_type {
  const char *name;
  read_fn read;
  const char *keys[8];
} step_type;

/* Reads a step of one of the types, or a Sequence, whose list `key` has such steps. */
static brim_status read_step(reading *r, const json_t *from, const char *path, const step_type *types, const char *key,
                             int depth)
{
  const char *type = json_string_value(json_object_get(from, "type"));
  if (!type) return read_fail(r, path, "an object with a \"type\" is needed");
  if (strcmp(type, "Sequence") == 0) {
    const json_t *list = json_object_get(from, key);
    if (!json_is_array(list) || depth > 4) return read_fail(r, path, "a Sequence needs a list \"%s\"", key);
    for (size_t i = 0; i < json_array_size(list); i++) {
      char place[NAME_ROOM];
      snprintf(place, sizeof place, "%.3000s.%s[%zu]", path, key, i);
      BRIM_TRY(read_step(r, json_array_get(list, i), place, types, key, depth + 1));
    }
    return BRIM_OK;
  }
  for (; types->name; types++)
    if (strcmp(type, types->name) == 0) {
      BRIM_TRY(read_check(r, from, path, types->keys));
      return types->read(r, from, path);
    }
  return read_fail(r, path, "type \"%.100s\" is not supported", type);
}

/* Reserves the next step of a list. */
#define NEXT_STEP(r, path, steps, count)                                                                               \
  if ((r)->t->count == STEPS_MAX) return read_fail(r, path, "there are more than %d steps", STEPS_MAX);                \
  void *const free_step = &(r)->t->steps[(r)->t->count++]

/* ---- normalizers ---- */

static brim_status read_form(reading *r, const json_t *from, const char *path)
{
  static const struct {
    const char *name;
    int options;
  } forms[] = {{"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
               {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
               {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
               {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
  NEXT_STEP(r, path, normalize, normalize_count);
  normalize_step *n = free_step;
  n->kind = NORMALIZE_FORM;
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
    if (read_is(from, "type", forms[i].name)) n->form = forms[i].options;
  return BRIM_OK;
}

static brim_status read_normalize_replace(reading *r, const json_t *from, const char *path)
{
  NEXT_STEP(r, path, normalize, normalize_count);
  normalize_step *n = free_step;
  n->kind = NORMALIZE_REPLACE;
  BRIM_TRY(read_pattern(r, from, path, &n->find));
  return read_text(r, from, path, "content", &n->text);
}

static brim_status read_prepend(reading *r, const json_t *from, const char *path)
{
  NEXT_STEP(r, path, normalize, normalize_count);
  normalize_step *n = free_step;
  n->kind = NORMALIZE_PREPEND;
  return read_text(r, from, path, "prepend", &n->text);
}

static brim_status read_normalize_strip(reading *r, const json_t *from, const char *path)
{
  NEXT_STEP(r, path, normalize, normalize_count);
  normalize_step *n = free_step;
  n->kind = NORMALIZE_STRIP;
  BRIM_TRY(read_flag(r, from, path, "strip_left", true, &n->left));
  return read_flag(r, from, path, "strip_right", true, &n->right);
}

static brim_status read_lowercase(reading *r, const json_t *from, const char *path)
{
  (void)from;
  NEXT_STEP(r, path, normalize, normalize_count);
  ((normalize_step *)free_step)->kind = NORMALIZE_LOWERCASE;
  return BRIM_OK;
}

static const step_type normalizers[] = {{"NFC", read_form, {NULL}},
                                        {"NFD", read_form, {NULL}},
                                        {"NFKC", read_form, {NULL}},
                                        {"NFKD", read_form, {NULL}},
                                        {"Replace", read_normalize_replace, {"opattern", "scontent", NULL}},
                                        {"Prepend", read_prepend, {"sprepend", NULL}},
                                        {"Strip", read_normalize_strip, {"bstrip_left", "bstrip_right", NULL}},
                                        {"Lowercase", read_lowercase, {NULL}},
                                        {NULL, NULL, {NULL}}};

brim_status read_normalizer(reading *r, const json_t *from, const char *path)
{
  return json_is_object(from) ? read_step(r, from, path, normalizers, "normalizers", 0) : BRIM_OK;
}

/* ---- pre-tokenizers ---- */

/* Reserves a split step. No step may follow ByteLevel, because characters stand for bytes after it. */
static brim_status next_split(reading *r, const char *path, split_step **out)
{
  if (r->t->byte_level) return read_fail(r, path, "a step after ByteLevel is not supported");
  NEXT_STEP(r, path, split, split_count);
  *out = free_step;
  return BRIM_OK;
}

static brim_status read_behavior(const reading *r, const json_t *from, const char *path, split_step *s)
{
  static const char *const behaviors[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  for (size_t i = 0; i < sizeof behaviors / sizeof behaviors[0]; i++)
    if (read_is(from, "behavior", behaviors[i])) {
      s->behavior = (enum split_behavior)i;
      return BRIM_OK;
    }
  return read_fail(r, path, "\"behavior\" must be Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

static brim_status read_split(reading *r, const json_t *from, const char *path)
{
  split_step *s = NULL;
  BRIM_TRY(next_split(r, path, &s));
  s->splits = true;
  BRIM_TRY(read_pattern(r, from, path, &s->find));
  BRIM_TRY(read_flag(r, from, path, "invert", false, &s->invert));
  return read_behavior(r, from, path, s);
}

/* Adds a split by a regular expression that the library itself defines. */
static brim_status add_split(reading *r, const char *path, const char *regex, enum split_behavior behavior, bool invert)
{
  split_step *s = NULL;
  BRIM_TRY(next_split(r, path, &s));
  s->splits = true;
  s->invert = invert;
  s->behavior = behavior;
  return regex_compile(r, path, regex, strlen(regex), &s->find.regex);
}

static brim_status read_byte_level(reading *r, const json_t *from, const char *path)
{
  bool prefix = true, regex = true;
  split_step *s = NULL;
  BRIM_TRY(read_flag(r, from, path, "add_prefix_space", true, &prefix));
  BRIM_TRY(read_flag(r, from, path, "use_regex", true, &regex));
  r->t->gpt2_words = regex && !prefix && r->t->split_count == 0;
  if (prefix) {
    BRIM_TRY(next_split(r, path, &s));
    s->prefix = PREFIX_ALWAYS;
    s->space = (slice){" ", 1};
  }
  if (regex) BRIM_TRY(add_split(r, path, GPT2_WORDS, SPLIT_ISOLATED, false));
  if (!prefix && !regex && r->t->byte_level) return read_fail(r, path, "a step after ByteLevel is not supported");
  r->t->byte_level = true;
  return BRIM_OK;
}

/* Older files have add_prefix_space instead of prepend_scheme. */
static brim_status read_scheme(const reading *r, const json_t *from, const char *path, enum prefix_when *out)
{
  static const char *const schemes[] = {"never", "first", "always"};
  const json_t *scheme = json_object_get(from, "prepend_scheme");
  bool prefix;
  BRIM_TRY(read_flag(r, from, path, "add_prefix_space", true, &prefix));
  *out = prefix ? PREFIX_ALWAYS : PREFIX_NEVER;
  for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++)
    if (read_is(from, "prepend_scheme", schemes[i])) {
      *out = (enum prefix_when)i;
      if (!prefix && *out != PREFIX_NEVER)
        return read_fail(r, path, "\"add_prefix_space\" and \"prepend_scheme\" contradict each other");
      return BRIM_OK;
    }
  return scheme ? read_fail(r, path, "\"prepend_scheme\" must be never, first or always") : BRIM_OK;
}

static brim_status read_replacement(const reading *r, const json_t *from, const char *path, slice *out)
{
  *out = (slice){LOW_LINE, LOW_LINE_BYTES};
  if (!json_object_get(from, "replacement")) return BRIM_OK;
  BRIM_TRY(read_text(r, from, path, "replacement", out));
  if (out->bytes > 0 && (size_t)utf8_length(out->text, out->bytes) == out->bytes) return BRIM_OK;
  return read_fail(r, path, "\"replacement\" must be one character");
}

static brim_status read_metaspace(reading *r, const json_t *from, const char *path)
{
  split_step *s = NULL;
  BRIM_TRY(next_split(r, path, &s));
  BRIM_TRY(read_scheme(r, from, path, &s->prefix));
  BRIM_TRY(read_replacement(r, from, path, &s->space));
  BRIM_TRY(read_flag(r, from, path, "split", true, &s->splits));
  if (json_object_get(from, "str_rep") && !read_is(from, "str_rep", s->space.text))
    return read_fail(r, path, "\"str_rep\" is not \"replacement\"");
  s->find.literal = s->space;
  s->behavior = SPLIT_NEXT;
  return BRIM_OK;
}

static brim_status read_digits(reading *r, const json_t *from, const char *path)
{
  bool each;
  BRIM_TRY(read_flag(r, from, path, "individual_digits", false, &each));
  return add_split(r, path, "\\p{N}", each ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, false);
}

static brim_status read_whitespace(reading *r, const json_t *from, const char *path)
{
  (void)from;
  return add_split(r, path, "[\\w\\x{200c}\\x{200d}]+|[^\\w\\x{200c}\\x{200d}\\s]+", SPLIT_REMOVED, true);
}

static brim_status read_whitespace_split(reading *r, const json_t *from, const char *path)
{
  (void)from;
  return add_split(r, path, "\\s", SPLIT_REMOVED, false);
}

static brim_status read_punctuation(reading *r, const json_t *from, const char *path)
{
  split_step how = {.behavior = SPLIT_ISOLATED};
  if (json_object_get(from, "behavior")) BRIM_TRY(read_behavior(r, from, path, &how));
  return add_split(r, path, "[!-/:-@\\[-`\\{-~\\p{P}]", how.behavior, false);
}

static const step_type pre_tokenizers[] = {
    {"Split", read_split, {"opattern", "sbehavior", "binvert", NULL}},
    {"ByteLevel", read_byte_level, {"badd_prefix_space", "btrim_offsets", "buse_regex", NULL}},
    {"Metaspace", read_metaspace, {"sreplacement", "sprepend_scheme", "badd_prefix_space", "bsplit", "sstr_rep", NULL}},
    {"Digits", read_digits, {"bindividual_digits", NULL}},
    {"Whitespace", read_whitespace, {NULL}},
    {"WhitespaceSplit", read_whitespace_split, {NULL}},
    {"Punctuation", read_punctuation, {"sbehavior", NULL}},
    {NULL, NULL, {NULL}}};

brim_status read_pre_tokenizer(reading *r, const json_t *from, const char *path)
{
  return json_is_object(from) ? read_step(r, from, path, pre_tokenizers, "pretokenizers", 0) : BRIM_OK;
}

brim_status read_gpt2_steps(reading *r)
{
  r->t->gpt2_words = true;
  r->t->has_decoder = true;
  r->t->decode[r->t->decode_count++].kind = DECODE_BYTES;
  BRIM_TRY(add_split(r, "pre_tokenizer", GPT2_WORDS, SPLIT_ISOLATED, false));
  r->t->byte_level = true;
  return BRIM_OK;
}

/* ---- decoders ---- */

static brim_status read_decode_bytes(reading *r, const json_t *from, const char *path)
{
  NEXT_STEP(r, path, decode, decode_count);
  ((decode_step *)free_step)->kind = read_is(from, "type", "Fuse")           ? DECODE_FUSE
                                     : read_is(from, "type", "ByteFallback") ? DECODE_FALLBACK
                                                                             : DECODE_BYTES;
  return BRIM_OK;
}

static brim_status read_decode_replace(reading *r, const json_t *from, const char *path)
{
  NEXT_STEP(r, path, decode, decode_count);
  decode_step *d = free_step;
  d->kind = DECODE_REPLACE;
  BRIM_TRY(read_pattern(r, from, path, &d->find));
  return read_text(r, from, path, "content", &d->text);
}

static brim_status read_decode_strip(reading *r, const json_t *from, const char *path)
{
  NEXT_STEP(r, path, decode, decode_count);
  decode_step *d = free_step;
  d->kind = DECODE_STRIP;
  d->start = (size_t)json_integer_value(json_object_get(from, "start"));
  d->stop = (size_t)json_integer_value(json_object_get(from, "stop"));
  BRIM_TRY(read_text(r, from, path, "content", &d->text));
  if (d->text.bytes > 0 && (size_t)utf8_length(d->text.text, d->text.bytes) == d->text.bytes) return BRIM_OK;
  return read_fail(r, path, "\"content\" must be one character");
}

static brim_status read_decode_metaspace(reading *r, const json_t *from, const char *path)
{
  enum prefix_when unused; /* matters only at the start of a text */
  NEXT_STEP(r, path, decode, decode_count);
  decode_step *d = free_step;
  d->kind = DECODE_METASPACE;
  BRIM_TRY(read_scheme(r, from, path, &unused));
  return read_replacement(r, from, path, &d->text);
}

static const step_type decoders[] = {
    {"ByteLevel", read_decode_bytes, {"badd_prefix_space", "btrim_offsets", "buse_regex", NULL}},
    {"ByteFallback", read_decode_bytes, {NULL}},
    {"Fuse", read_decode_bytes, {NULL}},
    {"Replace", read_decode_replace, {"opattern", "scontent", NULL}},
    {"Strip", read_decode_strip, {"scontent", "istart", "istop", NULL}},
    {"Metaspace",
     read_decode_metaspace,
     {"sreplacement", "sprepend_scheme", "badd_prefix_space", "bsplit", "sstr_rep", NULL}},
    {NULL, NULL, {NULL}}};

brim_status read_decoder(reading *r, const json_t *from, const char *path)
{
  r->t->has_decoder = json_is_object(from);
  return r->t->has_decoder ? read_step(r, from, path, decoders, "decoders", 0) : BRIM_OK;
}

/* ---- post-processors ---- */

static brim_status add_id(const reading *r, const char *path, const json_t *id, int32_t **list, size_t *count)
{
  const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
  if (value < 0 || value >= r->t->count) return read_fail(r, path, "a special token has an id without a token");
  int32_t *grown = brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(*list, (*count + 1) * sizeof *grown);
  if (!grown) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the tokenizer '%s'", r->source->name);
  grown[*count] = (int32_t)value;
  *list = grown;
  ++*count;
  return BRIM_OK;
}

/* Adds {"SpecialToken": {"id": "<s>", "type_id": 0}}. special_tokens has its ids under this name. */
static brim_status add_special(const reading *r, const json_t *from, const json_t *piece, const char *path, bool before)
{
  tokenizer *t = r->t;
  const char *name = json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));
  const json_t *ids =
      name ? json_object_get(json_object_get(json_object_get(from, "special_tokens"), name), "ids") : NULL;
  if (!json_is_array(ids)) return read_fail(r, path, "\"single\" has a token that is not in \"special_tokens\"");
  for (size_t i = 0; i < json_array_size(ids); i++)
    BRIM_TRY(add_id(r, path, json_array_get(ids, i), before ? &t->prefix : &t->suffix,
                    before ? &t->prefix_count : &t->suffix_count));
  return BRIM_OK;
}

static brim_status read_template(reading *r, const json_t *from, const char *path)
{
  const json_t *single = json_object_get(from, "single");
  size_t texts = 0;
  if (r->t->prefix_count || r->t->suffix_count) return read_fail(r, path, "a second template is not supported");
  for (size_t i = 0; i < json_array_size(single); i++) {
    const json_t *piece = json_array_get(single, i);
    if (json_object_get(piece, "SpecialToken"))
      BRIM_TRY(add_special(r, from, piece, path, texts == 0));
    else if (read_is(json_object_get(piece, "Sequence"), "id", "A"))
      texts++;
    else
      return read_fail(r, path, "\"single\" must have a SpecialToken or Sequence A at each place");
  }
  return texts == 1 ? BRIM_OK : read_fail(r, path, "\"single\" must have one Sequence A");
}

static brim_status read_nothing(reading *r, const json_t *from, const char *path)
{
  (void)r;
  (void)from;
  (void)path;
  return BRIM_OK;
}

static const step_type post_processors[] = {
    {"TemplateProcessing", read_template, {"lsingle", "lpair", "ospecial_tokens", NULL}},
    /* Changes only offsets, which brim does not use. */
    {"ByteLevel", read_nothing, {"badd_prefix_space", "btrim_offsets", "buse_regex", NULL}},
    {NULL, NULL, {NULL}}};

brim_status read_post_processor(reading *r, const json_t *from, const char *path)
{
  return json_is_object(from) ? read_step(r, from, path, post_processors, "processors", 0) : BRIM_OK;
}
