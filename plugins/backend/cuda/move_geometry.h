/* Geometry of moves: dimensions in memory order, merged if they stay neighbours. Plain functions of shapes, for C and
 * C++. */
#ifndef CUDA_MOVE_GEOMETRY_H
#define CUDA_MOVE_GEOMETRY_H
#include <stdbool.h>

#include "brim/tensor.h"
#include "divider.h"

/* Returns the widest unit, in bytes, that divides all lengths; threads load and store one unit at a time. `lengths` is
 * the bitwise or of the lengths, because a power of two divides all lengths if it divides their bitwise or. */
static inline int64_t cuda_unit_bytes(int64_t lengths)
{
  const int64_t lowest = lengths & -lengths;
  return lowest == 0 || lowest > 16 ? 16 : lowest;
}

/* A tensor's dimensions in memory order: [N][C][H][W] or, channels-last, [N][H][W][C]. */
typedef struct cuda_view {
  int32_t rank;
  int32_t logical[BRIM_DIMS_MAX]; /* for each dimension in memory, the dimension of the shape */
  int64_t dim[BRIM_DIMS_MAX];
} cuda_view;

static inline cuda_view cuda_view_of(const brim_shape *shape, bool channels_last)
{
  static const int32_t last[4] = {0, 2, 3, 1};
  cuda_view v;
  v.rank = shape->rank;
  for (int32_t d = 0; d < v.rank; d++) {
    v.logical[d] = channels_last ? last[d] : d;
    v.dim[d] = shape->dim[v.logical[d]];
  }
  return v;
}

/* In memory order, the products of the dimensions before and after dimension `axis` of the shape. */
typedef struct cuda_around {
  int64_t outer, inner;
} cuda_around;

static inline cuda_around cuda_around_of(const cuda_view *v, int32_t axis)
{
  cuda_around a = {1, 1};
  bool after = false;
  for (int32_t d = 0; d < v->rank; d++) {
    if (v->logical[d] == axis)
      after = true;
    else if (after)
      a.inner *= v->dim[d];
    else
      a.outer *= v->dim[d];
  }
  return a;
}

/* ---- pad ---- */

/* The dimensions of y, outermost first, in units of unit_bytes. For each dimension it also has the length of x and the
 * padding before x. */
typedef struct cuda_padding {
  int32_t rank;
  cuda_divider y[BRIM_DIMS_MAX];
  int64_t x[BRIM_DIMS_MAX], before[BRIM_DIMS_MAX];
  int64_t unit_bytes, count; /* count: units of y */
} cuda_padding;

/* `before` is indexed by the dimensions of the shapes. A dimension without padding is merged with the one before it. */
static inline cuda_padding cuda_padding_of(const brim_shape *x, const brim_shape *y, const int64_t *before,
                                           bool channels_last, int64_t element_bytes)
{
  const cuda_view from = cuda_view_of(x, channels_last), to = cuda_view_of(y, channels_last);
  cuda_padding p;
  int64_t y_dim[BRIM_DIMS_MAX];
  p.rank = 0;
  for (int32_t d = 0; d < to.rank; d++) {
    const bool whole = from.dim[d] == to.dim[d];
    if (whole && p.rank > 0) {
      y_dim[p.rank - 1] *= to.dim[d];
      p.x[p.rank - 1] *= from.dim[d];
      p.before[p.rank - 1] *= to.dim[d];
      continue;
    }
    y_dim[p.rank] = to.dim[d];
    p.x[p.rank] = from.dim[d];
    p.before[p.rank++] = before[to.logical[d]];
  }
  const int32_t last = p.rank - 1;
  p.unit_bytes = cuda_unit_bytes((y_dim[last] | p.x[last] | p.before[last]) * element_bytes);
  y_dim[last] = y_dim[last] * element_bytes / p.unit_bytes;
  p.x[last] = p.x[last] * element_bytes / p.unit_bytes;
  p.before[last] = p.before[last] * element_bytes / p.unit_bytes;
  p.count = 1;
  for (int32_t d = 0; d < p.rank; d++) {
    p.y[d] = cuda_divider_of(y_dim[d]);
    p.count *= y_dim[d];
  }
  return p;
}

/* Returns the unit of x at unit i of y, or -1 for padding. */
CUDA_ANYWHERE int64_t cuda_padding_source(const cuda_padding *p, int64_t i)
{
  int64_t at = 0, step = 1;
  for (int32_t d = p->rank - 1; d >= 0; d--) {
    const int64_t place = cuda_take(&p->y[d], &i) - p->before[d];
    if (place < 0 || place >= p->x[d]) return -1;
    at += place * step;
    step *= p->x[d];
  }
  return at;
}

/* ---- permute ---- */

/* The dimensions of y in memory order, outermost first, with their lengths and their strides in x and in y. All are in
 * elements, or in units of several elements. */
typedef struct cuda_permutation {
  int32_t rank;
  int64_t dim[BRIM_DIMS_MAX], from[BRIM_DIMS_MAX], to[BRIM_DIMS_MAX];
} cuda_permutation;

/* Adds a dimension after the last one. Merges the two if they are also neighbours in this order in x. */
static inline void cuda_permutation_add(cuda_permutation *p, int64_t dim, int64_t from)
{
  if (dim == 1) return;
  const int32_t last = p->rank - 1;
  if (last >= 0 && p->from[last] == dim * from) {
    p->dim[last] *= dim;
    p->from[last] = from;
    return;
  }
  p->dim[p->rank] = dim;
  p->from[p->rank++] = from;
}

static inline cuda_permutation cuda_permutation_of(const brim_shape *x, bool x_last, const brim_shape *y, bool y_last,
                                                   const int32_t *order)
{
  const cuda_view from = cuda_view_of(x, x_last), to = cuda_view_of(y, y_last);
  int64_t stride[BRIM_DIMS_MAX], step = 1;
  cuda_permutation p;
  p.rank = 0;
  for (int32_t d = from.rank - 1; d >= 0; d--) {
    stride[from.logical[d]] = step;
    step *= from.dim[d];
  }
  for (int32_t d = 0; d < to.rank; d++) cuda_permutation_add(&p, to.dim[d], stride[order[to.logical[d]]]);
  if (p.rank == 0) { /* one element */
    p.dim[0] = p.from[0] = 1;
    p.rank = 1;
  }
  step = 1;
  for (int32_t d = p.rank - 1; d >= 0; d--) {
    p.to[d] = step;
    step *= p.dim[d];
  }
  return p;
}

/* Returns the index of y's dimension that is x's innermost. */
static inline int32_t cuda_permutation_inner(const cuda_permutation *p)
{
  int32_t inner = p->rank - 1;
  for (int32_t d = 0; d < p->rank; d++)
    if (p->from[d] == 1) inner = d;
  return inner;
}

/* If runs stay whole (x and y have the same innermost dimension), converts all lengths and strides to units of several
 * elements. Returns the bytes of a unit. */
static inline int64_t cuda_permutation_widen(cuda_permutation *p, int64_t element_bytes)
{
  const int32_t last = p->rank - 1;
  int64_t lengths = p->dim[last];
  for (int32_t d = 0; d < last; d++) lengths |= p->from[d];
  const int64_t unit = cuda_unit_bytes(lengths * element_bytes), elements = unit / element_bytes;
  p->dim[last] /= elements;
  for (int32_t d = 0; d < last; d++) {
    p->from[d] /= elements;
    p->to[d] /= elements;
  }
  return unit;
}

/* Removes dimension `at`. */
static inline void cuda_permutation_remove(cuda_permutation *p, int32_t at)
{
  for (int32_t d = at; d + 1 < p->rank; d++) {
    p->dim[d] = p->dim[d + 1];
    p->from[d] = p->from[d + 1];
    p->to[d] = p->to[d + 1];
  }
  p->rank--;
}
#endif
