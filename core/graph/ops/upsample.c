/* Resizing, as torch.nn.functional.interpolate: the nearest value, or interpolation between the four around it. The
 * gradient needs only shapes. One dimension is treated as a height of 1, which does not change. */
#include "graph/ops/window.h"

#undef brim_upsample1d
#undef brim_upsample2d

static brim_status gradient_upsample2d(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "upsample2d_grad", NULL);
}

/* Interpolation: three blends of two values, each a product and a sum more than copying a value. */
static uint64_t flops_of_value(const brim_node *n)
{
  return n->attr.upsample2d.mode == BRIM_UPSAMPLE_NEAREST ? 1 : 9;
}
static void cost_upsample2d(const brim_node *n, brim_cost *out)
{
  out->flops = flops_of_value(n) * (uint64_t)brim_shape_count(&n->out[0]->shape);
}
static void cost_grad(const brim_node *n, brim_cost *out)
{
  out->flops = flops_of_value(n) * (uint64_t)brim_shape_count(&n->in[0]->shape);
}

BRIM_OP(upsample2d) = {.name = "upsample2d",
                       .kind = BRIM_KIND_POOLING,
                       .traits = BRIM_OP_APART,
                       .signature = "x [N,C,H,W] -> y [N,C,P,Q]",
                       .gradient = gradient_upsample2d,
                       .cost = cost_upsample2d};
BRIM_OP(upsample2d_grad) = {.name = "upsample2d_grad",
                            .kind = BRIM_KIND_POOLING,
                            .traits = BRIM_OP_APART,
                            .signature = "dy -> dx",
                            .cost = cost_grad};

/* Computes one dimension of the result from a size or a factor; 0, with the error in the graph, if neither is valid. */
static int64_t length_of(brim_graph *g, const char *op, const char *which, int64_t length, int64_t size, int64_t factor)
{
  const bool one = (size != 0) != (factor != 0);
  if (one && size >= 0 && size <= BRIM_WINDOW_MAX && factor >= 0 && factor <= BRIM_WINDOW_MAX)
    return size ? size : length * factor;
  brim_graph_fail(g, op, NULL,
                  "%s: either a size or a factor must be in [1,%d], and the other 0; got size %lld, factor %lld", which,
                  BRIM_WINDOW_MAX, (long long)size, (long long)factor);
  return 0;
}

static bool check_mode(brim_graph *g, const char *op, int32_t mode, int32_t align_corners)
{
  if (mode != BRIM_UPSAMPLE_NEAREST && mode != BRIM_UPSAMPLE_LINEAR)
    brim_graph_fail(g, op, NULL, "mode must be BRIM_UPSAMPLE_NEAREST or BRIM_UPSAMPLE_LINEAR, got %d", mode);
  else if (mode == BRIM_UPSAMPLE_NEAREST && align_corners)
    brim_graph_fail(g, op, NULL, "align_corners needs BRIM_UPSAMPLE_LINEAR");
  return g->status == BRIM_OK;
}

static brim_tensor *make(brim_graph *g, brim_tensor *x, const brim_shape *shape, int32_t mode, int32_t align_corners)
{
  const brim_attr attr = {.upsample2d = {.mode = mode, .align_corners = align_corners != 0}};
  brim_tensor *y = x ? brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, x->dtype, shape, "upsample2d") : NULL;
  return y && brim_graph_node_into(g, "upsample2d", NULL, &x, 1, &y, 1, &attr) ? y : NULL;
}

brim_tensor *brim_upsample2d(brim_graph *g, brim_tensor *x, brim_upsample2d_options options)
{
  static const char op[] = "upsample2d";
  const brim_upsample2d_options *o = &options;
  if (!brim_window_rank(g, op, NULL, x, 4) || !check_mode(g, op, o->mode, o->align_corners)) return NULL;
  const int64_t height = length_of(g, op, "height", x->shape.dim[2], o->size[0], o->factor[0]);
  const int64_t width = height ? length_of(g, op, "width", x->shape.dim[3], o->size[1], o->factor[1]) : 0;
  const brim_shape shape = {4, {x->shape.dim[0], x->shape.dim[1], height, width}};
  return width ? make(g, x, &shape, o->mode, o->align_corners) : NULL;
}

brim_tensor *brim_upsample1d(brim_graph *g, brim_tensor *x, brim_upsample1d_options options)
{
  static const char op[] = "upsample1d";
  const brim_upsample1d_options *o = &options;
  if (!brim_window_rank(g, op, NULL, x, 3) || !check_mode(g, op, o->mode, o->align_corners)) return NULL;
  const int64_t length = length_of(g, op, "length", x->shape.dim[2], o->size, o->factor);
  const brim_shape shape = {4, {x->shape.dim[0], x->shape.dim[1], 1, length}};
  return length ? brim_window_join(g, make(g, brim_window_spread(g, x), &shape, o->mode, o->align_corners)) : NULL;
}
