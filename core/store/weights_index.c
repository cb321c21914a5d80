/* Index files of sharded weights. See weights_files.h. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "store/weights_files.h"

/* Error: BAD("format", path, arguments of the format...). */
#define BAD(...) brim_fail(BRIM_ELOAD, "'%s' is not an index of weights that brim can read: " __VA_ARGS__)
#define FILE_NAME_BYTES_MAX 255

/* Checks that a name is not a path, so that nothing outside the folder of the index is read. */
static brim_status check_file_name(const char *path, const char *tensor, const json_t *value)
{
  const char *name = json_string_value(value);
  if (!name) return BAD("the file of tensor '%.200s' is not a string", path, tensor);
  if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strchr(name, '/'))
    return BAD("the file of tensor '%.200s' is '%.200s'; it must be the name of a file in the same folder", path,
               tensor, name);
  if (strlen(name) > FILE_NAME_BYTES_MAX)
    return BAD("the name '%.40s...' of a file is longer than %d bytes", path, name, FILE_NAME_BYTES_MAX);
  return BRIM_OK;
}

/* Lists each file once, sorted. `all`: the file of each tensor, in any order; sorted too. */
static brim_status list_files(const char *path, brim_arena *arena, const char **all, brim_weights_index *out)
{
  out->file_name = BRIM_ARENA_NEW(arena, const char *, out->count + 1);
  if (out->count > 1) qsort(all, out->count, sizeof *all, brim_compare_strings);
  for (size_t i = 0; i < out->count; i++)
    if (i == 0 || strcmp(all[i - 1], all[i]) != 0) out->file_name[out->file_count++] = all[i];
  if (out->file_count > BRIM_WEIGHTS_FILES_MAX)
    return BAD("it names %zu files; the maximum is %d", path, out->file_count, BRIM_WEIGHTS_FILES_MAX);
  return BRIM_OK;
}

static uint32_t find_file(const brim_weights_index *index, const char *name)
{
  const char **found = bsearch(&name, index->file_name, index->file_count, sizeof *found, brim_compare_strings);
  return (uint32_t)(found - index->file_name);
}

static brim_status read_map(brim_arena *arena, json_t *map, const char *path, brim_weights_index *out)
{
  const char *name;
  json_t *value;
  const size_t count = json_object_size(map);
  const char **all = BRIM_ARENA_NEW(arena, const char *, count + 1);
  uint32_t *file = BRIM_ARENA_NEW(arena, uint32_t, count + 1);
  out->name = BRIM_ARENA_NEW(arena, const char *, count + 1);
  json_object_foreach(map, name, value)
  {
    BRIM_TRY(check_file_name(path, name, value));
    out->name[out->count] = brim_arena_string(arena, name);
    all[out->count++] = brim_arena_string(arena, json_string_value(value));
  }
  if (count > 1) qsort(out->name, count, sizeof *out->name, brim_compare_strings);
  BRIM_TRY(list_files(path, arena, all, out));
  for (size_t i = 0; i < count; i++) file[i] = find_file(out, json_string_value(json_object_get(map, out->name[i])));
  out->file = file;
  return BRIM_OK;
}

brim_status brim_weights_index_parse(brim_arena *arena, const char *text, size_t bytes, const char *path,
                                     brim_weights_index *out)
{
  json_error_t problem;
  *out = (brim_weights_index){0};
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem);
  if (!root) return BAD("line %d, column %d: %.200s", path, problem.line, problem.column, problem.text);
  json_t *map = json_object_get(root, "weight_map");
  brim_status status;
  if (!json_is_object(map))
    status = BAD("it has no object 'weight_map'", path);
  else if (json_object_size(map) == 0)
    status = BAD("its 'weight_map' is empty", path);
  else
    status = read_map(arena, map, path, out);
  json_decref(root);
  return status;
}
