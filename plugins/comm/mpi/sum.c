/* Sums over ranks. Adds one block of elements after another, so that partial sums stay in the L1 cache. */
#include <string.h>

#include "mpi.h"

#define BLOCK 1024

#define SUM(type)                                                                                                      \
  static void add_##type(type *restrict to, const type *restrict from, size_t count)                                   \
  {                                                                                                                    \
    for (size_t i = 0; i < count; i++) to[i] += from[i];                                                               \
  }                                                                                                                    \
  static void sum_##type(type *out, const void *const *from, int ranks, size_t count)                                  \
  {                                                                                                                    \
    type sum[BLOCK];                                                                                                   \
    for (size_t at = 0; at < count; at += BLOCK) {                                                                     \
      const size_t n = count - at < BLOCK ? count - at : BLOCK;                                                        \
      memcpy(sum, (const type *)from[0] + at, n * sizeof *sum);                                                        \
      for (int r = 1; r < ranks; r++) add_##type(sum, (const type *)from[r] + at, n);                                  \
      memcpy(out + at, sum, n * sizeof *sum);                                                                          \
    }                                                                                                                  \
  }
SUM(float)
SUM(double)

void mpi_sum(uint32_t dtype, void *out, const void *const *from, int ranks, size_t count)
{
  if (dtype == BRIM_DTYPE_F64)
    sum_double(out, from, ranks, count);
  else
    sum_float(out, from, ranks, count);
}
