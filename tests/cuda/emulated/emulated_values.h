/* Shared by the loops that replace the libraries: values of any type, and the operations that a test makes them
 * refuse. */
#ifndef EMULATED_VALUES_H
#define EMULATED_VALUES_H
#include <stdlib.h>
#include <string.h>

#include "kernel.cuh"

static inline float emulated_load(uint32_t type, const void *p, int64_t i)
{
  CUDA_WITH_TYPE(type, T, return cuda_load(static_cast<const T *>(p) + i));
}
static inline void emulated_store(uint32_t type, void *p, int64_t i, float value)
{
  CUDA_WITH_TYPE(type, T, cuda_store(static_cast<T *>(p) + i, value));
}
/* Marks functions that access only the library's own memory. Without checks of addresses the compiler uses vectors in
 * their loops. */
#define EMULATED_OWN __attribute__((no_sanitize("alignment")))
EMULATED_OWN static inline float emulated_dot(const float *a, const float *b, int64_t count)
{
  float sum = 0;
  for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}
EMULATED_OWN static inline void emulated_add(float *to, float factor, const float *x, int64_t count)
{
  for (int64_t i = 0; i < count; i++) to[i] += factor * x[i];
}
/* Returns true if EMULATED_REFUSES contains this name. */
static inline bool emulated_refuses(const char *what)
{
  const char *refused = getenv("EMULATED_REFUSES");
  return refused && strstr(refused, what);
}
#endif
