/* Filters, tests and functions of templates. Definitions are those of jinja2.filters and jinja2.tests, and of
 * transformers for tojson, raise_exception and strftime_now. See template_parts.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "template_parts.h"

#define FUNCTION(name) static brim_status name(run *r, const value *self, const value *arg, value *out)
#define GIVEN(i) (arg[i].kind != VALUE_ABSENT)

static brim_status finish(run *r, size_t from, bool safe, value *out)
{
  BRIM_TRY(value_take_output(r, from, out));
  out->safe = safe;
  return BRIM_OK;
}

static brim_status want_text(run *r, const value *v, const char *what)
{
  return v->kind == VALUE_STRING ? BRIM_OK : run_fail(r, "%s must be a text, not '%s'", what, value_type(v));
}

static brim_status want_int(run *r, const value *v, const char *what, int64_t absent, int64_t *out)
{
  *out = v->kind == VALUE_ABSENT ? absent : v->integer;
  if (v->kind == VALUE_ABSENT || v->kind == VALUE_INT || v->kind == VALUE_BOOL) return BRIM_OK;
  return run_fail(r, "%s must be an integer, not '%s'", what, value_type(v));
}

static brim_status is_undefined(run *r, const value *v)
{
  return run_fail(r, "'%.*s' is undefined", (int)v->text.bytes, v->text.text);
}

/* ---- attributes ---- */

static brim_status fetch_any(run *r, const value *o, slice path, value *out)
{
  *out = *o;
  for (size_t at = 0; at <= path.bytes;) {
    size_t end = at;
    bool digits = true;
    int64_t number = 0;
    for (; end < path.bytes && path.text[end] != '.'; end++) {
      digits = digits && path.text[end] >= '0' && path.text[end] <= '9' && number < 100000000;
      number = digits ? number * 10 + (path.text[end] - '0') : 0;
    }
    const value key = digits && end > at ? value_int(number) : value_slice(path.text + at, end - at);
    const value from = *out;
    BRIM_TRY(library_item(r, &from, &key, out));
    at = end + 1;
  }
  return BRIM_OK;
}

/* Returns the value that a filter sorts, joins or selects by: an attribute, or the element itself. */
static brim_status fetch(run *r, const value *o, const value *attribute, value *out)
{
  if (attribute->kind == VALUE_STRING) return fetch_any(r, o, attribute->text, out);
  if (attribute->kind == VALUE_INT) return library_item(r, o, attribute, out);
  *out = *o;
  if (attribute->kind == VALUE_ABSENT || attribute->kind == VALUE_NONE) return BRIM_OK;
  return run_fail(r, "the name of an attribute must be a text, not '%s'", value_type(attribute));
}

/* ---- filters of one value ---- */

FUNCTION(filter_default)
{
  const bool empty = GIVEN(1) && value_true(&arg[1]) && !value_true(self);
  *out = self->kind != VALUE_UNDEFINED && !empty ? *self : GIVEN(0) ? arg[0] : value_slice("", 0);
  (void)r;
  return BRIM_OK;
}

FUNCTION(filter_length)
{
  (void)arg;
  switch (self->kind) {
  case VALUE_UNDEFINED:
    *out = value_int(0);
    return BRIM_OK;
  case VALUE_STRING:
    *out = value_int((int64_t)value_characters(self->text));
    return BRIM_OK;
  case VALUE_DICT:
    *out = value_int((int64_t)self->dict->count);
    return BRIM_OK;
  case VALUE_SEQUENCE:
    *out = value_int((int64_t)self->sequence->count);
    if (self->sequence->kind != SEQUENCE_GENERATOR) return BRIM_OK;
    break;
  default:
    break;
  }
  return run_fail(r, "'%s' has no length", value_type(self));
}

FUNCTION(filter_string)
{
  (void)arg;
  return value_to_string(r, self, out);
}

FUNCTION(filter_safe)
{
  (void)arg;
  BRIM_TRY(value_to_string(r, self, out));
  out->safe = true;
  return BRIM_OK;
}

FUNCTION(filter_escape)
{
  static const char from[] = "&<>'\"";
  static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  value text;
  (void)arg;
  BRIM_TRY(value_to_string(r, self, &text));
  *out = text;
  out->safe = true;
  if (text.safe) return BRIM_OK;
  const size_t start = r->out.count;
  for (size_t i = 0; i < text.text.bytes; i++) {
    const char x = text.text.text[i], *found = x ? strchr(from, x) : NULL;
    BRIM_TRY(found ? print_bytes(r, to[found - from], strlen(to[found - from])) : print_bytes(r, &x, 1));
  }
  return finish(r, start, true, out);
}

static brim_status change_case(run *r, const value *self, enum case_kind kind, value *out)
{
  value text;
  BRIM_TRY(value_to_string(r, self, &text));
  const size_t from = r->out.count;
  BRIM_TRY(print_case(r, text.text, kind));
  return finish(r, from, text.safe && kind != CASE_TITLE, out);
}
#define CASE_FILTER(name, kind)                                                                                        \
  FUNCTION(name)                                                                                                       \
  {                                                                                                                    \
    (void)arg;                                                                                                         \
    return change_case(r, self, kind, out);                                                                            \
  }
CASE_FILTER(filter_upper, CASE_UPPER)
CASE_FILTER(filter_lower, CASE_LOWER)
CASE_FILTER(filter_capitalize, CASE_CAPITALIZE)
CASE_FILTER(filter_title, CASE_TITLE)

FUNCTION(filter_trim)
{
  value text;
  BRIM_TRY(value_to_string(r, self, &text));
  return library_strip(r, &text, &arg[0], true, true, out);
}

FUNCTION(filter_replace)
{
  value text, from, to;
  int64_t most;
  BRIM_TRY(value_to_string(r, self, &text));
  BRIM_TRY(value_to_string(r, &arg[0], &from));
  BRIM_TRY(value_to_string(r, &arg[1], &to));
  BRIM_TRY(want_int(r, arg[2].kind == VALUE_NONE ? &(value){.kind = VALUE_ABSENT} : &arg[2], "count", -1, &most));
  return library_replace(r, text.text, from.text, to.text, most, out);
}

FUNCTION(filter_indent)
{
  value text, indent = arg[0];
  const bool first = GIVEN(1) && value_true(&arg[1]), blank = GIVEN(2) && value_true(&arg[2]);
  int64_t width;
  BRIM_TRY(want_text(r, self, "the input of indent"));
  if (indent.kind != VALUE_STRING) {
    static const char spaces[] = "                                                                ";
    BRIM_TRY(want_int(r, &indent, "width", 4, &width));
    if (width >= (int64_t)sizeof spaces) return run_fail(r, "indent takes at most %zu spaces", sizeof spaces - 1);
    indent = value_slice(spaces, width > 0 ? (size_t)width : 0);
  }
  text = *self;
  const size_t from = r->out.count;
  if (first) BRIM_TRY(print_text(r, &indent));
  for (size_t at = 0, line = 0; at <= text.text.bytes; line++) {
    size_t end = at, next;
    library_line(text.text, &end, &next);
    if (line > 0) BRIM_TRY(print_bytes(r, "\n", 1));
    if (line > 0 && (blank || end > at)) BRIM_TRY(print_text(r, &indent));
    BRIM_TRY(print_bytes(r, text.text.text + at, end - at));
    if (end == text.text.bytes || (next == text.text.bytes && text.text.text[next - 1] == '\r')) break;
    at = next;
  }
  return finish(r, from, text.safe, out);
}

FUNCTION(filter_tojson)
{
  const size_t from = r->out.count;
  if (GIVEN(2) && arg[2].kind != VALUE_NONE) return run_fail(r, "tojson's separators are not supported");
  BRIM_TRY(print_json(r, self, &arg[1], GIVEN(0) && value_true(&arg[0]), GIVEN(3) && value_true(&arg[3])));
  return value_take_output(r, from, out);
}

FUNCTION(filter_abs)
{
  double d;
  (void)arg;
  if (!value_number(self, &d)) return run_fail(r, "'%s' has no absolute value", value_type(self));
  if (self->kind != VALUE_FLOAT && self->integer == INT64_MIN) return run_fail(r, "the result needs more than 64 bits");
  *out = self->kind == VALUE_FLOAT ? value_real(fabs(d)) : value_int(llabs(self->integer));
  return BRIM_OK;
}

/* Reads a number as Python's int() and float() do, but for underscores and digits beyond ASCII. */
static bool parse_number(slice s, bool whole, value *out)
{
  char text[64], *end = NULL;
  while (s.bytes && (unsigned char)s.text[0] <= ' ') s = (slice){s.text + 1, s.bytes - 1};
  while (s.bytes && (unsigned char)s.text[s.bytes - 1] <= ' ') s.bytes--;
  if (s.bytes == 0 || s.bytes >= sizeof text) return false;
  memcpy(text, s.text, s.bytes);
  text[s.bytes] = '\0';
  if (strspn(text, whole ? "+-0123456789" : "+-.eE0123456789") != s.bytes) return false;
  errno = 0;
  const value number = whole ? value_int(strtoll(text, &end, 10)) : value_real(strtod(text, &end));
  if (*end != '\0' || (whole && errno)) return false;
  *out = number;
  return true;
}

/* Fails for numbers that parse_number does not read as Python does. */
static brim_status check_number(run *r, slice s)
{
  bool digits = false, words = false;
  for (size_t i = 0; i < s.bytes; i++) {
    const char x = s.text[i];
    digits = digits || (x >= '0' && x <= '9');
    words = words || (x & 0x80) || x == '_' || (x | 32) == 'n'; /* inf, nan and infinity */
  }
  if ((!words && s.bytes < 64) || (!digits && s.bytes > 16)) return BRIM_OK;
  return run_fail(r, "converting '%.*s' to a number is not supported", (int)(s.bytes < 40 ? s.bytes : 40), s.text);
}

FUNCTION(filter_int)
{
  if (self->kind == VALUE_UNDEFINED) return is_undefined(r, self);
  *out = GIVEN(0) ? arg[0] : value_int(0);
  if (GIVEN(1)) return run_fail(r, "int's base is not supported");
  if (self->kind == VALUE_INT || self->kind == VALUE_BOOL) *out = value_int(self->integer);
  value number = *self;
  if (self->kind == VALUE_STRING) {
    BRIM_TRY(check_number(r, self->text));
    if (parse_number(self->text, true, out) || !parse_number(self->text, false, &number)) return BRIM_OK;
  }
  if (number.kind != VALUE_FLOAT) return BRIM_OK;
  if (!isfinite(number.real)) return BRIM_OK;
  if (fabs(number.real) >= 9e18) return run_fail(r, "the result needs more than 64 bits");
  *out = value_int((int64_t)number.real);
  return BRIM_OK;
}

FUNCTION(filter_float)
{
  double d;
  if (self->kind == VALUE_UNDEFINED) return is_undefined(r, self);
  *out = GIVEN(0) ? arg[0] : value_real(0);
  if (value_number(self, &d)) *out = value_real(d);
  if (self->kind != VALUE_STRING) return BRIM_OK;
  BRIM_TRY(check_number(r, self->text));
  (void)parse_number(self->text, false, out);
  return BRIM_OK;
}

/* ---- filters of elements ---- */

FUNCTION(filter_list)
{
  sequence *from = NULL;
  (void)arg;
  BRIM_TRY(value_elements(r, self, &from));
  BRIM_TRY(value_sequence(r, SEQUENCE_LIST, 0, out));
  *out->sequence = *from;
  out->sequence->kind = SEQUENCE_LIST;
  return BRIM_OK;
}

FUNCTION(filter_first)
{
  sequence *from = NULL;
  (void)arg;
  *out = (value){.kind = VALUE_UNDEFINED, .text = {"the first element", 17}};
  if (value_is_sequence(self, SEQUENCE_GENERATOR)) {
    sequence *g = self->sequence;
    if (g->walked || g->count == 0) return BRIM_OK;
    *out = *g->item++;
    g->count--;
    g->room = g->count;
    return BRIM_OK;
  }
  BRIM_TRY(value_elements(r, self, &from));
  if (from->count) *out = from->item[0];
  return BRIM_OK;
}

FUNCTION(filter_last)
{
  sequence *from = NULL;
  (void)arg;
  *out = (value){.kind = VALUE_UNDEFINED, .text = {"the last element", 16}};
  if (value_is_sequence(self, SEQUENCE_GENERATOR)) return run_fail(r, "a generator has no last element");
  BRIM_TRY(value_elements(r, self, &from));
  if (from->count) *out = from->item[from->count - 1];
  return BRIM_OK;
}

FUNCTION(filter_reverse)
{
  sequence *from = NULL;
  const size_t start = r->out.count;
  const bool generator = value_is_sequence(self, SEQUENCE_GENERATOR);
  (void)arg;
  BRIM_TRY(value_elements(r, self, &from));
  if (self->kind != VALUE_STRING)
    BRIM_TRY(value_sequence(r, generator ? SEQUENCE_LIST : SEQUENCE_GENERATOR, from->count, out));
  for (size_t i = from->count; i-- > 0;)
    BRIM_TRY(self->kind == VALUE_STRING ? print_text(r, &from->item[i]) : value_push(r, out->sequence, from->item[i]));
  return self->kind == VALUE_STRING ? finish(r, start, self->safe, out) : BRIM_OK;
}

FUNCTION(filter_join)
{
  sequence *from = NULL;
  value between = GIVEN(0) ? arg[0] : value_slice("", 0), item;
  BRIM_TRY(value_elements(r, self, &from));
  BRIM_TRY(value_to_string(r, &between, &between));
  const size_t start = r->out.count;
  for (size_t i = 0; i < from->count; i++) {
    BRIM_TRY(fetch(r, &from->item[i], &arg[1], &item));
    if (i > 0) BRIM_TRY(print_text(r, &between));
    BRIM_TRY(print_text(r, &item));
  }
  return finish(r, start, false, out);
}

static brim_status make_pairs(run *r, const dict *d, enum sequence_kind kind, value *out)
{
  BRIM_TRY(run_steps(r, d->count));
  BRIM_TRY(value_sequence(r, kind, d->count, out));
  for (size_t i = 0; i < d->count; i++) {
    value pair;
    BRIM_TRY(value_sequence(r, SEQUENCE_TUPLE, 2, &pair));
    BRIM_TRY(value_push(r, pair.sequence, d->pair[i].key));
    BRIM_TRY(value_push(r, pair.sequence, d->pair[i].value));
    BRIM_TRY(value_push(r, out->sequence, pair));
  }
  return BRIM_OK;
}

brim_status library_items(run *r, const value *self, value *out)
{
  return make_pairs(r, self->dict, SEQUENCE_ITEMS, out);
}

FUNCTION(filter_items)
{
  (void)arg;
  if (self->kind == VALUE_UNDEFINED) return value_sequence(r, SEQUENCE_GENERATOR, 0, out);
  if (self->kind != VALUE_DICT) return run_fail(r, "items needs a dictionary, not '%s'", value_type(self));
  return make_pairs(r, self->dict, SEQUENCE_GENERATOR, out);
}

/* ---- order ---- */

/* Elements and what they are ordered by. */
typedef struct keyed {
  value key, item;
} keyed;

static brim_status make_key(run *r, const value *v, bool sensitive, value *out)
{
  *out = *v;
  return v->kind == VALUE_STRING && !sensitive ? change_case(r, v, CASE_LOWER, out) : BRIM_OK;
}

/* Sorts by merging; equal elements keep their order, reversed too. */
static brim_status sort(run *r, keyed *k, size_t count, bool reverse)
{
  keyed *to = memory_take(&r->memory, count * sizeof *to), *from = k;
  if (!to && count) return run_no_memory(r);
  for (size_t width = 1; width < count; width *= 2) {
    for (size_t first = 0; first < count; first += 2 * width) {
      const size_t middle = first + width < count ? first + width : count;
      const size_t end = first + 2 * width < count ? first + 2 * width : count;
      size_t a = first, b = middle;
      for (size_t i = first; i < end; i++) {
        bool second = a == middle;
        BRIM_TRY(run_steps(r, 1));
        if (a < middle && b < end)
          BRIM_TRY(reverse ? value_less(r, &from[a].key, &from[b].key, '<', &second)
                           : value_less(r, &from[b].key, &from[a].key, '<', &second));
        to[i] = from[second ? b++ : a++];
      }
    }
    keyed *other = from;
    from = to;
    to = other;
  }
  if (from != k) memcpy(k, from, count * sizeof *k);
  return BRIM_OK;
}

static brim_status sort_into(run *r, const sequence *from, const value *attribute, bool sensitive, bool reverse,
                             value *out)
{
  keyed *k = memory_take(&r->memory, from->count * sizeof *k + 1);
  if (!k) return run_no_memory(r);
  for (size_t i = 0; i < from->count; i++) {
    value by;
    k[i].item = from->item[i];
    BRIM_TRY(fetch(r, &from->item[i], attribute, &by));
    BRIM_TRY(make_key(r, &by, sensitive, &k[i].key));
  }
  BRIM_TRY(sort(r, k, from->count, reverse));
  BRIM_TRY(value_sequence(r, SEQUENCE_LIST, from->count, out));
  for (size_t i = 0; i < from->count; i++) BRIM_TRY(value_push(r, out->sequence, k[i].item));
  return BRIM_OK;
}

static bool flag(const value *v)
{
  return v->kind != VALUE_ABSENT && value_true(v);
}

FUNCTION(filter_sort)
{
  sequence *from = NULL;
  BRIM_TRY(value_elements(r, self, &from));
  if (arg[2].kind == VALUE_STRING && memchr(arg[2].text.text, ',', arg[2].text.bytes))
    return run_fail(r, "sorting by several attributes is not supported");
  return sort_into(r, from, &arg[2], flag(&arg[1]), flag(&arg[0]), out);
}

FUNCTION(filter_dictsort)
{
  value pairs, by = value_int(0);
  if (self->kind == VALUE_UNDEFINED) return is_undefined(r, self);
  if (self->kind != VALUE_DICT) return run_fail(r, "dictsort needs a dictionary, not '%s'", value_type(self));
  if (GIVEN(1)) {
    BRIM_TRY(want_text(r, &arg[1], "by"));
    if (slice_is(arg[1].text, "value"))
      by.integer = 1;
    else if (!slice_is(arg[1].text, "key"))
      return run_fail(r, "dictsort sorts by \"key\" or \"value\"");
  }
  BRIM_TRY(make_pairs(r, self->dict, SEQUENCE_LIST, &pairs));
  return sort_into(r, pairs.sequence, &by, flag(&arg[0]), flag(&arg[2]), out);
}

FUNCTION(filter_unique)
{
  sequence *from = NULL;
  value keys;
  BRIM_TRY(value_elements(r, self, &from));
  BRIM_TRY(value_sequence(r, SEQUENCE_LIST, 0, &keys));
  BRIM_TRY(value_sequence(r, SEQUENCE_GENERATOR, 0, out));
  for (size_t i = 0; i < from->count; i++) {
    value by, key;
    bool seen = false;
    BRIM_TRY(fetch(r, &from->item[i], &arg[1], &by));
    if (by.kind == VALUE_DICT || value_is_sequence(&by, SEQUENCE_LIST))
      return run_fail(r, "unhashable type: '%s'", value_type(&by));
    BRIM_TRY(make_key(r, &by, flag(&arg[0]), &key));
    BRIM_TRY(value_contains(r, &key, &keys, &seen));
    if (seen) continue;
    BRIM_TRY(value_push(r, keys.sequence, key));
    BRIM_TRY(value_push(r, out->sequence, from->item[i]));
  }
  return BRIM_OK;
}

static brim_status extreme(run *r, const value *self, const value *arg, int op, value *out)
{
  sequence *from = NULL;
  value best;
  BRIM_TRY(value_elements(r, self, &from));
  *out = (value){.kind = VALUE_UNDEFINED, .text = {"an element of nothing", 21}};
  for (size_t i = 0; i < from->count; i++) {
    value by, key;
    bool better = i == 0;
    BRIM_TRY(fetch(r, &from->item[i], &arg[1], &by));
    BRIM_TRY(make_key(r, &by, flag(&arg[0]), &key));
    if (i > 0) BRIM_TRY(value_less(r, &key, &best, op, &better));
    if (!better) continue;
    best = key;
    *out = from->item[i];
  }
  return BRIM_OK;
}
FUNCTION(filter_min)
{
  return extreme(r, self, arg, '<', out);
}
FUNCTION(filter_max)
{
  return extreme(r, self, arg, '>', out);
}

/* ---- map, select and reject ---- */

FUNCTION(filter_map)
{
  sequence *from = NULL;
  const value *attribute = &arg[4], *otherwise = &arg[5];
  BRIM_TRY(value_elements(r, self, &from));
  BRIM_TRY(value_sequence(r, SEQUENCE_GENERATOR, 0, out));
  if (GIVEN(0) && attribute->kind != VALUE_ABSENT) return run_fail(r, "map takes a filter or an attribute");
  for (size_t i = 0; i < from->count; i++) {
    value v;
    if (GIVEN(0)) {
      BRIM_TRY(run_filter(r, &from->item[i], arg, 4, &v));
    } else {
      if (attribute->kind == VALUE_ABSENT) return run_fail(r, "map needs a filter or an attribute");
      BRIM_TRY(fetch(r, &from->item[i], attribute, &v));
      if (v.kind == VALUE_UNDEFINED && otherwise->kind != VALUE_ABSENT) v = *otherwise;
    }
    BRIM_TRY(value_push(r, out->sequence, v));
  }
  return BRIM_OK;
}

/* Keeps the elements for which the test named by test[0], or their truth, is `wanted`. */
static brim_status select_by(run *r, const value *self, const value *attribute, const value *test, bool wanted,
                             value *out)
{
  sequence *from = NULL;
  const builtin *b = NULL;
  BRIM_TRY(value_elements(r, self, &from));
  BRIM_TRY(value_sequence(r, SEQUENCE_GENERATOR, 0, out));
  if (test[0].kind != VALUE_ABSENT) {
    BRIM_TRY(want_text(r, &test[0], "the name of a test"));
    b = library_test(test[0].text);
    if (!b) return run_fail(r, "the test '%.*s' is not supported", (int)test[0].text.bytes, test[0].text.text);
    const bool takes = b->parameters[0] != '\0';
    if ((test[1].kind != VALUE_ABSENT) != takes) return run_fail(r, "the test %s takes %d argument", b->name, takes);
  }
  for (size_t i = 0; i < from->count; i++) {
    value v, holds;
    BRIM_TRY(fetch(r, &from->item[i], attribute, &v));
    if (b)
      BRIM_TRY(b->call(r, &v, &test[1], &holds));
    else
      holds = v;
    if (value_true(&holds) == wanted) BRIM_TRY(value_push(r, out->sequence, from->item[i]));
  }
  return BRIM_OK;
}

static const value absent = {.kind = VALUE_ABSENT};
FUNCTION(filter_select)
{
  return select_by(r, self, &absent, &arg[0], true, out);
}
FUNCTION(filter_reject)
{
  return select_by(r, self, &absent, &arg[0], false, out);
}
FUNCTION(filter_selectattr)
{
  return select_by(r, self, &arg[0], &arg[1], true, out);
}
FUNCTION(filter_rejectattr)
{
  return select_by(r, self, &arg[0], &arg[1], false, out);
}

/* ---- tests ---- */

#define TEST(name, holds)                                                                                              \
  FUNCTION(name)                                                                                                       \
  {                                                                                                                    \
    (void)r;                                                                                                           \
    (void)arg;                                                                                                         \
    *out = value_bool(holds);                                                                                          \
    return BRIM_OK;                                                                                                    \
  }
TEST(test_defined, self->kind != VALUE_UNDEFINED)
TEST(test_undefined, self->kind == VALUE_UNDEFINED)
TEST(test_none, self->kind == VALUE_NONE)
TEST(test_boolean, self->kind == VALUE_BOOL)
TEST(test_true, self->kind == VALUE_BOOL && self->integer)
TEST(test_false, self->kind == VALUE_BOOL && !self->integer)
TEST(test_integer, self->kind == VALUE_INT)
TEST(test_float, self->kind == VALUE_FLOAT)
TEST(test_number, self->kind == VALUE_BOOL || self->kind == VALUE_INT || self->kind == VALUE_FLOAT)
TEST(test_string, self->kind == VALUE_STRING)
TEST(test_mapping, self->kind == VALUE_DICT)
TEST(test_iterable, self->kind == VALUE_UNDEFINED || (self->kind >= VALUE_STRING && self->kind <= VALUE_DICT) ||
                        self->kind == VALUE_LOOP)
TEST(test_sequence, self->kind == VALUE_UNDEFINED || self->kind == VALUE_STRING || self->kind == VALUE_DICT ||
                        (self->kind == VALUE_SEQUENCE && self->sequence->kind <= SEQUENCE_RANGE))
TEST(test_callable, self->kind == VALUE_UNDEFINED || self->kind == VALUE_MACRO || self->kind == VALUE_FUNCTION ||
                        self->kind == VALUE_METHOD)

static brim_status divide(run *r, const value *self, int64_t by, int64_t rest, value *out)
{
  if (self->kind != VALUE_INT && self->kind != VALUE_BOOL)
    return run_fail(r, "'%s' is not an integer", value_type(self));
  if (by == 0) return run_fail(r, "division by zero");
  *out = value_bool(by == -1 || llabs(self->integer % by) == rest);
  return BRIM_OK;
}
FUNCTION(test_even)
{
  (void)arg;
  return divide(r, self, 2, 0, out);
}
FUNCTION(test_odd)
{
  (void)arg;
  return divide(r, self, 2, 1, out);
}
FUNCTION(test_divisibleby)
{
  int64_t by;
  BRIM_TRY(want_int(r, &arg[0], "the divisor", 0, &by));
  return divide(r, self, by, 0, out);
}

static brim_status give(brim_status status, bool holds, value *out)
{
  *out = value_bool(holds);
  return status;
}
FUNCTION(test_eq)
{
  bool holds = false;
  const brim_status status = value_equal(r, self, &arg[0], &holds);
  return give(status, holds, out);
}
FUNCTION(test_ne)
{
  bool holds = false;
  const brim_status status = value_equal(r, self, &arg[0], &holds);
  return give(status, !holds, out);
}
#define ORDER(name, op)                                                                                                \
  FUNCTION(name)                                                                                                       \
  {                                                                                                                    \
    bool holds = false;                                                                                                \
    const brim_status status = value_less(r, self, &arg[0], op, &holds);                                               \
    return give(status, holds, out);                                                                                   \
  }
ORDER(test_lt, '<')
ORDER(test_le, OP2('<', '='))
ORDER(test_gt, '>')
ORDER(test_ge, OP2('>', '='))
FUNCTION(test_in)
{
  bool holds = false;
  const brim_status status = value_contains(r, self, &arg[0], &holds);
  return give(status, holds, out);
}
FUNCTION(test_sameas)
{
  bool holds = false;
  const bool simple = self->kind == VALUE_NONE || self->kind == VALUE_BOOL;
  if (!simple && (arg[0].kind == self->kind)) return run_fail(r, "sameas knows only none, true and false");
  if (simple && arg[0].kind == self->kind) BRIM_TRY(value_equal(r, self, &arg[0], &holds));
  return give(BRIM_OK, holds, out);
}

/* ---- functions ---- */

#define RANGE_MAX 100000 /* as in Jinja's sandbox */
FUNCTION(function_range)
{
  int64_t limit[3];
  (void)self;
  for (int i = 0; i < 3; i++) BRIM_TRY(want_int(r, &arg[i], "an argument of range", i == 2, &limit[i]));
  if (!GIVEN(1)) {
    limit[1] = limit[0];
    limit[0] = 0;
  }
  const int64_t step = limit[2];
  if (step == 0) return run_fail(r, "the step of range must not be 0");
  BRIM_TRY(value_sequence(r, SEQUENCE_RANGE, 0, out));
  for (int64_t i = limit[0]; step > 0 ? i < limit[1] : i > limit[1];) {
    if (out->sequence->count == RANGE_MAX) return run_fail(r, "range has more than %d elements", RANGE_MAX);
    BRIM_TRY(value_push(r, out->sequence, value_int(i)));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return BRIM_OK;
}

FUNCTION(function_raise)
{
  value text;
  (void)self;
  (void)out;
  BRIM_TRY(value_to_string(r, &arg[0], &text));
  return run_fail(r, "the template refuses this: %.*s", (int)(text.text.bytes < 900 ? text.text.bytes : 900),
                  text.text.text);
}

#define TIME_ROOM 512
FUNCTION(function_strftime)
{
  char format[TIME_ROOM], text[TIME_ROOM];
  struct tm broken;
  const time_t clock = (time_t)r->clock;
  (void)self;
  BRIM_TRY(want_text(r, &arg[0], "the format of strftime_now"));
  const slice f = arg[0].text;
  if (f.bytes == 0) return value_copy(r, "", 0, out);
  if (f.bytes >= TIME_ROOM / 4 || memchr(f.text, 0, f.bytes)) return run_fail(r, "the format of a time is too long");
  memcpy(format, f.text, f.bytes);
  format[f.bytes] = '\0';
  if (!localtime_r(&clock, &broken)) return run_fail(r, "the time cannot be converted");
  const size_t bytes = strftime(text, sizeof text, format, &broken);
  if (bytes == 0) return run_fail(r, "the format '%s' of a time gives no text", format);
  return value_copy(r, text, bytes, out);
}

/* ---- the tables ---- */

static const builtin filters[] = {{"abs", filter_abs, "", 0, 0},
                                  {"capitalize", filter_capitalize, "", 0, 0},
                                  {"count", filter_length, "", 0, 0},
                                  {"d", filter_default, "default_value boolean ", 0, 0},
                                  {"default", filter_default, "default_value boolean ", 0, 0},
                                  {"dictsort", filter_dictsort, "case_sensitive by reverse ", 0, 0},
                                  {"e", filter_escape, "", 0, 0},
                                  {"escape", filter_escape, "", 0, 0},
                                  {"first", filter_first, "", 0, 0},
                                  {"float", filter_float, "default ", 0, 0},
                                  {"indent", filter_indent, "width first blank ", 0, 0},
                                  {"int", filter_int, "default base ", 0, 0},
                                  {"items", filter_items, "", 0, 0},
                                  {"join", filter_join, "d attribute ", 0, 0},
                                  {"last", filter_last, "", 0, 0},
                                  {"length", filter_length, "", 0, 0},
                                  {"list", filter_list, "", 0, 0},
                                  {"lower", filter_lower, "", 0, 0},
                                  {"map", filter_map, "1 2 3 4 attribute default ", 0, 0},
                                  {"max", filter_max, "case_sensitive attribute ", 0, 0},
                                  {"min", filter_min, "case_sensitive attribute ", 0, 0},
                                  {"reject", filter_reject, "1 2 ", 0, 0},
                                  {"rejectattr", filter_rejectattr, "1 2 3 ", 1, 0},
                                  {"replace", filter_replace, "old new count ", 2, 0},
                                  {"reverse", filter_reverse, "", 0, 0},
                                  {"safe", filter_safe, "", 0, 0},
                                  {"select", filter_select, "1 2 ", 0, 0},
                                  {"selectattr", filter_selectattr, "1 2 3 ", 1, 0},
                                  {"sort", filter_sort, "reverse case_sensitive attribute ", 0, 0},
                                  {"string", filter_string, "", 0, 0},
                                  {"title", filter_title, "", 0, 0},
                                  {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys ", 0, 0},
                                  {"trim", filter_trim, "chars ", 0, 0},
                                  {"unique", filter_unique, "case_sensitive attribute ", 0, 0},
                                  {"upper", filter_upper, "", 0, 0}};

static const builtin tests[] = {{"!=", test_ne, "1 ", 1, 0},
                                {"<", test_lt, "1 ", 1, 0},
                                {"<=", test_le, "1 ", 1, 0},
                                {"==", test_eq, "1 ", 1, 0},
                                {">", test_gt, "1 ", 1, 0},
                                {">=", test_ge, "1 ", 1, 0},
                                {"boolean", test_boolean, "", 0, 0},
                                {"callable", test_callable, "", 0, 0},
                                {"defined", test_defined, "", 0, 0},
                                {"divisibleby", test_divisibleby, "num ", 1, 0},
                                {"eq", test_eq, "1 ", 1, 0},
                                {"equalto", test_eq, "1 ", 1, 0},
                                {"even", test_even, "", 0, 0},
                                {"false", test_false, "", 0, 0},
                                {"float", test_float, "", 0, 0},
                                {"ge", test_ge, "1 ", 1, 0},
                                {"greaterthan", test_gt, "1 ", 1, 0},
                                {"gt", test_gt, "1 ", 1, 0},
                                {"in", test_in, "seq ", 1, 0},
                                {"integer", test_integer, "", 0, 0},
                                {"iterable", test_iterable, "", 0, 0},
                                {"le", test_le, "1 ", 1, 0},
                                {"lessthan", test_lt, "1 ", 1, 0},
                                {"lt", test_lt, "1 ", 1, 0},
                                {"mapping", test_mapping, "", 0, 0},
                                {"ne", test_ne, "1 ", 1, 0},
                                {"none", test_none, "", 0, 0},
                                {"number", test_number, "", 0, 0},
                                {"odd", test_odd, "", 0, 0},
                                {"sameas", test_sameas, "other ", 1, 0},
                                {"sequence", test_sequence, "", 0, 0},
                                {"string", test_string, "", 0, 0},
                                {"true", test_true, "", 0, 0},
                                {"undefined", test_undefined, "", 0, 0}};

/* namespace and dict take arguments of any name: see call() in template_run.c */
static const builtin functions[] = {{"cycler", NULL, "", 0, 0},
                                    {"dict", function_range, "", 0, 0},
                                    {"joiner", NULL, "", 0, 0},
                                    {"lipsum", NULL, "", 0, 0},
                                    {"namespace", function_range, "", 0, 0},
                                    {"raise_exception", function_raise, "message ", 1, 0},
                                    {"range", function_range, "1 2 3 ", 1, 0},
                                    {"strftime_now", function_strftime, "format ", 1, 0}};

static const builtin *find(const builtin *table, size_t count, slice name)
{
  for (size_t i = 0; i < count; i++)
    if (slice_is(name, table[i].name)) return &table[i];
  return NULL;
}
#define FIND(table, name) find(table, sizeof table / sizeof table[0], name)
const builtin *library_filter(slice name)
{
  return FIND(filters, name);
}
const builtin *library_test(slice name)
{
  return FIND(tests, name);
}
const builtin *library_function(slice name)
{
  return FIND(functions, name);
}
