/* Tables of tensors, for kernels that process many tensors in one launch. A model has hundreds of parameters, most of
 * them tiny, and separate launches would take longer than the work itself.
 *
 * Each tensor is divided into parts, which are numbered throughout a table. A block takes parts and finds the tensor of
 * each by binary search in `first`, so blocks have equal work for tensors of any size. A table is an argument of the
 * kernel: it needs no device memory and no copy, and a recorded launch keeps it. */
#ifndef CUDA_UPDATE_TABLE_H
#define CUDA_UPDATE_TABLE_H
#include <stdbool.h>
#include <stdint.h>

#include "geometry.h"

#define CUDA_PARAMETER_BYTES 32764 /* limit of a kernel's arguments from CUDA 12.1 and compute capability 7.0 on */

typedef struct cuda_table_entry {
  void *tensor[4]; /* the kernel defines their meaning; may be NULL */
  int64_t count;   /* elements */
  union {
    double factor;
    /* Casts: matrices [depth][taps] that are written transposed; not transposed if taps is 1. */
    struct {
      uint32_t depth, taps;
    } matrix;
  };
  uint32_t first; /* the tensor's first part */
  uint32_t flags;
} cuda_table_entry;

typedef struct cuda_table_head {
  const double *scale; /* address on the device of the gradients' factor, or NULL */
  uint32_t entries, parts;
} cuda_table_head;

/* The number of entries that fit beside the table's head and the kernel's other arguments. */
#define CUDA_TABLE_ENTRIES ((CUDA_PARAMETER_BYTES - 64 - sizeof(cuda_table_head)) / sizeof(cuda_table_entry))
#define CUDA_TABLE_PARTS_MAX 0x7FFFFFFF

typedef struct cuda_table {
  cuda_table_head head;
  cuda_table_entry entry[CUDA_TABLE_ENTRIES];
} cuda_table;

/* A small table for few tensors, because each launch copies its arguments. */
#define CUDA_TABLE_FEW 8
typedef struct cuda_table_few {
  cuda_table_head head;
  cuda_table_entry entry[CUDA_TABLE_FEW];
} cuda_table_few;

static inline void cuda_table_clear(cuda_table *table, const double *scale)
{
  table->head.scale = scale;
  table->head.entries = table->head.parts = 0;
}

/* Adds a tensor of `parts` parts; does nothing if `parts` is 0. Returns false if the table has no room for the tensor,
 * or would then have more than parts_max parts. An empty table always takes one tensor. */
static inline bool cuda_table_add(cuda_table *table, const cuda_table_entry *entry, int64_t parts, int64_t parts_max)
{
  cuda_table_head *head = &table->head;
  if (parts == 0) return true;
  if (head->entries == CUDA_TABLE_ENTRIES) return false;
  if (head->entries > 0 && head->parts + parts > parts_max) return false;
  table->entry[head->entries] = *entry;
  table->entry[head->entries++].first = head->parts;
  head->parts += (uint32_t)parts;
  return true;
}

/* Defines a function that finds the entry of a part: the last entry whose first part is not after it. ENTRY has a
 * member `first`. */
#define CUDA_PART_FIND(name, ENTRY)                                                                                    \
  CUDA_ANYWHERE uint32_t name(const ENTRY *entry, uint32_t entries, uint32_t part)                                     \
  {                                                                                                                    \
    uint32_t low = 0, high = entries; /* entry[low].first <= part, and part < entry[high].first if there is one */     \
    while (high - low > 1) {                                                                                           \
      const uint32_t middle = (low + high) / 2;                                                                        \
      if (entry[middle].first <= part)                                                                                 \
        low = middle;                                                                                                  \
      else                                                                                                             \
        high = middle;                                                                                                 \
    }                                                                                                                  \
    return low;                                                                                                        \
  }
CUDA_PART_FIND(cuda_table_find, cuda_table_entry)

/* ---- how tensors are cut ---- */

#define CUDA_UPDATE_PIECE 4096 /* elements of a part of an update */
#define CUDA_NORM_PIECE 16384  /* elements whose squares a block adds up at a time */
#define CUDA_NORM_PARTS 4096   /* maximum parts of a tensor; a part has every 4096th piece */

static inline int64_t cuda_update_parts(int64_t count)
{
  return cuda_divide_up(count, CUDA_UPDATE_PIECE);
}
CUDA_ANYWHERE int64_t cuda_norm_parts(int64_t count)
{
  /* A tensor has at least one part, because its sum is always written. */
  return cuda_max(1, cuda_min(cuda_divide_up(count, CUDA_NORM_PIECE), CUDA_NORM_PARTS));
}
#endif
