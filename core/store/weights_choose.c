/* Chooses the name map for the files. See weights.h. */
#include <string.h>

#include "store/weights_parts.h"

/* Returns the map for the layout that the files name in their metadata, as exports do. NULL: they name none, or an
 * unknown one. */
static const brim_weights_map *find_declared(const brim_weights *w, const brim_weights_map *map, size_t count)
{
  const char *layout = brim_weights_files_metadata(w->files, BRIM_WEIGHTS_LAYOUT_KEY);
  for (size_t i = 0; layout && i < count; i++)
    if (strcmp(map[i].name, layout) == 0) return &map[i];
  return NULL;
}

static bool are_named_by_brim(const brim_weights *w)
{
  const char *layout = brim_weights_files_metadata(w->files, BRIM_WEIGHTS_LAYOUT_KEY);
  return brim_weights_files_are_brims(w->files) || (layout && strcmp(layout, BRIM_WEIGHTS_LAYOUT_BRIM) == 0);
}

static brim_status choose_for_gguf(brim_weights *w, const brim_weights_map *map, size_t count)
{
  const char *architecture = brim_gguf_architecture(brim_weights_files_gguf(w->files));
  w->is_recognised = true;
  for (size_t i = 0; i < count && !w->map; i++)
    if (brim_weights_map_is_for(&map[i], architecture)) w->map = &map[i];
  if (w->map) return BRIM_OK;
  return brim_fail(BRIM_ELOAD,
                   "'%s' has the architecture '%.100s', for which brim has no map of names\n"
                   "write your own and set model.weights_map=FILE.yaml",
                   w->request.path, architecture);
}

static brim_status recognise(brim_weights *w)
{
  brim_weights_map *map;
  size_t maps;
  const size_t count = brim_weights_files_count(w->files);
  const char **name = BRIM_ARENA_NEW(&w->arena, const char *, count + 1);
  if (are_named_by_brim(w)) return BRIM_OK;
  BRIM_TRY(brim_weights_maps_read(&w->arena, &w->request.search, &map, &maps));
  if (brim_weights_files_gguf(w->files)) return choose_for_gguf(w, map, maps);
  w->map = find_declared(w, map, maps);
  w->is_recognised = true;
  for (size_t i = 0; i < count; i++) name[i] = brim_weights_files_at(w->files, i)->name;
  for (size_t i = 0; i < maps && !w->map; i++)
    if (brim_weights_map_recognises(&map[i], name, count)) w->map = &map[i];
  return BRIM_OK;
}

brim_status brim_weights_choose_map(brim_weights *w)
{
  if (strcmp(w->request.map, "none") == 0) return BRIM_OK;
  if (strcmp(w->request.map, "auto") == 0) return recognise(w);
  brim_weights_map *map = BRIM_ARENA_NEW(&w->arena, brim_weights_map, 1);
  w->map = map;
  return brim_weights_map_read(&w->arena, &w->request.search, w->request.map, map);
}
