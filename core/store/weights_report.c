/* Reports all mismatches between files and a model in one message. Deep networks have dozens of tensors whose names
 * differ only in a number; these share one line: "blocks.{6..11}.norm1.weight". See weights_parts.h. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "store/weights_parts.h"

#define TEXT_MAX 3300 /* limit for all lines; a thread's error text has room for 4095 bytes */
#define NAME_BYTES 200

void brim_weights_mismatch_add(brim_weights *w, brim_weights_mismatches *to, brim_weights_mismatch mismatch)
{
  BRIM_ARENA_GROW(&w->arena, to->item, to->count, to->room);
  to->item[to->count++] = mismatch;
}

/* ---- names that differ in a number ---- */

/* A mismatch, with its name split at its first part that is a number. */
typedef struct line {
  enum brim_weights_kind kind;
  const char *before, *after, *text;
  int64_t number; /* -1: none */
  size_t order, first;
} line;

static bool find_number(const char *name, size_t *at, size_t *length)
{
  for (const char *s = name; *s; s += *s == '.') {
    const size_t part = strcspn(s, ".");
    *length = strspn(s, "0123456789");
    *at = (size_t)(s - name);
    if (part > 0 && part < 10 && *length == part && (s[0] != '0' || part == 1)) return true;
    s += part;
  }
  return false;
}

static line line_of(brim_weights *w, const brim_weights_mismatch *m, size_t order)
{
  size_t at, length;
  const char *name =
      strlen(m->name) <= NAME_BYTES ? m->name : brim_arena_printf(&w->arena, "%.*s...", NAME_BYTES, m->name);
  line out = {m->kind, name, "", m->text, -1, order, 0};
  if (!find_number(name, &at, &length)) return out;
  out.before = brim_arena_string_n(&w->arena, name, at);
  out.after = name + at + length;
  out.number = strtoll(name + at, NULL, 10);
  return out;
}

/* Compares mismatches, so that those that can share a line are equal. */
static int compare_kin(const line *x, const line *y)
{
  if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
  if ((x->number < 0) != (y->number < 0)) return x->number < 0 ? -1 : 1;
  int order = strcmp(x->before, y->before);
  if (order == 0) order = strcmp(x->after, y->after);
  return order ? order : strcmp(x->text, y->text);
}

static int compare_lines(const void *a, const void *b)
{
  const line *x = a, *y = b;
  const int order = compare_kin(x, y);
  if (order) return order;
  if (x->number != y->number) return x->number < y->number ? -1 : 1;
  return x->order < y->order ? -1 : 1;
}

/* Orders groups by their first mismatch, and the mismatches in a group by number. */
static int compare_groups(const void *a, const void *b)
{
  const line *x = a, *y = b;
  if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return compare_lines(a, b);
}

static line *make_lines(brim_weights *w, const brim_weights_mismatches *m)
{
  line *out = BRIM_ARENA_NEW(&w->arena, line, m->count);
  for (size_t i = 0; i < m->count; i++) out[i] = line_of(w, &m->item[i], i);
  qsort(out, m->count, sizeof *out, compare_lines);
  for (size_t i = 0, end; i < m->count; i = end) {
    size_t first = out[i].order;
    for (end = i + 1; end < m->count && compare_kin(&out[i], &out[end]) == 0; end++)
      if (out[end].order < first) first = out[end].order;
    for (size_t k = i; k < end; k++) out[k].first = first;
  }
  qsort(out, m->count, sizeof *out, compare_groups);
  return out;
}

/* Adds the numbers of a group as "{0,2,6..11}". */
static void add_numbers(const line *l, size_t count, brim_text *out)
{
  for (size_t i = 0, end; i < count; i = end) {
    for (end = i + 1; end < count && l[end].number == l[end - 1].number + 1;) end++;
    brim_text_printf(out, "%s%lld", i ? "," : "{", (long long)l[i].number);
    if (end - i > 1) brim_text_printf(out, "%s%lld", end - i > 2 ? ".." : ",", (long long)l[end - 1].number);
  }
  brim_text_add(out, "}");
}

static void add_group(const line *l, size_t count, brim_text *out)
{
  brim_text_printf(out, "\n    %s", l->before);
  if (l->number >= 0 && count > 1)
    add_numbers(l, count, out);
  else if (l->number >= 0)
    brim_text_printf(out, "%lld", (long long)l->number);
  brim_text_printf(out, "%s: %s", l->after, l->text);
  if (count > 1) brim_text_printf(out, " (%zu tensors)", count);
}

/* ---- suggestions ---- */

/* Returns the name of the only layer with missing or misshapen tensors, or NULL. */
static const char *only_layer(brim_weights *w, const brim_weights_mismatches *m)
{
  const char *layer = NULL;
  for (size_t i = 0; i < m->count; i++) {
    const char *name = m->item[i].model, *dot = name ? strrchr(name, '.') : NULL;
    if (m->item[i].kind == BRIM_WEIGHTS_UNEXPECTED || !dot) return NULL;
    const char *this = brim_arena_string_n(&w->arena, name, (size_t)(dot - name));
    if (layer && strcmp(layer, this) != 0) return NULL;
    layer = this;
  }
  return layer;
}

static void advise(brim_weights *w, const brim_weights_mismatches *m, const size_t *count, brim_text *out)
{
  const char *layer = only_layer(w, m);
  if (layer && brim_weights_count(w) > count[BRIM_WEIGHTS_MISSHAPED])
    brim_text_printf(out, "\nto start with a new '%s', set model.weights_except='%s.*'", layer, layer);
  else if (brim_weights_count(w) == 0 && count[BRIM_WEIGHTS_UNEXPECTED] > 0)
    brim_text_printf(
        out, "\nno name matches the model: does the model belong to these weights, and is model.weights_map right?");
  else
    brim_text_printf(
        out, "\nthe model's parameters (its depth, width, classes ...) must match the weights; model.weights_except "
             "names parameters that keep their initial values, and model.weights_map chooses a map of names");
}

brim_status brim_weights_mismatches_status(brim_weights *w, const brim_weights_mismatches *m)
{
  static const char *const titles[] = {"missing: in the model, but not in the files",
                                       "unexpected: in the files, but not in the model", "with another shape or type"};
  size_t count[BRIM_WEIGHTS_KINDS] = {0}, left = 0;
  brim_text text = {0};
  if (m->count == 0) return BRIM_OK;
  line *l = make_lines(w, m);
  for (size_t i = 0; i < m->count; i++) count[m->item[i].kind]++;
  brim_text_printf(&text, "the weights in '%s' do not match the model", w->request.path);
  if (w->map)
    brim_text_printf(&text, " (names mapped by %s%s)", w->map->name, w->is_recognised ? ", recognised" : "");
  else
    brim_text_add(&text, " (names unchanged)");
  for (size_t i = 0, end; i < m->count; i = end) {
    for (end = i + 1; end < m->count && compare_kin(&l[i], &l[end]) == 0;) end++;
    if (i == 0 || l[i - 1].kind != l[i].kind) {
      if (text.length < TEXT_MAX) brim_text_printf(&text, "\n  %zu %s", count[l[i].kind], titles[l[i].kind]);
    }
    if (text.length < TEXT_MAX)
      add_group(&l[i], end - i, &text);
    else
      left += end - i;
  }
  if (left > 0) brim_text_printf(&text, "\n    and %zu more", left);
  advise(w, m, count, &text);
  const brim_status status = brim_fail(BRIM_ELOAD, "%s", brim_text_str(&text));
  brim_text_release(&text);
  return status;
}
