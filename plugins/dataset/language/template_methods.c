/* Attributes and methods of values: those of Python's str, list and dict, and of Jinja's loop. See template_parts.h. */
#include "template_parts.h"

static const char *find_text(slice in, size_t from, slice what)
{
  return in.bytes > from ? memmem(in.text + from, in.bytes - from, what.text, what.bytes) : NULL;
}

/* ---- methods of texts ---- */

static BUILTIN(text_split)
{
  const slice s = self->text, by = arg[0].text;
  int64_t most = -1;
  BRIM_TRY(library_want(r, &arg[0], VALUE_STRING, "the separator"));
  if (by.bytes == 0) return run_fail(r, "the separator is empty");
  if (GIVEN(1)) {
    BRIM_TRY(library_want(r, &arg[1], VALUE_INT, "maxsplit"));
    most = arg[1].integer;
  }
  BRIM_TRY(run_steps(r, s.bytes / 8));
  BRIM_TRY(value_sequence(r, VALUE_LIST, out));
  size_t at = 0;
  for (; most != 0; most--) {
    const char *found = find_text(s, at, by);
    if (!found) break;
    const size_t end = (size_t)(found - s.text);
    BRIM_TRY(value_push(r, out->sequence, value_text((slice){s.text + at, end - at})));
    at = end + by.bytes;
  }
  return value_push(r, out->sequence, value_text((slice){s.text + at, s.bytes - at}));
}

brim_status library_replace(run *r, slice s, slice from, slice to, value *out)
{
  const size_t start = r->out.count;
  size_t at = 0;
  if (from.bytes == 0) return run_fail(r, "replacing an empty text is not supported");
  BRIM_TRY(run_steps(r, s.bytes / 8));
  for (const char *found = find_text(s, at, from); found; found = find_text(s, at, from)) {
    const size_t end = (size_t)(found - s.text);
    BRIM_TRY(print_bytes(r, (slice){s.text + at, end - at}));
    BRIM_TRY(print_bytes(r, to));
    at = end + from.bytes;
  }
  BRIM_TRY(print_bytes(r, (slice){s.text + at, s.bytes - at}));
  return value_take_output(r, start, out);
}

static BUILTIN(text_replace)
{
  BRIM_TRY(library_want(r, &arg[0], VALUE_STRING, "the old text"));
  BRIM_TRY(library_want(r, &arg[1], VALUE_STRING, "the new text"));
  return library_replace(r, self->text, arg[0].text, arg[1].text, out);
}

/* Returns whether the text begins with a part or, with `detail`, ends with it. */
static BUILTIN(text_has_part)
{
  BRIM_TRY(library_want(r, &arg[0], VALUE_STRING, "the argument"));
  const slice s = self->text, part = arg[0].text;
  const size_t from = b->detail && part.bytes <= s.bytes ? s.bytes - part.bytes : 0;
  *out = value_bool(part.bytes <= s.bytes && slice_same((slice){s.text + from, part.bytes}, part));
  return BRIM_OK;
}

/* ---- methods of dictionaries ---- */

static BUILTIN(dict_get)
{
  const value *found = NULL;
  BRIM_TRY(value_find(r, self->dict, &arg[0], &found));
  *out = found ? *found : GIVEN(1) ? arg[1] : value_of(VALUE_NONE);
  return BRIM_OK;
}
/* Returns the keys or, with `detail`, the values. */
static BUILTIN(dict_view)
{
  *out = (value){.kind = VALUE_VIEW, .sequence = b->detail ? &self->dict->item : &self->dict->key};
  return BRIM_OK;
}

static const builtin methods[] = {{"capitalize", library_case, "", 0, CASE_CAPITALIZE, VALUE_STRING},
                                  {"endswith", text_has_part, "1 ", 1, true, VALUE_STRING},
                                  {"lower", library_case, "", 0, CASE_LOWER, VALUE_STRING},
                                  {"lstrip", library_strip, "1 ", 0, STRIP_LEFT, VALUE_STRING},
                                  {"replace", text_replace, "1 2 ", 2, 0, VALUE_STRING},
                                  {"rstrip", library_strip, "1 ", 0, STRIP_RIGHT, VALUE_STRING},
                                  {"split", text_split, "sep maxsplit ", 1, 0, VALUE_STRING},
                                  {"startswith", text_has_part, "1 ", 1, false, VALUE_STRING},
                                  {"strip", library_strip, "1 ", 0, STRIP_LEFT | STRIP_RIGHT, VALUE_STRING},
                                  {"upper", library_case, "", 0, CASE_UPPER, VALUE_STRING},
                                  {"get", dict_get, "1 2 ", 1, 0, VALUE_DICT},
                                  {"items", library_items, "", 0, VALUE_VIEW, VALUE_DICT},
                                  {"keys", dict_view, "", 0, false, VALUE_DICT},
                                  {"values", dict_view, "", 0, true, VALUE_DICT}};

/* ---- attributes ---- */

/* Members of Python's types that this library does not have. It refuses them; otherwise they would count as
 * undefined. */
static const char *const others[VALUE_KINDS] = {
    [VALUE_STRING] =
        ("casefold center count encode expandtabs find format format_map index isalnum isalpha isascii isdecimal "
         "isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust maketrans partition "
         "removeprefix removesuffix rfind rindex rjust rpartition rsplit splitlines swapcase title translate zfill "),
    [VALUE_DICT] = "clear copy fromkeys pop popitem setdefault update ",
    [VALUE_LIST] = "append clear copy count extend index insert pop remove reverse sort ",
    [VALUE_TUPLE] = "count index ",
    [VALUE_VIEW] = "count index isdisjoint mapping start step stop ",
    [VALUE_GENERATOR] = "close send throw ",
    [VALUE_INT] = ("as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer numerator "
                   "real to_bytes "),
    [VALUE_FLOAT] = "as_integer_ratio conjugate fromhex hex imag is_integer real ",
    [VALUE_LOOP] = "changed cycle depth depth0 "};

static brim_status refuse_others(run *r, const value *v, slice name)
{
  const char *known = others[v->kind == VALUE_BOOL ? VALUE_INT : v->kind];
  const bool refused = v->kind == VALUE_MACRO || v->kind == VALUE_FUNCTION || (known && slice_in_words(name, known)) ||
                       (name.bytes > 1 && memcmp(name.text, "__", 2) == 0);
  if (!refused) return BRIM_OK;
  return run_fail(r, "the attribute '%.*s' of '%s' is not supported", SHOWN(name), value_type(v));
}

static brim_status loop_attribute(const loop *l, slice name, value *out)
{
  const int64_t at = (int64_t)l->at, count = (int64_t)l->elements->count;
  const struct {
    const char *name;
    value value;
  } known[] = {{"index", value_int(at + 1)},
               {"index0", value_int(at)},
               {"first", value_bool(at == 0)},
               {"last", value_bool(at + 1 >= count)},
               {"length", value_int(count)},
               {"revindex", value_int(count - at)},
               {"revindex0", value_int(count - at - 1)}};
  *out = value_undefined(name);
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (slice_is(name, known[i].name)) *out = known[i].value;
  if (slice_is(name, "previtem") && at > 0) *out = l->elements->item[at - 1];
  if (slice_is(name, "nextitem") && at + 1 < count) *out = l->elements->item[at + 1];
  return BRIM_OK;
}

static brim_status bind_method(run *r, const value *o, const builtin *b, value *out)
{
  if (o->safe) return run_fail(r, "the method '%s' of a text of the filter safe is not supported", b->name);
  bound *m = memory_take(&r->memory, sizeof *m);
  if (!m) return run_no_memory(r);
  *m = (bound){b, *o};
  *out = (value){.kind = VALUE_FUNCTION, .function = m};
  return BRIM_OK;
}

/* Finds a member by key. *out becomes undefined if the key is missing. */
static brim_status find_member(run *r, const value *o, const value *key, value *out)
{
  const value *member = NULL;
  BRIM_TRY(value_find(r, o->dict, key, &member));
  *out = member ? *member : value_undefined(key->kind == VALUE_STRING ? key->text : (slice){"an item", 7});
  return BRIM_OK;
}

/* Finds an attribute that is not a key. */
static brim_status own_attribute(run *r, const value *o, slice name, value *out)
{
  const value key = value_text(name);
  for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
    if (methods[i].type == o->kind && slice_is(name, methods[i].name)) return bind_method(r, o, &methods[i], out);
  BRIM_TRY(refuse_others(r, o, name));
  if (o->kind == VALUE_LOOP) return loop_attribute(o->loop, name, out);
  *out = value_undefined(name);
  if (o->kind != VALUE_NAMESPACE) return BRIM_OK;
  if (r->in_filter) return run_fail(r, "a namespace in the filter of a loop is not supported");
  return find_member(r, o, &key, out);
}

brim_status library_attribute(run *r, const value *o, slice name, value *out)
{
  const value key = value_text(name);
  if (o->kind == VALUE_UNDEFINED)
    return run_fail(r, "'%.*s' is undefined, so it has no '%.*s'", SHOWN(o->text), SHOWN(name));
  BRIM_TRY(own_attribute(r, o, name, out));
  return out->kind == VALUE_UNDEFINED && o->kind == VALUE_DICT ? find_member(r, o, &key, out) : BRIM_OK;
}

static brim_status character_at(run *r, const value *text, int64_t at, value *out)
{
  const slice s = text->text;
  size_t byte = 0;
  BRIM_TRY(run_steps(r, s.bytes / 16));
  if (at < 0) at += (int64_t)value_characters(s);
  if (at < 0) return BRIM_OK;
  for (; at > 0 && byte < s.bytes; at--) byte += character_bytes(s, byte);
  if (byte == s.bytes) return BRIM_OK;
  *out = *text;
  out->text = (slice){s.text + byte, character_bytes(s, byte)};
  return BRIM_OK;
}

brim_status library_item(run *r, const value *o, const value *key, value *out)
{
  if (o->kind == VALUE_UNDEFINED) return run_fail(r, "'%.*s' is undefined, so it has no items", SHOWN(o->text));
  *out = value_undefined((slice){"an item", 7});
  if (o->kind == VALUE_DICT) {
    BRIM_TRY(find_member(r, o, key, out));
    if (out->kind != VALUE_UNDEFINED) return BRIM_OK;
  }
  if (key->kind == VALUE_STRING) return own_attribute(r, o, key->text, out);
  if (!value_is_int(key)) return BRIM_OK;
  if (o->kind == VALUE_STRING) return character_at(r, o, key->integer, out);
  if (o->kind == VALUE_VIEW) return run_fail(r, "an item of a view is not supported: add the filter list");
  if (!value_is_list(o)) return BRIM_OK;
  const int64_t count = (int64_t)o->sequence->count, at = key->integer < 0 ? key->integer + count : key->integer;
  if (at >= 0 && at < count) *out = o->sequence->item[at];
  return BRIM_OK;
}
