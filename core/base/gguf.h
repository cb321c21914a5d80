/* The GGUF format, versions 2 and 3 (github.com/ggml-org/ggml, docs/gguf.md): "GGUF", a version, metadata (keys with
 * values of a type, or arrays), a table of tensors, and their values, each tensor at a multiple of general.alignment.
 * Numbers are little-endian. The table of tensors has the innermost dimension first; brim_gguf_tensor has it last.
 *
 * The whole file except the values is checked before anything is read from it. */
#ifndef BRIM_BASE_GGUF_H
#define BRIM_BASE_GGUF_H
#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "brim/tensor.h"

/* ---- types of values ---- */

/* A type of tensors: blocks of `count` values in `bytes` bytes. */
typedef struct brim_gguf_type {
  const char *name; /* "Q4_K" */
  uint32_t id;      /* in the file */
  uint32_t count, bytes;
  /* [any thread] Writes the values of `blocks` blocks, with the bits of dequantize() in the Python package gguf. */
  void (*unpack)(const unsigned char *from, size_t blocks, float *to);
  /* [any thread] The reverse, with the bits of that package's quantize(); NULL: brim does not write this type. */
  void (*pack)(const float *from, size_t blocks, unsigned char *to);
} brim_gguf_type;
#define BRIM_GGUF_BLOCK_MAX 256 /* values of a block */
/* NULL: brim cannot read the type. */
const brim_gguf_type *brim_gguf_type_of(uint32_t id);
/* The format's name of any type, NULL if it defines none. */
const char *brim_gguf_type_name(uint32_t id);
const brim_gguf_type *brim_gguf_type_named(const char *name);

/* ---- files ---- */

enum brim_gguf_kind {
  BRIM_GGUF_U8,
  BRIM_GGUF_I8,
  BRIM_GGUF_U16,
  BRIM_GGUF_I16,
  BRIM_GGUF_U32,
  BRIM_GGUF_I32,
  BRIM_GGUF_F32,
  BRIM_GGUF_BOOL,
  BRIM_GGUF_TEXT,
  BRIM_GGUF_ARRAY,
  BRIM_GGUF_U64,
  BRIM_GGUF_I64,
  BRIM_GGUF_F64
};

typedef struct brim_gguf_value {
  const char *key;
  uint32_t kind; /* enum brim_gguf_kind; for an array, that of its elements */
  bool is_array;
  uint64_t count;            /* number of elements; 1 if the value is not an array */
  const unsigned char *data; /* the first element, as stored in the file */
  uint64_t bytes;
} brim_gguf_value;

typedef struct brim_gguf_tensor {
  const char *name;
  const brim_gguf_type *type;
  brim_shape shape;
  const unsigned char *data;
  uint64_t bytes;
} brim_gguf_tensor;

typedef struct brim_gguf brim_gguf;
/* Whether the file's name has the extension of this format. */
bool brim_is_gguf(const char *path);
/* Maps and checks a file. ELOAD with the place: truncated, another version, a type that brim cannot read, duplicates,
 * offsets outside of the file. */
brim_status brim_gguf_open(const char *path, brim_gguf **out);
/* Checks bytes in memory instead of a file. The bytes must outlive *out; `path` is used in messages. */
brim_status brim_gguf_parse(const void *bytes, size_t size, const char *path, brim_gguf **out);
void brim_gguf_close(brim_gguf *file); /* may be NULL */
const char *brim_gguf_path(const brim_gguf *file);

size_t brim_gguf_value_count(const brim_gguf *file);
const brim_gguf_value *brim_gguf_value_at(const brim_gguf *file, size_t i); /* in the order of the file */
const brim_gguf_value *brim_gguf_find(const brim_gguf *file, const char *key);
/* "general.architecture". */
const char *brim_gguf_architecture(const brim_gguf *file);
/* The value of the key "ARCHITECTURE.key". */
const brim_gguf_value *brim_gguf_find_own(const brim_gguf *file, const char *key);
/* Reads element `i` as an integer or as a double; false if it is of another kind or does not fit. */
bool brim_gguf_integer(const brim_gguf_value *value, uint64_t i, int64_t *out);
bool brim_gguf_number(const brim_gguf_value *value, uint64_t i, double *out);
/* Reads the texts of a value one after another; *at is 0 at first. The texts are not NUL-terminated. */
bool brim_gguf_next_text(const brim_gguf_value *value, uint64_t *at, const char **text, uint64_t *bytes);
/* Returns the value of `key` if it is a text, which may contain NUL; otherwise "". Valid as long as the file. */
const char *brim_gguf_text(const brim_gguf *file, const char *key);

size_t brim_gguf_tensor_count(const brim_gguf *file);
const brim_gguf_tensor *brim_gguf_tensor_at(const brim_gguf *file, size_t i); /* in the order of the file */
const brim_gguf_tensor *brim_gguf_tensor_find(const brim_gguf *file, const char *name);
/* Releases these bytes of a mapped file from the process's memory; they are read again on the next access. */
void brim_gguf_forget(const brim_gguf *file, const void *data, size_t bytes);

/* ---- writing ---- */

/* Metadata collected for a file to be written. All zero: empty. */
typedef struct brim_gguf_head {
  brim_text text;
  uint64_t count;
} brim_gguf_head;
void brim_gguf_put_text(brim_gguf_head *head, const char *key, const char *text, size_t bytes);
void brim_gguf_put_u32(brim_gguf_head *head, const char *key, uint32_t value);
void brim_gguf_put_f32(brim_gguf_head *head, const char *key, float value);
void brim_gguf_put_bool(brim_gguf_head *head, const char *key, bool value);
/* Copies a value of a file. */
void brim_gguf_put_value(brim_gguf_head *head, const brim_gguf_value *value);
/* Begins an array, whose elements follow by brim_gguf_add_*. */
void brim_gguf_put_array(brim_gguf_head *head, const char *key, uint32_t kind, uint64_t count);
void brim_gguf_add_text(brim_gguf_head *head, const char *text, size_t bytes);
void brim_gguf_add_i32(brim_gguf_head *head, int32_t value);
void brim_gguf_add_f32(brim_gguf_head *head, float value);
void brim_gguf_head_release(brim_gguf_head *head);

typedef struct brim_gguf_source {
  /* Sets *out to the packed values of tensor `i`, valid until the next call. */
  brim_status (*values)(void *context, size_t i, const void **out);
  void *context;
} brim_gguf_source;
/* Writes `path` (not atomically), synced; on failure the file is removed. Tensors keep their order; `data` and `bytes`
 * are not used. EIO. */
brim_status brim_gguf_write(const char *path, const brim_gguf_head *head, const brim_gguf_tensor *tensor, size_t count,
                            const brim_gguf_source *source);
#endif
