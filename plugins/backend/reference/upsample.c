/* Resizing of images, and its gradient. In each dimension, place p of y lies between two neighbours in x:
 *
 *     y[p] = (1 - share) * x[at] + share * x[at + 1]        at + share is the position of p (brim/ops.h)
 *
 * Positions are quotients of whole numbers, so `at` is exact. The gradient distributes each dy by the same shares. */
#include <stdbool.h>
#include <string.h>

#include "reference.h"

typedef struct place {
  int64_t at;
  double share; /* share of the next value; 0 if there is no next value, or if it does not count */
} place;

static place place_of(const brim_upsample2d_attr *attr, int64_t extent, int64_t places, int64_t p)
{
  const bool nearest = attr->mode == BRIM_UPSAMPLE_NEAREST, aligned = attr->align_corners != 0;
  int64_t above = p * extent, below = places; /* the position is the fraction above / below */
  if (!nearest && aligned) {
    above = p * (extent - 1);
    below = places > 1 ? places - 1 : 1;
  } else if (!nearest) {
    above = (2 * p + 1) * extent - places;
    below = 2 * places;
  }
  if (above < 0) above = 0;
  const place found = {above / below, nearest ? 0 : (double)(above % below) / (double)below};
  return found.at < extent - 1 ? found : (place){extent - 1, 0};
}

/* Called for each value of y, with each of the (at most four) values of x from which it is interpolated and the share
 * of that value. */
typedef void (*each_fn)(void *x, void *y, double share);
static void add_to_y(void *x, void *y, double share)
{
  *(double *)y += share * *(double *)x;
}
static void add_to_x(void *x, void *y, double share)
{
  *(double *)x += share * *(double *)y;
}

static void walk(const brim_node *node, const brim_shape *x_shape, const brim_shape *y_shape, double *x, double *y,
                 each_fn each)
{
  const brim_upsample2d_attr *attr = &node->attr.upsample2d;
  const int64_t H = x_shape->dim[2], W = x_shape->dim[3], P = y_shape->dim[2], Q = y_shape->dim[3];
  for (int64_t plane = 0; plane < x_shape->dim[0] * x_shape->dim[1]; plane++, x += H * W)
    for (int64_t p = 0; p < P; p++)
      for (int64_t q = 0; q < Q; q++, y++) {
        const place row = place_of(attr, H, P, p), column = place_of(attr, W, Q, q);
        double *corner = x + row.at * W + column.at;
        each(corner, y, (1 - row.share) * (1 - column.share));
        if (column.share > 0) each(corner + 1, y, (1 - row.share) * column.share);
        if (row.share > 0) each(corner + W, y, row.share * (1 - column.share));
        if (row.share > 0 && column.share > 0) each(corner + W + 1, y, row.share * column.share);
      }
}

REFERENCE(upsample2d, "upsample2d")
{
  const brim_node *node = launch->node;
  memset(launch->out[0], 0, node->out[0]->bytes);
  walk(node, &node->in[0]->shape, &node->out[0]->shape, launch->in[0], launch->out[0], add_to_y);
  return BRIM_OK;
}

REFERENCE(upsample2d_grad, "upsample2d_grad")
{
  const brim_node *node = launch->node;
  memset(launch->out[0], 0, node->out[0]->bytes);
  walk(node, &node->out[0]->shape, &node->in[0]->shape, launch->out[0], launch->in[0], add_to_x);
  return BRIM_OK;
}
