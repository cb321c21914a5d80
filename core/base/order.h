/* Comparison functions for qsort(). */
#ifndef BRIM_BASE_ORDER_H
#define BRIM_BASE_ORDER_H

/* Doubles, ascending; must not be NAN. */
static inline int brim_by_double(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
#endif
