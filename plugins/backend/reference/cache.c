/* cache_write: cache[n, place mod C] = x[n,t], for the tokens t from `start` on; place is that of token t in text n.
 * Tokens are written in order, so if consecutive tokens have the same place, the last one counts. */
#include <string.h>

#include "reference.h"

REFERENCE(cache_write, "cache_write")
{
  const brim_node *node = launch->node;
  const brim_shape *x = &node->in[0]->shape;
  const int64_t rows = node->out[0]->shape.dim[1], width = node->out[0]->shape.dim[2];
  const int32_t *places = launch->in[1];
  const double *from = (const double *)launch->in[0] + node->attr.move.start;
  double *cache = launch->out[0];
  for (int64_t n = 0; n < x->dim[0]; n++)
    for (int64_t t = 0; t < x->dim[1]; t++, places++, from += x->dim[2]) {
      if (*places < 0) return brim_fail(BRIM_EINVAL, "cache_write '%s': place %d is negative", node->name, *places);
      memcpy(cache + (n * rows + *places % rows) * width, from, (size_t)width * sizeof *from);
    }
  return BRIM_OK;
}
