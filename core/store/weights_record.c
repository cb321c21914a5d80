/* The record, in a run's folder, of the weights with which the run began. See weights.h. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "store/record.h"
#include "store/weights_parts.h"

#define OLD_HASH "fnv1a64:"

/* An absolute path, which is valid in any working directory. */
static json_t *json_of_path(const char *path)
{
  char real[PATH_MAX];
  return json_string(realpath(path, real) ? real : path);
}

static json_t *json_of_files(const brim_weights *w, bool hashes)
{
  json_t *out = json_array();
  for (size_t i = 0; i < brim_weights_files_file_count(w->files); i++) {
    const char *path = brim_weights_files_path(w->files, i);
    uint64_t bytes = 0, hash = 0;
    json_t *file = json_pack("{s:o}", "path", json_of_path(path));
    if (hashes && brim_file_xxh64(path, &bytes, &hash) != BRIM_OK) {
      json_decref(file);
      json_decref(out);
      return NULL;
    }
    if (hashes) {
      json_object_set_new(file, "bytes", json_integer((json_int_t)bytes));
      json_object_set_new(file, "hash", json_sprintf("xxh64:%016" PRIx64, hash));
    }
    json_array_append_new(out, file);
  }
  return out;
}

json_t *brim_weights_json(const brim_weights *w, bool hashes)
{
  json_t *kept = json_array(), *files = json_of_files(w, hashes);
  for (size_t i = 0; i < w->count; i++)
    if (w->match[i].kept) json_array_append_new(kept, json_string(w->parameter[i]->name));
  if (!files) json_decref(kept);
  if (!files) return NULL;
  return json_pack("{s:o, s:o, s:s, s:I, s:o}", "path", json_of_path(w->request.path), "files", files, "map",
                   w->map ? w->map->name : "none", "tensors", (json_int_t)brim_weights_count(w), "kept", kept);
}

brim_status brim_weights_record_write(const char *run, const json_t *record)
{
  return brim_record_write(run, BRIM_WEIGHTS_RECORD_NAME, record);
}

/* Whether a recorded hash is that of a file. Older records have FNV-1a. */
static bool is_hash_of(const char *recorded, const json_t *file)
{
  uint64_t bytes, hash;
  char text[40];
  const char *now = json_string_value(json_object_get(file, "hash")),
             *path = json_string_value(json_object_get(file, "path"));
  if (!recorded || !now) return false;
  if (strncmp(recorded, OLD_HASH, sizeof OLD_HASH - 1) != 0) return strcmp(recorded, now) == 0;
  if (brim_file_hash(path, &bytes, &hash) != BRIM_OK) return false;
  snprintf(text, sizeof text, OLD_HASH "%016" PRIx64, hash);
  return strcmp(recorded, text) == 0;
}

/* `b` describes files that are there. Ignores paths, as files can be moved. */
static bool are_same(const json_t *a, const json_t *b)
{
  const json_t *x = json_object_get(a, "files"), *y = json_object_get(b, "files");
  bool same = json_array_size(x) == json_array_size(y) &&
              json_equal(json_object_get(a, "map"), json_object_get(b, "map")) &&
              json_equal(json_object_get(a, "kept"), json_object_get(b, "kept"));
  for (size_t i = 0; same && i < json_array_size(x); i++)
    same = is_hash_of(json_string_value(json_object_get(json_array_get(x, i), "hash")), json_array_get(y, i));
  return same;
}

brim_status brim_weights_record_check(const char *run, const json_t *record)
{
  json_t *was = NULL;
  BRIM_TRY(brim_record_read(run, BRIM_WEIGHTS_RECORD_NAME, &was));
  if (!was) return BRIM_OK;
  const bool same = are_same(was, record);
  json_decref(was);
  if (same) return BRIM_OK;
  return brim_fail(BRIM_ELOAD,
                   "the weights in '%s' are not those that the run began with: '%s/" BRIM_WEIGHTS_RECORD_NAME
                   "' has the hashes of these\n"
                   "if they were moved, set model.weights=PATH to the new place",
                   json_string_value(json_object_get(record, "path")), run);
}
