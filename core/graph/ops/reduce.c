/* Sums and means over axes; the gradient of x is dy, repeated (and divided, for a mean). */
#include "graph/graph.h"

#undef brim_sum
#undef brim_mean

static brim_status gradient_sum(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "sum_grad", NULL);
}
static brim_status gradient_mean(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "mean_grad", NULL);
}

static bool each_token_reduced(const brim_node *n)
{
  return !(n->attr.reduce.axes & 1u << 1);
}

#define REDUCE(id)                                                                                                     \
  BRIM_OP(id) = {.name = #id,                                                                                          \
                 .kind = BRIM_KIND_REDUCTION,                                                                          \
                 .signature = "x [N,...] -> y [N,...]",                                                                \
                 .each_token = each_token_reduced,                                                                     \
                 .gradient = gradient_##id,                                                                            \
                 .flops = 1}
REDUCE(sum);
REDUCE(mean);
BRIM_OP(sum_grad) = {.name = "sum_grad", .kind = BRIM_KIND_REDUCTION, .signature = "dy -> dx"};
BRIM_OP(mean_grad) = {.name = "mean_grad", .kind = BRIM_KIND_REDUCTION, .signature = "dy -> dx"};

/* Returns the axes as a mask; 0 and an error in the graph if they are invalid. */
static uint32_t mask_of(brim_graph *g, const char *op, const brim_tensor *x, int32_t count, const int32_t *axes)
{
  char text[96];
  uint32_t mask = 0;
  for (int32_t i = 0; i < count; i++) {
    const int32_t axis = brim_graph_axis(g, op, x, axes[i]);
    if (axis < 0) return 0;
    if (axis == 0) {
      brim_graph_fail(g, op, NULL, "axis 0 of %s is N, the samples, and cannot be reduced",
                      brim_shape_format(text, sizeof text, &x->shape));
      return 0;
    }
    if (mask >> axis & 1) {
      brim_graph_fail(g, op, NULL, "axis %d of %s is given twice", axis,
                      brim_shape_format(text, sizeof text, &x->shape));
      return 0;
    }
    mask |= 1u << axis;
  }
  if (mask == 0) brim_graph_fail(g, op, NULL, "no axis is given");
  return mask;
}

static brim_tensor *reduce(brim_graph *g, const char *op, brim_tensor *x, int32_t count, const int32_t *axes, int keep)
{
  if (count > 0 && !brim_graph_needs_list(g, op, NULL, axes, "axes")) return NULL;
  if (!brim_graph_accepts_real(g, op, NULL, x)) return NULL;
  const brim_attr attr = {.reduce = {mask_of(g, op, x, count, axes)}};
  if (g->status != BRIM_OK) return NULL;
  brim_shape shape = {0};
  for (int32_t d = 0; d < x->shape.rank; d++) {
    const bool gone = attr.reduce.axes >> d & 1;
    if (!gone || keep) shape.dim[shape.rank++] = gone ? 1 : x->shape.dim[d];
  }
  brim_tensor *y = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, x->dtype, &shape, op);
  return y && brim_graph_node_into(g, op, NULL, &x, 1, &y, 1, &attr) ? y : NULL;
}
brim_tensor *brim_sum(brim_graph *g, brim_tensor *x, int32_t count, const int32_t *axes, int keep)
{
  return reduce(g, "sum", x, count, axes, keep);
}
brim_tensor *brim_mean(brim_graph *g, brim_tensor *x, int32_t count, const int32_t *axes, int keep)
{
  return reduce(g, "mean", x, count, axes, keep);
}
