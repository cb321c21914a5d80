/* The safetensors format: a little-endian length of 8 bytes, a JSON header, then the data, with tensors back to back in
 * the order of the header. brim checks the whole file before it reads any values. */
#ifndef BRIM_STORE_SAFETENSORS_H
#define BRIM_STORE_SAFETENSORS_H
#include <stdbool.h>
#include <stddef.h>

#include "base/gguf.h"
#include "brim/tensor.h"

typedef struct brim_safetensor {
  const char *name;
  uint32_t dtype; /* 0: a type that brim does not support; only in a file that was read */
  brim_shape shape;
  const void *data; /* plain, row-major, count(shape) elements; in a file that was read the address may be unaligned */
  /* A tensor that is divided among ranks: data has only elements [first, first + count), perhaps none, and `shape` is
   * that of the whole tensor. */
  bool is_slice;
  uint64_t first, count;
  const char *type; /* the dtype's name in a file that was read: "BF16", "I64"; NULL: given by dtype */
  /* in a GGUF file: data consists of blocks of this type, whose values have `dtype`; NULL: plain values */
  const brim_gguf_type *packed;
} brim_safetensor;

/* Length and XXH64 (seed 0) of a written file. */
typedef struct brim_file_digest {
  uint64_t bytes, hash;
  bool is_fnv1a; /* the hash is FNV-1a; only in older checkpoints */
} brim_file_digest;

/* Writes `path` (not atomically), synced to disk; on failure the file is removed. Tensors keep their order, except
 * that those with wider elements come first, so that each starts at a multiple of its element size. `metadata`: pairs
 * key, value, ..., NULL; may be NULL. `digest` may be NULL. EIO with the path and the system's reason; EINVAL for
 * duplicate names. No tensor may be a slice. */
brim_status brim_safetensors_write(const char *path, const brim_safetensor *tensor, size_t count,
                                   const char *const *metadata, brim_file_digest *digest);
/* The source of values of tensors without `data`. */
typedef struct brim_safetensors_source {
  /* Sets *out to the bytes [first, first + bytes) of tensor `i`, valid until the next call. */
  brim_status (*values)(void *context, size_t i, uint64_t first, uint64_t bytes, const void **out);
  void *context;
  uint64_t most; /* bytes of one call at most; 0: whole tensors */
} brim_safetensors_source;
/* Writes the same file. `source` NULL: all tensors have `data`. */
brim_status brim_safetensors_write_from(const char *path, const brim_safetensor *tensor, size_t count,
                                        const char *const *metadata, const brim_safetensors_source *source,
                                        brim_file_digest *digest);
/* Write the same file from several ranks. One rank lays it out: it writes the header and sets the length. Then each
 * rank writes and syncs its share: its slices, which together make up the whole tensors, and a part of each tensor that
 * all ranks have. All ranks pass the same list except for their slices. The rank that laid out the file must remove it
 * if the file stays incomplete. EIO, EINVAL. */
brim_status brim_safetensors_lay_out(const char *path, const brim_safetensor *tensor, size_t count,
                                     const char *const *metadata);
brim_status brim_safetensors_write_share(const char *path, const brim_safetensor *tensor, size_t count,
                                         const char *const *metadata, const brim_safetensors_source *source,
                                         int32_t rank, int32_t ranks);
/* Maps and checks a file: header length, JSON, dtypes, shapes, offsets that cover the data without gap or overlap.
 * ELOAD with the error, also for dtypes that the format does not define and ranks that brim does not support. */
typedef struct brim_safetensors brim_safetensors;
brim_status brim_safetensors_open(const char *path, brim_safetensors **out);
/* Checks bytes in memory instead of a file. The bytes must outlive *out; `path` is used in messages. */
brim_status brim_safetensors_parse(const void *bytes, size_t size, const char *path, brim_safetensors **out);
void brim_safetensors_close(brim_safetensors *file); /* may be NULL */
size_t brim_safetensors_count(const brim_safetensors *file);
const brim_safetensor *brim_safetensors_at(const brim_safetensors *file, size_t i); /* in the order of the data */
const brim_safetensor *brim_safetensors_find(const brim_safetensors *file, const char *name); /* NULL if absent */
/* The file's metadata for a key ("format"), or NULL. */
const char *brim_safetensors_metadata(const brim_safetensors *file, const char *key);
/* Bytes of a tensor's data in the file, and bytes of one element, also for types that brim does not support. */
uint64_t brim_safetensor_bytes(const brim_safetensor *tensor);
/* Releases these bytes of a mapped file's tensor from the process's memory; they are read again on the next access. */
void brim_safetensors_forget(const brim_safetensors *file, const void *data, size_t bytes);
/* Appends "F32 [32, 1, 3, 3]" to `out`. */
void brim_safetensor_format(const brim_safetensor *tensor, brim_text *out);
#endif
