/* The operations at both ends of a loss plugin's graph: its target, computed from labels, and the weighted loss of each
 * sample, where gradients start. See core/graph/loss_build.c. */
#include "graph/graph.h"

static brim_status infer_one_hot(brim_graph *g, brim_node *n)
{
  brim_shape shape = n->in[0]->shape;
  if (n->in[0]->dtype != BRIM_DTYPE_I32 || shape.rank < 1 || shape.rank == BRIM_DIMS_MAX)
    return brim_graph_fail(g, n->op, n->name, "labels must be I32 [N, ...]");
  shape.dim[shape.rank++] = g->classes;
  n->out[0] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, g->real, &shape, n->name);
  return BRIM_OK;
}

BRIM_OP(one_hot) = {.name = "one_hot",
                    .kind = BRIM_KIND_REDUCTION,
                    .signature = "label [...] -> y [...,K]",
                    .wide_out = BRIM_OP_WIDE(0),
                    .infer = infer_one_hot};

static brim_status infer_sample_loss(brim_graph *g, brim_node *n)
{
  if (!brim_graph_accepts_real(g, n->op, n->name, n->in[0])) return g->status;
  n->out[0] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, g->real, &n->in[0]->shape, "loss");
  return BRIM_OK;
}

static brim_status gradient_sample_loss(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_emit(ad, "sample_loss_grad", n, NULL, n->in, n->in_count, n->in, 1);
}

BRIM_OP(sample_loss) = {.name = "sample_loss",
                        .kind = BRIM_KIND_REDUCTION,
                        .signature = "x [...], [label [...], [weight [K]]] -> loss [...]",
                        .wide_in = BRIM_OP_FROM(0),
                        .wide_out = BRIM_OP_WIDE(0),
                        .infer = infer_sample_loss,
                        .gradient = gradient_sample_loss};
BRIM_OP(sample_loss_grad) = {.name = "sample_loss_grad",
                             .kind = BRIM_KIND_REDUCTION,
                             .signature = "x, [label, [weight]] -> dx",
                             .inplace = BRIM_OP_INPLACE(0)};
