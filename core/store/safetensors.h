/* The safetensors format: 8 bytes little-endian length, a JSON header, then the data, tensors back to
 * back in the order of the header. Files are checked whole before anything is read from them. */
#ifndef BRIM_STORE_SAFETENSORS_H
#define BRIM_STORE_SAFETENSORS_H
#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "brim/tensor.h"

typedef struct brim_safetensor {
  const char *name;
  uint32_t dtype; /* 0: one that brim has not; only in a file that was read */
  brim_shape shape;
  const void *data; /* plain, row-major; count(shape) elements. In a file that was read: perhaps unaligned */
  /* Of a tensor that ranks share out, data has only elements [first, first + count), perhaps none. `shape` is that of
   * all of it. */
  bool is_slice;
  uint64_t first, count;
  const char *type; /* as a file that was read calls its dtype: "BF16", "I64"; NULL: dtype says it */
} brim_safetensor;

/* What was written: the length of the file and brim_hash of its bytes. */
typedef struct brim_file_digest {
  uint64_t bytes, hash;
} brim_file_digest;

/* Writes `path` (not atomic by itself), synced to disk; on failure the file is removed. Tensors keep their
 * order, but those with wider elements come first, so that each starts at a multiple of its element.
 * `metadata`: pairs key, value, ..., NULL; may be NULL. `digest` may be NULL. EIO with the path and the system's
 * reason; EINVAL for names given twice. None of the tensors is a slice. */
brim_status brim_safetensors_write(const char *path, const brim_safetensor *tensor, size_t count,
                                   const char *const *metadata, brim_file_digest *digest);
/* The same, of tensors whose values are made one after the other, as they are written. */
typedef struct brim_safetensors_source {
  /* *out: the values of tensor `i`, until the next call. */
  brim_status (*values)(void *context, size_t i, const void **out);
  void *context;
} brim_safetensors_source;
brim_status brim_safetensors_write_from(const char *path, const brim_safetensor *tensor, size_t count,
                                        const char *const *metadata, const brim_safetensors_source *source);
/* The same file, by several ranks: one lays it out, with its header and its length. When it is there each writes its
 * share, synced: its slices, which together are the whole tensors, and of tensors that all have a part each. All have
 * the same list but for their slices. A file that is not whole is left to whoever laid it out. EIO, EINVAL. */
brim_status brim_safetensors_lay_out(const char *path, const brim_safetensor *tensor, size_t count,
                                     const char *const *metadata);
brim_status brim_safetensors_write_share(const char *path, const brim_safetensor *tensor, size_t count,
                                         const char *const *metadata, int32_t rank, int32_t ranks);
/* Maps and checks a file: header length, JSON, dtypes, shapes, offsets that cover the data without gap
 * or overlap. ELOAD naming what is wrong, also for dtypes that the format has not and ranks that brim has not. */
typedef struct brim_safetensors brim_safetensors;
brim_status brim_safetensors_open(const char *path, brim_safetensors **out);
/* The same for bytes in memory, which must outlive *out; `path` is for messages. */
brim_status brim_safetensors_parse(const void *bytes, size_t size, const char *path, brim_safetensors **out);
void brim_safetensors_close(brim_safetensors *file); /* NULL is a no-op */
size_t brim_safetensors_count(const brim_safetensors *file);
const brim_safetensor *brim_safetensors_at(const brim_safetensors *file, size_t i); /* in the order of the data */
const brim_safetensor *brim_safetensors_find(const brim_safetensors *file, const char *name); /* NULL if absent */
/* What the file says of itself under a key ("format"); NULL: nothing. */
const char *brim_safetensors_metadata(const brim_safetensors *file, const char *key);
/* Bytes of a tensor's data in the file; and of one element, also of types that brim has not. */
uint64_t brim_safetensor_bytes(const brim_safetensor *tensor);
uint32_t brim_safetensor_element_bytes(const brim_safetensor *tensor);
/* These bytes of a mapped file, in a tensor's data, are not needed any more: the process has them no longer, and they
 * are read again if they are looked at again. */
void brim_safetensors_forget(const brim_safetensors *file, const void *data, size_t bytes);
/* "F32 [32, 1, 3, 3]", added to `out`. */
void brim_safetensor_format(const brim_safetensor *tensor, brim_text *out);
#endif
