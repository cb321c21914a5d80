/* Rotary position embedding (Su et al.: RoFormer, 2021). The first `dims` numbers of each head are pairs; the rest of
 * the head stays. p is the place of a token in its document, or its position if there are no documents. Pair i is
 * turned by the angle p * frequency(i), where the frequency is base^(-2i/dims) unless it is scaled (brim/rotary.h):
 *
 *     y[a] = x[a] * cos - x[b] * sin
 *     y[b] = x[b] * cos + x[a] * sin
 *
 * with a = 2i, b = 2i + 1 (interleaved) or a = i, b = i + dims/2 (halves), and times an amplitude, which is usually 1.
 * The gradient turns dy back. Heads from `turned` on are copied. */
#include "brim/rotary.h"
#include "reference.h"

static void turn(const brim_rotary_attr *attr, const double *x, double *y, int64_t pair, double angle)
{
  const int64_t a = attr->interleaved ? 2 * pair : pair, b = attr->interleaved ? a + 1 : a + attr->dims / 2;
  const double xa = x[a], xb = x[b]; /* y may be x */
  y[a] = attr->amplitude * (xa * cos(angle) - xb * sin(angle));
  y[b] = attr->amplitude * (xb * cos(angle) + xa * sin(angle));
}

static brim_status turn_all(const brim_launch *launch, int direction)
{
  const brim_rotary_attr *attr = &launch->node->attr.rotary;
  const brim_shape *shape = &launch->node->in[0]->shape;
  const int32_t *places = launch->node->in_count > 1 ? launch->in[1] : NULL;
  const int64_t T = shape->dim[1], D = shape->dim[2] / attr->heads;

  for (int64_t row = 0; row < shape->dim[0] * T; row++)
    for (int64_t h = 0; h < attr->heads; h++) {
      const double *x = (const double *)launch->in[0] + (row * attr->heads + h) * D;
      double *y = (double *)launch->out[0] + (row * attr->heads + h) * D;
      const int64_t dims = attr->turned > 0 && h >= attr->turned ? 0 : attr->dims;
      for (int64_t i = 0; i < dims / 2; i++) {
        const double angle = (double)(places ? places[row] : row % T) * brim_rotary_frequency(attr, i);
        turn(attr, x, y, i, direction * angle);
      }
      for (int64_t d = dims; d < D; d++) y[d] = x[d];
    }
  return BRIM_OK;
}

REFERENCE(rotary, "rotary")
{
  return turn_all(launch, 1);
}

REFERENCE(rotary_grad, "rotary_grad")
{
  return turn_all(launch, -1);
}
