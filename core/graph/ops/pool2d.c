/* Pooling: the maximum or mean of each window, or means of a given number of windows.
 *
 * Max pooling keeps the position of each maximum in one byte, so the backward pass needs neither x nor y. The backward
 * pass of a mean needs only shapes. One dimension is treated as a height of 1. */
#include "graph/ops/window.h"

#undef brim_max_pool2d
#undef brim_avg_pool2d
#undef brim_max_pool1d
#undef brim_adaptive_avg_pool2d
#undef brim_global_avg_pool
#undef brim_flatten
#undef brim_reshape

#define INDICES 256 /* values of a byte */

static brim_window window_of(const brim_pool2d_attr *a)
{
  return (brim_window){
      {a->kernel[0], a->kernel[1]}, {a->stride[0], a->stride[1]}, {a->padding[0], a->padding[1]}, {1, 1}};
}

static brim_status infer_avg_pool2d(brim_graph *g, brim_node *n)
{
  const brim_shape *x = &n->in[0]->shape;
  const brim_window window = window_of(&n->attr.pool2d);
  brim_shape y = {4, {x->dim[0], x->dim[1]}};
  BRIM_TRY(brim_window_places(g, n->op, n->name, &window, x, &y.dim[2]));
  n->out[0] = brim_graph_like(g, n, &y);
  return BRIM_OK;
}

static brim_status infer_max_pool2d(brim_graph *g, brim_node *n)
{
  BRIM_TRY(infer_avg_pool2d(g, n));
  n->out[1] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, BRIM_DTYPE_U8, &n->out[0]->shape,
                                brim_arena_printf(&g->arena, "%s.index", n->name));
  return BRIM_OK;
}

static brim_status gradient_max_pool2d(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {brim_autodiff_of(ad, n->out[0]), n->out[1]};
  return brim_autodiff_emit(ad, "max_pool2d_grad", n, NULL, in, 2, n->in, 1);
}

static brim_status gradient_avg_pool2d(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "avg_pool2d_grad", NULL);
}

static brim_status gradient_adaptive_avg_pool2d(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "adaptive_avg_pool2d_grad", NULL);
}

/* Counts a comparison or addition for each value of a window. */
static void cost_windows(const brim_node *n, brim_cost *out)
{
  out->flops =
      (uint64_t)brim_shape_count(&n->out[0]->shape) * (uint64_t)(n->attr.pool2d.kernel[0] * n->attr.pool2d.kernel[1]);
}
static void cost_windows_grad(const brim_node *n, brim_cost *out)
{
  out->flops =
      (uint64_t)brim_shape_count(&n->in[0]->shape) * (uint64_t)(n->attr.pool2d.kernel[0] * n->attr.pool2d.kernel[1]);
}

BRIM_OP(max_pool2d) = {.name = "max_pool2d",
                       .kind = BRIM_KIND_POOLING,
                       .traits = BRIM_OP_APART,
                       .signature = "x [N,C,H,W] -> y [N,C,P,Q], index [N,C,P,Q]",
                       .infer = infer_max_pool2d,
                       .gradient = gradient_max_pool2d,
                       .cost = cost_windows};
BRIM_OP(max_pool2d_grad) = {
    .name = "max_pool2d_grad", .kind = BRIM_KIND_POOLING, .traits = BRIM_OP_APART, .signature = "dy, index -> dx"};
BRIM_OP(avg_pool2d) = {.name = "avg_pool2d",
                       .kind = BRIM_KIND_POOLING,
                       .traits = BRIM_OP_APART,
                       .signature = "x [N,C,H,W] -> y [N,C,P,Q]",
                       .infer = infer_avg_pool2d,
                       .gradient = gradient_avg_pool2d,
                       .cost = cost_windows};
BRIM_OP(avg_pool2d_grad) = {.name = "avg_pool2d_grad",
                            .kind = BRIM_KIND_POOLING,
                            .traits = BRIM_OP_APART,
                            .signature = "dy -> dx",
                            .cost = cost_windows_grad};
BRIM_OP(adaptive_avg_pool2d) = {.name = "adaptive_avg_pool2d",
                                .kind = BRIM_KIND_POOLING,
                                .traits = BRIM_OP_APART,
                                .signature = "x [N,C,H,W] -> y [N,C,P,Q]",
                                .gradient = gradient_adaptive_avg_pool2d,
                                .flops = 1};
BRIM_OP(adaptive_avg_pool2d_grad) = {
    .name = "adaptive_avg_pool2d_grad", .kind = BRIM_KIND_POOLING, .traits = BRIM_OP_APART, .signature = "dy -> dx"};

/* Fills the attributes; a stride of 0 means the kernel's size. False, with the error in the graph, if they are not
 * valid. x: [N,C,H,W], or [N,C,L] for one dimension. */
static bool fill_attr(brim_graph *g, const char *op, const brim_shape *x, const brim_pool2d_options *o, bool indexed,
                      brim_pool2d_attr *a)
{
  char kernel[48], stride[48], padding[48];
  int64_t places[2];
  a->exclude_padding = o->exclude_padding != 0;
  for (int d = 0; d < 2; d++) {
    a->kernel[d] = o->kernel[d];
    a->stride[d] = o->stride[d] ? o->stride[d] : o->kernel[d];
    a->padding[d] = o->padding[d];
  }
  const brim_window w = window_of(a);
  if (!brim_window_valid(&w) || w.padding[0] > w.kernel[0] / 2 || w.padding[1] > w.kernel[1] / 2)
    brim_graph_fail(g, op, NULL,
                    "kernel %s and stride %s must be at least 1 and at most %d, and padding %s at least 0 and at most "
                    "half the kernel",
                    brim_window_format(kernel, sizeof kernel, x, w.kernel),
                    brim_window_format(stride, sizeof stride, x, w.stride), BRIM_WINDOW_MAX,
                    brim_window_format(padding, sizeof padding, x, w.padding));
  else if (indexed && w.kernel[0] * w.kernel[1] > INDICES)
    brim_graph_fail(g, op, NULL, "kernel %s has more than %d values",
                    brim_window_format(kernel, sizeof kernel, x, w.kernel), INDICES);
  else
    brim_window_places(g, op, NULL, &w, x, places);
  return g->status == BRIM_OK;
}

brim_tensor *brim_max_pool2d(brim_graph *g, brim_tensor *x, brim_pool2d_options options)
{
  brim_attr attr = {0};
  if (!brim_window_rank(g, "max_pool2d", NULL, x, 4)) return NULL;
  if (!fill_attr(g, "max_pool2d", &x->shape, &options, true, &attr.pool2d)) return NULL;
  return brim_graph_apply(g, "max_pool2d", NULL, &x, 1, &attr);
}

brim_tensor *brim_avg_pool2d(brim_graph *g, brim_tensor *x, brim_pool2d_options options)
{
  brim_attr attr = {0};
  if (!brim_window_rank(g, "avg_pool2d", NULL, x, 4)) return NULL;
  if (!fill_attr(g, "avg_pool2d", &x->shape, &options, false, &attr.pool2d)) return NULL;
  return brim_graph_apply(g, "avg_pool2d", NULL, &x, 1, &attr);
}

brim_tensor *brim_max_pool1d(brim_graph *g, brim_tensor *x, int64_t kernel, int64_t stride, int64_t padding)
{
  const brim_pool2d_options flat = {.kernel = {1, kernel}, .stride = {1, stride}, .padding = {0, padding}};
  brim_attr attr = {0};
  if (!brim_window_rank(g, "max_pool1d", NULL, x, 3)) return NULL;
  if (!fill_attr(g, "max_pool1d", &x->shape, &flat, true, &attr.pool2d)) return NULL;
  brim_tensor *spread = brim_window_spread(g, x);
  return brim_window_join(g, brim_graph_apply(g, "max_pool2d", NULL, &spread, 1, &attr));
}

brim_tensor *brim_adaptive_avg_pool2d(brim_graph *g, brim_tensor *x, int64_t height, int64_t width)
{
  if (!brim_window_rank(g, "adaptive_avg_pool2d", NULL, x, 4)) return NULL;
  if (height < 1 || height > BRIM_WINDOW_MAX || width < 1 || width > BRIM_WINDOW_MAX) {
    brim_graph_fail(g, "adaptive_avg_pool2d", NULL, "height %lld and width %lld of the result must be in [1,%d]",
                    (long long)height, (long long)width, BRIM_WINDOW_MAX);
    return NULL;
  }
  const brim_shape shape = {4, {x->shape.dim[0], x->shape.dim[1], height, width}};
  brim_tensor *y = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, x->dtype, &shape, "adaptive_avg_pool2d");
  if (!y) return NULL;
  return brim_graph_node_into(g, "adaptive_avg_pool2d", NULL, &x, 1, &y, 1, NULL) ? y : NULL;
}

brim_tensor *brim_global_avg_pool(brim_graph *g, brim_tensor *x)
{
  if (!brim_graph_accepts(g, "global_avg_pool", NULL, x)) return NULL;
  const brim_shape s = x->shape;
  if (s.rank < 3) {
    char text[96];
    brim_graph_fail(g, "global_avg_pool", NULL, "input must be [N, C, ...], got %s",
                    brim_shape_format(text, sizeof text, &s));
    return NULL;
  }
  if (s.rank != 4) x = brim_reshape(g, x, 4, (int64_t[]){s.dim[0], s.dim[1], 1, -1});
  x = brim_adaptive_avg_pool2d(g, x, 1, 1);
  return x ? brim_flatten(g, x) : NULL;
}
