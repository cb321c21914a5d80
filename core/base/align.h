/* Sizes that are multiples of something. */
#ifndef BRIM_BASE_ALIGN_H
#define BRIM_BASE_ALIGN_H
#include <stdint.h>

/* The least multiple of `unit`, which is not 0, that is not below `size`. */
static inline uint64_t brim_round_up(uint64_t size, uint64_t unit)
{
  return (size + unit - 1) / unit * unit;
}
#endif
