/* Filters, tests and functions of templates. jinja2.filters and jinja2.tests define them, and transformers defines
 * tojson, raise_exception and strftime_now. See template_parts.h. */
#include <stdlib.h>
#include <time.h>

#include "template_parts.h"

brim_status library_call(run *r, const builtin *b, const value *self, const value *given, size_t count, value *out)
{
  value argument[PARAMETERS_MAX];
  size_t most = 0;
  for (const char *p = b->parameters; *p; p = strchr(p, ' ') + 1) most++;
  for (size_t i = 0; i < PARAMETERS_MAX; i++) argument[i] = i < count ? given[i] : value_of(VALUE_ABSENT);
  for (size_t i = 0; i < PARAMETERS_MAX; i++)
    if (argument[i].kind != VALUE_ABSENT ? i >= most : (int32_t)i < b->least)
      return run_fail(r, "'%s' takes %d to %zu arguments", b->name, (int)b->least, most);
  return b->call(r, b, self, argument, out);
}

brim_status library_want(run *r, const value *v, enum value_kind kind, const char *what)
{
  if (v->kind == kind || (kind == VALUE_INT && v->kind == VALUE_BOOL)) return BRIM_OK;
  if (v->kind == VALUE_UNDEFINED) return run_fail(r, "%s: '%.*s' is undefined", what, SHOWN(v->text));
  return run_fail(r, "%s must be of type '%s', not '%s'", what, value_type(&(value){.kind = (uint8_t)kind}),
                  value_type(v));
}

static bool flag(const value *v)
{
  return v->kind != VALUE_ABSENT && value_true(v);
}

/* ---- filters of one value ---- */

static BUILTIN(filter_default)
{
  const bool empty = flag(&arg[1]) && !value_true(self);
  *out = self->kind != VALUE_UNDEFINED && !empty ? *self : GIVEN(0) ? arg[0] : value_text((slice){"", 0});
  return BRIM_OK;
}

static BUILTIN(filter_length)
{
  size_t count = 0;
  if (self->kind == VALUE_STRING)
    count = value_characters(self->text);
  else if (self->kind == VALUE_DICT)
    count = self->dict->key.count;
  else if (self->kind >= VALUE_LIST && self->kind <= VALUE_VIEW)
    count = self->sequence->count;
  else if (self->kind != VALUE_UNDEFINED)
    return run_fail(r, "'%s' has no length", value_type(self));
  *out = value_int((int64_t)count);
  return BRIM_OK;
}

/* Converts a value to a text. With `detail`, the text is marked as safe. */
static BUILTIN(filter_string)
{
  BRIM_TRY(value_to_string(r, self, out));
  out->safe = out->safe || b->detail;
  return BRIM_OK;
}

static brim_status to_case(run *r, const value *v, enum case_kind kind, value *out)
{
  value text;
  BRIM_TRY(value_to_string(r, v, &text));
  const size_t from = r->out.count;
  BRIM_TRY(print_case(r, text.text, kind));
  BRIM_TRY(value_take_output(r, from, out));
  out->safe = text.safe;
  return BRIM_OK;
}
BUILTIN(library_case)
{
  return to_case(r, self, (enum case_kind)b->detail, out);
}

BUILTIN(library_strip)
{
  slice set = {NULL, 0}; /* spaces */
  BRIM_TRY(value_to_string(r, self, out));
  if (GIVEN(0) && arg[0].kind != VALUE_NONE) {
    BRIM_TRY(library_want(r, &arg[0], VALUE_STRING, "the characters to strip"));
    set = (slice){arg[0].text.bytes ? arg[0].text.text : "", arg[0].text.bytes};
  }
  BRIM_TRY(run_steps(r, out->text.bytes / 16));
  if (b->detail & STRIP_RIGHT) out->text.bytes = slice_skip_back(out->text, out->text.bytes, set);
  const size_t first = b->detail & STRIP_LEFT ? slice_skip(out->text, 0, set) : 0;
  out->text = (slice){out->text.text + first, out->text.bytes - first};
  return BRIM_OK;
}

static BUILTIN(filter_replace)
{
  value text, from, to;
  BRIM_TRY(value_to_string(r, self, &text));
  BRIM_TRY(value_to_string(r, &arg[0], &from));
  BRIM_TRY(value_to_string(r, &arg[1], &to));
  return library_replace(r, text.text, from.text, to.text, out);
}

#define INDENT_MAX 64
static BUILTIN(filter_tojson)
{
  const size_t from = r->out.count;
  const bool lines = GIVEN(1) && arg[1].kind != VALUE_NONE;
  if (flag(&arg[0])) return run_fail(r, "tojson's ensure_ascii=true is not supported");
  if (lines) BRIM_TRY(library_want(r, &arg[1], VALUE_INT, "tojson's indent"));
  if (lines && (arg[1].integer < 0 || arg[1].integer > INDENT_MAX))
    return run_fail(r, "tojson's indent must be from 0 to %d", INDENT_MAX);
  BRIM_TRY(print_json(r, self, lines ? arg[1].integer : -1));
  return value_take_output(r, from, out);
}

/* ---- filters of elements ---- */

static BUILTIN(filter_list)
{
  sequence *from = NULL;
  BRIM_TRY(value_elements(r, self, &from));
  *out = (value){.kind = VALUE_LIST, .sequence = from}; /* shares the list, because lists do not change */
  return BRIM_OK;
}

/* Returns the first element or, with `detail`, the last one. */
static BUILTIN(filter_element)
{
  sequence *from = NULL;
  if (b->detail && self->kind == VALUE_GENERATOR)
    return run_fail(r, "a generator has no last element: add the filter list");
  BRIM_TRY(value_elements(r, self, &from));
  *out = value_undefined((slice){"an element of nothing", 21});
  if (from->count) *out = from->item[b->detail ? from->count - 1 : 0];
  return BRIM_OK;
}

static BUILTIN(filter_join)
{
  sequence *from = NULL;
  value between = GIVEN(0) ? arg[0] : value_text((slice){"", 0});
  BRIM_TRY(value_elements(r, self, &from));
  BRIM_TRY(value_to_string(r, &between, &between));
  const size_t start = r->out.count;
  for (size_t i = 0; i < from->count; i++) {
    if (i > 0) BRIM_TRY(print_bytes(r, between.text));
    BRIM_TRY(print_text(r, &from->item[i]));
  }
  return value_take_output(r, start, out);
}

BUILTIN(library_items)
{
  BRIM_TRY(value_sequence(r, (enum value_kind)b->detail, out));
  if (self->kind == VALUE_UNDEFINED) return BRIM_OK;
  BRIM_TRY(library_want(r, self, VALUE_DICT, "the dictionary"));
  const dict *d = self->dict;
  BRIM_TRY(run_steps(r, d->key.count));
  for (size_t i = 0; i < d->key.count; i++) {
    value pair;
    BRIM_TRY(value_sequence(r, VALUE_TUPLE, &pair));
    BRIM_TRY(value_push(r, pair.sequence, d->key.item[i]));
    BRIM_TRY(value_push(r, pair.sequence, d->item.item[i]));
    BRIM_TRY(value_push(r, out->sequence, pair));
  }
  return BRIM_OK;
}

/* Returns the value by which a filter sorts or selects: an attribute, or the element itself. */
static brim_status fetch(run *r, const value *o, const value *attribute, value *out)
{
  *out = *o;
  if (attribute->kind == VALUE_ABSENT) return BRIM_OK;
  if (attribute->kind == VALUE_INT) return library_item(r, o, attribute, out);
  BRIM_TRY(library_want(r, attribute, VALUE_STRING, "the name of an attribute"));
  const slice name = attribute->text;
  if (memchr(name.text, '.', name.bytes) || (name.bytes && name.text[0] >= '0' && name.text[0] <= '9'))
    return run_fail(r, "the attribute '%.*s' in a filter is not supported", SHOWN(name));
  return library_item(r, o, attribute, out);
}

/* Sorts by insertion, because lists in templates are short. Ignores the case of texts. */
static brim_status sort_by(run *r, const sequence *from, const value *attribute, value *out)
{
  value keys;
  BRIM_TRY(value_sequence(r, VALUE_LIST, &keys));
  BRIM_TRY(value_sequence(r, VALUE_LIST, out));
  for (size_t i = 0; i < from->count; i++) {
    value key;
    size_t to = i;
    BRIM_TRY(fetch(r, &from->item[i], attribute, &key));
    if (key.kind == VALUE_STRING) BRIM_TRY(to_case(r, &key, CASE_LOWER, &key));
    BRIM_TRY(value_push(r, keys.sequence, key));
    BRIM_TRY(value_push(r, out->sequence, from->item[i]));
    for (; to > 0; to--) {
      int order = 0;
      BRIM_TRY(run_steps(r, 1));
      BRIM_TRY(value_order(r, &key, &keys.sequence->item[to - 1], &order));
      if (order >= 0) break;
      keys.sequence->item[to] = keys.sequence->item[to - 1];
      out->sequence->item[to] = out->sequence->item[to - 1];
    }
    keys.sequence->item[to] = key;
    out->sequence->item[to] = from->item[i];
  }
  return BRIM_OK;
}

static BUILTIN(filter_sort)
{
  sequence *from = NULL;
  BRIM_TRY(value_elements(r, self, &from));
  return sort_by(r, from, &arg[0], out);
}

static BUILTIN(filter_dictsort)
{
  value pairs, key = value_int(0);
  if (self->kind == VALUE_UNDEFINED) return library_want(r, self, VALUE_DICT, "dictsort");
  BRIM_TRY(library_items(r, b, self, arg, &pairs));
  return sort_by(r, pairs.sequence, &key, out);
}

/* ---- map, select and reject ---- */

/* Finds the filter or test with this name; NULL if there is no name. */
static brim_status named(run *r, const value *name, bool is_test, const builtin **out)
{
  *out = NULL;
  if (name->kind == VALUE_ABSENT) return BRIM_OK;
  BRIM_TRY(library_want(r, name, VALUE_STRING, is_test ? "the name of a test" : "the name of a filter"));
  *out = is_test ? library_test(name->text) : library_filter(name->text);
  if (*out) return BRIM_OK;
  return run_fail(r, "the %s '%.*s' is not supported", is_test ? "test" : "filter", SHOWN(name->text));
}

static BUILTIN(filter_map)
{
  enum { ARGUMENTS = 3 }; /* number of a filter's arguments after its name; the attribute follows */
  const value *attribute = &arg[1 + ARGUMENTS];
  const builtin *filter = NULL;
  sequence *from = NULL;
  BRIM_TRY(value_elements(r, self, &from));
  BRIM_TRY(value_sequence(r, VALUE_GENERATOR, out));
  BRIM_TRY(named(r, &arg[0], false, &filter));
  if ((filter != NULL) == (attribute->kind != VALUE_ABSENT)) return run_fail(r, "map takes a filter or an attribute");
  for (size_t i = 0; i < from->count; i++) {
    value v;
    BRIM_TRY(filter ? library_call(r, filter, &from->item[i], &arg[1], ARGUMENTS, &v)
                    : fetch(r, &from->item[i], attribute, &v));
    BRIM_TRY(value_push(r, out->sequence, v));
  }
  return BRIM_OK;
}

/* Keeps the elements for which a test holds or, without a test, that are true. With SELECT_REJECTS it keeps the
 * others. */
enum { SELECT_REJECTS = 1, SELECT_BY_ATTRIBUTE = 2 };
static BUILTIN(filter_select)
{
  static const value absent = {.kind = VALUE_ABSENT};
  const bool by = b->detail & SELECT_BY_ATTRIBUTE;
  const value *attribute = by ? &arg[0] : &absent, *name = by ? &arg[1] : &arg[0];
  sequence *from = NULL;
  const builtin *test = NULL;
  BRIM_TRY(value_elements(r, self, &from));
  BRIM_TRY(value_sequence(r, VALUE_GENERATOR, out));
  BRIM_TRY(named(r, name, true, &test));
  for (size_t i = 0; i < from->count; i++) {
    value v, holds;
    BRIM_TRY(fetch(r, &from->item[i], attribute, &v));
    holds = v;
    if (test) BRIM_TRY(library_call(r, test, &v, name + 1, 1, &holds));
    if (value_true(&holds) == !(b->detail & SELECT_REJECTS)) BRIM_TRY(value_push(r, out->sequence, from->item[i]));
  }
  return BRIM_OK;
}

/* ---- tests ---- */

#define KIND(name) (1 << VALUE_##name)
#define LISTS (KIND(LIST) | KIND(TUPLE))
#define ITERABLES (KIND(UNDEFINED) | KIND(STRING) | LISTS | KIND(VIEW) | KIND(GENERATOR) | KIND(DICT) | KIND(LOOP))
/* Returns whether the value is of one of the kinds in `detail`. */
static BUILTIN(test_kind)
{
  *out = value_bool((uint32_t)b->detail >> self->kind & 1);
  return BRIM_OK;
}

static BUILTIN(test_truth)
{
  *out = value_bool(self->kind == VALUE_BOOL && self->integer == b->detail);
  return BRIM_OK;
}

static BUILTIN(test_sequence)
{
  if (self->kind == VALUE_VIEW) return run_fail(r, "the test sequence of a view is not supported: add the filter list");
  return test_kind(r, b, self, arg, out);
}

/* detail: the result of the comparison for which the test is true. */
static BUILTIN(test_equal)
{
  bool holds = false;
  BRIM_TRY(value_equal(r, self, &arg[0], &holds));
  *out = value_bool(holds == b->detail);
  return BRIM_OK;
}

static BUILTIN(test_in)
{
  bool holds = false;
  BRIM_TRY(value_contains(r, self, &arg[0], &holds));
  *out = value_bool(holds);
  return BRIM_OK;
}

/* ---- functions ---- */

#define RANGE_MAX 100000 /* maximum length, as in Jinja's sandbox */
static BUILTIN(function_range)
{
  int64_t limit[] = {0, 0, 1};
  for (int i = 0; i < 3 && GIVEN(i); i++) {
    BRIM_TRY(library_want(r, &arg[i], VALUE_INT, "an argument of range"));
    limit[i] = arg[i].integer;
  }
  if (!GIVEN(1)) {
    limit[1] = limit[0];
    limit[0] = 0;
  }
  if (limit[2] == 0) return run_fail(r, "the step of range must not be 0");
  BRIM_TRY(value_sequence(r, VALUE_VIEW, out));
  for (int64_t i = limit[0]; limit[2] > 0 ? i < limit[1] : i > limit[1];) {
    if (out->sequence->count == RANGE_MAX) return run_fail(r, "range has more than %d elements", RANGE_MAX);
    BRIM_TRY(value_push(r, out->sequence, value_int(i)));
    if (__builtin_add_overflow(i, limit[2], &i)) break;
  }
  return BRIM_OK;
}

static BUILTIN(function_namespace)
{
  *out = *self;
  out->kind = VALUE_NAMESPACE;
  return BRIM_OK;
}

#define MESSAGE_MAX 900
static BUILTIN(function_raise)
{
  value text;
  BRIM_TRY(value_to_string(r, &arg[0], &text));
  if (text.text.bytes > MESSAGE_MAX) text.text.bytes = MESSAGE_MAX;
  return run_fail(r, "the template refuses this: %.*s", SHOWN(text.text));
}

#define TIME_ROOM 512
static BUILTIN(function_strftime)
{
  char format[TIME_ROOM / 4], text[TIME_ROOM];
  struct tm broken;
  const time_t clock = (time_t)r->clock;
  BRIM_TRY(library_want(r, &arg[0], VALUE_STRING, "the format of strftime_now"));
  const slice f = arg[0].text;
  if (f.bytes == 0) return value_copy(r, "", 0, out);
  if (f.bytes >= sizeof format || memchr(f.text, 0, f.bytes)) return run_fail(r, "the format of a time is too long");
  memcpy(format, f.text, f.bytes);
  format[f.bytes] = '\0';
  if (!localtime_r(&clock, &broken)) return run_fail(r, "the time cannot be converted");
  const size_t bytes = strftime(text, sizeof text, format, &broken);
  if (bytes == 0) return run_fail(r, "the format '%s' of a time gives no text", format);
  return value_copy(r, text, bytes, out);
}

/* ---- the tables ---- */

static const builtin filters[] = {{"capitalize", library_case, "", 0, CASE_CAPITALIZE, 0},
                                  {"count", filter_length, "", 0, 0, 0},
                                  {"d", filter_default, "default_value boolean ", 0, 0, 0},
                                  {"default", filter_default, "default_value boolean ", 0, 0, 0},
                                  {"dictsort", filter_dictsort, "", 0, VALUE_LIST, 0},
                                  {"first", filter_element, "", 0, false, 0},
                                  {"items", library_items, "", 0, VALUE_GENERATOR, 0},
                                  {"join", filter_join, "d ", 0, 0, 0},
                                  {"last", filter_element, "", 0, true, 0},
                                  {"length", filter_length, "", 0, 0, 0},
                                  {"list", filter_list, "", 0, 0, 0},
                                  {"lower", library_case, "", 0, CASE_LOWER, 0},
                                  {"map", filter_map, "1 2 3 4 attribute ", 0, 0, 0},
                                  {"reject", filter_select, "1 2 ", 0, SELECT_REJECTS, 0},
                                  {"rejectattr", filter_select, "1 2 3 ", 1, SELECT_BY_ATTRIBUTE | SELECT_REJECTS, 0},
                                  {"replace", filter_replace, "old new ", 2, 0, 0},
                                  {"safe", filter_string, "", 0, true, 0},
                                  {"select", filter_select, "1 2 ", 0, 0, 0},
                                  {"selectattr", filter_select, "1 2 3 ", 1, SELECT_BY_ATTRIBUTE, 0},
                                  {"sort", filter_sort, "attribute ", 0, 0, 0},
                                  {"string", filter_string, "", 0, false, 0},
                                  {"tojson", filter_tojson, "ensure_ascii indent ", 0, 0, 0},
                                  {"trim", library_strip, "chars ", 0, STRIP_LEFT | STRIP_RIGHT, 0},
                                  {"upper", library_case, "", 0, CASE_UPPER, 0}};

static const builtin tests[] = {
    {"!=", test_equal, "1 ", 1, false, 0},
    {"==", test_equal, "1 ", 1, true, 0},
    {"boolean", test_kind, "", 0, KIND(BOOL), 0},
    {"defined", test_kind, "", 0, ~KIND(UNDEFINED), 0},
    {"eq", test_equal, "1 ", 1, true, 0},
    {"equalto", test_equal, "1 ", 1, true, 0},
    {"false", test_truth, "", 0, false, 0},
    {"float", test_kind, "", 0, KIND(FLOAT), 0},
    {"in", test_in, "seq ", 1, 0, 0},
    {"integer", test_kind, "", 0, KIND(INT), 0},
    {"iterable", test_kind, "", 0, ITERABLES, 0},
    {"mapping", test_kind, "", 0, KIND(DICT), 0},
    {"ne", test_equal, "1 ", 1, false, 0},
    {"none", test_kind, "", 0, KIND(NONE), 0},
    {"number", test_kind, "", 0, KIND(BOOL) | KIND(INT) | KIND(FLOAT), 0},
    {"sequence", test_sequence, "", 0, KIND(UNDEFINED) | KIND(STRING) | KIND(DICT) | LISTS, 0},
    {"string", test_kind, "", 0, KIND(STRING), 0},
    {"true", test_truth, "", 0, true, 0},
    {"undefined", test_kind, "", 0, KIND(UNDEFINED), 0}};

static const builtin functions[] = {{"cycler", NULL, "", 0, 0, 0},
                                    {"dict", NULL, "", 0, 0, 0},
                                    {"joiner", NULL, "", 0, 0, 0},
                                    {"lipsum", NULL, "", 0, 0, 0},
                                    {"namespace", function_namespace, NULL, 0, 0, 0},
                                    {"raise_exception", function_raise, "message ", 1, 0, 0},
                                    {"range", function_range, "1 2 3 ", 1, 0, 0},
                                    {"self", NULL, "", 0, 0, 0},
                                    {"strftime_now", function_strftime, "format ", 1, 0, 0}};

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
