/* The values of templates, and Python's operations on them. See template_parts.h. */
#include <math.h>
#include <stdlib.h>

#include "brim/host.h"
#include "template_parts.h"

/* ---- memory ---- */

#define CHUNK_BYTES ((size_t)1 << 16)
#define ALIGNED(bytes) (((bytes) + 15) & ~(size_t)15)

typedef struct memory_chunk {
  struct memory_chunk *older;
  size_t room, used;
  _Alignas(16) char data[];
} memory_chunk;

void *memory_take(memory *m, size_t bytes)
{
  memory_chunk *c = m->chunk;
  if (bytes > m->most) return NULL;
  if (!c || c->room - ALIGNED(c->used) < bytes || ALIGNED(c->used) > c->room) {
    size_t room = bytes > CHUNK_BYTES / 2 ? 2 * bytes : CHUNK_BYTES; /* so that a text may grow without moving */
    if (room > m->most - m->bytes) room = bytes;
    if (room > m->most - m->bytes) return NULL;
    c = brim_try_calloc(1, sizeof *c + room);
    if (!c) return NULL;
    *c = (memory_chunk){.older = m->chunk, .room = room};
    m->chunk = c;
    m->bytes += room;
  }
  char *out = c->data + ALIGNED(c->used);
  c->used = ALIGNED(c->used) + bytes;
  return out;
}

bool memory_extend(memory *m, const void *data, size_t bytes, size_t more)
{
  memory_chunk *c = m->chunk;
  if (!c || (const char *)data + bytes != c->data + c->used || more > c->room - c->used) return false;
  c->used += more;
  return true;
}

void memory_free(memory *m)
{
  while (m->chunk) {
    memory_chunk *older = m->chunk->older;
    free(m->chunk);
    m->chunk = older;
  }
  m->bytes = 0;
}

/* ---- texts ---- */

bool slice_in_words(slice s, const char *words)
{
  for (const char *w = words; *w; w = strchr(w, ' ') + 1)
    if (slice_same(s, (slice){w, (size_t)(strchr(w, ' ') - w)})) return true;
  return false;
}

static bool is_in(slice set, int32_t c)
{
  if (!set.text) return is_python_space(c);
  for (size_t at = 0; at < set.bytes; at += character_bytes(set, at))
    if (utf8_character(set.text + at) == c) return true;
  return false;
}

size_t slice_skip(slice s, size_t at, slice set)
{
  while (at < s.bytes && is_in(set, utf8_character(s.text + at))) at += character_bytes(s, at);
  return at;
}

size_t slice_skip_back(slice s, size_t end, slice set)
{
  while (end > 0) {
    size_t before = end - 1;
    while ((s.text[before] & 0xc0) == 0x80) before--;
    if (!is_in(set, utf8_character(s.text + before))) break;
    end = before;
  }
  return end;
}

size_t value_characters(slice text)
{
  size_t count = 0;
  for (size_t i = 0; i < text.bytes; i++) count += (text.text[i] & 0xc0) != 0x80;
  return count;
}

/* ---- making ---- */

brim_status value_copy(run *r, const char *text, size_t bytes, value *out)
{
  char *to = memory_take(&r->memory, bytes);
  if (!to) return run_no_memory(r);
  if (bytes) memcpy(to, text, bytes);
  *out = value_text((slice){to, bytes});
  return BRIM_OK;
}

brim_status value_take_output(run *r, size_t from, value *out)
{
  const brim_status status = value_copy(r, r->out.data ? r->out.data + from : "", r->out.count - from, out);
  r->out.count = from;
  return status;
}

brim_status value_sequence(run *r, enum value_kind kind, value *out)
{
  sequence *s = memory_take(&r->memory, sizeof *s);
  if (!s) return run_no_memory(r);
  *s = (sequence){.count = 0};
  *out = (value){.kind = (uint8_t)kind, .sequence = s};
  return BRIM_OK;
}

brim_status value_push(run *r, sequence *s, value item)
{
  if (s->count == s->room) {
    const size_t room = s->room ? 2 * s->room : 8;
    value *grown = memory_take(&r->memory, room * sizeof *grown);
    if (!grown) return run_no_memory(r);
    if (s->count) memcpy(grown, s->item, s->count * sizeof *grown);
    s->item = grown;
    s->room = room;
  }
  s->item[s->count++] = item;
  return BRIM_OK;
}

brim_status value_dict(run *r, value *out)
{
  dict *d = memory_take(&r->memory, sizeof *d);
  if (!d) return run_no_memory(r);
  *d = (dict){.key.count = 0};
  *out = (value){.kind = VALUE_DICT, .dict = d};
  return BRIM_OK;
}

/* Sets *at to the place of a key, or to the number of pairs if the key is missing. */
static brim_status find_key(run *r, const dict *d, const value *key, size_t *at)
{
  bool same = false;
  if (key->kind < VALUE_UNDEFINED || key->kind > VALUE_STRING)
    return run_fail(r, "a '%s' as a key is not supported", value_type(key));
  BRIM_TRY(run_steps(r, d->key.count / 4));
  for (*at = 0; *at < d->key.count; ++*at) {
    BRIM_TRY(value_equal(r, &d->key.item[*at], key, &same));
    if (same) break;
  }
  return BRIM_OK;
}

brim_status value_put(run *r, dict *d, value key, value item)
{
  size_t at = 0;
  BRIM_TRY(find_key(r, d, &key, &at));
  if (at < d->item.count) {
    d->item.item[at] = item;
    return BRIM_OK;
  }
  BRIM_TRY(value_push(r, &d->key, key));
  return value_push(r, &d->item, item);
}

brim_status value_find(run *r, const dict *d, const value *key, const value **out)
{
  size_t at = 0;
  BRIM_TRY(find_key(r, d, key, &at));
  *out = at < d->item.count ? &d->item.item[at] : NULL;
  return BRIM_OK;
}

/* ---- from JSON ---- */

static brim_status json_list(run *r, const json_t *json, value *out)
{
  BRIM_TRY(value_sequence(r, VALUE_LIST, out));
  for (size_t i = 0; i < json_array_size(json); i++) {
    value item;
    BRIM_TRY(value_json(r, json_array_get(json, i), &item));
    BRIM_TRY(value_push(r, out->sequence, item));
  }
  return BRIM_OK;
}

static brim_status json_dict(run *r, const json_t *json, value *out)
{
  BRIM_TRY(value_dict(r, out));
  json_t *object = (json_t *)(uintptr_t)json; /* jansson's iterators need an object that is not const */
  for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
    value key, item;
    const char *name = json_object_iter_key(at);
    BRIM_TRY(value_copy(r, name, strlen(name), &key));
    BRIM_TRY(value_json(r, json_object_iter_value(at), &item));
    BRIM_TRY(value_push(r, &out->dict->key, key));
    BRIM_TRY(value_push(r, &out->dict->item, item));
  }
  return BRIM_OK;
}

brim_status value_json(run *r, const json_t *json, value *out)
{
  brim_status status = BRIM_OK;
  BRIM_TRY(run_enter(r));
  if (json_is_object(json))
    status = json_dict(r, json, out);
  else if (json_is_array(json))
    status = json_list(r, json, out);
  else if (json_is_string(json))
    status = value_copy(r, json_string_value(json), json_string_length(json), out);
  else if (json_is_integer(json))
    *out = value_int(json_integer_value(json));
  else if (json_is_real(json))
    *out = value_real(json_real_value(json));
  else
    *out = json_is_null(json) ? value_of(VALUE_NONE) : value_bool(json_is_true(json));
  run_leave(r);
  return status;
}

/* ---- properties ---- */

const char *value_type(const value *v)
{
  static const char *const types[VALUE_KINDS] = {
      "absent", "Undefined", "NoneType",  "bool", "int",       "float", "str",      "list",
      "tuple",  "view",      "generator", "dict", "Namespace", "Macro", "function", "LoopContext"};
  return types[v->kind];
}

bool value_true(const value *v)
{
  switch (v->kind) {
  case VALUE_ABSENT:
  case VALUE_UNDEFINED:
  case VALUE_NONE:
    return false;
  case VALUE_BOOL:
  case VALUE_INT:
    return v->integer != 0;
  case VALUE_FLOAT:
    return v->real != 0;
  case VALUE_STRING:
    return v->text.bytes > 0;
  case VALUE_LIST:
  case VALUE_TUPLE:
  case VALUE_VIEW:
    return v->sequence->count > 0;
  case VALUE_DICT:
    return v->dict->key.count > 0;
  default:
    return true;
  }
}

#define EXACT_MAX ((int64_t)1 << 53)
brim_status value_as_real(run *r, const value *v, double *out)
{
  *out = v->kind == VALUE_FLOAT ? v->real : (double)v->integer;
  if (v->kind == VALUE_FLOAT ? !isnan(v->real) : v->integer >= -EXACT_MAX && v->integer <= EXACT_MAX) return BRIM_OK;
  return run_fail(r, "floating-point numbers with integers beyond 2^53 are not supported");
}

/* ---- comparing ---- */

static brim_status order_numbers(run *r, const value *a, const value *b, int *out)
{
  double x, y;
  *out = a->integer < b->integer ? -1 : a->integer > b->integer;
  if (a->kind != VALUE_FLOAT && b->kind != VALUE_FLOAT) return BRIM_OK;
  BRIM_TRY(value_as_real(r, a, &x));
  BRIM_TRY(value_as_real(r, b, &y));
  *out = x < y ? -1 : x > y;
  return BRIM_OK;
}

brim_status value_order(run *r, const value *a, const value *b, int *out)
{
  if (value_is_number(a) && value_is_number(b)) return order_numbers(r, a, b, out);
  if (a->kind != VALUE_STRING || b->kind != VALUE_STRING)
    return run_fail(r, "ordering '%s' and '%s' is not supported", value_type(a), value_type(b));
  const size_t shorter = a->text.bytes < b->text.bytes ? a->text.bytes : b->text.bytes;
  /* The order of UTF-8 bytes is the order of the characters. */
  *out = shorter ? memcmp(a->text.text, b->text.text, shorter) : 0;
  if (*out == 0) *out = a->text.bytes < b->text.bytes ? -1 : a->text.bytes > b->text.bytes;
  return BRIM_OK;
}

static brim_status equal_lists(run *r, const sequence *a, const sequence *b, bool *out)
{
  *out = a->count == b->count;
  for (size_t i = 0; i < a->count && *out && a != b; i++) BRIM_TRY(value_equal(r, &a->item[i], &b->item[i], out));
  return BRIM_OK;
}

static brim_status equal_dicts(run *r, const dict *a, const dict *b, bool *out)
{
  *out = a->key.count == b->key.count;
  for (size_t i = 0; i < a->key.count && *out; i++) {
    const value *other = NULL;
    BRIM_TRY(value_find(r, b, &a->key.item[i], &other));
    *out = other != NULL;
    if (other) BRIM_TRY(value_equal(r, &a->item.item[i], other, out));
  }
  return BRIM_OK;
}

static brim_status equal(run *r, const value *a, const value *b, bool *out)
{
  int order = 0;
  *out = a->kind == b->kind;
  if (value_is_number(a) && value_is_number(b)) {
    BRIM_TRY(order_numbers(r, a, b, &order));
    *out = order == 0;
    return BRIM_OK;
  }
  if (!*out || a->kind <= VALUE_NONE) return BRIM_OK;
  if (value_is_list(a)) return equal_lists(r, a->sequence, b->sequence, out);
  if (a->kind == VALUE_DICT) return equal_dicts(r, a->dict, b->dict, out);
  return run_fail(r, "comparing values of type '%s' is not supported", value_type(a));
}

brim_status value_equal(run *r, const value *a, const value *b, bool *out)
{
  if (a->kind == VALUE_STRING && b->kind == VALUE_STRING) {
    *out = slice_same(a->text, b->text);
    return BRIM_OK;
  }
  BRIM_TRY(run_steps(r, 1));
  BRIM_TRY(run_enter(r));
  const brim_status status = equal(r, a, b, out);
  run_leave(r);
  return status;
}

brim_status value_contains(run *r, const value *item, const value *in, bool *out)
{
  *out = false;
  if (in->kind == VALUE_UNDEFINED) return BRIM_OK;
  if (in->kind == VALUE_STRING) {
    BRIM_TRY(library_want(r, item, VALUE_STRING, "the left side of 'in' with a text"));
    *out = item->text.bytes == 0 ||
           (in->text.bytes > 0 && memmem(in->text.text, in->text.bytes, item->text.text, item->text.bytes) != NULL);
    return run_steps(r, in->text.bytes / 64);
  }
  if (in->kind == VALUE_DICT) {
    const value *found = NULL;
    BRIM_TRY(value_find(r, in->dict, item, &found));
    *out = found != NULL;
    return BRIM_OK;
  }
  sequence *elements = NULL;
  BRIM_TRY(value_elements(r, in, &elements));
  for (size_t i = 0; i < elements->count && !*out; i++) BRIM_TRY(value_equal(r, &elements->item[i], item, out));
  return BRIM_OK;
}

/* ---- elements ---- */

brim_status value_elements(run *r, const value *v, sequence **out)
{
  value made = {.kind = VALUE_ABSENT};
  if (v->kind >= VALUE_LIST && v->kind <= VALUE_GENERATOR) {
    *out = v->sequence;
    if (v->kind == VALUE_GENERATOR && (*out)->walked)
      return run_fail(r, "a generator is used a second time: add the filter list");
    (*out)->walked = true;
    return run_steps(r, (*out)->count);
  }
  if (v->kind == VALUE_DICT) {
    *out = &v->dict->key;
    return run_steps(r, (*out)->count);
  }
  if (v->kind != VALUE_STRING && v->kind != VALUE_UNDEFINED) return run_fail(r, "'%s' has no elements", value_type(v));
  BRIM_TRY(value_sequence(r, VALUE_LIST, &made));
  *out = made.sequence;
  const slice s = v->kind == VALUE_STRING ? v->text : (slice){NULL, 0};
  BRIM_TRY(run_steps(r, s.bytes));
  for (size_t at = 0, next; at < s.bytes; at = next) {
    next = at + character_bytes(s, at);
    value one = value_text((slice){s.text + at, next - at});
    one.safe = v->safe;
    BRIM_TRY(value_push(r, *out, one));
  }
  return BRIM_OK;
}

/* ---- slices ---- */

/* Reads a bound of a slice, which must lie between `low` and `high`. A negative bound counts from the end. */
static brim_status slice_bound(run *r, const value *v, int64_t absent, int64_t count, int64_t low, int64_t high,
                               int64_t *out)
{
  *out = absent;
  if (v->kind == VALUE_NONE || v->kind == VALUE_ABSENT) return BRIM_OK;
  if (!value_is_int(v)) return run_fail(r, "the numbers of a slice are integers, not '%s'", value_type(v));
  int64_t at = v->integer;
  if (at < 0) at = at < -count ? low : at + count;
  *out = at < low ? low : at > high ? high : at;
  return BRIM_OK;
}

brim_status value_slice_of(run *r, const value *v, const value *limit, value *out)
{
  sequence *from = NULL;
  int64_t first, end;
  const int64_t step = value_is_int(&limit[2]) ? limit[2].integer : 1;
  const bool text = v->kind == VALUE_STRING;
  if (!text && !value_is_list(v)) return run_fail(r, "'%s' has no slices", value_type(v));
  if (step == 0 || step > INT32_MAX || step < INT32_MIN || limit[2].kind >= VALUE_FLOAT)
    return run_fail(r, "the step of a slice is an integer of 32 bits other than 0");
  BRIM_TRY(value_elements(r, v, &from));
  const int64_t count = (int64_t)from->count, low = step > 0 ? 0 : -1, high = step > 0 ? count : count - 1;
  BRIM_TRY(slice_bound(r, &limit[0], step > 0 ? low : high, count, low, high, &first));
  BRIM_TRY(slice_bound(r, &limit[1], step > 0 ? high : low, count, low, high, &end));
  const size_t start = r->out.count;
  if (!text) BRIM_TRY(value_sequence(r, v->kind, out));
  for (int64_t i = first; step > 0 ? i < end : i > end; i += step)
    BRIM_TRY(text ? print_bytes(r, from->item[i].text) : value_push(r, out->sequence, from->item[i]));
  if (!text) return BRIM_OK;
  BRIM_TRY(value_take_output(r, start, out));
  out->safe = v->safe;
  return BRIM_OK;
}
