/* A walk over a tensor in memory order, and over operands that are repeated to its shape. Neighbouring dimensions are
 * merged if the tensor and all operands step through them uniformly. The memory orders of operands may differ: only
 * their steps then differ, so no operand needs to be converted. */
#ifndef CUDA_BROADCAST_H
#define CUDA_BROADCAST_H
#include <stdbool.h>

#include "brim/tensor.h"
#include "divider.h"

typedef struct cuda_walk {
  int32_t rank;                   /* the number of dimensions, 0 if all of them are 1; the last changes fastest */
  int64_t dim[BRIM_DIMS_MAX];     /* in the order of memory; their product is the number of the tensor's elements */
  int64_t step[2][BRIM_DIMS_MAX]; /* distance in elements in each operand; 0 where it is repeated */
} cuda_walk;

/* Returns dimension i in the order of memory, slowest first. */
static inline int32_t cuda_dim_at(int32_t i, bool channels_last)
{
  static const int32_t nhwc[4] = {0, 2, 3, 1};
  return channels_last ? nhwc[i] : i;
}

/* Writes the steps of an operand, in elements, along each dimension of a shape that it broadcasts to. */
static inline void cuda_steps(const brim_shape *shape, const brim_shape *operand, bool channels_last,
                              int64_t step[BRIM_DIMS_MAX])
{
  int64_t stride = 1;
  for (int32_t d = 0; d < shape->rank; d++) step[d] = 0;
  for (int32_t i = operand->rank - 1; i >= 0; i--) {
    const int32_t d = cuda_dim_at(i, channels_last);
    if (operand->dim[d] != 1) step[d + shape->rank - operand->rank] = stride;
    stride *= operand->dim[d];
  }
}

/* Makes a walk over `shape`, stored channels-last or plain, and its operands. */
static inline void cuda_walk_init(cuda_walk *w, const brim_shape *shape, bool channels_last,
                                  const brim_shape *const operand[2], const bool operand_last[2])
{
  int64_t step[2][BRIM_DIMS_MAX];
  for (int o = 0; o < 2; o++) cuda_steps(shape, operand[o], operand_last[o], step[o]);
  w->rank = 0;
  for (int32_t i = 0; i < shape->rank; i++) {
    const int32_t d = cuda_dim_at(i, channels_last), last = w->rank - 1;
    const int64_t length = shape->dim[d];
    if (length == 1) continue;
    const bool joins = last >= 0 && w->step[0][last] == step[0][d] * length && w->step[1][last] == step[1][d] * length;
    if (!joins) w->dim[w->rank++] = 1;
    w->dim[w->rank - 1] *= length;
    for (int o = 0; o < 2; o++) w->step[o][w->rank - 1] = step[o][d];
  }
}

/* Returns `shape` with 1 for the axes in the mask. */
static inline brim_shape cuda_reduced_shape(const brim_shape *shape, uint32_t axes)
{
  brim_shape reduced = *shape;
  for (int32_t d = 0; d < shape->rank; d++)
    if (axes >> d & 1) reduced.dim[d] = 1;
  return reduced;
}
#endif
