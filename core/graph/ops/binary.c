/* Elementwise sums, differences, products and quotients of shapes that broadcast as NumPy's: dimensions are aligned at
 * the right, and a dimension of 1 or a missing one is repeated. The gradient of a repeated operand is summed over the
 * repetitions by sum_to, which adds to a parameter's gradient directly. */
#include "graph/graph.h"

#undef brim_add
#undef brim_sub
#undef brim_mul
#undef brim_div

/* Dimension d of `shape`, as if it had rank `rank`. */
static int64_t aligned_dim(const brim_shape *shape, int32_t rank, int32_t d)
{
  const int32_t at = d - (rank - shape->rank);
  return at < 0 ? 1 : shape->dim[at];
}

/* A tensor with samples must have real numbers and the result's rank, or its samples would not be the result's. */
static brim_status check_operand(brim_graph *g, const brim_node *n, const brim_tensor *x, int32_t rank)
{
  char text[96];
  if (!brim_graph_accepts_real(g, n->op, n->name, x)) return g->status;
  if (x->shape.rank < rank && brim_graph_has_samples(g, x))
    return brim_graph_fail(g, n->op, n->name,
                           "'%s' %s has samples in its first dimension, which would not be the first dimension of the "
                           "result: give it %d dimensions with brim_reshape",
                           x->name, brim_shape_format(text, sizeof text, &x->shape), rank);
  return BRIM_OK;
}

/* Samples may be combined with samples, or with a value that is the same for all samples. Any other shape would fit
 * only certain values of N. */
static brim_status check_first(brim_graph *g, const brim_node *n, const brim_tensor *x, const brim_tensor *other)
{
  const int64_t count = x->shape.dim[0], other_count = other->shape.dim[0];
  if (x->shape.rank != other->shape.rank || !brim_graph_has_samples(g, x) || other_count == 1) return BRIM_OK;
  if (brim_graph_has_samples(g, other) && count == other_count) return BRIM_OK;
  char text[96], other_text[96];
  return brim_graph_fail(g, n->op, n->name,
                         "the first dimension of '%s' %s is N, the samples; that of '%s' %s must be 1, or left out",
                         x->name, brim_shape_format(text, sizeof text, &x->shape), other->name,
                         brim_shape_format(other_text, sizeof other_text, &other->shape));
}

static brim_status infer_binary(brim_graph *g, brim_node *n)
{
  const brim_shape *a = &n->in[0]->shape, *b = &n->in[1]->shape;
  brim_shape y = {a->rank > b->rank ? a->rank : b->rank, {0}};
  bool good = true;
  for (int32_t d = 0; d < y.rank; d++) {
    const int64_t from_a = aligned_dim(a, y.rank, d), from_b = aligned_dim(b, y.rank, d);
    good = good && (from_a == from_b || from_a == 1 || from_b == 1);
    y.dim[d] = from_a == 1 ? from_b : from_a;
  }
  if (!good) {
    char text_a[96], text_b[96];
    return brim_graph_fail(g, n->op, n->name,
                           "'%s' %s and '%s' %s do not broadcast: aligned at the right, dimensions must be equal or 1",
                           n->in[0]->name, brim_shape_format(text_a, sizeof text_a, a), n->in[1]->name,
                           brim_shape_format(text_b, sizeof text_b, b));
  }
  for (int i = 0; i < 2; i++) BRIM_TRY(check_operand(g, n, n->in[i], y.rank));
  for (int i = 0; i < 2; i++) BRIM_TRY(check_first(g, n, n->in[i], n->in[!i]));
  n->out[0] = brim_graph_like(g, n, &y);
  return BRIM_OK;
}

/* Whether x gets dy unchanged: x is not repeated, and its gradient is not a sum over samples. */
static bool takes_whole(const brim_autodiff *ad, const brim_node *n, const brim_tensor *x)
{
  return !brim_autodiff_sums(ad, n, x) && brim_shape_equal(&x->shape, &n->out[0]->shape);
}

/* The gradient of x is dy itself, as a view without a copy. */
static brim_status pass_whole(brim_autodiff *ad, const brim_node *n, brim_tensor *x)
{
  brim_tensor *const in[] = {brim_autodiff_of(ad, n->out[0])};
  return brim_autodiff_emit(ad, takes_whole(ad, n, x) ? "reshape" : "sum_to", n, NULL, in, 1, &x, 1);
}

/* Emits `op`, whose result is the gradient of x. */
static brim_status flow(brim_autodiff *ad, const brim_node *n, const char *op, const brim_attr *attr,
                        brim_tensor *const *in, uint32_t in_count, brim_tensor *x)
{
  if (takes_whole(ad, n, x)) return brim_autodiff_emit(ad, op, n, attr, in, in_count, &x, 1);
  brim_tensor *const whole = brim_autodiff_compute(ad, op, n, attr, in, in_count, &n->out[0]->shape);
  return whole ? brim_autodiff_emit(ad, "sum_to", n, NULL, &whole, 1, &x, 1) : BRIM_EINVAL;
}

static const brim_attr minus = {.activation = {.factor = -1}};

static brim_status gradient_add(brim_autodiff *ad, const brim_node *n)
{
  for (uint32_t i = 0; i < 2; i++)
    if (brim_autodiff_needs(ad, n->in[i])) BRIM_TRY(pass_whole(ad, n, n->in[i]));
  return BRIM_OK;
}

static brim_status gradient_sub(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const dy = brim_autodiff_of(ad, n->out[0]);
  if (brim_autodiff_needs(ad, n->in[0])) BRIM_TRY(pass_whole(ad, n, n->in[0]));
  return brim_autodiff_needs(ad, n->in[1]) ? flow(ad, n, "scale", &minus, &dy, 1, n->in[1]) : BRIM_OK;
}

/* da = dy b, db = dy a */
static brim_status gradient_mul(brim_autodiff *ad, const brim_node *n)
{
  for (uint32_t i = 0; i < 2; i++) {
    brim_tensor *const in[] = {brim_autodiff_of(ad, n->out[0]), n->in[1 - i]};
    if (brim_autodiff_needs(ad, n->in[i])) BRIM_TRY(flow(ad, n, "mul", NULL, in, 2, n->in[i]));
  }
  return BRIM_OK;
}

/* da = dy / b, db = -(dy / b) y */
static brim_status gradient_div(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const by_b[] = {brim_autodiff_of(ad, n->out[0]), n->in[1]};
  if (brim_autodiff_needs(ad, n->in[0])) BRIM_TRY(flow(ad, n, "div", NULL, by_b, 2, n->in[0]));
  if (!brim_autodiff_needs(ad, n->in[1])) return BRIM_OK;
  brim_tensor *times_y[] = {brim_autodiff_compute(ad, "div", n, NULL, by_b, 2, &n->out[0]->shape), n->out[0]};
  if (!times_y[0]) return BRIM_EINVAL;
  brim_tensor *const product = brim_autodiff_compute(ad, "mul", n, NULL, times_y, 2, &n->out[0]->shape);
  return product ? flow(ad, n, "scale", &minus, &product, 1, n->in[1]) : BRIM_EINVAL;
}

/* y may take the memory of an operand with the same number of elements. */
#define BINARY(id)                                                                                                     \
  BRIM_OP(id) = {                                                                                                      \
      .name = #id,                                                                                                     \
      .traits = {.samples_in = BRIM_OP_FROM(0), .samples_out = BRIM_OP_FROM(0), .apart = true, .broadcasts = true},    \
      .signature = "a [...], b [...] -> y [...]",                                                                      \
      .each_token = brim_op_each_token,                                                                                \
      .inplace = BRIM_OP_INPLACE(0) | BRIM_OP_INPLACE(1),                                                              \
      .infer = infer_binary,                                                                                           \
      .gradient = gradient_##id}
BINARY(add);
BINARY(sub);
BINARY(mul);
BINARY(div);
BRIM_OP(sum_to) = {.name = "sum_to",
                   .kind = BRIM_KIND_REDUCTION,
                   .signature = "x [...] -> y [...]",
                   .accumulates = BRIM_OP_FROM(0),
                   .flops = 1};

static brim_tensor *apply(brim_graph *g, const char *op, brim_tensor *a, brim_tensor *b)
{
  brim_tensor *const in[] = {a, b};
  return brim_graph_apply(g, op, NULL, in, 2, NULL);
}
brim_tensor *brim_add(brim_graph *g, brim_tensor *a, brim_tensor *b)
{
  return apply(g, "add", a, b);
}
brim_tensor *brim_sub(brim_graph *g, brim_tensor *a, brim_tensor *b)
{
  return apply(g, "sub", a, b);
}
brim_tensor *brim_mul(brim_graph *g, brim_tensor *a, brim_tensor *b)
{
  return apply(g, "mul", a, b);
}
brim_tensor *brim_div(brim_graph *g, brim_tensor *a, brim_tensor *b)
{
  return apply(g, "div", a, b);
}
