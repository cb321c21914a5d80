/* Normalisation within a sample: layer norm (Ba, Kiros and Hinton, Layer Normalization, 2016) and RMS norm (Zhang and
 * Sennrich, Root Mean Square Layer Normalization, NeurIPS 2019) over the last dimension, group norm (Wu and He, ECCV
 * 2018) over groups of channels and all positions. Mean and 1/deviation are outputs, so that the gradient need not
 * recompute them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/fuse.h"

#undef brim_layer_norm
#undef brim_rms_norm
#undef brim_rms_norm_offset
#undef brim_group_norm

/* The shape of x without its last dimension: a value for each row. */
static brim_shape rows_of(const brim_tensor *x)
{
  brim_shape rows = x->shape;
  rows.rank--;
  rows.dim[rows.rank] = 0;
  return rows;
}

static brim_status infer_layer_norm(brim_graph *g, brim_node *n)
{
  const brim_shape rows = rows_of(n->in[0]);
  n->out[0] = brim_graph_like(g, n, &n->in[0]->shape);
  n->out[1] = brim_graph_like(g, n, &rows);
  n->out[2] = brim_graph_like(g, n, &rows);
  return BRIM_OK;
}

static brim_status infer_rms_norm(brim_graph *g, brim_node *n)
{
  const brim_shape rows = rows_of(n->in[0]);
  n->out[0] = brim_graph_like(g, n, &n->in[0]->shape);
  n->out[1] = brim_graph_like(g, n, &rows);
  return BRIM_OK;
}

static brim_status infer_group_norm(brim_graph *g, brim_node *n)
{
  const brim_shape sets = {2, {n->in[0]->shape.dim[0], n->attr.norm.groups}};
  n->out[0] = brim_graph_like(g, n, &n->in[0]->shape);
  n->out[1] = brim_graph_like(g, n, &sets);
  n->out[2] = brim_graph_like(g, n, &sets);
  return BRIM_OK;
}

brim_status brim_norm_emit_gradient(brim_autodiff *ad, const brim_node *n, const char *op, brim_tensor *const *in,
                                    uint32_t in_count, brim_tensor *const *of, uint32_t of_count)
{
  char name[64];
  snprintf(name, sizeof name, "%s+add", op);
  const brim_op *adding = brim_op_find(name);
  brim_tensor *all[6] = {adding && brim_autodiff_offers(ad, name) ? brim_autodiff_take(ad, of[0]) : NULL};
  if (!all[0]) return brim_autodiff_emit(ad, op, n, NULL, in, in_count, of, of_count);
  memcpy(all + 1, in, in_count * sizeof *in);
  return brim_autodiff_emit(ad, adding->name, n, NULL, all, in_count + 1, of, of_count);
}

static brim_status gradient_with_mean(brim_autodiff *ad, const brim_node *n, const char *op)
{
  brim_tensor *const in[] = {n->in[0], n->in[1], n->out[1], n->out[2], brim_autodiff_of(ad, n->out[0])};
  return brim_norm_emit_gradient(ad, n, op, in, 5, n->in, 3);
}

static brim_status gradient_layer_norm(brim_autodiff *ad, const brim_node *n)
{
  return gradient_with_mean(ad, n, "layer_norm_grad");
}

static brim_status gradient_group_norm(brim_autodiff *ad, const brim_node *n)
{
  return gradient_with_mean(ad, n, "group_norm_grad");
}

static brim_status gradient_rms_norm(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const in[] = {n->in[0], n->in[1], n->out[1], brim_autodiff_of(ad, n->out[0])};
  return brim_norm_emit_gradient(ad, n, "rms_norm_grad", in, 4, n->in, 2);
}

/* The flops are those of two passes for the statistics and one for the result; backward, of two sums and the result. */
BRIM_OP(layer_norm) = {.name = "layer_norm",
                       .kind = BRIM_KIND_NORM,
                       .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_FROM(0)},
                       .wide_in = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                       .wide_out = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                       .signature = "x [...,F], weight [F], bias [F] -> y [...,F], mean [...], rstd [...]",
                       .each_token = brim_op_each_token_last,
                       .inplace = BRIM_OP_INPLACE(0),
                       .infer = infer_layer_norm,
                       .gradient = gradient_layer_norm,
                       .flops = 8};
BRIM_OP(rms_norm) = {.name = "rms_norm",
                     .kind = BRIM_KIND_NORM,
                     .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_FROM(0)},
                     .wide_in = BRIM_OP_WIDE(1),
                     .wide_out = BRIM_OP_WIDE(1),
                     .signature = "x [...,F], weight [F] -> y [...,F], rstd [...]",
                     .each_token = brim_op_each_token_last,
                     .inplace = BRIM_OP_INPLACE(0),
                     .infer = infer_rms_norm,
                     .gradient = gradient_rms_norm,
                     .flops = 8};
BRIM_OP(group_norm) = {.name = "group_norm",
                       .kind = BRIM_KIND_NORM,
                       .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_FROM(0)},
                       .wide_in = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                       .wide_out = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                       .signature = "x [N,C,...], weight [C], bias [C] -> y [N,C,...], mean [N,groups], rstd "
                                    "[N,groups]",
                       .inplace = BRIM_OP_INPLACE(0),
                       .infer = infer_group_norm,
                       .gradient = gradient_group_norm,
                       .flops = 8};
/* its_weight: the number of the input `weight`, which has no samples. */
#define NORM_GRAD(id, its_name, its_weight, its_inplace, its_signature)                                                \
  BRIM_OP(id) = {.name = its_name,                                                                                     \
                 .kind = BRIM_KIND_NORM,                                                                               \
                 .traits = {.samples_in = ~BRIM_OP_SAMPLES(its_weight), .samples_out = BRIM_OP_SAMPLES(0)},            \
                 .signature = its_signature,                                                                           \
                 .accumulates = BRIM_OP_FROM(1),                                                                       \
                 .inplace = its_inplace,                                                                               \
                 .flops = 11}
NORM_GRAD(layer_norm_grad, "layer_norm_grad", 1, BRIM_OP_INPLACE(4), "x, weight, mean, rstd, dy -> dx, dweight, dbias");
NORM_GRAD(layer_norm_grad_add, "layer_norm_grad+add", 2, BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(5),
          "a, x, weight, mean, rstd, dy -> dx, dweight, dbias");
NORM_GRAD(rms_norm_grad, "rms_norm_grad", 1, BRIM_OP_INPLACE(3), "x, weight, rstd, dy -> dx, dweight");
NORM_GRAD(rms_norm_grad_add, "rms_norm_grad+add", 2, BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(4),
          "a, x, weight, rstd, dy -> dx, dweight");
NORM_GRAD(group_norm_grad, "group_norm_grad", 1, BRIM_OP_INPLACE(4), "x, weight, mean, rstd, dy -> dx, dweight, dbias");

/* Makes a layer's parameter "<name>.<what>" [count] with one initial value. */
static brim_tensor *constant(brim_graph *g, const char *name, const char *what, int64_t count, double value)
{
  return brim_graph_parameter(g, brim_arena_printf(&g->arena, "%s.%s", name, what), &(brim_shape){1, {count}},
                              (brim_init){BRIM_INIT_CONSTANT, value});
}

static bool accepts(brim_graph *g, const char *op, const char *name, const brim_tensor *x, double eps)
{
  char text[96];
  if (!brim_graph_named(g, op, name) || !brim_graph_accepts_real(g, op, name, x)) return false;
  if (x->shape.rank < 2)
    brim_graph_fail(g, op, name, "input must be [N, ..., F], got %s", brim_shape_format(text, sizeof text, &x->shape));
  else if (!(eps > 0))
    brim_graph_fail(g, op, name, "eps must be greater than 0, got %g", eps);
  return g->status == BRIM_OK;
}

static brim_tensor *over_last(brim_graph *g, const char *op, const char *name, brim_tensor *x, brim_norm_attr norm,
                              bool bias)
{
  if (!accepts(g, op, name, x, norm.eps)) return NULL;
  const int64_t features = x->shape.dim[x->shape.rank - 1];
  const brim_attr attr = {.norm = norm};
  brim_tensor *in[3] = {x, constant(g, name, "weight", features, 1 - norm.offset)};
  if (bias) in[2] = constant(g, name, "bias", features, 0);
  return g->status == BRIM_OK ? brim_graph_apply(g, op, name, in, bias ? 3 : 2, &attr) : NULL;
}

brim_tensor *brim_layer_norm(brim_graph *g, const char *name, brim_tensor *x, double eps)
{
  return over_last(g, "layer_norm", name, x, (brim_norm_attr){.eps = eps}, true);
}

brim_tensor *brim_rms_norm(brim_graph *g, const char *name, brim_tensor *x, double eps)
{
  return over_last(g, "rms_norm", name, x, (brim_norm_attr){.eps = eps}, false);
}

brim_tensor *brim_rms_norm_offset(brim_graph *g, const char *name, brim_tensor *x, double eps, double offset)
{
  if (!isfinite(offset)) {
    brim_graph_fail(g, "rms_norm", name, "offset must be a finite number, got %g", offset);
    return NULL;
  }
  return over_last(g, "rms_norm", name, x, (brim_norm_attr){.eps = eps, .offset = offset}, false);
}

brim_tensor *brim_group_norm(brim_graph *g, const char *name, brim_tensor *x, int64_t groups, double eps)
{
  if (!accepts(g, "group_norm", name, x, eps)) return NULL;
  char text[96];
  const int64_t channels = x->shape.dim[1];
  if (groups < 1 || channels % groups != 0) {
    brim_graph_fail(g, "group_norm", name, "the %lld channels of input %s cannot be cut into %lld equal groups",
                    (long long)channels, brim_shape_format(text, sizeof text, &x->shape), (long long)groups);
    return NULL;
  }
  const brim_attr attr = {.norm = {.eps = eps, .groups = groups}};
  brim_tensor *const in[] = {x, constant(g, name, "weight", channels, 1), constant(g, name, "bias", channels, 0)};
  return g->status == BRIM_OK ? brim_graph_apply(g, "group_norm", name, in, 3, &attr) : NULL;
}
