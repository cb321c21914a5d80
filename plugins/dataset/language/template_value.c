/* Values of templates, and what Python does with them. See template_parts.h. */
#include <float.h>
#include <inttypes.h>
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
    size_t room = bytes > CHUNK_BYTES / 2 ? 2 * bytes : CHUNK_BYTES; /* a text may grow in its place */
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

/* ---- making ---- */

brim_status value_copy(run *r, const char *text, size_t bytes, value *out)
{
  char *to = memory_take(&r->memory, bytes);
  if (!to) return run_no_memory(r);
  if (bytes) memcpy(to, text, bytes);
  *out = value_slice(to, bytes);
  return BRIM_OK;
}

brim_status value_take_output(run *r, size_t from, value *out)
{
  const brim_status status = value_copy(r, r->out.data ? r->out.data + from : "", r->out.count - from, out);
  r->out.count = from;
  return status;
}

brim_status value_sequence(run *r, enum sequence_kind kind, size_t room, value *out)
{
  sequence *s = memory_take(&r->memory, sizeof *s);
  *out = (value){.kind = VALUE_SEQUENCE, .sequence = s};
  if (!s) return run_no_memory(r);
  *s = (sequence){.kind = kind};
  if (room == 0) return BRIM_OK;
  if (room > TEMPLATE_MEMORY_MAX / sizeof *s->item) return run_no_memory(r);
  s->item = memory_take(&r->memory, room * sizeof *s->item);
  s->room = s->item ? room : 0;
  return s->item ? BRIM_OK : run_no_memory(r);
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

brim_status value_dict(run *r, size_t room, value *out)
{
  dict *d = memory_take(&r->memory, sizeof *d);
  *out = (value){.kind = VALUE_DICT, .dict = d};
  if (!d) return run_no_memory(r);
  *d = (dict){.room = 0};
  if (room == 0) return BRIM_OK;
  if (room > TEMPLATE_MEMORY_MAX / sizeof *d->pair) return run_no_memory(r);
  d->pair = memory_take(&r->memory, room * sizeof *d->pair);
  d->room = d->pair ? room : 0;
  return d->pair ? BRIM_OK : run_no_memory(r);
}

static brim_status add_pair(run *r, dict *d, value key, value item)
{
  if (d->count == d->room) {
    const size_t room = d->room ? 2 * d->room : 8;
    struct dict_pair *grown = memory_take(&r->memory, room * sizeof *grown);
    if (!grown) return run_no_memory(r);
    if (d->count) memcpy(grown, d->pair, d->count * sizeof *grown);
    d->pair = grown;
    d->room = room;
  }
  d->pair[d->count].key = key;
  d->pair[d->count++].value = item;
  return BRIM_OK;
}

static bool can_be_key(const value *v)
{
  if (value_is_sequence(v, SEQUENCE_TUPLE)) {
    for (size_t i = 0; i < v->sequence->count; i++)
      if (v->sequence->item[i].kind == VALUE_SEQUENCE || !can_be_key(&v->sequence->item[i])) return false;
    return true;
  }
  return v->kind >= VALUE_UNDEFINED && v->kind <= VALUE_STRING;
}

static brim_status find_pair(run *r, const dict *d, const value *key, struct dict_pair **out)
{
  *out = NULL;
  if (!can_be_key(key)) return run_fail(r, "unhashable type: '%s'", value_type(key));
  BRIM_TRY(run_steps(r, d->count / 4));
  for (size_t i = 0; i < d->count && !*out; i++) {
    bool same = false;
    BRIM_TRY(value_equal(r, &d->pair[i].key, key, &same));
    if (same) *out = &d->pair[i];
  }
  return BRIM_OK;
}

brim_status value_put(run *r, dict *d, value key, value item)
{
  struct dict_pair *pair = NULL;
  BRIM_TRY(find_pair(r, d, &key, &pair));
  if (!pair) return add_pair(r, d, key, item);
  pair->value = item;
  return BRIM_OK;
}

brim_status value_find(run *r, const dict *d, const value *key, const value **out)
{
  struct dict_pair *pair = NULL;
  *out = NULL;
  BRIM_TRY(find_pair(r, d, key, &pair));
  if (pair) *out = &pair->value;
  return BRIM_OK;
}

/* ---- from JSON ---- */

static brim_status json_list(run *r, const json_t *json, value *out)
{
  const size_t count = json_array_size(json);
  BRIM_TRY(value_sequence(r, SEQUENCE_LIST, count, out));
  for (size_t i = 0; i < count; i++)
    BRIM_TRY(value_json(r, json_array_get(json, i), &out->sequence->item[out->sequence->count++]));
  return BRIM_OK;
}

static brim_status json_dict(run *r, const json_t *json, value *out)
{
  BRIM_TRY(value_dict(r, json_object_size(json), out));
  json_t *object = (json_t *)(uintptr_t)json; /* jansson's iterators take one that is not const */
  for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
    value key, item;
    const char *name = json_object_iter_key(at);
    BRIM_TRY(value_copy(r, name, strlen(name), &key));
    BRIM_TRY(value_json(r, json_object_iter_value(at), &item));
    BRIM_TRY(add_pair(r, out->dict, key, item));
  }
  return BRIM_OK;
}

static brim_status json_any(run *r, const json_t *json, value *out)
{
  switch (json_typeof(json)) {
  case JSON_OBJECT:
    return json_dict(r, json, out);
  case JSON_ARRAY:
    return json_list(r, json, out);
  case JSON_STRING:
    return value_copy(r, json_string_value(json), json_string_length(json), out);
  case JSON_INTEGER:
    *out = value_int(json_integer_value(json));
    break;
  case JSON_REAL:
    *out = value_real(json_real_value(json));
    break;
  case JSON_TRUE:
    *out = value_bool(true);
    break;
  case JSON_FALSE:
    *out = value_bool(false);
    break;
  case JSON_NULL:
    *out = value_of(VALUE_NONE);
    break;
  }
  return BRIM_OK;
}

brim_status value_json(run *r, const json_t *json, value *out)
{
  BRIM_TRY(run_enter(r));
  const brim_status status = json_any(r, json, out);
  run_leave(r);
  return status;
}

/* ---- properties ---- */

const char *value_type(const value *v)
{
  static const char *const kinds[VALUE_KINDS] = {"absent", "Undefined", "NoneType", "bool",       "int",
                                                 "float",  "str",       "list",     "dict",       "Namespace",
                                                 "Macro",  "function",  "method",   "LoopContext"};
  static const char *const sequences[] = {"list",        "tuple",      "range",    "dict_keys",
                                          "dict_values", "dict_items", "generator"};
  return v->kind == VALUE_SEQUENCE ? sequences[v->sequence->kind] : kinds[v->kind];
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
  case VALUE_SEQUENCE:
    return v->sequence->kind == SEQUENCE_GENERATOR || v->sequence->count > 0;
  case VALUE_DICT:
    return v->dict->count > 0;
  default:
    return true;
  }
}

bool value_number(const value *v, double *out)
{
  *out = v->kind == VALUE_FLOAT ? v->real : (double)v->integer;
  return v->kind == VALUE_BOOL || v->kind == VALUE_INT || v->kind == VALUE_FLOAT;
}

size_t value_characters(slice text)
{
  size_t count = 0;
  for (size_t i = 0; i < text.bytes; i++) count += (text.text[i] & 0xc0) != 0x80;
  return count;
}

/* ---- comparing ---- */

static bool same_text(slice a, slice b)
{
  return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.text, b.text, a.bytes) == 0);
}

/* Returns -1, 0 or 1, or 2 with NaN. Integers are compared with floats exactly. */
static int compare_numbers(const value *a, const value *b)
{
  if (a->kind != VALUE_FLOAT && b->kind != VALUE_FLOAT) return a->integer < b->integer ? -1 : a->integer > b->integer;
  if (a->kind == VALUE_FLOAT && b->kind == VALUE_FLOAT)
    return a->real < b->real ? -1 : a->real > b->real ? 1 : a->real == b->real ? 0 : 2;
  if (a->kind == VALUE_FLOAT) {
    const int turned = compare_numbers(b, a);
    return turned == 2 ? 2 : -turned;
  }
  const double d = b->real, whole = floor(d);
  if (isnan(d)) return 2;
  if (d >= 9223372036854775808.0) return -1;
  if (d < -9223372036854775808.0) return 1;
  const int64_t i = (int64_t)whole;
  return a->integer < i ? -1 : a->integer > i ? 1 : whole < d ? -1 : 0;
}

static brim_status equal_sequences(run *r, const sequence *a, const sequence *b, bool *out)
{
  *out = a == b;
  if (*out || a->kind != b->kind || a->count != b->count || a->kind > SEQUENCE_RANGE) return BRIM_OK;
  *out = true;
  for (size_t i = 0; i < a->count && *out; i++) BRIM_TRY(value_equal(r, &a->item[i], &b->item[i], out));
  return BRIM_OK;
}

static brim_status equal_dicts(run *r, const dict *a, const dict *b, bool *out)
{
  *out = a->count == b->count;
  for (size_t i = 0; i < a->count && *out; i++) {
    const value *other = NULL;
    BRIM_TRY(value_find(r, b, &a->pair[i].key, &other));
    *out = other != NULL;
    if (other) BRIM_TRY(value_equal(r, &a->pair[i].value, other, out));
  }
  return BRIM_OK;
}

static brim_status equal(run *r, const value *a, const value *b, bool *out)
{
  double x, y;
  *out = false;
  if (value_number(a, &x) && value_number(b, &y)) {
    *out = compare_numbers(a, b) == 0;
    return BRIM_OK;
  }
  if (a->kind != b->kind) return BRIM_OK;
  switch (a->kind) {
  case VALUE_STRING:
    *out = same_text(a->text, b->text);
    return BRIM_OK;
  case VALUE_SEQUENCE:
    if (a->sequence->kind == SEQUENCE_KEYS || a->sequence->kind == SEQUENCE_ITEMS)
      return run_fail(r, "comparing '%s' is not supported", value_type(a));
    return equal_sequences(r, a->sequence, b->sequence, out);
  case VALUE_DICT:
    return equal_dicts(r, a->dict, b->dict, out);
  case VALUE_NAMESPACE:
    *out = a->dict == b->dict;
    return BRIM_OK;
  case VALUE_MACRO:
    *out = a->macro == b->macro;
    return BRIM_OK;
  case VALUE_FUNCTION:
    *out = a->function == b->function;
    return BRIM_OK;
  case VALUE_LOOP:
    *out = a->loop == b->loop;
    return BRIM_OK;
  case VALUE_METHOD:
    return run_fail(r, "comparing methods is not supported");
  default:
    *out = true;
    return BRIM_OK;
  }
}

brim_status value_equal(run *r, const value *a, const value *b, bool *out)
{
  if (a->kind == VALUE_STRING && b->kind == VALUE_STRING) {
    *out = same_text(a->text, b->text);
    return BRIM_OK;
  }
  BRIM_TRY(run_steps(r, 1));
  BRIM_TRY(run_enter(r));
  const brim_status status = equal(r, a, b, out);
  run_leave(r);
  return status;
}

static bool holds(int order, int op)
{
  if (order == 2) return false;
  return op == '<' ? order < 0 : op == '>' ? order > 0 : op == OP2('<', '=') ? order <= 0 : order >= 0;
}

static brim_status less_sequences(run *r, const sequence *a, const sequence *b, int op, bool *out)
{
  for (size_t i = 0; i < a->count && i < b->count; i++) {
    bool same = false;
    BRIM_TRY(value_equal(r, &a->item[i], &b->item[i], &same));
    if (!same) return value_less(r, &a->item[i], &b->item[i], op, out);
  }
  *out = holds(a->count < b->count ? -1 : a->count > b->count, op);
  return BRIM_OK;
}

static int compare_texts(slice a, slice b)
{
  const size_t shorter = a.bytes < b.bytes ? a.bytes : b.bytes;
  const int order = shorter ? memcmp(a.text, b.text, shorter) : 0; /* UTF-8 has the order of characters */
  return order ? (order < 0 ? -1 : 1) : a.bytes < b.bytes ? -1 : a.bytes > b.bytes;
}

brim_status value_less(run *r, const value *a, const value *b, int op, bool *out)
{
  double x, y;
  if (value_number(a, &x) && value_number(b, &y)) {
    *out = holds(compare_numbers(a, b), op);
    return BRIM_OK;
  }
  if (a->kind == VALUE_STRING && b->kind == VALUE_STRING) {
    *out = holds(compare_texts(a->text, b->text), op);
    return BRIM_OK;
  }
  const bool lists = a->kind == VALUE_SEQUENCE && b->kind == VALUE_SEQUENCE && a->sequence->kind == b->sequence->kind &&
                     a->sequence->kind <= SEQUENCE_TUPLE;
  if (!lists) return run_fail(r, "'%s' and '%s' cannot be ordered", value_type(a), value_type(b));
  BRIM_TRY(run_enter(r));
  const brim_status status = less_sequences(r, a->sequence, b->sequence, op, out);
  run_leave(r);
  return status;
}

brim_status value_contains(run *r, const value *item, const value *in, bool *out)
{
  *out = false;
  if (in->kind == VALUE_STRING) {
    if (item->kind != VALUE_STRING)
      return run_fail(r, "'in' with a text needs a text on its left, not '%s'", value_type(item));
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
  if (in->kind != VALUE_SEQUENCE && in->kind != VALUE_UNDEFINED)
    return run_fail(r, "'in' needs something with elements on its right, not '%s'", value_type(in));
  if (in->kind == VALUE_SEQUENCE && in->sequence->kind == SEQUENCE_GENERATOR)
    return run_fail(r, "'in' with a generator is not supported: add the filter list");
  if (in->kind == VALUE_UNDEFINED) return BRIM_OK;
  for (size_t i = 0; i < in->sequence->count && !*out; i++) BRIM_TRY(value_equal(r, &in->sequence->item[i], item, out));
  return BRIM_OK;
}

/* ---- elements ---- */

static brim_status characters(run *r, const value *v, sequence *to)
{
  for (size_t at = 0; at < v->text.bytes;) {
    const size_t bytes = (size_t)utf8_length(v->text.text + at, v->text.bytes - at);
    value one = value_slice(v->text.text + at, bytes);
    one.safe = v->safe;
    BRIM_TRY(value_push(r, to, one));
    at += bytes;
  }
  return BRIM_OK;
}

brim_status value_elements(run *r, const value *v, sequence **out)
{
  value made;
  if (v->kind == VALUE_SEQUENCE && v->sequence->kind != SEQUENCE_GENERATOR) {
    *out = v->sequence;
    return run_steps(r, v->sequence->count);
  }
  if (v->kind != VALUE_SEQUENCE && v->kind != VALUE_STRING && v->kind != VALUE_DICT && v->kind != VALUE_UNDEFINED)
    return run_fail(r, "'%s' has no elements%s", value_type(v), v->kind == VALUE_LOOP ? " here" : "");
  BRIM_TRY(value_sequence(r, SEQUENCE_LIST, 0, &made));
  *out = made.sequence;
  if (v->kind == VALUE_UNDEFINED) return BRIM_OK;
  if (v->kind == VALUE_STRING) {
    BRIM_TRY(run_steps(r, v->text.bytes));
    return characters(r, v, *out);
  }
  if (v->kind == VALUE_SEQUENCE) {
    if (!v->sequence->walked) **out = *v->sequence;
    (*out)->kind = SEQUENCE_LIST;
    v->sequence->walked = true;
    return run_steps(r, (*out)->count);
  }
  BRIM_TRY(run_steps(r, v->dict->count));
  for (size_t i = 0; i < v->dict->count; i++) BRIM_TRY(value_push(r, *out, v->dict->pair[i].key));
  return BRIM_OK;
}

/* ---- slices ---- */

static brim_status slice_bound(run *r, const value *v, int64_t absent, int64_t count, int64_t low, int64_t high,
                               int64_t *out)
{
  *out = absent;
  if (v->kind == VALUE_NONE || v->kind == VALUE_ABSENT) return BRIM_OK;
  if (v->kind != VALUE_INT && v->kind != VALUE_BOOL)
    return run_fail(r, "the bounds of a slice are integers, not '%s'", value_type(v));
  int64_t at = v->integer;
  if (at < 0) at = at < -count ? low : at + count;
  *out = at < low ? low : at > high ? high : at;
  return BRIM_OK;
}

brim_status value_slice_of(run *r, const value *v, const value *limit, value *out)
{
  sequence *from = NULL;
  int64_t first, end, step = 1;
  const bool text = v->kind == VALUE_STRING;
  if (!text && !(v->kind == VALUE_SEQUENCE && v->sequence->kind <= SEQUENCE_TUPLE))
    return run_fail(r, "'%s' has no slices", value_type(v));
  if (limit[2].kind == VALUE_INT || limit[2].kind == VALUE_BOOL)
    step = limit[2].integer;
  else if (limit[2].kind != VALUE_NONE && limit[2].kind != VALUE_ABSENT)
    return run_fail(r, "the step of a slice is an integer, not '%s'", value_type(&limit[2]));
  if (step == 0) return run_fail(r, "the step of a slice must not be 0");
  BRIM_TRY(value_elements(r, v, &from));
  const int64_t count = (int64_t)from->count, low = step > 0 ? 0 : -1, high = step > 0 ? count : count - 1;
  BRIM_TRY(slice_bound(r, &limit[0], step > 0 ? low : high, count, low, high, &first));
  BRIM_TRY(slice_bound(r, &limit[1], step > 0 ? high : low, count, low, high, &end));
  if (!text) BRIM_TRY(value_sequence(r, v->sequence->kind, 0, out));
  const size_t start = r->out.count;
  for (int64_t i = first; step > 0 ? i < end : i > end;) {
    const value *item = &from->item[i];
    BRIM_TRY(text ? print_bytes(r, item->text.text, item->text.bytes) : value_push(r, out->sequence, *item));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (!text) return BRIM_OK;
  BRIM_TRY(value_take_output(r, start, out));
  out->safe = v->safe;
  return BRIM_OK;
}
