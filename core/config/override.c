/* Parses overrides; apply.c applies them. */
#include "config/override.h"

#include <string.h>

#include "base/utf8.h"

/* The length of the longest name between the dots of a key. */
static size_t longest_name(const char *key)
{
  size_t longest = 0;
  for (;; key++) {
    const size_t length = strcspn(key, ".");
    if (length > longest) longest = length;
    key += length;
    if (*key == '\0') return longest;
  }
}

static bool is_key(const char *key)
{
  static const char inside[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-/@";
  for (const char *s = key;;) {
    const size_t length = strspn(s, inside);
    if (length == 0 || (s[length] != '.' && s[length] != '\0')) return false;
    if (s[length] == '\0') return true;
    s += length + 1;
  }
}

size_t brim_override_item_length(const char *value)
{
  int depth = 0;
  char quote = '\0';
  for (const char *p = value; *p; p++) {
    const bool starts = p == value || strchr(" ,[{(:", p[-1]);
    if (quote) {
      if (*p == '\\' && quote == '"' && p[1])
        p++;
      else if (*p == quote)
        quote = '\0';
    } else if ((*p == '\'' || *p == '"') && starts) {
      quote = *p;
    } else if (strchr("[{(", *p)) {
      depth++;
    } else if (strchr("]})", *p)) {
      if (depth) depth--;
    } else if (*p == ',' && depth == 0) {
      return (size_t)(p - value);
    }
  }
  return strlen(value);
}

bool brim_override_is_sweep_function(const char *value)
{
  return (brim_starts_with(value, "range(") || brim_starts_with(value, "glob(")) && brim_ends_with(value, ")");
}

/* Returns the length of "${...}" at `s`, including nested ones; 0 if it is not closed. */
static size_t interpolation_length(const char *s)
{
  int depth = 0;
  for (const char *p = s; *p; p++) {
    if (*p == '{') depth++;
    if (*p == '}' && --depth == 0) return (size_t)(p - s) + 1;
  }
  return 0;
}

/* Quotes items that contain ${...}, because in brackets YAML would read its braces as a map. */
static const char *quote_interpolations(brim_arena *arena, const char *s)
{
  brim_text out = {0};
  for (const char *p = s; *p;) {
    const size_t blanks = strspn(p, " [{,:]}");
    brim_text_add_n(&out, p, blanks);
    p += blanks;
    size_t length = 0;
    bool holds = false, colon = false;
    const char quote = *p == '\'' || *p == '"' ? *p : '\0';
    while (p[length] && !colon && (quote || !strchr("[]{},", p[length]))) {
      const size_t inside = !quote && p[length] == '$' && p[length + 1] == '{' ? interpolation_length(p + length) : 0;
      const bool ends = quote && length && p[length] == quote && p[length - 1] != '\\';
      holds = holds || inside;
      length += inside ? inside : 1;
      if (ends) break;
      colon = !quote && p[length] == ':' && p[length + 1] == ' ';
    }
    if (holds) brim_text_add(&out, "'");
    for (size_t i = 0; i < length; i++)
      brim_text_add_n(&out, holds && p[i] == '\'' ? "''" : p + i, 1 + (holds && p[i] == '\''));
    if (holds) brim_text_add(&out, "'");
    p += length;
  }
  const char *quoted = brim_arena_string(arena, brim_text_str(&out));
  brim_text_release(&out);
  return quoted;
}

/* Finds a key with a colon in it, because YAML reads {a:1} as a key "a:1" without a value. */
static const char *find_glued_colon(const brim_yaml *node)
{
  for (size_t i = 0; i < node->count; i++) {
    const brim_yaml *child = node->item[i];
    if (node->kind == BRIM_YAML_MAP && brim_yaml_is_null(child) && strchr(node->key[i], ':')) return node->key[i];
    const char *found = find_glued_colon(child);
    if (found) return found;
  }
  return NULL;
}

static bool parse_value(brim_arena *arena, const char *word, const char *text, brim_problems *problems,
                        brim_override *out)
{
  text += strspn(text, " \t");
  size_t length = strlen(text);
  while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\t')) length--;
  const char *value = brim_arena_string_n(arena, text, length);
  const size_t key_length = strcspn(word, "=");
  if (value[brim_override_item_length(value)]) {
    brim_problem(problems, BRIM_ECONFIG, "'%s' is a sweep: add -m, or write %.*s=[%s] for a list", word,
                 (int)key_length, word, value);
    return false;
  }
  if (brim_override_is_sweep_function(value)) {
    brim_problem(problems, BRIM_ECONFIG, "'%s' is a sweep: add -m, or write %.*s='%s' for a string", word,
                 (int)key_length, word, value);
    return false;
  }
  if (length > 0 && strchr("'\"[{", value[0])) {
    const bool brackets = strchr("[{", value[0]) && strstr(value, "${");
    const char *text_of_yaml = brackets ? quote_interpolations(arena, value) : value;
    const brim_status status = brim_yaml_parse_value(arena, text_of_yaml, out->origin, &out->value);
    if (status != BRIM_OK) {
      brim_problem_last_error(problems, status);
      return false;
    }
  } else {
    out->value = brim_yaml_scalar(arena, value, out->origin);
    out->value->quoted = length == 0;
  }
  const char *glued = find_glued_colon(out->value);
  if (glued) brim_problem_at(problems, &out->origin, "'%s' needs a space after the colon: {key: value}", glued);
  return !glued;
}

bool brim_override_parse(brim_arena *arena, const char *word, int argument, brim_problems *problems, brim_override *out)
{
  word = brim_arena_string(arena, word);
  *out = (brim_override){
      .origin = {.file = argument > 0 ? "command line" : "brim's choice", .line = argument, .text = word}};
  if (!brim_utf8_is_valid(word)) {
    brim_problem(problems, BRIM_ECONFIG, "argument %d is not valid UTF-8", argument);
    return false;
  }
  const char *key = word;
  out->mode = brim_starts_with(word, "++")  ? BRIM_OVERRIDE_FORCE
              : brim_starts_with(word, "+") ? BRIM_OVERRIDE_ADD
              : brim_starts_with(word, "~") ? BRIM_OVERRIDE_REMOVE
                                            : BRIM_OVERRIDE_SET;
  key += out->mode == BRIM_OVERRIDE_FORCE ? 2 : out->mode == BRIM_OVERRIDE_SET ? 0 : 1;
  size_t length = strcspn(key, "=");
  const bool has_value = key[length] == '=';
  if (!has_value && out->mode != BRIM_OVERRIDE_REMOVE) {
    brim_problem_at(problems, &out->origin, "'%s' is not an override: write KEY=VALUE", word);
    return false;
  }
  const char *value = key + length + 1;
  if (has_value && out->mode == BRIM_OVERRIDE_SET && length > 0 && key[length - 1] == '+') {
    out->append = true;
    length--;
  }
  out->key = brim_arena_string_n(arena, key, length);
  if (longest_name(out->key) > BRIM_YAML_KEY_BYTES_MAX) {
    brim_problem(problems, BRIM_ECONFIG, "the key '%.40s...' has a name of %zu bytes; at most %d are allowed", out->key,
                 longest_name(out->key), BRIM_YAML_KEY_BYTES_MAX);
    return false;
  }
  if (!is_key(out->key)) {
    brim_problem_at(problems, &out->origin, "'%s' is not a key: write names joined by dots, as in optimizer.lr",
                    out->key);
    return false;
  }
  return !has_value || parse_value(arena, word, value, problems, out);
}
