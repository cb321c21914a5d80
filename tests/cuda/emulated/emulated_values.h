/* What the loops in the libraries' places share: values of either type, and what a test has them refuse. */
#ifndef EMULATED_VALUES_H
#define EMULATED_VALUES_H
#include <stdlib.h>
#include <string.h>

#include "kernel.cuh"

static inline float emulated_load(uint32_t type, const void *p, int64_t i)
{
  return type == BRIM_DTYPE_BF16 ? cuda_load(static_cast<const cuda_bf16 *>(p) + i) : static_cast<const float *>(p)[i];
}
static inline void emulated_store(uint32_t type, void *p, int64_t i, float value)
{
  if (type == BRIM_DTYPE_BF16)
    cuda_store(static_cast<cuda_bf16 *>(p) + i, value);
  else
    static_cast<float *>(p)[i] = value;
}
/* Is this in EMULATED_REFUSES? */
static inline bool emulated_refuses(const char *what)
{
  const char *refused = getenv("EMULATED_REFUSES");
  return refused && strstr(refused, what);
}
#endif
