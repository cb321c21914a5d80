/* Writes a GGUF file: metadata from the base, weights by the map of the architecture. See base.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "base/file.h"
#include "base/text.h"
#include "config/gguf_config.h"
#include "export/base.h"
#include "store/rundir.h"

typedef struct writer {
  const brim_export_model *model;
  brim_export_base *base;
  brim_arena arena;
  const brim_weights_map *map;
  brim_gguf_head head;
  brim_gguf_tensor *tensor;
  brim_weights_way *way; /* the way of each parameter */
  int64_t *heads;        /* 0: rows stay */
  double *add;
  size_t count;
  brim_gguf_factors factors[BRIM_GGUF_FACTORS_MAX]; /* the last tensors */
  float *room, *ordered;                            /* for the largest tensor */
  unsigned char *packed;
} writer;

const brim_gguf_type *brim_export_gguf_type(const brim_gguf_type *wanted, const brim_shape *shape)
{
  const int64_t row = shape->rank > 0 ? shape->dim[shape->rank - 1] : 1;
  return shape->rank < 2 || row % wanted->count != 0 ? brim_gguf_type_named("F32") : wanted;
}

/* ---- metadata ---- */

/* llama.cpp's enum llama_ftype. */
static uint32_t file_type(const brim_gguf_type *type)
{
  static const struct {
    const char *name;
    uint32_t number;
  } types[] = {{"F32", 0}, {"F16", 1}, {"Q8_0", 7}, {"BF16", 32}};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    if (strcmp(types[i].name, type->name) == 0) return types[i].number;
  return 0;
}

static brim_status put_from_folder(writer *w)
{
  const brim_safetensor *table = NULL;
  for (size_t i = 0; i < w->model->parameters->count; i++)
    if (strcmp(w->model->parameters->tensor[i].name, "model.embed_tokens.weight") == 0)
      table = &w->model->parameters->tensor[i];
  if (!table) return brim_fail(BRIM_ECONFIG, "the model has no table of tokens, model.embed_tokens.weight");
  BRIM_TRY(brim_gguf_put_config(w->base->tree, &w->head));
  return brim_export_put_tokenizer(w->base, table->shape.dim[0], &w->head);
}

static brim_status put_metadata(writer *w)
{
  static const char *const own[] = {"general.file_type", "general.quantization_version", "general.alignment"};
  for (size_t i = 0; w->base->gguf && i < brim_gguf_value_count(w->base->gguf); i++) {
    const brim_gguf_value *v = brim_gguf_value_at(w->base->gguf, i);
    bool skips = brim_starts_with(v->key, "split.");
    for (size_t k = 0; k < sizeof own / sizeof own[0]; k++) skips = skips || strcmp(v->key, own[k]) == 0;
    if (!skips) brim_gguf_put_value(&w->head, v);
  }
  if (!w->base->gguf) BRIM_TRY(put_from_folder(w));
  brim_gguf_put_u32(&w->head, own[0], file_type(w->model->type));
  brim_gguf_put_u32(&w->head, own[1], 2);
  return BRIM_OK;
}

/* ---- tensors ---- */

static brim_status choose_map(writer *w)
{
  brim_weights_map *all;
  size_t count;
  const brim_yaml *type = brim_yaml_get(w->base->tree, "model_type");
  const char *architecture =
      w->base->gguf ? brim_gguf_architecture(w->base->gguf) : brim_gguf_architecture_of(type ? type->scalar : "");
  BRIM_TRY(brim_weights_maps_read(&w->arena, &w->model->search, &all, &count));
  for (size_t i = 0; architecture && i < count && !w->map; i++)
    if (brim_weights_map_is_for(&all[i], architecture)) w->map = &all[i];
  if (w->map) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "brim has no map of names for models of the type '%s' as GGUF",
                   type && type->kind == BRIM_YAML_SCALAR ? type->scalar : "(none)");
}

static brim_status describe(writer *w, size_t i)
{
  const brim_safetensor *from = &w->model->parameters->tensor[i];
  const brim_weights_way way = brim_weights_map_to_file(w->map, &w->arena, from->name);
  const brim_weights_way back = brim_weights_map_to_model(w->map, &w->arena, way.name);
  if (!back.name || strcmp(back.name, from->name) != 0 || strcmp(way.name, from->name) == 0)
    return brim_fail(BRIM_ECONFIG, "map %s has no name for '%s'", w->map->name, from->name);
  w->way[i] = way;
  w->add[i] = way.add;
  w->heads[i] = way.heads ? brim_gguf_config_heads(w->base->tree, way.heads) : 0;
  if (way.heads && (w->heads[i] < 1 || from->shape.rank < 1 || from->shape.dim[0] % (2 * w->heads[i]) != 0))
    return brim_fail(BRIM_ECONFIG, "'%s': config.json does not have its number of heads", from->name);
  w->tensor[i] = (brim_gguf_tensor){
      .name = way.name, .type = brim_export_gguf_type(w->model->type, &from->shape), .shape = from->shape};
  return BRIM_OK;
}

/* Adds the tensors of the rotary embedding for llama.cpp; if the run began with a GGUF file, the tensors of that
 * file. */
static brim_status add_factors(writer *w)
{
  size_t count;
  BRIM_TRY(brim_gguf_read_factors(w->base->tree, &w->arena, w->factors, &count));
  for (size_t i = 0; i < count; i++) {
    brim_gguf_factors *f = &w->factors[i];
    const brim_gguf_tensor *old = w->base->gguf ? brim_gguf_tensor_find(w->base->gguf, f->name) : NULL;
    if (old && old->type->count == 1 && brim_shape_count(&old->shape) == f->count) {
      float *value = BRIM_ARENA_NEW(&w->arena, float, f->count);
      old->type->unpack(old->data, (size_t)f->count, value);
      f->value = value;
    }
    w->tensor[w->count++] =
        (brim_gguf_tensor){.name = f->name, .type = brim_gguf_type_named("F32"), .shape = {1, {f->count}}};
  }
  return BRIM_OK;
}

/* Puts rows into the order of the file: see `heads` in weights_map.h. */
static void order_rows(const float *from, size_t rows, size_t columns, size_t heads, float *to)
{
  const size_t half = rows / heads / 2;
  for (size_t r = 0; r < rows; r++) {
    const size_t in = r % (2 * half), row = r - in + in % 2 * half + in / 2;
    memcpy(to + r * columns, from + row * columns, columns * sizeof *to);
  }
}

static brim_status values_of(void *context, size_t i, const void **out)
{
  writer *w = context;
  if (i >= w->model->parameters->count) {
    *out = w->factors[i - w->model->parameters->count].value;
    return BRIM_OK;
  }
  const brim_safetensor *from = &w->model->parameters->tensor[i];
  const size_t count = (size_t)brim_shape_count(&from->shape);
  const float *values = w->room;
  brim_convert(BRIM_DTYPE_F32, w->room, from->dtype, from->data, count);
  if (w->model->parameters->files)
    brim_weights_files_forget(w->model->parameters->files, from->data, count * brim_dtype_bytes(from->dtype));
  for (size_t k = 0; k < count && w->way[i].add != 0; k++) w->room[k] -= (float)w->way[i].add;
  if (w->heads[i] > 0) {
    const size_t rows = (size_t)from->shape.dim[0];
    order_rows(w->room, rows, count / rows, (size_t)w->heads[i], w->ordered);
    values = w->ordered;
  }
  const brim_gguf_type *type = w->tensor[i].type;
  type->pack(values, count / type->count, w->packed);
  type->unpack(w->packed, count / type->count, w->room);
  if (!brim_all_finite(BRIM_DTYPE_F32, w->room, count))
    return brim_fail(BRIM_EINVAL, "'%s' has a value that is not a finite number in %s\n--dtype f32 keeps all values",
                     from->name, type->name);
  *out = w->packed;
  return BRIM_OK;
}

static brim_status make_room(writer *w)
{
  size_t most = 1;
  for (size_t i = 0; i < w->model->parameters->count; i++) {
    const size_t count = (size_t)brim_shape_count(&w->model->parameters->tensor[i].shape);
    if (count > most) most = count;
  }
  w->room = brim_try_malloc(most * sizeof *w->room);
  w->ordered = brim_try_malloc(most * sizeof *w->ordered);
  w->packed = brim_try_malloc(most * sizeof(float) + BRIM_GGUF_BLOCK_MAX);
  if (w->room && w->ordered && w->packed) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "cannot allocate %zu bytes of host memory for the largest tensor",
                   3 * most * sizeof(float));
}

/* ---- the file ---- */

static bool are_same_values(const brim_yaml *a, const brim_yaml *b)
{
  char *end[2];
  if (a->kind == BRIM_YAML_LIST && b->kind == BRIM_YAML_LIST && a->count == b->count) {
    for (size_t i = 0; i < a->count; i++)
      if (!are_same_values(a->item[i], b->item[i])) return false;
    return true;
  }
  if (a->kind != BRIM_YAML_SCALAR || b->kind != BRIM_YAML_SCALAR) return false;
  const float x = strtof(a->scalar, &end[0]), y = strtof(b->scalar, &end[1]);
  return *end[0] || *end[1] ? strcmp(a->scalar, b->scalar) == 0 : x == y;
}

/* Compares the configuration that was to be written with the one that the written metadata describe. */
static brim_status compare_configs(const brim_yaml *want, const brim_yaml *have, const char *path)
{
  static const char *const others[] = {"architectures", "model_type",   "torch_dtype",  "vocab_size",
                                       "bos_token_id",  "eos_token_id", "pad_token_id", "rope_scaling"};
  for (size_t i = 0; i < have->count; i++) {
    bool skips = false;
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) skips = skips || strcmp(have->key[i], others[k]) == 0;
    const brim_yaml *value = skips ? NULL : brim_yaml_get(want, have->key[i]);
    if (value && !brim_yaml_is_null(value) && !are_same_values(value, have->item[i]))
      return brim_fail(BRIM_ECONFIG, "reading '%s' again gave another '%s': GGUF cannot express the model's value",
                       path, have->key[i]);
  }
  const brim_yaml *scaling = brim_yaml_get(have, "rope_scaling");
  for (size_t i = 0; scaling && i < scaling->count; i++) {
    const brim_yaml *value = brim_gguf_find_rope(want, scaling->key[i]);
    if (value && !brim_yaml_is_null(value) && !are_same_values(value, scaling->item[i]))
      return brim_fail(BRIM_ECONFIG, "reading '%s' again gave another '%s': GGUF cannot express the model's value",
                       path, scaling->key[i]);
  }
  return BRIM_OK;
}

static brim_status check_config(const writer *w, const char *path)
{
  brim_arena arena = {0};
  brim_gguf *file = NULL;
  brim_yaml *tree = NULL;
  brim_status status = brim_gguf_open(path, &file);
  if (status == BRIM_OK) status = brim_gguf_config_of(&arena, file, &tree);
  if (status == BRIM_OK) status = compare_configs(w->base->tree, tree, path);
  if (status == BRIM_OK) status = brim_export_check_tokenizer(w->base, file);
  brim_gguf_close(file);
  brim_arena_release(&arena);
  return status;
}

static brim_status write_aside(writer *w, const char *aside)
{
  const brim_gguf_source source = {values_of, w};
  const size_t count = w->model->parameters->count;
  w->tensor = BRIM_ARENA_NEW(&w->arena, brim_gguf_tensor, count + BRIM_GGUF_FACTORS_MAX + 1);
  w->way = BRIM_ARENA_NEW(&w->arena, brim_weights_way, count + 1);
  w->heads = BRIM_ARENA_NEW(&w->arena, int64_t, count + 1);
  w->add = BRIM_ARENA_NEW(&w->arena, double, count + 1);
  BRIM_TRY(choose_map(w));
  for (size_t i = 0; i < count; i++) BRIM_TRY(describe(w, i));
  w->count = count;
  BRIM_TRY(add_factors(w));
  BRIM_TRY(put_metadata(w));
  BRIM_TRY(make_room(w));
  BRIM_TRY(brim_gguf_write(aside, &w->head, w->tensor, w->count, &source));
  BRIM_TRY(check_config(w, aside));
  brim_export_model written = *w->model;
  written.add = w->add;
  return brim_export_check(&written, aside);
}

brim_status brim_export_write_gguf(const brim_export_model *m, brim_export_base *b, const char *path)
{
  char parent[BRIM_PATH_MAX], plain[BRIM_PATH_MAX], aside[BRIM_PATH_MAX];
  BRIM_TRY(brim_path_aside(path, parent, plain));
  if (snprintf(aside, sizeof aside, "%s.gguf", plain) >= (int)sizeof aside)
    return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", path);
  writer w = {.model = m, .base = b};
  brim_status status = write_aside(&w, aside);
  if (status == BRIM_OK)
    status = brim_file_publish(aside, path, parent);
  else
    brim_file_discard(aside);
  free(w.room);
  free(w.ordered);
  free(w.packed);
  brim_gguf_head_release(&w.head);
  brim_arena_release(&w.arena);
  return status;
}
