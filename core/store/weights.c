/* Matches the files' tensors with parameters, and reads their values. See weights.h. */
#include "store/weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/text.h"
#include "graph/plan.h"
#include "store/weights_parts.h"

#define NAMED_MAX 4 /* most parameters that a line names as keeping their initial values */
#define NONE ((size_t)-1)

/* ---- names ---- */

/* Parameters sorted by name. */
typedef struct by_name {
  const char *name;
  size_t parameter;
} by_name;

static int compare_by_name(const void *a, const void *b)
{
  return strcmp(((const by_name *)a)->name, ((const by_name *)b)->name);
}

static size_t find_parameter(const brim_weights *w, const by_name *names, const char *name)
{
  const by_name key = {name, 0};
  const by_name *found = w->count ? bsearch(&key, names, w->count, sizeof *names, compare_by_name) : NULL;
  return found ? found->parameter : NONE;
}

/* ---- matching ---- */

static const char *format_shape(brim_weights *w, const brim_safetensor *t)
{
  brim_text text = {0};
  brim_safetensor_format(t, &text);
  const char *out = brim_arena_string(&w->arena, brim_text_str(&text));
  brim_text_release(&text);
  return out;
}

/* Returns the tensor that the file should have for a parameter. */
static brim_safetensor wanted_of(const brim_tensor *p, bool transpose)
{
  brim_safetensor out = {.name = p->name, .dtype = p->dtype, .shape = p->shape};
  if (transpose && p->shape.rank == 2) {
    out.shape.dim[0] = p->shape.dim[1];
    out.shape.dim[1] = p->shape.dim[0];
  }
  return out;
}

static bool fits(const brim_safetensor *have, const brim_safetensor *want)
{
  return brim_dtype_is_real(have->dtype) && brim_shape_equal(&have->shape, &want->shape);
}

/* Returns the part after the type, because the file may choose the type. */
static const char *shape_only(const char *form)
{
  return strchr(form, '[');
}

static void add_misshaped(brim_weights *w, brim_weights_mismatches *problems, const brim_safetensor *have,
                          const brim_tensor *p, bool transpose)
{
  const brim_safetensor want = wanted_of(p, transpose);
  const char *has = format_shape(w, have), *needs = shape_only(format_shape(w, &want));
  const char *text =
      brim_arena_printf(&w->arena, "%s; the model needs %s%s", brim_dtype_is_real(have->dtype) ? shape_only(has) : has,
                        brim_dtype_is_real(have->dtype) ? "" : "real numbers ", needs);
  brim_weights_mismatch_add(w, problems, (brim_weights_mismatch){BRIM_WEIGHTS_MISSHAPED, have->name, p->name, text});
}

/* Finds the number of heads in the file, under the rule's key. */
static brim_status find_heads(const brim_weights *w, const brim_safetensor *t, const brim_weights_way *way,
                              int64_t *heads)
{
  const brim_gguf *file = brim_weights_files_gguf(w->files);
  const brim_gguf_value *v = way->heads && file ? brim_gguf_find_own(file, way->heads) : NULL;
  *heads = 0;
  if (!way->heads) return BRIM_OK;
  /* if the key is missing, there are as many heads of keys as of queries. */
  if (!v && file && strcmp(way->heads, "attention.head_count_kv") == 0)
    v = brim_gguf_find_own(file, "attention.head_count");
  if (v && !v->is_array && brim_gguf_integer(v, 0, heads) && *heads > 0 && t->shape.rank > 0 &&
      t->shape.dim[0] % (2 * *heads) == 0)
    return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s': '%.200s' needs the number of its heads in the file's key '%s.%s'",
                   w->request.path, t->name, file ? brim_gguf_architecture(file) : "ARCHITECTURE", way->heads);
}

/* Assigns a tensor of the files to parameter `i`. */
static brim_status take_tensor(brim_weights *w, brim_weights_mismatches *problems, const brim_safetensor *t, size_t i,
                               const brim_weights_way *way)
{
  brim_weights_match *m = &w->match[i];
  const bool transpose = way->transpose;
  const brim_safetensor want = wanted_of(w->parameter[i], transpose);
  if (m->kept) return BRIM_OK;
  if (m->tensor)
    return brim_fail(BRIM_ELOAD, "'%s': both '%.200s' and '%.200s' match the model's '%s'", w->request.path,
                     m->tensor->name, t->name, w->parameter[i]->name);
  m->tensor = t;
  m->transpose = transpose;
  m->add = way->add;
  BRIM_TRY(find_heads(w, t, way, &m->heads));
  if (!fits(t, &want)) add_misshaped(w, problems, t, w->parameter[i], transpose);
  return BRIM_OK;
}

static void add_unexpected(brim_weights *w, brim_weights_mismatches *problems, const brim_safetensor *t,
                           const char *name)
{
  const char *renamed = strcmp(name, t->name) == 0 ? "" : brim_arena_printf(&w->arena, ", '%.200s' in brim,", name);
  const char *text = brim_arena_printf(&w->arena, "%s%s", format_shape(w, t), renamed);
  brim_weights_mismatch_add(w, problems, (brim_weights_mismatch){BRIM_WEIGHTS_UNEXPECTED, t->name, NULL, text});
}

/* Records a second tensor with a parameter's values; they are compared when the parameter is read. */
static void add_twin(brim_weights *w, brim_weights_mismatches *problems, const brim_safetensor *t, size_t i)
{
  const brim_safetensor want = wanted_of(w->parameter[i], false);
  if (!fits(t, &want)) add_misshaped(w, problems, t, w->parameter[i], false);
  w->twin[w->twin_count++] = (brim_weights_twin){t, i};
}

static brim_status match_tensor(brim_weights *w, brim_weights_mismatches *problems, const by_name *names,
                                const brim_safetensor *t)
{
  const brim_weights_way way = brim_weights_map_to_model(w->map, &w->arena, t->name);
  const char *name = way.name ? way.name : way.same_as;
  const size_t i = name ? find_parameter(w, names, name) : NONE;
  if (way.name && i != NONE) return take_tensor(w, problems, t, i, &way);
  if (way.same_as && i != NONE)
    add_twin(w, problems, t, i);
  else if (!name || way.optional || w->request.of_part || brim_matches_any(w->request.except, name))
    w->dropped++;
  else
    add_unexpected(w, problems, t, name);
  return BRIM_OK;
}

static void find_missing(brim_weights *w, brim_weights_mismatches *problems)
{
  for (size_t i = 0; i < w->count; i++) {
    const brim_tensor *p = w->parameter[i];
    if (w->match[i].tensor || w->match[i].kept) continue;
    const brim_weights_way way = brim_weights_map_to_file(w->map, &w->arena, p->name);
    const brim_safetensor want = wanted_of(p, way.transpose);
    brim_weights_mismatch_add(
        w, problems,
        (brim_weights_mismatch){BRIM_WEIGHTS_MISSING, way.name, p->name, shape_only(format_shape(w, &want))});
  }
}

/* Marks the parameters that keep their initial values. ECONFIG if a pattern matches none. */
static brim_status keep_excepted(brim_weights *w)
{
  static const char parts[] = ", \t\n";
  for (const char *at = w->request.except + strspn(w->request.except, parts); *at; at += strspn(at, parts)) {
    const char *pattern = brim_arena_string_n(&w->arena, at, strcspn(at, parts));
    bool found = false;
    for (size_t i = 0; i < w->count; i++)
      if (brim_matches_any(pattern, w->parameter[i]->name)) found = w->match[i].kept = true;
    for (size_t i = 0; !found && i < brim_weights_files_count(w->files); i++) {
      const char *name = brim_weights_files_at(w->files, i)->name;
      const brim_weights_way way = brim_weights_map_to_model(w->map, &w->arena, name);
      found = way.name && brim_matches_any(pattern, way.name);
    }
    if (!found)
      return brim_fail(BRIM_ECONFIG,
                       "model.weights_except: '%s' matches no parameter of the model and no tensor of '%s'", pattern,
                       w->request.path);
    at += strlen(pattern);
  }
  return BRIM_OK;
}

static brim_status match_all(brim_weights *w)
{
  brim_weights_mismatches problems = {0};
  const size_t tensors = brim_weights_files_count(w->files);
  by_name *names = BRIM_ARENA_NEW(&w->arena, by_name, w->count + 1);
  for (size_t i = 0; i < w->count; i++) names[i] = (by_name){w->parameter[i]->name, i};
  if (w->count > 1) qsort(names, w->count, sizeof *names, compare_by_name);
  w->match = BRIM_ARENA_NEW(&w->arena, brim_weights_match, w->count + 1);
  w->twin = BRIM_ARENA_NEW(&w->arena, brim_weights_twin, tensors + 1);
  BRIM_TRY(keep_excepted(w));
  for (size_t i = 0; i < tensors; i++) BRIM_TRY(match_tensor(w, &problems, names, brim_weights_files_at(w->files, i)));
  find_missing(w, &problems);
  return brim_weights_mismatches_status(w, &problems);
}

brim_status brim_weights_open(const brim_weights_request *request, const brim_tensor *const *parameter, size_t count,
                              brim_weights **out)
{
  brim_weights *w = brim_xcalloc(1, sizeof *w);
  w->parameter = parameter;
  w->count = count;
  w->request = *request;
  w->request.path = brim_arena_string(&w->arena, request->path);
  w->request.map = brim_arena_string(&w->arena, request->map);
  w->request.except = brim_arena_string(&w->arena, request->except);
  brim_status status = brim_weights_files_open(w->request.path, &w->files);
  if (status == BRIM_OK) status = brim_weights_choose_map(w);
  if (status == BRIM_OK) status = match_all(w);
  if (status != BRIM_OK)
    brim_weights_close(w);
  else
    *out = w;
  return status;
}

void brim_weights_close(brim_weights *w)
{
  if (!w) return;
  brim_weights_files_close(w->files);
  brim_arena_release(&w->arena);
  free(w);
}

/* ---- results ---- */

size_t brim_weights_count(const brim_weights *w)
{
  size_t count = 0;
  for (size_t i = 0; i < w->count; i++) count += w->match[i].tensor != NULL;
  return count;
}

const brim_safetensor *brim_weights_source(const brim_weights *w, size_t parameter)
{
  return w->match[parameter].tensor;
}

static void add_kept(const brim_weights *w, brim_text *out)
{
  size_t kept = 0, named = 0;
  for (size_t i = 0; i < w->count; i++) kept += w->match[i].kept;
  for (size_t i = 0; i < w->count && named < NAMED_MAX; i++) {
    if (!w->match[i].kept) continue;
    brim_text_printf(out, "%s%s", named == 0 ? "; " : named + 1 == kept ? " and " : ", ", w->parameter[i]->name);
    named++;
  }
  if (kept > named) brim_text_printf(out, " and %zu more", kept - named);
  if (kept > 0)
    brim_text_printf(out, " keep%s initial value%s", kept == 1 ? "s its" : " their", brim_plural((int64_t)kept));
}

void brim_weights_print(const brim_weights *w, brim_text *out)
{
  char size[32];
  uint64_t bytes = 0;
  for (size_t i = 0; i < w->count; i++)
    if (w->match[i].tensor) bytes += brim_safetensor_bytes(w->match[i].tensor);
  brim_text_printf(out, "%zu tensor%s, %s, from '%s'", brim_weights_count(w),
                   brim_plural((int64_t)brim_weights_count(w)), brim_format_bytes(size, sizeof size, bytes),
                   w->request.path);
  if (w->map)
    brim_text_printf(out, " using map %s%s", w->map->name, w->is_recognised ? ", recognised by tensor names" : "");
  if (w->dropped > 0) brim_text_printf(out, ", ignoring %zu that the model does not use", w->dropped);
  add_kept(w, out);
}
