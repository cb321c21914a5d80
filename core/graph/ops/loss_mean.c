/* Losses that compare y with a target elementwise: mse, mae, huber and bce, each the mean over a sample. The target has
 * y's shape; or it is a label for each sample, which stands for 1 at its index and 0 elsewhere. */
#include <math.h>

#include "graph/graph.h"

static brim_status infer_mean(brim_graph *g, brim_node *n)
{
  const brim_tensor *y = n->in[0], *target = n->in[1];
  const brim_shape samples = {1, {y->shape.rank ? y->shape.dim[0] : 0}};
  const bool by_label = target->dtype == BRIM_DTYPE_I32;
  const bool good =
      by_label ? y->shape.rank == 2 && brim_shape_equal(&target->shape, &samples)
               : y->shape.rank >= 1 && target->dtype == y->dtype && brim_shape_equal(&target->shape, &y->shape);
  char text[160], target_text[160];
  brim_shape_format(text, sizeof text, &y->shape);
  if (target == g->label && (!good || y->shape.dim[1] != g->classes)) return brim_graph_fail_output(g, n, &y->shape);
  if (!good)
    return brim_graph_fail(g, n->op, n->name,
                           "'%s' %s needs a target of its shape and type, or labels I32 [N] if it is [N, K]; got '%s' "
                           "%s %s",
                           y->name, text, target->name, brim_dtype_name(target->dtype),
                           brim_shape_format(target_text, sizeof target_text, &target->shape));
  n->out[0] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, g->real, &samples, "loss");
  return BRIM_OK;
}

static brim_status infer_huber(brim_graph *g, brim_node *n)
{
  if (!(n->attr.loss.delta > 0) || isinf(n->attr.loss.delta))
    return brim_graph_fail(g, n->op, n->name, "delta must be above 0 and finite, got %g", n->attr.loss.delta);
  return infer_mean(g, n);
}

/* Defines a loss and its gradient with respect to y. */
#define LOSS(id, infer_id)                                                                                             \
  static brim_status gradient_##id(brim_autodiff *ad, const brim_node *n)                                              \
  {                                                                                                                    \
    return brim_autodiff_emit(ad, #id "_grad", n, NULL, n->in, 2, n->in, 1);                                           \
  }                                                                                                                    \
  BRIM_OP(id) = {.name = #id,                                                                                          \
                 .kind = BRIM_KIND_REDUCTION,                                                                          \
                 .signature = "y [N,...], target [N,...] or label [N] -> loss [N]",                                    \
                 .wide_out = BRIM_OP_WIDE(0),                                                                          \
                 .infer = infer_id,                                                                                    \
                 .gradient = gradient_##id,                                                                            \
                 .flops = 4};                                                                                          \
  BRIM_OP(id##_grad) = {.name = #id "_grad",                                                                           \
                        .kind = BRIM_KIND_REDUCTION,                                                                   \
                        .signature = "y, target -> dy",                                                                \
                        .inplace = BRIM_OP_INPLACE(0),                                                                 \
                        .flops = 4}
LOSS(mse, infer_mean);
LOSS(mae, infer_mean);
LOSS(huber, infer_huber);
LOSS(bce, infer_mean);
