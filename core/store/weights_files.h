/* Weights on disk: one safetensors file; several that an index file names, as Hugging Face shards them; a folder with
 * either; or a run of brim or one of its checkpoints. Files are mapped and checked; values are not looked at. */
#ifndef BRIM_STORE_WEIGHTS_FILES_H
#define BRIM_STORE_WEIGHTS_FILES_H
#include <stdbool.h>

#include "base/arena.h"
#include "store/safetensors.h"

#define BRIM_WEIGHTS_FILES_MAX 1024
#define BRIM_WEIGHTS_INDEX_BYTES_MAX ((size_t)100 << 20)

/* What an index file says: {"weight_map": {"tensor": "file", ...}}. */
typedef struct brim_weights_index {
  const char **name;    /* of tensors, sorted */
  const uint32_t *file; /* of each, which of the files */
  size_t count;
  const char **file_name; /* sorted; each the name of a file beside the index */
  size_t file_count;
} brim_weights_index;
/* [any thread] Everything lives in `arena`; `path` is for messages. ELOAD naming what is wrong: no JSON, keys twice, a
 * file's name that is a path, too many files. */
brim_status brim_weights_index_parse(brim_arena *arena, const char *text, size_t bytes, const char *path,
                                     brim_weights_index *out);

typedef struct brim_weights_files brim_weights_files;
/* [init] ELOAD naming the file and what is wrong with it: also shards that are missing, tensors that are not where the
 * index says or that it does not name, checkpoints whose bytes are not those that were written. */
brim_status brim_weights_files_open(const char *path, brim_weights_files **out);
void brim_weights_files_close(brim_weights_files *files); /* NULL is a no-op */
/* Tensors of all files, in the order of the files and of their data. */
size_t brim_weights_files_count(const brim_weights_files *files);
const brim_safetensor *brim_weights_files_at(const brim_weights_files *files, size_t i);
/* Which of the files: those that hold tensors, and in what order. */
size_t brim_weights_files_file_count(const brim_weights_files *files);
const char *brim_weights_files_path(const brim_weights_files *files, size_t file);
const char *brim_weights_files_metadata(const brim_weights_files *files, const char *key); /* of the first file */
/* Is it a checkpoint of brim, so that its names are those of brim's models? */
bool brim_weights_files_are_brims(const brim_weights_files *files);
/* See brim_safetensors_forget. */
void brim_weights_files_forget(const brim_weights_files *files, const void *data, size_t bytes);
#endif
