/* Facts about dtypes and shapes. */
#include "brim/tensor.h"

#include <stddef.h>

static const struct {
  const char *name;
  uint32_t bytes;
} dtypes[] = {
    [0] = {"?", 0},
    [BRIM_DTYPE_F32] = {"F32", 4},
    [BRIM_DTYPE_F64] = {"F64", 8},
    [BRIM_DTYPE_BF16] = {"BF16", 2},
    [BRIM_DTYPE_F16] = {"F16", 2},
    [BRIM_DTYPE_I32] = {"I32", 4},
    [BRIM_DTYPE_U8] = {"U8", 1},
};
#define DTYPE_COUNT (sizeof dtypes / sizeof dtypes[0])

uint32_t brim_dtype_bytes(uint32_t dtype)
{
  return dtypes[dtype < DTYPE_COUNT ? dtype : 0].bytes;
}
const char *brim_dtype_name(uint32_t dtype)
{
  return dtypes[dtype < DTYPE_COUNT ? dtype : 0].name;
}

int64_t brim_shape_count(const brim_shape *shape)
{
  int64_t count = 1;
  for (int32_t i = 0; i < shape->rank; i++) count *= shape->dim[i];
  return count;
}

int brim_shape_equal(const brim_shape *a, const brim_shape *b)
{
  if (a->rank != b->rank) return 0;
  for (int32_t i = 0; i < a->rank; i++)
    if (a->dim[i] != b->dim[i]) return 0;
  return 1;
}
