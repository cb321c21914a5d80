/* Max pooling. The place of each maximum is kept in one byte, so the backward pass needs neither x nor y. */
#include "graph/graph.h"

#undef brim_max_pool2d

static brim_status infer_max_pool2d(brim_graph *g, brim_node *n)
{
  const brim_shape *x = &n->in[0]->shape;
  const brim_pool2d_attr *a = &n->attr.pool2d;
  brim_shape y = {4, {x->dim[0], x->dim[1]}};
  for (int d = 0; d < 2; d++) {
    if (x->dim[2 + d] + 2 * a->padding[d] < a->kernel[d]) {
      char text[96];
      return brim_graph_fail(g, n->op, n->name, "window %lldx%lld is larger than the input %s", (long long)a->kernel[0],
                             (long long)a->kernel[1], brim_shape_format(text, sizeof text, x));
    }
    y.dim[2 + d] = (x->dim[2 + d] + 2 * a->padding[d] - a->kernel[d]) / a->stride[d] + 1;
  }
  n->out[0] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, n->in[0]->dtype, &y, n->name);
  n->out[1] =
      brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, BRIM_DTYPE_U8, &y, brim_arena_printf(&g->arena, "%s.index", n->name));
  return BRIM_OK;
}

static brim_status gradient_max_pool2d(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {brim_autodiff_of(ad, n->out[0]), n->out[1]};
  return brim_autodiff_emit(ad, "max_pool2d_grad", n, NULL, in, 2, n->in, 1);
}

static void cost_max_pool2d(const brim_node *n, brim_cost *out)
{
  out->flops =
      (uint64_t)brim_shape_count(&n->out[0]->shape) * (uint64_t)(n->attr.pool2d.kernel[0] * n->attr.pool2d.kernel[1]);
}

BRIM_OP(max_pool2d) = {.name = "max_pool2d",
                       .signature = "x [N,C,H,W] -> y [N,C,P,Q], index [N,C,P,Q]",
                       .in_count = 1,
                       .out_count = 2,
                       .infer = infer_max_pool2d,
                       .gradient = gradient_max_pool2d,
                       .cost = cost_max_pool2d};
BRIM_OP(max_pool2d_grad) = {.name = "max_pool2d_grad", .signature = "dy, index -> dx", .in_count = 2, .out_count = 1};

brim_tensor *brim_max_pool2d(brim_graph *g, brim_tensor *x, brim_pool2d_options options)
{
  if (!brim_graph_accepts(g, "max_pool2d", NULL, x)) return NULL;
  char text[96];
  if (x->shape.rank != 4) {
    brim_graph_fail(g, "max_pool2d", NULL, "input must be [N, C, H, W], got %s",
                    brim_shape_format(text, sizeof text, &x->shape));
    return NULL;
  }
  brim_attr attr = {0};
  for (int d = 0; d < 2; d++) {
    const int64_t kernel = options.kernel[d], stride = options.stride[d] ? options.stride[d] : kernel;
    const int64_t padding = options.padding[d];
    if (kernel < 1 || kernel > 16 || stride < 1 || padding < 0 || padding > kernel / 2) {
      brim_graph_fail(g, "max_pool2d", NULL,
                      "kernel must be in [1,16], stride at least 1 and padding at most half the kernel, got %lld, %lld "
                      "and %lld",
                      (long long)kernel, (long long)stride, (long long)padding);
      return NULL;
    }
    attr.pool2d.kernel[d] = kernel;
    attr.pool2d.stride[d] = stride;
    attr.pool2d.padding[d] = padding;
  }
  return brim_graph_apply(g, "max_pool2d", NULL, &x, 1, &attr);
}
