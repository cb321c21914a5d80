/* Attributes and methods of values, as Python's str, list, dict and Jinja's loop have them. See template_parts.h. */
#include "template_parts.h"

#define METHOD(name) static brim_status name(run *r, const value *self, const value *arg, value *out)
#define GIVEN(i) (arg[i].kind != VALUE_ABSENT)

static brim_status want_text(run *r, const value *v, const char *what)
{
  return v->kind == VALUE_STRING ? BRIM_OK : run_fail(r, "%s must be a text, not '%s'", what, value_type(v));
}

static bool begins(slice s, slice with)
{
  return with.bytes <= s.bytes && memcmp(s.text, with.text, with.bytes) == 0;
}
static bool ends(slice s, slice with)
{
  return with.bytes <= s.bytes && memcmp(s.text + s.bytes - with.bytes, with.text, with.bytes) == 0;
}

static const char *find_text(slice in, size_t from, slice what)
{
  if (what.bytes == 0) return in.text + from;
  return in.bytes > from ? memmem(in.text + from, in.bytes - from, what.text, what.bytes) : NULL;
}

static value part_of(const value *text, size_t first, size_t end)
{
  value out = *text;
  out.text = (slice){text->text.text + first, end - first};
  return out;
}

/* ---- strip ---- */

static bool is_in(slice characters, bool given, int32_t c)
{
  if (!given) return is_python_space(c);
  for (size_t at = 0; at < characters.bytes; at += (size_t)utf8_length(characters.text + at, characters.bytes - at))
    if (utf8_character(characters.text + at) == c) return true;
  return false;
}

brim_status library_strip(run *r, const value *text, const value *characters, bool left, bool right, value *out)
{
  const bool given = characters->kind != VALUE_ABSENT && characters->kind != VALUE_NONE;
  const slice s = text->text;
  size_t first = 0, end = s.bytes;
  if (given) BRIM_TRY(want_text(r, characters, "the characters to strip"));
  BRIM_TRY(run_steps(r, s.bytes / 16));
  while (left && first < end && is_in(characters->text, given, utf8_character(s.text + first)))
    first += (size_t)utf8_length(s.text + first, end - first);
  while (right && end > first) {
    size_t before = end - 1;
    while ((s.text[before] & 0xc0) == 0x80) before--;
    if (!is_in(characters->text, given, utf8_character(s.text + before))) break;
    end = before;
  }
  *out = part_of(text, first, end);
  return BRIM_OK;
}

METHOD(text_strip)
{
  return library_strip(r, self, &arg[0], true, true, out);
}
METHOD(text_lstrip)
{
  return library_strip(r, self, &arg[0], true, false, out);
}
METHOD(text_rstrip)
{
  return library_strip(r, self, &arg[0], false, true, out);
}

/* ---- split ---- */

void library_line(slice s, size_t *end, size_t *next)
{
  for (; *end < s.bytes; *end = *next) {
    const int32_t c = utf8_character(s.text + *end);
    *next = *end + (size_t)utf8_length(s.text + *end, s.bytes - *end);
    if (c == '\r' && *next < s.bytes && s.text[*next] == '\n') ++*next;
    if ((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029) return;
  }
  *next = *end;
}

METHOD(text_splitlines)
{
  const bool keep = GIVEN(0) && value_true(&arg[0]);
  BRIM_TRY(value_sequence(r, SEQUENCE_LIST, 0, out));
  BRIM_TRY(run_steps(r, self->text.bytes));
  for (size_t at = 0, next; at < self->text.bytes; at = next) {
    size_t end = at;
    library_line(self->text, &end, &next);
    BRIM_TRY(value_push(r, out->sequence, part_of(self, at, keep ? next : end)));
  }
  return BRIM_OK;
}

/* Splits at spaces, from the left. */
static brim_status split_words(run *r, const value *self, int64_t most, sequence *to)
{
  const slice s = self->text;
  for (size_t at = 0;;) {
    size_t end;
    while (at < s.bytes && is_python_space(utf8_character(s.text + at)))
      at += (size_t)utf8_length(s.text + at, s.bytes - at);
    if (at == s.bytes) return BRIM_OK;
    if (most >= 0 && (int64_t)to->count == most) {
      value rest = part_of(self, at, s.bytes);
      BRIM_TRY(library_strip(r, &rest, &(value){.kind = VALUE_ABSENT}, false, true, &rest));
      return value_push(r, to, rest);
    }
    for (end = at; end < s.bytes && !is_python_space(utf8_character(s.text + end));)
      end += (size_t)utf8_length(s.text + end, s.bytes - end);
    BRIM_TRY(value_push(r, to, part_of(self, at, end)));
    at = end;
  }
}

static brim_status split_arguments(run *r, const value *self, const value *arg, int64_t *most, bool *words)
{
  *words = !GIVEN(0) || arg[0].kind == VALUE_NONE;
  *most = GIVEN(1) ? arg[1].integer : -1;
  if (GIVEN(1) && arg[1].kind != VALUE_INT && arg[1].kind != VALUE_BOOL)
    return run_fail(r, "maxsplit must be an integer, not '%s'", value_type(&arg[1]));
  if (!*words) BRIM_TRY(want_text(r, &arg[0], "the separator"));
  if (!*words && arg[0].text.bytes == 0) return run_fail(r, "the separator is empty");
  return run_steps(r, self->text.bytes / 8);
}

METHOD(text_split)
{
  int64_t most;
  bool words;
  size_t at = 0;
  const slice s = self->text;
  BRIM_TRY(split_arguments(r, self, arg, &most, &words));
  BRIM_TRY(value_sequence(r, SEQUENCE_LIST, 0, out));
  if (words) return split_words(r, self, most, out->sequence);
  while (most < 0 || (int64_t)out->sequence->count < most) {
    const char *found = find_text(s, at, arg[0].text);
    if (!found) break;
    const size_t end = (size_t)(found - s.text);
    BRIM_TRY(value_push(r, out->sequence, part_of(self, at, end)));
    at = end + arg[0].text.bytes;
  }
  return value_push(r, out->sequence, part_of(self, at, s.bytes));
}

/* Returns the last place of `what` that ends at or before `end`, or -1. */
static int64_t find_last(slice in, size_t end, slice what)
{
  for (size_t at = end + 1; at-- > 0;)
    if (at + what.bytes <= end && memcmp(in.text + at, what.text, what.bytes) == 0) return (int64_t)at;
  return -1;
}

METHOD(text_rsplit)
{
  int64_t most, found;
  bool words;
  value all;
  size_t end = self->text.bytes;
  BRIM_TRY(split_arguments(r, self, arg, &most, &words));
  if (words && most >= 0) return run_fail(r, "rsplit at spaces with maxsplit is not supported");
  if (words) return text_split(r, self, arg, out);
  BRIM_TRY(run_steps(r, self->text.bytes));
  BRIM_TRY(value_sequence(r, SEQUENCE_LIST, 0, &all));
  while (most < 0 || (int64_t)all.sequence->count < most) {
    found = find_last(self->text, end, arg[0].text);
    if (found < 0) break;
    BRIM_TRY(value_push(r, all.sequence, part_of(self, (size_t)found + arg[0].text.bytes, end)));
    end = (size_t)found;
  }
  BRIM_TRY(value_push(r, all.sequence, part_of(self, 0, end)));
  BRIM_TRY(value_sequence(r, SEQUENCE_LIST, all.sequence->count, out));
  for (size_t i = all.sequence->count; i-- > 0;) BRIM_TRY(value_push(r, out->sequence, all.sequence->item[i]));
  return BRIM_OK;
}

static brim_status part_at(run *r, const value *self, const value *arg, int64_t at, bool last, value *out)
{
  const size_t bytes = arg[0].text.bytes;
  BRIM_TRY(value_sequence(r, SEQUENCE_TUPLE, 3, out));
  if (at < 0) {
    const value nothing = value_slice("", 0);
    if (last) BRIM_TRY(value_push(r, out->sequence, nothing));
    if (last) BRIM_TRY(value_push(r, out->sequence, nothing));
    BRIM_TRY(value_push(r, out->sequence, *self));
    if (!last) BRIM_TRY(value_push(r, out->sequence, nothing));
    return last ? BRIM_OK : value_push(r, out->sequence, nothing);
  }
  BRIM_TRY(value_push(r, out->sequence, part_of(self, 0, (size_t)at)));
  BRIM_TRY(value_push(r, out->sequence, arg[0]));
  return value_push(r, out->sequence, part_of(self, (size_t)at + bytes, self->text.bytes));
}
METHOD(text_partition)
{
  BRIM_TRY(want_text(r, &arg[0], "the separator"));
  if (arg[0].text.bytes == 0) return run_fail(r, "the separator is empty");
  const char *found = find_text(self->text, 0, arg[0].text);
  return part_at(r, self, arg, found ? found - self->text.text : -1, false, out);
}
METHOD(text_rpartition)
{
  BRIM_TRY(want_text(r, &arg[0], "the separator"));
  if (arg[0].text.bytes == 0) return run_fail(r, "the separator is empty");
  BRIM_TRY(run_steps(r, self->text.bytes));
  return part_at(r, self, arg, find_last(self->text, self->text.bytes, arg[0].text), true, out);
}

/* ---- other methods of texts ---- */

brim_status library_replace(run *r, slice s, slice from, slice to, int64_t most, value *out)
{
  const size_t start = r->out.count;
  size_t at = 0;
  BRIM_TRY(run_steps(r, s.bytes / 8));
  for (int64_t done = 0; most < 0 || done < most; done++) {
    size_t end = at;
    if (from.bytes == 0) { /* before each character, and at the end */
      if (done > 0 && at == s.bytes) break;
      end = done == 0 ? 0 : at + (size_t)utf8_length(s.text + at, s.bytes - at);
    } else {
      const char *found = find_text(s, at, from);
      if (!found) break;
      end = (size_t)(found - s.text);
    }
    BRIM_TRY(print_bytes(r, s.text + at, end - at));
    BRIM_TRY(print_bytes(r, to.text, to.bytes));
    at = end + from.bytes;
  }
  BRIM_TRY(print_bytes(r, s.text + at, s.bytes - at));
  return value_take_output(r, start, out);
}

METHOD(text_replace)
{
  BRIM_TRY(want_text(r, &arg[0], "the old text"));
  BRIM_TRY(want_text(r, &arg[1], "the new text"));
  if (GIVEN(2) && arg[2].kind != VALUE_INT) return run_fail(r, "count must be an integer");
  return library_replace(r, self->text, arg[0].text, arg[1].text, GIVEN(2) ? arg[2].integer : -1, out);
}

/* The argument is a text, or a tuple of texts. */
static brim_status any_of(run *r, const value *self, const value *with, bool (*is)(slice, slice), value *out)
{
  bool holds = false;
  if (value_is_sequence(with, SEQUENCE_TUPLE)) {
    for (size_t i = 0; i < with->sequence->count; i++) {
      BRIM_TRY(want_text(r, &with->sequence->item[i], "an element of the tuple"));
      holds = holds || is(self->text, with->sequence->item[i].text);
    }
  } else {
    BRIM_TRY(want_text(r, with, "the argument"));
    holds = is(self->text, with->text);
  }
  *out = value_bool(holds);
  return BRIM_OK;
}
METHOD(text_startswith)
{
  return any_of(r, self, &arg[0], begins, out);
}
METHOD(text_endswith)
{
  return any_of(r, self, &arg[0], ends, out);
}
METHOD(text_removeprefix)
{
  BRIM_TRY(want_text(r, &arg[0], "the prefix"));
  *out = part_of(self, begins(self->text, arg[0].text) ? arg[0].text.bytes : 0, self->text.bytes);
  return BRIM_OK;
}
METHOD(text_removesuffix)
{
  BRIM_TRY(want_text(r, &arg[0], "the suffix"));
  *out = part_of(self, 0, self->text.bytes - (ends(self->text, arg[0].text) ? arg[0].text.bytes : 0));
  return BRIM_OK;
}

static brim_status change_case(run *r, const value *self, enum case_kind kind, value *out)
{
  const size_t from = r->out.count;
  BRIM_TRY(print_case(r, self->text, kind));
  BRIM_TRY(value_take_output(r, from, out));
  out->safe = self->safe;
  return BRIM_OK;
}
METHOD(text_upper)
{
  (void)arg;
  return change_case(r, self, CASE_UPPER, out);
}
METHOD(text_lower)
{
  (void)arg;
  return change_case(r, self, CASE_LOWER, out);
}
METHOD(text_capitalize)
{
  (void)arg;
  return change_case(r, self, CASE_CAPITALIZE, out);
}

METHOD(text_join)
{
  sequence *from = NULL;
  const size_t start = r->out.count;
  BRIM_TRY(value_elements(r, &arg[0], &from));
  for (size_t i = 0; i < from->count; i++) {
    BRIM_TRY(want_text(r, &from->item[i], "an element"));
    if (i > 0) BRIM_TRY(print_text(r, self));
    BRIM_TRY(print_text(r, &from->item[i]));
  }
  return value_take_output(r, start, out);
}

static brim_status place(run *r, const value *self, int64_t at, value *out)
{
  BRIM_TRY(run_steps(r, self->text.bytes / 16));
  *out = value_int(at < 0 ? -1 : (int64_t)value_characters((slice){self->text.text, (size_t)at}));
  return BRIM_OK;
}
METHOD(text_find)
{
  BRIM_TRY(want_text(r, &arg[0], "the text to find"));
  const char *found = find_text(self->text, 0, arg[0].text);
  return place(r, self, found ? found - self->text.text : -1, out);
}
METHOD(text_rfind)
{
  BRIM_TRY(want_text(r, &arg[0], "the text to find"));
  BRIM_TRY(run_steps(r, self->text.bytes));
  return place(r, self, find_last(self->text, self->text.bytes, arg[0].text), out);
}
METHOD(text_count)
{
  int64_t count = 0;
  BRIM_TRY(want_text(r, &arg[0], "the text to count"));
  BRIM_TRY(run_steps(r, self->text.bytes / 8));
  if (arg[0].text.bytes == 0) count = (int64_t)value_characters(self->text) + 1;
  for (size_t at = 0; arg[0].text.bytes > 0; count++) {
    const char *found = find_text(self->text, at, arg[0].text);
    if (!found) break;
    at = (size_t)(found - self->text.text) + arg[0].text.bytes;
  }
  *out = value_int(count);
  return BRIM_OK;
}

METHOD(text_isspace)
{
  bool holds = self->text.bytes > 0;
  (void)arg;
  BRIM_TRY(run_steps(r, self->text.bytes / 8));
  for (size_t at = 0; at < self->text.bytes && holds;
       at += (size_t)utf8_length(self->text.text + at, self->text.bytes - at))
    holds = is_python_space(utf8_character(self->text.text + at));
  *out = value_bool(holds);
  return BRIM_OK;
}
METHOD(text_isdigit)
{
  bool holds = self->text.bytes > 0;
  (void)arg;
  for (size_t i = 0; i < self->text.bytes; i++) {
    if (self->text.text[i] & 0x80) return run_fail(r, "isdigit of characters beyond ASCII is not supported");
    holds = holds && self->text.text[i] >= '0' && self->text.text[i] <= '9';
  }
  *out = value_bool(holds);
  return BRIM_OK;
}

/* ---- methods of dictionaries and lists ---- */

METHOD(dict_get)
{
  const value *found = NULL;
  BRIM_TRY(value_find(r, self->dict, &arg[0], &found));
  *out = found ? *found : GIVEN(1) ? arg[1] : value_of(VALUE_NONE);
  return BRIM_OK;
}
METHOD(dict_items)
{
  (void)arg;
  return library_items(r, self, out);
}
METHOD(dict_copy)
{
  (void)r;
  (void)arg;
  *out = *self; /* values do not change */
  return BRIM_OK;
}

static brim_status one_of_pairs(run *r, const dict *d, bool keys, value *out)
{
  BRIM_TRY(run_steps(r, d->count));
  BRIM_TRY(value_sequence(r, keys ? SEQUENCE_KEYS : SEQUENCE_VALUES, d->count, out));
  for (size_t i = 0; i < d->count; i++)
    BRIM_TRY(value_push(r, out->sequence, keys ? d->pair[i].key : d->pair[i].value));
  return BRIM_OK;
}
METHOD(dict_keys)
{
  (void)arg;
  return one_of_pairs(r, self->dict, true, out);
}
METHOD(dict_values)
{
  (void)arg;
  return one_of_pairs(r, self->dict, false, out);
}

static brim_status search(run *r, const sequence *s, const value *what, int64_t *count, int64_t *first)
{
  *count = 0;
  *first = -1;
  for (size_t i = 0; i < s->count; i++) {
    bool same = false;
    BRIM_TRY(value_equal(r, &s->item[i], what, &same));
    if (same && *first < 0) *first = (int64_t)i;
    *count += same;
  }
  return BRIM_OK;
}
METHOD(list_count)
{
  int64_t count, first;
  BRIM_TRY(search(r, self->sequence, &arg[0], &count, &first));
  *out = value_int(count);
  return BRIM_OK;
}
METHOD(list_index)
{
  int64_t count, first;
  BRIM_TRY(search(r, self->sequence, &arg[0], &count, &first));
  *out = value_int(first);
  return first >= 0 ? BRIM_OK : run_fail(r, "the list has no such element");
}

/* ---- methods of the loop ---- */

METHOD(loop_cycle)
{
  size_t count = 0;
  while (count < PARAMETERS_MAX && GIVEN(count)) count++;
  if (count == 0) return run_fail(r, "cycle needs values");
  *out = arg[self->loop->at % count];
  return BRIM_OK;
}
METHOD(loop_changed)
{
  bool same = false;
  if (self->loop->changed.kind != VALUE_ABSENT) BRIM_TRY(value_equal(r, &self->loop->changed, &arg[0], &same));
  self->loop->changed = arg[0];
  *out = value_bool(!same);
  return BRIM_OK;
}

/* All attributes that Python has. One without a function is refused when it is called. One that has NULL for parameters
 * too is undefined, as in Jinja's sandbox, which hides methods that change data. */
static const builtin methods[] = {{"capitalize", text_capitalize, "", 0, VALUE_STRING},
                                  {"count", text_count, "1 ", 1, VALUE_STRING},
                                  {"endswith", text_endswith, "1 ", 1, VALUE_STRING},
                                  {"find", text_find, "1 ", 1, VALUE_STRING},
                                  {"isdigit", text_isdigit, "", 0, VALUE_STRING},
                                  {"isspace", text_isspace, "", 0, VALUE_STRING},
                                  {"join", text_join, "1 ", 1, VALUE_STRING},
                                  {"lower", text_lower, "", 0, VALUE_STRING},
                                  {"lstrip", text_lstrip, "1 ", 0, VALUE_STRING},
                                  {"partition", text_partition, "1 ", 1, VALUE_STRING},
                                  {"removeprefix", text_removeprefix, "1 ", 1, VALUE_STRING},
                                  {"removesuffix", text_removesuffix, "1 ", 1, VALUE_STRING},
                                  {"replace", text_replace, "1 2 3 ", 2, VALUE_STRING},
                                  {"rfind", text_rfind, "1 ", 1, VALUE_STRING},
                                  {"rpartition", text_rpartition, "1 ", 1, VALUE_STRING},
                                  {"rsplit", text_rsplit, "sep maxsplit ", 0, VALUE_STRING},
                                  {"rstrip", text_rstrip, "1 ", 0, VALUE_STRING},
                                  {"split", text_split, "sep maxsplit ", 0, VALUE_STRING},
                                  {"splitlines", text_splitlines, "keepends ", 0, VALUE_STRING},
                                  {"startswith", text_startswith, "1 ", 1, VALUE_STRING},
                                  {"strip", text_strip, "1 ", 0, VALUE_STRING},
                                  {"upper", text_upper, "", 0, VALUE_STRING},
                                  {"copy", dict_copy, "", 0, VALUE_DICT},
                                  {"get", dict_get, "1 2 ", 1, VALUE_DICT},
                                  {"items", dict_items, "", 0, VALUE_DICT},
                                  {"keys", dict_keys, "", 0, VALUE_DICT},
                                  {"values", dict_values, "", 0, VALUE_DICT},
                                  {"clear", NULL, NULL, 0, VALUE_DICT},
                                  {"pop", NULL, NULL, 0, VALUE_DICT},
                                  {"popitem", NULL, NULL, 0, VALUE_DICT},
                                  {"setdefault", NULL, NULL, 0, VALUE_DICT},
                                  {"update", NULL, NULL, 0, VALUE_DICT},
                                  {"fromkeys", NULL, "", 0, VALUE_DICT},
                                  {"count", list_count, "1 ", 1, VALUE_SEQUENCE},
                                  {"index", list_index, "1 ", 1, VALUE_SEQUENCE},
                                  {"cycle", loop_cycle, "1 2 3 4 5 6 ", 1, VALUE_LOOP},
                                  {"changed", loop_changed, "1 ", 1, VALUE_LOOP}};

/* Names with a space after each. */
static const char others_of_text[] =
    "casefold center encode expandtabs format format_map index isalnum isalpha isascii isdecimal isidentifier islower "
    "isnumeric isprintable istitle isupper ljust maketrans rindex rjust swapcase title translate zfill ";
static const char others_of_list[] = "append clear copy extend insert pop remove reverse sort ";
static const char others_of_number[] =
    "as_integer_ratio bit_count bit_length conjugate denominator from_bytes fromhex hex imag is_integer numerator real "
    "to_bytes ";
static const char others_of_views[] = "isdisjoint mapping ";

static bool is_listed(const char *known, slice name)
{
  for (const char *p = known; *p; p = strchr(p, ' ') + 1)
    if (strncmp(p, name.text, name.bytes) == 0 && p[name.bytes] == ' ') return name.bytes > 0;
  return false;
}

static const builtin *find_method(const value *v, slice name)
{
  for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
    if (methods[i].type == v->kind && slice_is(name, methods[i].name)) return &methods[i];
  return NULL;
}

static bool is_list(const value *v)
{
  return v->kind == VALUE_SEQUENCE && v->sequence->kind <= SEQUENCE_RANGE;
}

/* Fails for an attribute that Python's type has but this library lacks. */
static brim_status check_others(run *r, const value *v, slice name)
{
  const char *known = v->kind == VALUE_STRING                           ? others_of_text
                      : v->kind >= VALUE_BOOL && v->kind <= VALUE_FLOAT ? others_of_number
                      : v->kind == VALUE_SEQUENCE && !is_list(v)        ? others_of_views
                                                                        : "";
  const bool hidden =
      name.bytes > 4 && memcmp(name.text, "__", 2) == 0 && memcmp(name.text + name.bytes - 2, "__", 2) == 0;
  if (hidden || is_listed(known, name) || v->kind == VALUE_MACRO)
    return run_fail(r, "the attribute '%.*s' of '%s' is not supported", (int)name.bytes, name.text, value_type(v));
  return BRIM_OK;
}

static brim_status loop_attribute(run *r, loop *l, slice name, value *out)
{
  static const char *const known[] = {"index",     "index0", "first",  "last",     "length",   "revindex",
                                      "revindex0", "depth",  "depth0", "previtem", "nextitem", NULL};
  int i = 0;
  while (known[i] && !slice_is(name, known[i])) i++;
  if (i == 3 || i == 10) BRIM_TRY(loop_fill(r, l, l->at + 2));
  if (i >= 4 && i <= 6) BRIM_TRY(loop_fill(r, l, SIZE_MAX));
  const int64_t at = (int64_t)l->at, count = (int64_t)l->passed->count;
  const int64_t numbers[] = {at + 1, at, at == 0, at + 1 >= count, count, count - at, count - at - 1, 1, 0};
  *out = (value){.kind = VALUE_UNDEFINED, .text = name};
  if (i < 9) *out = i == 2 || i == 3 ? value_bool(numbers[i]) : value_int(numbers[i]);
  if (i == 9 && at > 0) *out = l->passed->item[at - 1];
  if (i == 10 && at + 1 < count) *out = l->passed->item[at + 1];
  return BRIM_OK;
}

static brim_status bind_method(run *r, const value *o, const builtin *b, value *out)
{
  bound *m = memory_take(&r->memory, sizeof *m);
  if (!m) return run_no_memory(r);
  *m = (bound){b, *o};
  *out = (value){.kind = VALUE_METHOD, .method = m};
  return BRIM_OK;
}

/* Looks for an attribute that is not a key; *found: whether there is one. */
static brim_status own_attribute(run *r, const value *o, slice name, value *out, bool *found)
{
  const builtin *b = find_method(o, name);
  if (b && o->kind == VALUE_SEQUENCE && !is_list(o)) b = NULL;
  *found = true;
  *out = (value){.kind = VALUE_UNDEFINED, .text = name};
  if (b && b->parameters) return bind_method(r, o, b, out);
  if (b || (value_is_sequence(o, SEQUENCE_LIST) && is_listed(others_of_list, name))) return BRIM_OK;
  BRIM_TRY(check_others(r, o, name));
  if (o->kind == VALUE_LOOP) return loop_attribute(r, o->loop, name, out);
  *found = false;
  if (o->kind != VALUE_NAMESPACE) return BRIM_OK;
  const value key = value_slice(name.text, name.bytes), *member = NULL;
  BRIM_TRY(value_find(r, o->dict, &key, &member));
  if (!member) return BRIM_OK;
  *found = true;
  *out = *member;
  return BRIM_OK;
}

brim_status library_attribute(run *r, const value *o, slice name, value *out)
{
  bool found;
  if (o->kind == VALUE_UNDEFINED)
    return run_fail(r, "'%.*s' is undefined, so it has no '%.*s'", (int)o->text.bytes, o->text.text, (int)name.bytes,
                    name.text);
  BRIM_TRY(own_attribute(r, o, name, out, &found));
  if (found || o->kind != VALUE_DICT) return BRIM_OK;
  const value key = value_slice(name.text, name.bytes), *member = NULL;
  BRIM_TRY(value_find(r, o->dict, &key, &member));
  if (member) *out = *member;
  return BRIM_OK;
}

static brim_status character_at(run *r, const value *text, int64_t at, value *out)
{
  const int64_t count = (int64_t)value_characters(text->text);
  size_t byte = 0;
  BRIM_TRY(run_steps(r, text->text.bytes / 16));
  if (at < 0) at += count;
  if (at < 0 || at >= count) return BRIM_OK;
  for (; at > 0; at--) byte += (size_t)utf8_length(text->text.text + byte, text->text.bytes - byte);
  *out = part_of(text, byte, byte + (size_t)utf8_length(text->text.text + byte, text->text.bytes - byte));
  return BRIM_OK;
}

brim_status library_item(run *r, const value *o, const value *key, value *out)
{
  bool found;
  if (o->kind == VALUE_UNDEFINED)
    return run_fail(r, "'%.*s' is undefined, so it has no items", (int)o->text.bytes, o->text.text);
  *out = (value){.kind = VALUE_UNDEFINED, .text = key->kind == VALUE_STRING ? key->text : (slice){"an item", 7}};
  if (o->kind == VALUE_DICT && key->kind >= VALUE_UNDEFINED && key->kind <= VALUE_STRING) {
    const value *member = NULL;
    BRIM_TRY(value_find(r, o->dict, key, &member));
    if (member) {
      *out = *member;
      return BRIM_OK;
    }
  }
  if (o->kind == VALUE_DICT && value_is_sequence(key, SEQUENCE_TUPLE))
    return run_fail(r, "tuples as keys are not supported here");
  if (key->kind == VALUE_INT || key->kind == VALUE_BOOL) {
    if (o->kind == VALUE_STRING) return character_at(r, o, key->integer, out);
    if (!is_list(o)) return BRIM_OK;
    const int64_t count = (int64_t)o->sequence->count, at = key->integer < 0 ? key->integer + count : key->integer;
    if (at >= 0 && at < count) *out = o->sequence->item[at];
    return BRIM_OK;
  }
  return key->kind == VALUE_STRING ? own_attribute(r, o, key->text, out, &found) : BRIM_OK;
}
