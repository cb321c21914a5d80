/* Iterates over a plain tensor and others that are repeated to its shape, row by row. Dimensions along which all of
 * them advance in the same way are merged, so that rows are long. */
#ifndef CPU_BROADCAST_H
#define CPU_BROADCAST_H
#include "cpu.h"
#include "simd_broadcast.h"

typedef struct cpu_walk {
  int64_t rows, length;
  int32_t rank;                   /* dimensions that count the rows, the last changing fastest */
  int64_t dim[BRIM_DIMS_MAX];     /* of the rows */
  int64_t step[2][BRIM_DIMS_MAX]; /* distance in elements in each operand; 0 where it is repeated */
  bool advances[2];               /* whether it advances by one element along a row, or stays */
} cpu_walk;

/* Prepares a walk over `shape`; each operand's shape broadcasts to it. */
void cpu_walk_init(cpu_walk *w, const brim_shape *shape, const brim_shape *a, const brim_shape *b);
/* Computes the offsets of both operands at the beginning of a row. */
static inline void cpu_walk_offsets(const cpu_walk *w, int64_t row, int64_t offset[2])
{
  offset[0] = offset[1] = 0;
  for (int32_t d = w->rank - 1; d >= 0; d--) {
    const int64_t at = row % w->dim[d];
    row /= w->dim[d];
    offset[0] += at * w->step[0][d];
    offset[1] += at * w->step[1][d];
  }
}

/* Returns `shape` with 1 for the axes in the mask. */
brim_shape cpu_reduced_shape(const brim_shape *shape, uint32_t axes);

const cpu_broadcast *cpu_broadcast_table(const cpu_backend *b);

#endif
