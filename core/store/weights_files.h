/* Weights on disk: one safetensors or GGUF file; several that an index file names, sharded as by Hugging Face; a folder
 * with either; or a run of brim or one of its checkpoints. brim maps the files and checks them, except for their
 * values. */
#ifndef BRIM_STORE_WEIGHTS_FILES_H
#define BRIM_STORE_WEIGHTS_FILES_H
#include <stdbool.h>

#include "base/arena.h"
#include "store/safetensors.h"

#define BRIM_WEIGHTS_FILES_MAX 1024
#define BRIM_WEIGHTS_INDEX_BYTES_MAX ((size_t)100 << 20)

/* The contents of an index file: {"weight_map": {"tensor": "file", ...}}. */
typedef struct brim_weights_index {
  const char **name;    /* names of tensors, sorted */
  const uint32_t *file; /* index of the file of each tensor */
  size_t count;
  const char **file_name; /* names of files in the folder of the index, sorted */
  size_t file_count;
} brim_weights_index;
/* [any thread] Allocates from `arena`; `path` is used in messages. ELOAD with the error: invalid JSON, duplicate
 * keys, a path instead of a file name, too many files. */
brim_status brim_weights_index_parse(brim_arena *arena, const char *text, size_t bytes, const char *path,
                                     brim_weights_index *out);

typedef struct brim_weights_files brim_weights_files;
/* [init] ELOAD naming the file and the error; also for missing shards, tensors that are not in the file that the
 * index names or that it does not list, and damaged checkpoints. */
brim_status brim_weights_files_open(const char *path, brim_weights_files **out);
void brim_weights_files_close(brim_weights_files *files); /* may be NULL */
/* [any thread] Whether the path is a folder that has Hugging Face's description of a network, config.json, but no
 * weights yet. */
bool brim_weights_files_are_missing(const char *path);
/* Tensors of all files, in the order of the files and of their data. */
size_t brim_weights_files_count(const brim_weights_files *files);
const brim_safetensor *brim_weights_files_at(const brim_weights_files *files, size_t i);
/* The files that hold tensors, in order. */
size_t brim_weights_files_file_count(const brim_weights_files *files);
const char *brim_weights_files_path(const brim_weights_files *files, size_t file);
/* Metadata of the first file. */
const char *brim_weights_files_metadata(const brim_weights_files *files, const char *key);
/* Whether this is a checkpoint of brim, with the names of brim's models. */
bool brim_weights_files_are_brims(const brim_weights_files *files);
/* The file, if it is a GGUF file; NULL for safetensors. */
const brim_gguf *brim_weights_files_gguf(const brim_weights_files *files);
/* See brim_safetensors_forget. */
void brim_weights_files_forget(const brim_weights_files *files, const void *data, size_t bytes);
#endif
