/* The safetensors format: 8 bytes little-endian length, a JSON header, then the data, tensors back to
 * back in the order of the header. Files are checked whole before anything is read from them. */
#ifndef BRIM_TRAIN_SAFETENSORS_H
#define BRIM_TRAIN_SAFETENSORS_H
#include <stddef.h>

#include "brim/tensor.h"

typedef struct brim_safetensor {
  const char *name;
  uint32_t dtype;
  brim_shape shape;
  const void *data; /* plain, row-major; count(shape) elements */
} brim_safetensor;

/* Writes `path` (not atomic by itself), synced to disk. `metadata`: pairs key, value, ..., NULL; may be
 * NULL. EIO with the path and the system's reason. */
brim_status brim_safetensors_write(const char *path, const brim_safetensor *tensor, size_t count,
                                   const char *const *metadata);
/* Maps and checks a file: header length, JSON, dtypes, shapes, offsets that cover the data without gap
 * or overlap. ELOAD naming what is wrong. */
typedef struct brim_safetensors brim_safetensors;
brim_status brim_safetensors_open(const char *path, brim_safetensors **out);
void brim_safetensors_close(brim_safetensors *file);
size_t brim_safetensors_count(const brim_safetensors *file);
const brim_safetensor *brim_safetensors_at(const brim_safetensors *file, size_t i);
const brim_safetensor *brim_safetensors_find(const brim_safetensors *file, const char *name); /* NULL if absent */
#endif
