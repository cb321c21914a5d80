/* Windows over the last two dimensions, or the last one: checks, counts and prints their numbers. */
#include "graph/ops/window.h"

#include <stdio.h>

#undef brim_reshape

bool brim_window_valid(const brim_window *w)
{
  for (int d = 0; d < 2; d++) {
    const int64_t from_one[] = {w->kernel[d], w->stride[d], w->dilation[d]};
    for (int i = 0; i < 3; i++)
      if (from_one[i] < 1 || from_one[i] > BRIM_WINDOW_MAX) return false;
    if (w->padding[d] < 0 || w->padding[d] > BRIM_WINDOW_MAX) return false;
  }
  return true;
}

const char *brim_window_format(char *out, size_t room, const brim_shape *x, const int64_t pair[2])
{
  if (x->rank == 4)
    snprintf(out, room, "%lldx%lld", (long long)pair[0], (long long)pair[1]);
  else
    snprintf(out, room, "%lld", (long long)pair[1]);
  return out;
}

brim_status brim_window_places(brim_graph *g, const char *op, const char *name, const brim_window *w,
                               const brim_shape *x, int64_t out[2])
{
  const int dims = x->rank - 2;
  out[0] = 1;
  for (int d = 2 - dims; d < 2; d++) {
    const int64_t span = x->dim[dims + d] + 2 * w->padding[d], reach = w->dilation[d] * (w->kernel[d] - 1) + 1;
    if (span < reach) {
      char kernel[48], dilation[48], text[96];
      const bool dilated = w->dilation[0] > 1 || w->dilation[1] > 1;
      return brim_graph_fail(g, op, name, "kernel %s%s%s is larger than the padded input %s",
                             brim_window_format(kernel, sizeof kernel, x, w->kernel), dilated ? " with dilation " : "",
                             dilated ? brim_window_format(dilation, sizeof dilation, x, w->dilation) : "",
                             brim_shape_format(text, sizeof text, x));
    }
    out[d] = (span - reach) / w->stride[d] + 1;
  }
  return BRIM_OK;
}

bool brim_window_rank(brim_graph *g, const char *op, const char *name, const brim_tensor *x, int32_t rank)
{
  if (!brim_graph_accepts_real(g, op, name, x)) return false;
  if (x->shape.rank == rank) return true;
  char text[96];
  brim_graph_fail(g, op, name, "input must be %s, got %s", rank == 4 ? "[N, C, H, W]" : "[N, C, L]",
                  brim_shape_format(text, sizeof text, &x->shape));
  return false;
}

brim_tensor *brim_window_spread(brim_graph *g, brim_tensor *x)
{
  if (!x) return NULL;
  return brim_reshape(g, x, 4, (int64_t[]){x->shape.dim[0], x->shape.dim[1], 1, x->shape.dim[2]});
}

brim_tensor *brim_window_join(brim_graph *g, brim_tensor *y)
{
  if (!y) return NULL;
  return brim_reshape(g, y, 3, (int64_t[]){y->shape.dim[0], y->shape.dim[1], y->shape.dim[3]});
}
