/* Softmax cross-entropy with integer labels, one loss a sample; and the metrics of classification.
 *     loss[n] = log(sum over k of exp(logits[n,k])) - logits[n, label[n]]
 * or with smoothed labels and weights of classes, as brim/ops.h says.
 * The gradient is scaled by the step's loss_scale (1 / samples of the effective batch), so that losses are summed
 * over micro-batches and divided once. */
#include "graph/graph.h"

static brim_status infer_loss(brim_graph *g, brim_node *n)
{
  const brim_shape *logits = &n->in[0]->shape;
  if (logits->rank != 2 || logits->dim[1] != g->classes) {
    char text[96];
    return brim_graph_fail(g, n->op, n->name, "the model's output must be [N, classes] = [%lld, %lld], got %s",
                           (long long)g->batch, (long long)g->classes, brim_shape_format(text, sizeof text, logits));
  }
  const brim_shape shape = {1, {logits->dim[0]}};
  n->out[0] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, g->real, &shape, "loss");
  return BRIM_OK;
}

static brim_status gradient_loss(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_emit(ad, "softmax_cross_entropy_grad", n, NULL, n->in, n->in_count, n->in, 1);
}

static void cost_softmax(const brim_node *n, brim_cost *out)
{
  out->flops = 5 * (uint64_t)brim_shape_count(&n->in[0]->shape); /* max, subtract, exp, sum, divide */
}

BRIM_OP(softmax_cross_entropy) = {.name = "softmax_cross_entropy",
                                  .signature = "logits [...,K], label [...], [weight [K]] -> loss [...]",
                                  .in_count = 3,
                                  .optional = 1,
                                  .out_count = 1,
                                  .infer = infer_loss,
                                  .gradient = gradient_loss,
                                  .cost = cost_softmax};
BRIM_OP(softmax_cross_entropy_grad) = {.name = "softmax_cross_entropy_grad",
                                       .signature = "logits, label, [weight] -> dlogits",
                                       .in_count = 3,
                                       .optional = 1,
                                       .out_count = 1,
                                       .inplace = BRIM_OP_INPLACE(0),
                                       .cost = cost_softmax};
BRIM_OP(classification_metrics) = {.name = "classification_metrics",
                                   .signature = "loss [N], logits [N,K], label [N] -> metrics",
                                   .in_count = 3,
                                   .out_count = 1};
