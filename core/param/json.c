#include "param/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"

typedef struct reader {
  brim_arena *arena;
  const char *file, *at, *end;
  const char *mark; /* lines and columns have been counted up to here */
  int line, column;
} reader;

/* The position of r->at. */
static brim_yaml_origin here(reader *r)
{
  for (; r->mark < r->at; r->mark++) {
    const bool is_break = *r->mark == '\n';
    r->line += is_break;
    r->column = is_break ? 1 : r->column + (((unsigned char)*r->mark & 0xC0) != 0x80);
  }
  return (brim_yaml_origin){.file = r->file, .line = r->line, .column = r->column};
}

__attribute__((format(printf, 2, 3))) static brim_status refuse(reader *r, const char *format, ...)
{
  char text[160];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  const brim_yaml_origin at = here(r);
  return brim_fail(BRIM_ECONFIG, "%s\n  %s:%d:%d", text, r->file, at.line, at.column);
}

static void skip_space(reader *r)
{
  while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at) r->at++;
}

static bool take(reader *r, char c)
{
  skip_space(r);
  if (r->at == r->end || *r->at != c) return false;
  r->at++;
  return true;
}

/* ---- texts ---- */

/* Four digits after \u, or -1. */
static int32_t hex4(reader *r)
{
  int32_t value = 0;
  for (int i = 0; i < 4; i++, r->at++) {
    const char c = r->at < r->end ? *r->at : 0;
    const int32_t digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

/* Reads the character after \u; a surrogate pair is one character. */
static brim_status read_unicode(reader *r, brim_text *out)
{
  int32_t c = hex4(r);
  if (c >= 0xD800 && c < 0xDC00 && r->end - r->at > 2 && r->at[0] == '\\' && r->at[1] == 'u') {
    r->at += 2;
    const int32_t low = hex4(r);
    if (low < 0xDC00 || low > 0xDFFF) return refuse(r, "half of a surrogate pair without its other half");
    c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
  }
  if (c < 0) return refuse(r, "\\u needs four hexadecimal digits");
  if (c == 0) return refuse(r, "a text must not contain \\u0000");
  if (c >= 0xD800 && c <= 0xDFFF) return refuse(r, "half of a surrogate pair without its other half");
  const int rest = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3; /* bytes after the first */
  static const int first[] = {0, 0xC0, 0xE0, 0xF0};
  char bytes[4] = {(char)(first[rest] | c >> (6 * rest))};
  for (int i = 1; i <= rest; i++) bytes[i] = (char)(0x80 | (c >> (6 * (rest - i)) & 0x3F));
  brim_text_add_n(out, bytes, (size_t)rest + 1);
  return BRIM_OK;
}

static brim_status read_escape(reader *r, brim_text *out)
{
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  const char c = r->at < r->end ? *r->at++ : 0;
  const char *name = c ? strchr(names, c) : NULL;
  if (c == 'u') return read_unicode(r, out);
  if (!name) return refuse(r, "unknown escape \\%c", c ? c : ' ');
  brim_text_add_n(out, &values[name - names], 1);
  return BRIM_OK;
}

/* Reads the text after its opening quote. */
static brim_status read_text(reader *r, brim_text *out)
{
  while (r->at < r->end && *r->at != '"') {
    const char *start = r->at;
    if ((unsigned char)*start < 0x20) return refuse(r, "a text must not contain control characters");
    if (*start == '\\') {
      r->at++;
      BRIM_TRY(read_escape(r, out));
      continue;
    }
    if (brim_utf8_next(&r->at, r->end) < 0) return refuse(r, "not valid UTF-8");
    brim_text_add_n(out, start, (size_t)(r->at - start));
  }
  return take(r, '"') ? BRIM_OK : refuse(r, "a text without its closing quote");
}

static brim_status read_string(reader *r, const char **out)
{
  brim_text text = {0};
  const brim_status status = read_text(r, &text);
  if (status == BRIM_OK) *out = brim_arena_string(r->arena, brim_text_str(&text));
  brim_text_release(&text);
  return status;
}

/* ---- values ---- */

static brim_status read_value(reader *r, int depth, brim_yaml **out);

/* A number or a word. */
static brim_status read_word(reader *r, brim_yaml_origin origin, brim_yaml **out)
{
  static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
  const char *start = r->at;
  while (r->at < r->end && *r->at && !strchr(" \t\r\n,:]}[{\"", *r->at)) r->at++;
  const char *word = brim_arena_string_n(r->arena, start, (size_t)(r->at - start));
  bool known = strspn(word, "+-0123456789.eE") == strlen(word) && strpbrk(word, "0123456789");
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) known = known || strcmp(word, words[i]) == 0;
  if (known) {
    *out = brim_yaml_scalar(r->arena, word, origin);
    return BRIM_OK;
  }
  r->at = start;
  return word[0] ? refuse(r, "not JSON: '%.40s'", word) : refuse(r, "a value is missing");
}

static brim_status read_entry(reader *r, int depth, brim_yaml *map)
{
  skip_space(r);
  const brim_yaml_origin at = here(r);
  const char *key = NULL;
  brim_yaml *value = NULL;
  if (!take(r, '"')) return refuse(r, "a key must be a text");
  BRIM_TRY(read_string(r, &key));
  if (!take(r, ':')) return refuse(r, "a colon is missing after the key '%.80s'", key);
  BRIM_TRY(read_value(r, depth, &value));
  value->key_line = at.line;
  value->key_column = at.column;
  if (map->count == map->room) {
    const char **keys = map->key;
    brim_yaml **items = map->item;
    map->room = 2 * map->room + 8;
    map->key = BRIM_ARENA_NEW(r->arena, const char *, map->room);
    map->item = BRIM_ARENA_NEW(r->arena, brim_yaml *, map->room);
    if (map->count > 0) memcpy(map->key, keys, map->count * sizeof *keys);
    if (map->count > 0) memcpy(map->item, items, map->count * sizeof *items);
  }
  map->key[map->count] = key;
  map->item[map->count++] = value;
  return BRIM_OK;
}

static int by_text(const void *a, const void *b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Looks for duplicate keys in time n log n, because a map of labels may be long. */
static brim_status check_keys(reader *r, const brim_yaml *map)
{
  if (map->count < 2) return BRIM_OK;
  const char **keys = BRIM_ARENA_NEW(r->arena, const char *, map->count);
  memcpy(keys, map->key, map->count * sizeof *keys);
  qsort(keys, map->count, sizeof *keys, by_text);
  for (size_t i = 1; i < map->count; i++)
    if (strcmp(keys[i - 1], keys[i]) == 0)
      return refuse(r, "the key '%.80s' occurs twice in the map that ends here", keys[i]);
  return BRIM_OK;
}

static brim_status read_list_or_map(reader *r, int depth, bool is_map, brim_yaml *out)
{
  const char close = is_map ? '}' : ']';
  if (take(r, close)) return BRIM_OK;
  do {
    brim_yaml *value = NULL;
    BRIM_TRY(is_map ? read_entry(r, depth, out) : read_value(r, depth, &value));
    if (!is_map) brim_yaml_append(r->arena, out, value);
  } while (take(r, ','));
  if (!take(r, close)) return refuse(r, "a comma or '%c' is missing", close);
  return is_map ? check_keys(r, out) : BRIM_OK;
}

static brim_status read_value(reader *r, int depth, brim_yaml **out)
{
  skip_space(r);
  const brim_yaml_origin origin = here(r);
  if (depth == BRIM_YAML_DEPTH_MAX) return refuse(r, "nested deeper than %d", BRIM_YAML_DEPTH_MAX);
  if (take(r, '"')) {
    const char *text = NULL;
    BRIM_TRY(read_string(r, &text));
    *out = brim_yaml_scalar(r->arena, text, origin);
    (*out)->quoted = true;
    return BRIM_OK;
  }
  const bool is_map = take(r, '{');
  if (!is_map && !take(r, '[')) return read_word(r, origin, out);
  *out = is_map ? brim_yaml_map(r->arena, origin) : brim_yaml_list(r->arena, origin);
  return read_list_or_map(r, depth + 1, is_map, *out);
}

brim_status brim_json_parse(brim_arena *arena, const char *text, size_t bytes, const char *file, brim_yaml **out)
{
  reader r = {.arena = arena, .file = brim_arena_string(arena, file), .line = 1, .column = 1};
  if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
    text += 3;
    bytes -= 3;
  }
  r.at = r.mark = text;
  r.end = text + bytes;
  if (bytes > BRIM_YAML_BYTES_MAX) return refuse(&r, "the file is larger than 1 MiB");
  BRIM_TRY(read_value(&r, 0, out));
  skip_space(&r);
  return r.at == r.end ? BRIM_OK : refuse(&r, "more text after the end of the value");
}

brim_status brim_json_parse_file(brim_arena *arena, const char *path, brim_yaml **out)
{
  char *text = NULL;
  size_t bytes = 0;
  BRIM_TRY(brim_yaml_read_file(path, &text, &bytes));
  const brim_status status = brim_is_lfs_pointer(text, bytes)
                                 ? brim_fail(BRIM_ELOAD, "cannot read %s: " BRIM_LFS_HINT, path)
                                 : brim_json_parse(arena, text, bytes, path, out);
  free(text);
  return status;
}
