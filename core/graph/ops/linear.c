/* The fully connected layer: y[n,o] = bias[o] + sum over f of x[n,f] * weight[o,f], for every row n of all leading
 * dimensions.
 *
 * linear+add adds such a layer's result to a tensor, in the tensor's memory if no other node needs that. A low-rank
 * change of a layer (core/graph/wrap.c) consists of two layers, and the second adds to the changed layer's result, so
 * the change needs no tensor of that size. In the backward pass, layers with the same input work in the same way: each
 * adds its gradient of the input to the sum from the layers after it (linear_grad_input+add). */
#include <math.h>

#include "graph/wrap.h"

#undef brim_linear
#undef brim_linear_no_bias
#undef brim_linear_with

static brim_status infer_linear(brim_graph *g, brim_node *n)
{
  brim_shape y = n->in[0]->shape;
  y.dim[y.rank - 1] = n->in[1]->shape.dim[0];
  n->out[0] = brim_graph_like(g, n, &y);
  return BRIM_OK;
}

/* parameters: the weight and, if there is one, the bias. */
static brim_status emit_gradients(brim_autodiff *ad, const brim_node *n, brim_tensor *dy, brim_tensor *x,
                                  brim_tensor *const *parameters, uint32_t count)
{
  const brim_attr none = {0};
  brim_tensor *const for_weight[] = {x, dy};
  BRIM_TRY(brim_autodiff_emit(ad, "linear_grad_weight", n, &none, for_weight, 2, parameters, count));
  if (!brim_autodiff_needs(ad, x)) return BRIM_OK;
  const bool adds = brim_autodiff_offers(ad, "linear_grad_input+add");
  brim_tensor *const for_input[] = {adds ? brim_autodiff_take(ad, x) : NULL, dy, parameters[0]};
  if (!for_input[0]) return brim_autodiff_emit(ad, "linear_grad_input", n, &none, for_input + 1, 2, &x, 1);
  return brim_autodiff_emit(ad, "linear_grad_input+add", n, &none, for_input, 3, &x, 1);
}

static brim_status gradient_linear(brim_autodiff *ad, const brim_node *n)
{
  return emit_gradients(ad, n, brim_autodiff_of(ad, n->out[0]), n->in[0], &n->in[1], n->in_count - 1);
}

static brim_status infer_linear_add(brim_graph *g, brim_node *n)
{
  n->out[0] = brim_graph_like(g, n, &n->in[0]->shape);
  return BRIM_OK;
}

/* The gradient of a is dy itself, as a view without a copy. */
static brim_status gradient_linear_add(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *a = n->in[0], *dy = brim_autodiff_of(ad, n->out[0]);
  brim_shape part = dy->shape;
  const int32_t last = part.rank - 1;
  if (brim_autodiff_needs(ad, a)) BRIM_TRY(brim_autodiff_emit(ad, "reshape", n, &(brim_attr){0}, &dy, 1, &a, 1));
  part.dim[last] = n->in[2]->shape.dim[0];
  if (part.dim[last] < dy->shape.dim[last]) {
    const brim_attr cut = {.move = {.axis = last, .start = n->attr.linear.first}};
    dy = brim_autodiff_compute(ad, "slice", n, &cut, &dy, 1, &part);
    if (!dy) return BRIM_EINVAL; /* the graph has the error */
  }
  return emit_gradients(ad, n, dy, n->in[1], &n->in[2], 1);
}

/* Counts the products of all rows of x (or dy) with the weight. The rows are all dimensions except the last. */
static void cost_products(const brim_tensor *weight, const brim_tensor *x, brim_cost *out)
{
  const int64_t rows = brim_shape_count(&x->shape) / x->shape.dim[x->shape.rank - 1];
  out->flops = 2 * (uint64_t)rows * (uint64_t)brim_shape_count(&weight->shape);
}
static void cost_linear(const brim_node *n, brim_cost *out)
{
  cost_products(n->in[1], n->in[0], out); /* for linear_grad_input these are dy and weight */
}
/* The cost at least: y has a's memory, and the kernel reads and writes only the columns to which it adds. */
static void cost_added(const brim_node *n, int64_t columns, brim_cost *out)
{
  const brim_tensor *a = n->in[0];
  const uint64_t width = (uint64_t)a->shape.dim[a->shape.rank - 1];
  cost_products(n->in[2], n->in[1], out);
  out->bytes -= 2 * (a->bytes / width) * (width - (uint64_t)columns);
}
static void cost_linear_add(const brim_node *n, brim_cost *out)
{
  cost_added(n, n->in[2]->shape.dim[0], out);
}
static void cost_grad_input_add(const brim_node *n, brim_cost *out)
{
  cost_added(n, n->in[2]->shape.dim[1], out);
}
static void cost_grad_weight(const brim_node *n, brim_cost *out)
{
  cost_products(n->out[0], n->in[0], out);
}

BRIM_OP(linear) = {.name = "linear",
                   .kind = BRIM_KIND_PRODUCT,
                   .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_SAMPLES(0)},
                   .signature = "x [...,F], weight [O,F], [bias [O]] -> y [...,O]",
                   .each_token = brim_op_each_token_last,
                   .infer = infer_linear,
                   .gradient = gradient_linear,
                   .cost = cost_linear};
BRIM_OP(linear_grad_input) = {.name = "linear_grad_input",
                              .kind = BRIM_KIND_PRODUCT,
                              .traits = {.samples_in = BRIM_OP_SAMPLES(0), .samples_out = BRIM_OP_SAMPLES(0)},
                              .signature = "dy, weight -> dx",
                              .cost = cost_linear};
BRIM_OP(linear_grad_weight) = {.name = "linear_grad_weight",
                               .kind = BRIM_KIND_PRODUCT,
                               .traits = {.samples_in = BRIM_OP_SAMPLES(0) | BRIM_OP_SAMPLES(1)},
                               .signature = "x, dy -> dweight, [dbias]",
                               .accumulates = BRIM_OP_FROM(0),
                               .cost = cost_grad_weight};

BRIM_OP(linear_add) = {
    .name = "linear+add",
    .kind = BRIM_KIND_PRODUCT,
    .traits = {.samples_in = BRIM_OP_SAMPLES(0) | BRIM_OP_SAMPLES(1), .samples_out = BRIM_OP_SAMPLES(0)},
    .signature = "a [...,A], x [...,F], weight [O,F] -> y [...,A]",
    .inplace = BRIM_OP_INPLACE(0),
    .reread = BRIM_OP_FROM(1),
    .each_token = brim_op_each_token_last,
    .infer = infer_linear_add,
    .gradient = gradient_linear_add,
    .cost = cost_linear_add};
BRIM_OP(linear_grad_input_add) = {
    .name = "linear_grad_input+add",
    .kind = BRIM_KIND_PRODUCT,
    .traits = {.samples_in = BRIM_OP_SAMPLES(0) | BRIM_OP_SAMPLES(1), .samples_out = BRIM_OP_SAMPLES(0)},
    .signature = "a, dy, weight -> dx",
    .inplace = BRIM_OP_INPLACE(0),
    .reread = BRIM_OP_FROM(1),
    .cost = cost_grad_input_add};

brim_tensor *brim_linear_with(brim_graph *g, const char *name, brim_tensor *x, brim_tensor *weight, brim_tensor *bias)
{
  if (!brim_graph_accepts(g, "linear", name, x) || !brim_graph_accepts(g, "linear", name, weight)) return NULL;
  char text[96], weight_text[96];
  const brim_shape *w = &weight->shape;
  if (weight->role != BRIM_ROLE_PARAMETER || w->rank != 2 || x->dtype != g->real || x->shape.rank < 2 ||
      x->shape.dim[x->shape.rank - 1] != w->dim[1]) {
    brim_graph_fail(g, "linear", name,
                    "input %s %s must be real numbers [..., F], and weight '%s' %s a parameter [O, F]",
                    brim_dtype_name(x->dtype), brim_shape_format(text, sizeof text, &x->shape), weight->name,
                    brim_shape_format(weight_text, sizeof weight_text, w));
    return NULL;
  }
  if (bias && (bias->role != BRIM_ROLE_PARAMETER || bias->shape.rank != 1 || bias->shape.dim[0] != w->dim[0])) {
    brim_graph_fail(g, "linear", name, "bias '%s' %s must be a parameter [%lld]", bias->name,
                    brim_shape_format(text, sizeof text, &bias->shape), (long long)w->dim[0]);
    return NULL;
  }
  brim_tensor *const in[] = {x, weight, bias};
  brim_tensor *y = brim_graph_apply(g, "linear", name, in, bias ? 3 : 2, NULL);
  return y ? brim_wrap_adapt(g, name, x, weight, y) : NULL;
}

static brim_tensor *make_layer(brim_graph *g, const char *name, brim_tensor *x, int64_t out_features, bool with_bias)
{
  if (!brim_graph_named(g, "linear", name) || !brim_graph_accepts(g, "linear", name, x)) return NULL;
  char text[96];
  if (x->shape.rank < 2) {
    brim_graph_fail(g, "linear", name, "input must be [N, ..., F], got %s",
                    brim_shape_format(text, sizeof text, &x->shape));
    return NULL;
  }
  if (out_features < 1) {
    brim_graph_fail(g, "linear", name, "out_features must be at least 1, got %lld", (long long)out_features);
    return NULL;
  }
  const int64_t in_features = x->shape.dim[x->shape.rank - 1];
  const brim_shape weight_shape = {2, {out_features, in_features}}, bias_shape = {1, {out_features}};
  const double bound = 1 / sqrt((double)in_features); /* torch.nn.Linear.reset_parameters */
  brim_tensor *weight = brim_graph_weight(g, name, "weight", &weight_shape, bound);
  brim_tensor *bias = with_bias ? brim_graph_weight(g, name, "bias", &bias_shape, bound) : NULL;
  return weight && (bias || !with_bias) ? brim_linear_with(g, name, x, weight, bias) : NULL;
}

brim_tensor *brim_linear(brim_graph *g, const char *name, brim_tensor *x, int64_t out_features)
{
  return make_layer(g, name, x, out_features, true);
}

brim_tensor *brim_linear_no_bias(brim_graph *g, const char *name, brim_tensor *x, int64_t out_features)
{
  return make_layer(g, name, x, out_features, false);
}
