/* Sizes for sorting indices and for sums over sorted rows, used by index_sort.cuh and embedding.cu. C and C++. */
#ifndef CUDA_SORT_GEOMETRY_H
#define CUDA_SORT_GEOMETRY_H
#include "geometry.h"

enum { CUDA_DIGIT_BITS = 8, CUDA_DIGITS = 1 << CUDA_DIGIT_BITS };

/* Returns the number of warps that sort `count` numbers. Each has a range of 512 numbers, or more if one block could
 * not add up the counts of all warps. */
static inline int64_t cuda_sort_workers(int64_t count)
{
  return cuda_max(1, cuda_min(cuda_divide_up(count, 512), 1024));
}

/* Returns the number of rounds that sort keys in [0, limit]: one for each digit of `limit`. */
static inline int cuda_sort_rounds(int64_t limit)
{
  int rounds = 1;
  for (limit >>= CUDA_DIGIT_BITS; limit > 0; limit >>= CUDA_DIGIT_BITS) rounds++;
  return rounds;
}

/* Returns how many sorted rows one thread adds up. If there are few rows, it is less, so that there are enough
 * threads. */
static inline int64_t cuda_sum_tile(int64_t rows)
{
  return cuda_max(8, cuda_min(rows / 1024 / 8 * 8, 64));
}

/* Returns the first index after `from` at which the sorted keys differ from key[from], or `count`. */
CUDA_ANYWHERE int64_t cuda_sorted_end(const uint32_t *key, int64_t count, int64_t from)
{
  int64_t low = from + 1, high = count; /* key[low - 1] is equal; key[high], if any, is not */
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (key[middle] == key[from])
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}
#endif
