/* Windows of pooling: the range of x in the window of a place of y, and, for gradients, the windows that contain an
 * element of x. Each function works along one dimension d: 0 for height, 1 for width. Plain functions for host and
 * device, in C and C++.
 *
 * Memory is [planes][height][width][lanes]. A plain tensor has N*C planes and 1 lane. A channels-last tensor has N
 * planes and C lanes, which are divided into packs of channels; one thread works on a pack. */
#ifndef CUDA_POOL_WINDOWS_H
#define CUDA_POOL_WINDOWS_H
#include <stdbool.h>

#include "brim/ops.h"
#include "divider.h"

typedef struct cuda_pool {
  int64_t planes, lanes; /* lanes: in packs */
  int64_t extent[2];     /* H, W of x */
  int64_t places[2];     /* P, Q of y */
  int64_t kernel[2], stride[2], padding[2];
  int32_t adaptive, exclude_padding;
  cuda_divider by_lanes, by_extent[2], by_places[2], by_stride[2];
} cuda_pool;

/* [from, to); empty if from >= to. */
typedef struct cuda_range {
  int64_t from, to;
} cuda_range;

/* Describes pooling from x [N,C,H,W] to y [N,C,P,Q], in packs of `pack` channels. `pack` divides C if channels_last,
 * and is 1 otherwise. */
static inline cuda_pool cuda_pool_of(const brim_pool2d_attr *attr, bool adaptive, const brim_shape *x,
                                     const brim_shape *y, bool channels_last, int64_t pack)
{
  cuda_pool p;
  p.planes = channels_last ? x->dim[0] : x->dim[0] * x->dim[1];
  p.lanes = channels_last ? x->dim[1] / pack : 1;
  p.adaptive = adaptive;
  p.exclude_padding = attr->exclude_padding;
  p.by_lanes = cuda_divider_of(p.lanes);
  for (int d = 0; d < 2; d++) {
    p.extent[d] = x->dim[2 + d];
    p.places[d] = y->dim[2 + d];
    p.kernel[d] = adaptive ? 1 : attr->kernel[d]; /* an adaptive pool does not use these attributes */
    p.stride[d] = adaptive ? 1 : attr->stride[d];
    p.padding[d] = adaptive ? 0 : attr->padding[d];
    p.by_extent[d] = cuda_divider_of(p.extent[d]);
    p.by_places[d] = cuda_divider_of(p.places[d]);
    p.by_stride[d] = cuda_divider_of(p.stride[d]);
  }
  return p;
}

/* Returns the first row or column of a place's window, which may be in the padding. */
CUDA_ANYWHERE int64_t cuda_window_start(const cuda_pool *p, int d, int64_t place)
{
  return place * p->stride[d] - p->padding[d];
}

/* Returns the range of x in a place's window, which is never empty. Adaptive windows reach from floor(place * H / P) to
 * ceil((place + 1) * H / P). */
CUDA_ANYWHERE cuda_range cuda_window(const cuda_pool *p, int d, int64_t place)
{
  cuda_range r;
  if (p->adaptive) {
    r.from = cuda_quotient(&p->by_places[d], place * p->extent[d]);
    r.to = cuda_quotient(&p->by_places[d], (place + 1) * p->extent[d] + p->places[d] - 1);
    return r;
  }
  r.from = cuda_max(0, cuda_window_start(p, d, place));
  r.to = cuda_min(p->extent[d], cuda_window_start(p, d, place) + p->kernel[d]);
  return r;
}

/* Returns the places whose windows contain row or column `at` of x. The places are neighbours, because windows are in
 * order.
 *
 *     start <= at            place <= (at + padding) / stride
 *     start + kernel > at    place >= (at + padding - kernel + 1) / stride, rounded up
 *
 * For adaptive windows, place * H / P < at + 1 holds for places below (at + 1) * P / H, rounded up, and (place + 1) * H
 * / P > at holds from at * P / H on, rounded down. These are the formulas of a window with x and y exchanged. */
CUDA_ANYWHERE cuda_range cuda_windows_over(const cuda_pool *p, int d, int64_t at)
{
  cuda_range r;
  if (p->adaptive) {
    r.from = cuda_quotient(&p->by_extent[d], at * p->places[d]);
    r.to = cuda_quotient(&p->by_extent[d], (at + 1) * p->places[d] + p->extent[d] - 1);
    return r;
  }
  const int64_t reach = at + p->padding[d], start = reach - p->kernel[d] + 1;
  r.from = start <= 0 ? 0 : cuda_quotient(&p->by_stride[d], start + p->stride[d] - 1);
  r.to = cuda_min(p->places[d], cuda_quotient(&p->by_stride[d], reach) + 1);
  return r;
}

/* The sum over a window is divided by the divisor of its rows times the divisor of its columns. */
CUDA_ANYWHERE float cuda_window_divisor(const cuda_pool *p, int d, int64_t place)
{
  if (!p->adaptive && !p->exclude_padding) return (float)p->kernel[d];
  const cuda_range r = cuda_window(p, d, place);
  return (float)(r.to - r.from);
}

/* Returns the approximate number of values in a window. */
static inline int64_t cuda_window_size(const cuda_pool *p)
{
  if (!p->adaptive) return cuda_min(p->kernel[0], p->extent[0]) * cuda_min(p->kernel[1], p->extent[1]);
  return cuda_divide_up(p->extent[0], p->places[0]) * cuda_divide_up(p->extent[1], p->places[1]);
}

/* The coordinates of element i in [planes][rows][columns][lanes]. */
typedef struct cuda_pixel {
  int64_t plane, row, column, lane;
} cuda_pixel;

CUDA_ANYWHERE cuda_pixel cuda_pixel_of(const cuda_pool *p, const cuda_divider by[2], int64_t i)
{
  cuda_pixel at;
  at.lane = p->lanes == 1 ? 0 : cuda_take(&p->by_lanes, &i);
  at.column = cuda_take(&by[1], &i);
  at.row = cuda_take(&by[0], &i);
  at.plane = i;
  return at;
}

/* Return the index of (row, column) in x, and in y, for the same plane and lane. */
CUDA_ANYWHERE int64_t cuda_at_x(const cuda_pool *p, const cuda_pixel *same, int64_t row, int64_t column)
{
  return ((same->plane * p->extent[0] + row) * p->extent[1] + column) * p->lanes + same->lane;
}
CUDA_ANYWHERE int64_t cuda_at_y(const cuda_pool *p, const cuda_pixel *same, int64_t row, int64_t column)
{
  return ((same->plane * p->places[0] + row) * p->places[1] + column) * p->lanes + same->lane;
}
#endif
