/* The texts of values: Python's str and repr, and JSON. See template_parts.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "template_parts.h"

brim_status print_bytes(run *r, const char *text, size_t bytes)
{
  if (bytes > TEMPLATE_MEMORY_MAX - r->out.count)
    return run_fail(r, "the text is longer than %d MiB", TEMPLATE_MEMORY_MAX >> 20);
  return buffer_add(&r->out, text, bytes);
}

static brim_status print_word(run *r, const char *word)
{
  return print_bytes(r, word, strlen(word));
}

#define FLOAT_ROOM 64
/* The shortest digits that mean the number, as Python's repr writes them. */
static void float_text(char out[FLOAT_ROOM], double d, bool json)
{
  char digits[FLOAT_ROOM];
  if (isnan(d) || isinf(d)) {
    snprintf(out, FLOAT_ROOM, "%s",
             isnan(d) ? (json ? "NaN" : "nan")
             : d > 0  ? (json ? "Infinity" : "inf")
             : json   ? "-Infinity"
                      : "-inf");
    return;
  }
  int count = 0;
  do snprintf(digits, sizeof digits, "%.*e", count, d);
  while (++count < 17 && strtod(digits, NULL) != d);
  const int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10), places = count - 1 - exponent;
  if (exponent >= -4 && exponent < 16) {
    snprintf(out, FLOAT_ROOM, "%.*f", places > 0 ? places : 1, d);
    return;
  }
  const int mantissa = (int)(strchr(digits, 'e') - digits);
  snprintf(out, FLOAT_ROOM, "%.*se%c%02d", mantissa, digits, exponent < 0 ? '-' : '+', abs(exponent));
}

static brim_status print_number(run *r, const value *v, bool json)
{
  char text[FLOAT_ROOM];
  if (v->kind == VALUE_FLOAT)
    float_text(text, v->real, json);
  else
    snprintf(text, sizeof text, "%" PRId64, v->integer);
  return print_word(r, text);
}

/* ---- repr ---- */

static bool is_printable(int32_t c)
{
  switch (utf8proc_category(c)) {
  case UTF8PROC_CATEGORY_CC:
  case UTF8PROC_CATEGORY_CF:
  case UTF8PROC_CATEGORY_CS:
  case UTF8PROC_CATEGORY_CO:
  case UTF8PROC_CATEGORY_CN:
  case UTF8PROC_CATEGORY_ZL:
  case UTF8PROC_CATEGORY_ZP:
    return false;
  case UTF8PROC_CATEGORY_ZS:
    return c == ' ';
  default:
    return true;
  }
}

static brim_status print_repr_text(run *r, slice s)
{
  const bool has_single = s.bytes && memchr(s.text, '\'', s.bytes),
             has_double = s.bytes && memchr(s.text, '"', s.bytes);
  const char quote = has_single && !has_double ? '"' : '\'';
  char escape[16];
  BRIM_TRY(print_bytes(r, &quote, 1));
  for (size_t at = 0; at < s.bytes;) {
    const size_t bytes = (size_t)utf8_length(s.text + at, s.bytes - at);
    const int32_t c = utf8_character(s.text + at);
    const char *simple = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : c == '\\' ? "\\\\" : NULL;
    if (c == quote) simple = quote == '"' ? "\\\"" : "\\'";
    if (!simple && !is_printable(c)) {
      snprintf(escape, sizeof escape, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
      simple = escape;
    }
    BRIM_TRY(simple ? print_word(r, simple) : print_bytes(r, s.text + at, bytes));
    at += bytes;
  }
  return print_bytes(r, &quote, 1);
}

static brim_status print_repr(run *r, const value *v);

static brim_status print_repr_sequence(run *r, const sequence *s)
{
  static const char *const begins[] = {"[", "(", "", "dict_keys([", "dict_values([", "dict_items(["};
  static const char *const ends[] = {"]", ")", "", "])", "])", "])"};
  if (s->kind == SEQUENCE_GENERATOR || s->kind == SEQUENCE_RANGE)
    return run_fail(r, "a %s has no text: add the filter list", s->kind == SEQUENCE_RANGE ? "range" : "generator");
  BRIM_TRY(print_word(r, begins[s->kind]));
  for (size_t i = 0; i < s->count; i++) {
    if (i > 0) BRIM_TRY(print_word(r, ", "));
    BRIM_TRY(print_repr(r, &s->item[i]));
  }
  if (s->kind == SEQUENCE_TUPLE && s->count == 1) BRIM_TRY(print_word(r, ","));
  return print_word(r, ends[s->kind]);
}

static brim_status print_repr_dict(run *r, const dict *d)
{
  BRIM_TRY(print_word(r, "{"));
  for (size_t i = 0; i < d->count; i++) {
    if (i > 0) BRIM_TRY(print_word(r, ", "));
    BRIM_TRY(print_repr(r, &d->pair[i].key));
    BRIM_TRY(print_word(r, ": "));
    BRIM_TRY(print_repr(r, &d->pair[i].value));
  }
  return print_word(r, "}");
}

static brim_status repr(run *r, const value *v)
{
  switch (v->kind) {
  case VALUE_UNDEFINED:
    return print_word(r, "Undefined");
  case VALUE_NONE:
    return print_word(r, "None");
  case VALUE_BOOL:
    return print_word(r, v->integer ? "True" : "False");
  case VALUE_INT:
  case VALUE_FLOAT:
    return print_number(r, v, false);
  case VALUE_STRING:
    if (v->safe) return run_fail(r, "a text of the filter safe in a list or dictionary cannot be written");
    return print_repr_text(r, v->text);
  case VALUE_SEQUENCE:
    return print_repr_sequence(r, v->sequence);
  case VALUE_DICT:
    return print_repr_dict(r, v->dict);
  default:
    return run_fail(r, "a %s has no text", value_type(v));
  }
}

static brim_status print_repr(run *r, const value *v)
{
  BRIM_TRY(run_steps(r, 1));
  BRIM_TRY(run_enter(r));
  const brim_status status = repr(r, v);
  run_leave(r);
  return status;
}

brim_status print_text(run *r, const value *v)
{
  if (v->kind == VALUE_STRING) return print_bytes(r, v->text.text, v->text.bytes);
  return v->kind == VALUE_UNDEFINED ? BRIM_OK : print_repr(r, v);
}

brim_status value_to_string(run *r, const value *v, value *out)
{
  const size_t from = r->out.count;
  if (v->kind == VALUE_STRING) {
    *out = *v;
    return BRIM_OK;
  }
  BRIM_TRY(print_text(r, v));
  return value_take_output(r, from, out);
}

/* ---- JSON ---- */

typedef struct json_style {
  slice indent; /* of one level */
  bool lines, ascii, sorted;
} json_style;

static brim_status print_unit(run *r, unsigned unit)
{
  char escape[16];
  snprintf(escape, sizeof escape, "\\u%04x", unit);
  return print_bytes(r, escape, 6);
}

static brim_status print_json_text(run *r, const json_style *style, slice s)
{
  static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
  BRIM_TRY(print_word(r, "\""));
  for (size_t at = 0; at < s.bytes;) {
    const size_t bytes = (size_t)utf8_length(s.text + at, s.bytes - at);
    const int32_t c = utf8_character(s.text + at);
    const char *simple = c > 0 && c < 0x80 ? strchr(from, c) : NULL;
    if (simple) {
      const char escape[2] = {'\\', to[simple - from]};
      BRIM_TRY(print_bytes(r, escape, 2));
    } else if (c < 0x20 || (style->ascii && c >= 0x7f && c < 0x10000)) {
      BRIM_TRY(print_unit(r, (unsigned)c));
    } else if (style->ascii && c >= 0x10000) {
      BRIM_TRY(print_unit(r, 0xd800 + ((unsigned)(c - 0x10000) >> 10)));
      BRIM_TRY(print_unit(r, 0xdc00 + ((unsigned)c & 0x3ff)));
    } else {
      BRIM_TRY(print_bytes(r, s.text + at, bytes));
    }
    at += bytes;
  }
  return print_word(r, "\"");
}

static brim_status print_json_at(run *r, const json_style *style, const value *v, size_t level);

/* Writes the separator before the next element; `first`: before the first one; `last`: before the closing bracket. */
static brim_status print_json_break(run *r, const json_style *style, bool first, bool last, size_t level)
{
  if (!first && !last) BRIM_TRY(print_word(r, style->lines ? "," : ", "));
  if (!style->lines) return BRIM_OK;
  BRIM_TRY(print_word(r, "\n"));
  for (size_t i = 0; i < level; i++) BRIM_TRY(print_bytes(r, style->indent.text, style->indent.bytes));
  return BRIM_OK;
}

static brim_status print_json_list(run *r, const json_style *style, const sequence *s, size_t level)
{
  if (s->kind > SEQUENCE_TUPLE)
    return run_fail(r, "tojson cannot write a %s",
                    value_type(&(value){.kind = VALUE_SEQUENCE, .sequence = (sequence *)(uintptr_t)s}));
  BRIM_TRY(print_word(r, "["));
  for (size_t i = 0; i < s->count; i++) {
    BRIM_TRY(print_json_break(r, style, i == 0, false, level + 1));
    BRIM_TRY(print_json_at(r, style, &s->item[i], level + 1));
  }
  if (s->count) BRIM_TRY(print_json_break(r, style, false, true, level));
  return print_word(r, "]");
}

static brim_status print_json_key(run *r, const json_style *style, const value *key)
{
  if (key->kind == VALUE_STRING) return print_json_text(r, style, key->text);
  if (key->kind != VALUE_NONE && key->kind != VALUE_BOOL && key->kind != VALUE_INT && key->kind != VALUE_FLOAT)
    return run_fail(r, "tojson cannot write a key of type '%s'", value_type(key));
  BRIM_TRY(print_word(r, "\""));
  BRIM_TRY(print_json_at(r, style, key, 0));
  return print_word(r, "\"");
}

/* Sorts the indices of pairs by key; keys are few. */
static brim_status sort_keys(run *r, const dict *d, size_t *order)
{
  for (size_t i = 0; i < d->count; i++) {
    size_t to = i;
    for (; to > 0; to--) {
      bool less = false;
      BRIM_TRY(run_steps(r, 1));
      BRIM_TRY(value_less(r, &d->pair[i].key, &d->pair[order[to - 1]].key, '<', &less));
      if (!less) break;
      order[to] = order[to - 1];
    }
    order[to] = i;
  }
  return BRIM_OK;
}

static brim_status print_json_dict(run *r, const json_style *style, const dict *d, size_t level)
{
  size_t *order = memory_take(&r->memory, (d->count + 1) * sizeof *order);
  if (!order) return run_no_memory(r);
  for (size_t i = 0; i < d->count; i++) order[i] = i;
  if (style->sorted) BRIM_TRY(sort_keys(r, d, order));
  BRIM_TRY(print_word(r, "{"));
  for (size_t i = 0; i < d->count; i++) {
    const struct dict_pair *pair = &d->pair[order[i]];
    BRIM_TRY(print_json_break(r, style, i == 0, false, level + 1));
    BRIM_TRY(print_json_key(r, style, &pair->key));
    BRIM_TRY(print_word(r, ": "));
    BRIM_TRY(print_json_at(r, style, &pair->value, level + 1));
  }
  if (d->count) BRIM_TRY(print_json_break(r, style, false, true, level));
  return print_word(r, "}");
}

static brim_status print_json_any(run *r, const json_style *style, const value *v, size_t level)
{
  switch (v->kind) {
  case VALUE_NONE:
    return print_word(r, "null");
  case VALUE_BOOL:
    return print_word(r, v->integer ? "true" : "false");
  case VALUE_INT:
  case VALUE_FLOAT:
    return print_number(r, v, true);
  case VALUE_STRING:
    return print_json_text(r, style, v->text);
  case VALUE_SEQUENCE:
    return print_json_list(r, style, v->sequence, level);
  case VALUE_DICT:
    return print_json_dict(r, style, v->dict, level);
  case VALUE_UNDEFINED:
    return run_fail(r, "tojson of '%.*s', which is undefined", (int)v->text.bytes, v->text.text);
  default:
    return run_fail(r, "tojson cannot write a %s", value_type(v));
  }
}

static brim_status print_json_at(run *r, const json_style *style, const value *v, size_t level)
{
  BRIM_TRY(run_steps(r, 1));
  BRIM_TRY(run_enter(r));
  const brim_status status = print_json_any(r, style, v, level);
  run_leave(r);
  return status;
}

#define INDENT_MAX 64
brim_status print_json(run *r, const value *v, const value *indent, bool ascii, bool sorted)
{
  static const char spaces[INDENT_MAX + 1] = "                                                                ";
  json_style style = {.ascii = ascii, .sorted = sorted, .lines = indent->kind == VALUE_STRING};
  if (style.lines) style.indent = indent->text;
  if (indent->kind == VALUE_INT || indent->kind == VALUE_BOOL) {
    style.lines = true;
    if (indent->integer > INDENT_MAX) return run_fail(r, "tojson indents by at most %d", INDENT_MAX);
    style.indent = (slice){spaces, indent->integer > 0 ? (size_t)indent->integer : 0};
  } else if (indent->kind != VALUE_STRING && indent->kind != VALUE_NONE && indent->kind != VALUE_ABSENT) {
    return run_fail(r, "tojson's indent is a number or a text, not '%s'", value_type(indent));
  }
  return print_json_at(r, &style, v, 0);
}
