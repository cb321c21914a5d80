/* Writes parameters with the names and the order of another program's files. See export.h. */
#include "export/export.h"

#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/text.h"
#include "store/rundir.h"
#include "store/weights.h"

/* ---- reading ---- */

brim_status brim_parameters_read(brim_arena *arena, const char *checkpoint, brim_parameters *out)
{
  *out = (brim_parameters){0};
  BRIM_TRY(brim_weights_files_open(checkpoint, &out->files));
  out->count = brim_weights_files_count(out->files);
  brim_safetensor *list = BRIM_ARENA_NEW(arena, brim_safetensor, out->count + 1);
  for (size_t i = 0; i < out->count; i++) list[i] = *brim_weights_files_at(out->files, i);
  out->tensor = list;
  return BRIM_OK;
}

void brim_parameters_close(brim_parameters *p)
{
  brim_weights_files_close(p->files);
  *p = (brim_parameters){0};
}

/* ---- the map ---- */

/* Returns a name that the map does not restore; NULL if it restores all names. */
static const char *find_one_way(brim_arena *arena, const brim_weights_map *map, const brim_parameters *p)
{
  for (size_t i = 0; i < p->count; i++) {
    const brim_weights_way to = brim_weights_map_to_file(map, arena, p->tensor[i].name);
    const brim_weights_way back = brim_weights_map_to_model(map, arena, to.name);
    if (!back.name || strcmp(back.name, p->tensor[i].name) != 0 || back.transpose != to.transpose)
      return p->tensor[i].name;
  }
  return NULL;
}

/* Whether brim would recognise the layout of a file written with this map. */
static bool suits(brim_arena *arena, const brim_weights_map *map, const brim_parameters *p)
{
  const char **name = BRIM_ARENA_NEW(arena, const char *, p->count + 1);
  for (size_t i = 0; i < p->count; i++) name[i] = brim_weights_map_to_file(map, arena, p->tensor[i].name).name;
  return brim_weights_map_recognises(map, name, p->count) && !find_one_way(arena, map, p);
}

static bool is_among(const char *word, const char *list)
{
  const size_t length = strlen(word);
  for (const char *s = list; (s = strstr(s, word)); s++)
    if ((s == list || s[-1] == ' ') && (s[length] == '\0' || s[length] == ' ')) return true;
  return false;
}

/* Rejects a format; lists each format once, with those that suit the model. */
static brim_status refuse(brim_arena *arena, const brim_weights_map *map, size_t count, const char *format,
                          const brim_parameters *p)
{
  brim_text all = {0}, good = {0};
  bool known = false;
  for (size_t i = 0; i < count; i++) {
    const char *layout = map[i].layout;
    if (!layout) continue;
    known = known || strcmp(layout, format) == 0;
    if (!is_among(layout, brim_text_str(&all))) brim_text_printf(&all, " %s", layout);
    if (!is_among(layout, brim_text_str(&good)) && suits(arena, &map[i], p)) brim_text_printf(&good, " %s", layout);
  }
  const brim_status status =
      known
          ? brim_fail(BRIM_ECONFIG, "this model's parameters do not match any network that has the format '%s'", format)
          : brim_fail(BRIM_ECONFIG, "unknown format '%s'\navailable: brim%s; or a map of names", format,
                      brim_text_str(&all));
  brim_fail_add(status, "for this model: brim%s", brim_text_str(&good));
  brim_text_release(&all);
  brim_text_release(&good);
  return status;
}

static brim_status choose_by_layout(brim_arena *arena, const brim_weights_search *search, const char *format,
                                    const brim_parameters *p, const brim_weights_map **map)
{
  brim_weights_map *all;
  size_t count;
  BRIM_TRY(brim_weights_maps_read(arena, search, &all, &count));
  for (size_t i = 0; i < count; i++) {
    const bool named = strcmp(all[i].name, format) == 0, laid = all[i].layout && strcmp(all[i].layout, format) == 0;
    if (!named && !(laid && suits(arena, &all[i], p))) continue;
    *map = &all[i];
    return BRIM_OK;
  }
  return refuse(arena, all, count, format, p);
}

brim_status brim_export_find(brim_arena *arena, const brim_weights_search *search, const brim_parameters *p,
                             const brim_weights_map **map)
{
  brim_weights_map *all;
  size_t count;
  *map = NULL;
  BRIM_TRY(brim_weights_maps_read(arena, search, &all, &count));
  for (size_t i = 0; i < count && !*map; i++)
    if (suits(arena, &all[i], p)) *map = &all[i];
  return BRIM_OK;
}

brim_status brim_export_choose(brim_arena *arena, const brim_weights_search *search, const char *format,
                               const brim_parameters *p, const brim_weights_map **map)
{
  *map = NULL;
  if (strcmp(format, BRIM_WEIGHTS_LAYOUT_BRIM) == 0) return BRIM_OK;
  if (brim_ends_with(format, ".yaml")) {
    brim_weights_map *own = BRIM_ARENA_NEW(arena, brim_weights_map, 1);
    BRIM_TRY(brim_weights_map_read(arena, search, format, own));
    *map = own;
  } else {
    BRIM_TRY(choose_by_layout(arena, search, format, p, map));
  }
  const char *name = find_one_way(arena, *map, p);
  if (!name) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "map '%s' renames the model's '%s' to '%s', but does not rename that back to '%s'",
                   (*map)->name, name, brim_weights_map_to_file(*map, arena, name).name, name);
}

/* ---- writing ---- */

typedef struct exporter {
  const brim_parameters *from;
  const brim_safetensor *to; /* in the same order */
  const bool *transpose;
  const char *path;
  void *room; /* for the largest tensor */
  void *room_for_transposing;
} exporter;

/* Converts a whole tensor. */
static brim_status values_of(void *context, size_t i, uint64_t first, uint64_t bytes, const void **out)
{
  const exporter *e = context;
  const brim_safetensor *from = &e->from->tensor[i], *to = &e->to[i];
  const size_t count = (size_t)brim_shape_count(&to->shape), width = brim_dtype_bytes(to->dtype);
  (void)first, (void)bytes;
  brim_convert(to->dtype, e->room, from->dtype, from->data, count);
  if (brim_dtype_is_real(to->dtype) && !brim_all_finite(to->dtype, e->room, count))
    return brim_fail(BRIM_EINVAL, "'%s' has a value that is not a finite number in %s\n--dtype fp32 keeps all values",
                     from->name, brim_dtype_name(to->dtype));
  if (e->from->files) brim_weights_files_forget(e->from->files, from->data, count * brim_dtype_bytes(from->dtype));
  *out = e->room;
  if (!e->transpose[i]) return BRIM_OK;
  const size_t rows = (size_t)from->shape.dim[0], columns = (size_t)from->shape.dim[1];
  for (size_t r = 0; r < rows; r++)
    for (size_t c = 0; c < columns; c++)
      memcpy((char *)e->room_for_transposing + (c * rows + r) * width, (char *)e->room + (r * columns + c) * width,
             width);
  *out = e->room_for_transposing;
  return BRIM_OK;
}

static uint64_t describe(brim_arena *arena, const brim_parameters *p, const brim_weights_map *map, uint32_t dtype,
                         brim_safetensor *to, bool *transpose)
{
  uint64_t most = 1;
  for (size_t i = 0; i < p->count; i++) {
    const brim_weights_way way = brim_weights_map_to_file(map, arena, p->tensor[i].name);
    to[i] = (brim_safetensor){.name = way.name, .dtype = p->tensor[i].dtype, .shape = p->tensor[i].shape};
    if (dtype && brim_dtype_is_real(to[i].dtype)) to[i].dtype = dtype;
    transpose[i] = way.transpose && to[i].shape.rank == 2;
    if (transpose[i]) {
      to[i].shape.dim[0] = p->tensor[i].shape.dim[1];
      to[i].shape.dim[1] = p->tensor[i].shape.dim[0];
    }
    const uint64_t bytes = brim_safetensor_bytes(&to[i]);
    if (bytes > most) most = bytes;
  }
  return most;
}

static brim_status write_aside(exporter *e, const brim_weights_map *map, const char *data, uint64_t most)
{
  char folder[BRIM_PATH_MAX], aside[BRIM_PATH_MAX];
  const char *const metadata[] = {"format",
                                  "pt",
                                  "producer",
                                  "brim",
                                  BRIM_WEIGHTS_LAYOUT_KEY,
                                  map ? map->name : BRIM_WEIGHTS_LAYOUT_BRIM,
                                  data ? BRIM_EXPORT_DATA_KEY : NULL,
                                  data,
                                  NULL};
  const brim_safetensors_source source = {values_of, e, 0};
  BRIM_TRY(brim_path_aside(e->path, folder, aside));
  e->room = brim_try_malloc(most);
  e->room_for_transposing = brim_try_malloc(most);
  if (!e->room || !e->room_for_transposing)
    return brim_fail(BRIM_ENOMEM_HOST, "cannot allocate %llu bytes of host memory for the largest tensor",
                     (unsigned long long)most);
  BRIM_TRY(brim_safetensors_write_from(aside, e->to, e->from->count, metadata, &source, NULL));
  return brim_file_publish(aside, e->path, folder);
}

brim_status brim_export_write(const brim_parameters *p, const brim_weights_map *map, uint32_t dtype, const char *data,
                              const char *path)
{
  brim_arena arena = {0};
  brim_safetensor *to = BRIM_ARENA_NEW(&arena, brim_safetensor, p->count + 1);
  bool *transpose = BRIM_ARENA_NEW(&arena, bool, p->count + 1);
  const uint64_t most = describe(&arena, p, map, dtype, to, transpose);
  exporter e = {p, to, transpose, path, NULL, NULL};
  const brim_status status = write_aside(&e, map, data, most);
  free(e.room);
  free(e.room_for_transposing);
  brim_arena_release(&arena);
  return status;
}
