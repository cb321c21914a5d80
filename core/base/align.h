/* Rounds sizes up to a multiple. */
#ifndef BRIM_BASE_ALIGN_H
#define BRIM_BASE_ALIGN_H
#include <stdint.h>

/* The smallest multiple of `unit` (not 0) that is at least `size`. */
static inline uint64_t brim_round_up(uint64_t size, uint64_t unit)
{
  return (size + unit - 1) / unit * unit;
}
#endif
