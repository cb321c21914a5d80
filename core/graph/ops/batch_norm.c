/* Batch normalisation (Ioffe and Szegedy, ICML 2015) with statistics over groups of g->norm_group samples, so that they
 * do not depend on the micro-batch ("ghost batches": Hoffer, Hubara and Soudry, Train longer, generalize better, NIPS
 * 2017). In training, the buffers running_mean and running_var get the sums of the groups' means and variances as
 * gradients; evaluation normalises with the buffers. */
#include "graph/graph.h"

#undef brim_batch_norm

static brim_status infer_inference(brim_graph *g, brim_node *n)
{
  n->out[0] = brim_graph_like(g, n, &n->in[0]->shape);
  return BRIM_OK;
}

static brim_status gradient_batch_norm(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {n->in[0], n->in[1], n->out[1], n->out[2], brim_autodiff_of(ad, n->out[0])};
  return brim_autodiff_emit(ad, "batch_norm_grad", n, NULL, in, 5, n->in, 3);
}

static brim_tensor *zeros_like(brim_autodiff *ad, const brim_node *n, brim_tensor *x)
{
  return brim_autodiff_compute(ad, "scale", n, &(brim_attr){.activation = {.factor = 0}}, &x, 1, &x->shape);
}

/* In training only frozen norms use this operation, and only their input has a gradient: dy with the same statistics,
 * without the shift. */
static brim_status gradient_inference(brim_autodiff *ad, const brim_node *n)
{
  if (!brim_autodiff_needs(ad, n->in[0])) return BRIM_OK;
  brim_tensor *bias = zeros_like(ad, n, n->in[2]), *mean = zeros_like(ad, n, n->in[3]);
  if (!bias || !mean) return BRIM_EINVAL; /* the graph has the error */
  brim_tensor *const in[] = {brim_autodiff_of(ad, n->out[0]), n->in[1], bias, mean, n->in[4]};
  return brim_autodiff_emit(ad, "batch_norm_inference", n, NULL, in, 5, n->in, 1);
}

BRIM_OP(batch_norm) = {.name = "batch_norm",
                       .kind = BRIM_KIND_NORM,
                       .wide_in = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                       .wide_out = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                       .signature = "x [N,C,...], weight [C], bias [C] -> y [N,C,...], mean [G,C], rstd [G,C], "
                                    "mean_sum [C], var_sum [C]",
                       .inplace = BRIM_OP_INPLACE(0),
                       .gradient = gradient_batch_norm,
                       .flops = 8};
BRIM_OP(batch_norm_inference) = {
    .name = "batch_norm_inference",
    .kind = BRIM_KIND_NORM,
    .wide_in = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2) | BRIM_OP_WIDE(3) | BRIM_OP_WIDE(4),
    .signature = "x [N,C,...], weight [C], bias [C], running_mean [C], running_var [C] -> y [N,C,...]",
    .inplace = BRIM_OP_INPLACE(0),
    .infer = infer_inference,
    .gradient = gradient_inference,
    .flops = 3};
BRIM_OP(batch_norm_grad) = {.name = "batch_norm_grad",
                            .kind = BRIM_KIND_NORM,
                            .signature = "x, weight, mean, rstd, dy -> dx, dweight, dbias",
                            .accumulates = BRIM_OP_FROM(1),
                            .inplace = BRIM_OP_INPLACE(4),
                            .flops = 11};

/* The number of groups in a micro-batch; a rest shorter than a group joins the last group. */
static int64_t groups_of(const brim_graph *g, const brim_tensor *x)
{
  const int64_t groups = x->shape.dim[0] / g->norm_group;
  return groups > 1 ? groups : 1;
}

static brim_tensor *of_training(brim_graph *g, const char *name, brim_tensor *const *in, double eps)
{
  const brim_shape statistics = {2, {groups_of(g, in[0]), in[0]->shape.dim[1]}};
  const brim_attr attr = {.norm = {.eps = eps, .group = g->norm_group}};
  brim_tensor *const out[] = {brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, g->real, &in[0]->shape, name),
                              brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, g->real, &statistics, name),
                              brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, g->real, &statistics, name),
                              brim_graph_gradient(g, in[3]), brim_graph_gradient(g, in[4])};
  for (int i = 0; i < 5; i++)
    if (!out[i]) return NULL; /* the graph has the error */
  return brim_graph_node_into(g, "batch_norm", name, in, 3, out, 5, &attr) ? out[0] : NULL;
}

static void check(brim_graph *g, const char *name, const brim_tensor *x, double eps, double momentum)
{
  char text[96];
  if (x->shape.rank < 2)
    brim_graph_fail(g, "batch_norm", name, "input must be [N, C, ...], got %s",
                    brim_shape_format(text, sizeof text, &x->shape));
  else if (!(eps > 0))
    brim_graph_fail(g, "batch_norm", name, "eps must be greater than 0, got %g", eps);
  else if (!(momentum >= 0 && momentum <= 1))
    brim_graph_fail(g, "batch_norm", name, "momentum must be in [0,1], got %g", momentum);
}

brim_tensor *brim_batch_norm(brim_graph *g, const char *name, brim_tensor *x, double eps, double momentum)
{
  if (!brim_graph_named(g, "batch_norm", name) || !brim_graph_accepts_real(g, "batch_norm", name, x)) return NULL;
  check(g, name, x, eps, momentum);
  if (g->status == BRIM_OK) brim_graph_needs_samples(g, "batch_norm", name, x);
  if (g->status != BRIM_OK) return NULL;
  const brim_shape shape = {1, {x->shape.dim[1]}};
  const brim_init zero = {BRIM_INIT_CONSTANT, 0}, one = {BRIM_INIT_CONSTANT, 1};
  brim_tensor *in[5] = {x};
  in[1] = brim_graph_parameter(g, brim_arena_printf(&g->arena, "%s.weight", name), &shape, one);
  in[2] = brim_graph_parameter(g, brim_arena_printf(&g->arena, "%s.bias", name), &shape, zero);
  in[3] = brim_graph_buffer(g, brim_arena_printf(&g->arena, "%s.running_mean", name), &shape, zero, momentum);
  in[4] = brim_graph_buffer(g, brim_arena_printf(&g->arena, "%s.running_var", name), &shape, one, momentum);
  if (g->status != BRIM_OK) return NULL;
  const bool trained = !g->freezing;
  if (trained) g->uses_norm_group = true;
  if (g->training && trained) return of_training(g, name, in, eps);
  return brim_graph_apply(g, "batch_norm_inference", name, in, 5, &(brim_attr){.norm = {.eps = eps}});
}
