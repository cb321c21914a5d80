/* The texts of values: Python's str and repr, JSON, and lower and upper case. See template_parts.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "template_parts.h"

brim_status print_bytes(run *r, slice s)
{
  if (s.bytes > TEMPLATE_MEMORY_MAX - r->out.count)
    return run_fail(r, "the text is longer than %d MiB", TEMPLATE_MEMORY_MAX >> 20);
  return buffer_add(&r->out, s.text, s.bytes);
}

static brim_status print_word(run *r, const char *word)
{
  return print_bytes(r, (slice){word, strlen(word)});
}

#define NUMBER_ROOM 64
/* Prints the shortest digits that give the same number when read, as Python's repr does. */
static brim_status print_float(run *r, double d)
{
  char digits[NUMBER_ROOM], text[NUMBER_ROOM];
  int count = 0;
  if (!isfinite(d)) return run_fail(r, "a number that is not finite cannot be written");
  do snprintf(digits, sizeof digits, "%.*e", count, d);
  while (++count < 17 && strtod(digits, NULL) != d);
  const int mantissa = (int)(strchr(digits, 'e') - digits);
  const int exponent = (int)strtol(digits + mantissa + 1, NULL, 10), places = count - 1 - exponent;
  if (exponent >= -4 && exponent < 16)
    snprintf(text, sizeof text, "%.*f", places > 0 ? places : 1, d);
  else
    snprintf(text, sizeof text, "%.*se%c%02d", mantissa, digits, exponent < 0 ? '-' : '+', abs(exponent));
  return print_word(r, text);
}

static brim_status print_int(run *r, int64_t i)
{
  char text[NUMBER_ROOM];
  snprintf(text, sizeof text, "%" PRId64, i);
  return print_word(r, text);
}

/* ---- Python's repr, and JSON ---- */

typedef struct style {
  bool json;
  int64_t indent; /* spaces per level; negative: everything in one line */
} style;

static bool is_printable(int32_t c)
{
  const utf8proc_category_t category = utf8proc_category(c);
  return c == ' ' || (category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS);
}

/* Writes to `escape` the text that stands for a character, or "" if the character stands for itself. */
static void find_escape(int32_t c, char quote, bool json, char escape[16])
{
  static const char from[] = "\\\n\r\t\b\f", to[] = "\\nrtbf";
  const char *simple = c > 0 && c < 0x80 ? strchr(from, c) : NULL;
  escape[0] = '\0';
  if (c == quote || (simple && (json || simple < from + 4)))
    snprintf(escape, 16, "\\%c", c == quote ? quote : to[simple - from]);
  else if (json ? c < 0x20 : !is_printable(c))
    snprintf(escape, 16,
             json || (c > 0xff && c < 0x10000) ? "\\u%04x"
             : c < 0x100                       ? "\\x%02x"
                                               : "\\U%08x",
             (unsigned)c);
}

static brim_status print_quoted(run *r, slice s, bool json)
{
  const bool has_single = s.bytes && memchr(s.text, '\'', s.bytes),
             has_double = s.bytes && memchr(s.text, '"', s.bytes);
  const char quote = json || (has_single && !has_double) ? '"' : '\'';
  char escape[16];
  BRIM_TRY(print_bytes(r, (slice){&quote, 1}));
  for (size_t at = 0, next; at < s.bytes; at = next) {
    next = at + character_bytes(s, at);
    find_escape(utf8_character(s.text + at), quote, json, escape);
    BRIM_TRY(escape[0] ? print_word(r, escape) : print_bytes(r, (slice){s.text + at, next - at}));
  }
  return print_bytes(r, (slice){&quote, 1});
}

static brim_status print_nested(run *r, const style *how, const value *v, int64_t level);

static brim_status print_line(run *r, const style *how, int64_t level)
{
  static const slice space = {"                ", 16};
  if (how->indent < 0) return BRIM_OK;
  BRIM_TRY(print_word(r, "\n"));
  for (int64_t left = level * how->indent; left > 0; left -= (int64_t)space.bytes)
    BRIM_TRY(print_bytes(r, (slice){space.text, left < 16 ? (size_t)left : space.bytes}));
  return BRIM_OK;
}

/* Prints elements between brackets; if there is a `key`, prints pairs. */
static brim_status print_elements(run *r, const style *how, const sequence *key, const sequence *s, const char *open,
                                  const char *close, int64_t level)
{
  BRIM_TRY(print_word(r, open));
  for (size_t i = 0; i < s->count; i++) {
    if (i > 0) BRIM_TRY(print_word(r, how->indent < 0 ? ", " : ","));
    BRIM_TRY(print_line(r, how, level + 1));
    if (key) {
      if (how->json) BRIM_TRY(library_want(r, &key->item[i], VALUE_STRING, "a key for tojson"));
      BRIM_TRY(print_nested(r, how, &key->item[i], level + 1));
      BRIM_TRY(print_word(r, ": "));
    }
    BRIM_TRY(print_nested(r, how, &s->item[i], level + 1));
  }
  if (s->count) BRIM_TRY(print_line(r, how, level));
  return print_word(r, close);
}

static brim_status print_kind(run *r, const style *how, const value *v, int64_t level)
{
  static const char *const words[2][3] = {{"None", "False", "True"}, {"null", "false", "true"}};
  switch (v->kind) {
  case VALUE_NONE:
    return print_word(r, words[how->json][0]);
  case VALUE_BOOL:
    return print_word(r, words[how->json][1 + v->integer]);
  case VALUE_INT:
    return print_int(r, v->integer);
  case VALUE_FLOAT:
    return print_float(r, v->real);
  case VALUE_STRING:
    if (v->safe && !how->json) return run_fail(r, "a text of the filter safe in a list or dictionary has no text");
    return print_quoted(r, v->text, how->json);
  case VALUE_LIST:
    return print_elements(r, how, NULL, v->sequence, "[", "]", level);
  case VALUE_TUPLE:
    if (how->json) return print_elements(r, how, NULL, v->sequence, "[", "]", level);
    return print_elements(r, how, NULL, v->sequence, "(", v->sequence->count == 1 ? ",)" : ")", level);
  case VALUE_DICT:
    return print_elements(r, how, &v->dict->key, &v->dict->item, "{", "}", level);
  case VALUE_UNDEFINED:
    if (how->json) return run_fail(r, "tojson of '%.*s', which is undefined", SHOWN(v->text));
    return print_word(r, "Undefined");
  case VALUE_VIEW:
  case VALUE_GENERATOR:
    return run_fail(r, "a %s has no text: add the filter list", value_type(v));
  default:
    return run_fail(r, "a %s has no text", value_type(v));
  }
}

static brim_status print_nested(run *r, const style *how, const value *v, int64_t level)
{
  BRIM_TRY(run_steps(r, 1));
  BRIM_TRY(run_enter(r));
  const brim_status status = print_kind(r, how, v, level);
  run_leave(r);
  return status;
}

brim_status print_json(run *r, const value *v, int64_t indent)
{
  return print_nested(r, &(style){.json = true, .indent = indent}, v, 0);
}

brim_status print_text(run *r, const value *v)
{
  if (v->kind == VALUE_STRING) return print_bytes(r, v->text);
  return v->kind == VALUE_UNDEFINED ? BRIM_OK : print_nested(r, &(style){.indent = -1}, v, 0);
}

brim_status value_to_string(run *r, const value *v, value *out)
{
  const size_t from = r->out.count;
  *out = *v;
  if (v->kind == VALUE_STRING) return BRIM_OK;
  BRIM_TRY(print_text(r, v));
  return value_take_output(r, from, out);
}

/* ---- case ---- */

/* Returns whether the upper (or lower) case of a character is several characters, or depends on the neighbours
 * (Unicode's SpecialCasing.txt). The ranges for upper case also contain a few other characters, which are refused
 * too. */
static bool is_special(int32_t c, bool upper)
{
  static const int32_t ranges[][2] = {{0xdf, 0xdf},     {0x149, 0x149},   {0x1f0, 0x1f0},
                                      {0x390, 0x390},   {0x3b0, 0x3b0},   {0x587, 0x587},
                                      {0x1e96, 0x1e9a}, {0x1f50, 0x1ffc}, {0xfb00, 0xfb17}};
  /* The Turkish I with a dot; sigma, whose lower case differs at the end of a word. */
  if (!upper) return c == 0x130 || c == 0x3a3;
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
    if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
  return false;
}

brim_status print_case(run *r, slice s, enum case_kind kind)
{
  BRIM_TRY(run_steps(r, s.bytes / 8));
  for (size_t at = 0; at < s.bytes; at += character_bytes(s, at)) {
    const int32_t c = utf8_character(s.text + at);
    const bool upper = kind == CASE_UPPER || (kind == CASE_CAPITALIZE && at == 0);
    if (is_special(c, upper))
      return run_fail(r, "the %s case of U+%04X is not supported", upper ? "upper" : "lower", (unsigned)c);
    if (r->out.count > TEMPLATE_MEMORY_MAX) return run_no_memory(r);
    BRIM_TRY(buffer_add_character(&r->out, !upper                    ? utf8proc_tolower(c)
                                           : kind == CASE_CAPITALIZE ? utf8proc_totitle(c)
                                                                     : utf8proc_toupper(c)));
  }
  return BRIM_OK;
}
