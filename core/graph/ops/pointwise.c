/* Elementwise operations that are not plain functions: relu, whose gradient needs only a sign, and dropout. */
#include "graph/graph.h"

#undef brim_relu
#undef brim_dropout

brim_status brim_op_infer_same(brim_graph *g, brim_node *n)
{
  if (!brim_graph_accepts_real(g, n->op, n->name, n->in[0])) return g->status;
  n->out[0] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, n->in[0]->dtype, &n->in[0]->shape, n->name);
  return BRIM_OK;
}

/* The output shows where the input was positive, so the input is not kept. */
static brim_status gradient_relu(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "relu_grad", n->out[0]);
}

/* The mask is regenerated from its counters, so nothing is kept. */
static brim_status gradient_dropout(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_pass(ad, n, "dropout_grad", NULL);
}

/* The dropout stream does not affect the time. */
static uint64_t hash_dropout(const brim_attr *attr)
{
  brim_attr a = *attr;
  a.dropout.stream = 0;
  return brim_op_hash(&a);
}

BRIM_OP(relu) = {.name = "relu",
                 .traits = BRIM_OP_APART,
                 .signature = "x [...] -> y [...]",
                 .each_token = brim_op_each_token,
                 .inplace = BRIM_OP_INPLACE(0),
                 .infer = brim_op_infer_same,
                 .gradient = gradient_relu};
BRIM_OP(relu_grad) = {.name = "relu_grad",
                      .traits = BRIM_OP_APART,
                      .signature = "y, dy -> dx",
                      .inplace = BRIM_OP_INPLACE(1) | BRIM_OP_INPLACE(0)};
BRIM_OP(dropout) = {.name = "dropout",
                    .traits = BRIM_OP_APART,
                    .signature = "x [...] -> y [...]",
                    .each_token = brim_op_each_token,
                    .inplace = BRIM_OP_INPLACE(0),
                    .infer = brim_op_infer_same,
                    .gradient = gradient_dropout,
                    .hash = hash_dropout};
BRIM_OP(dropout_grad) = {.name = "dropout_grad",
                         .traits = BRIM_OP_APART,
                         .signature = "dy -> dx",
                         .inplace = BRIM_OP_INPLACE(0),
                         .hash = hash_dropout};

brim_tensor *brim_relu(brim_graph *g, brim_tensor *x)
{
  return brim_graph_apply(g, "relu", NULL, &x, 1, NULL);
}

brim_tensor *brim_dropout(brim_graph *g, brim_tensor *x, double p)
{
  if (!brim_graph_accepts(g, "dropout", NULL, x)) return NULL;
  if (!(p >= 0 && p < 1)) {
    brim_graph_fail(g, "dropout", NULL, "p must be in [0,1), got %g", p);
    return NULL;
  }
  /* The random numbers of dropout depend on the sample. */
  if (!brim_graph_needs_samples(g, "dropout", NULL, x)) return NULL;
  const uint64_t stream = g->dropout_streams++; /* counted in evaluation too, so that stream numbers stay the same */
  if (!g->training || g->freezing || p == 0) return x;
  const brim_attr attr = {.dropout = {p, stream}};
  return brim_graph_apply(g, "dropout", NULL, &x, 1, &attr);
}
