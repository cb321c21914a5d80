/* Comparison functions for qsort(). */
#ifndef BRIM_BASE_ORDER_H
#define BRIM_BASE_ORDER_H
#include <stdint.h>

/* Compares doubles, for qsort in ascending order; they must not be NAN. */
static inline int brim_by_double(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* int64_t, ascending. */
static inline int brim_by_int64(const void *a, const void *b)
{
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}
#endif
