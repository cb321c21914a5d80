/* Softmax cross-entropy, one loss per label, alone or including the product that makes the logits; and the metrics of
 * classification and regression.
 *     loss[n] = log(sum over k of exp(logits[n,k])) - logits[n, label[n]]
 * brim/ops.h extends the formula by smoothed labels, class probabilities and class weights. The gradient is scaled by
 * the step's loss_scale (1 / samples of the effective batch), so that losses are summed over micro-batches and divided
 * once. */
#include "graph/graph.h"

brim_status brim_graph_fail_output(brim_graph *g, const brim_node *n, const brim_shape *shape)
{
  static const char *const forms[] = {[BRIM_TASK_CLASS] = "[N, classes]",
                                      [BRIM_TASK_TOKENS] = "[N, T, vocabulary]",
                                      [BRIM_TASK_VALUES] = "[N, targets]"};
  char text[160], wanted_text[160];
  brim_shape wanted = g->label->shape;
  if (g->label->dtype == BRIM_DTYPE_I32) wanted.dim[wanted.rank++] = g->classes;
  return brim_graph_fail(g, n->op, n->name, "the model's output must be %s = %s, got %s%s", forms[g->task],
                         brim_shape_format(wanted_text, sizeof wanted_text, &wanted),
                         brim_shape_format(text, sizeof text, shape),
                         wanted.rank == 2 && shape->rank > 2 ? " (add brim_flatten before the last layer?)" : "");
}

/* Whether `label` has one element for each row of x, [..., anything]. */
static bool has_label_per_row(const brim_tensor *x, const brim_tensor *label)
{
  brim_shape rows = x->shape;
  rows.rank--;
  return rows.rank >= 1 && label->dtype == BRIM_DTYPE_I32 && brim_shape_equal(&rows, &label->shape);
}

/* Whether `label` has a probability for each element of x. */
static bool has_shares(const brim_graph *g, const brim_tensor *x, const brim_tensor *label)
{
  return x->shape.rank >= 2 && label->dtype == g->real && brim_shape_equal(&x->shape, &label->shape);
}

/* Makes a real number for each row of x. */
static brim_tensor *new_loss(brim_graph *g, const brim_tensor *x)
{
  brim_shape rows = x->shape;
  rows.rank--;
  return brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, g->real, &rows, "loss");
}

static brim_status infer_loss(brim_graph *g, brim_node *n)
{
  const brim_tensor *logits = n->in[0], *label = n->in[1];
  char text[160], label_text[160];
  const int64_t classes = logits->shape.rank ? logits->shape.dim[logits->shape.rank - 1] : 0;
  const bool fits = has_label_per_row(logits, label) || has_shares(g, logits, label);
  if (label == g->label && (!fits || classes != g->classes)) return brim_graph_fail_output(g, n, &logits->shape);
  if (!fits)
    return brim_graph_fail(
        g, n->op, n->name, "logits '%s' %s must be [..., K] and labels '%s' %s %s I32 [...], or real [..., K]",
        logits->name, brim_shape_format(text, sizeof text, &logits->shape), label->name, brim_dtype_name(label->dtype),
        brim_shape_format(label_text, sizeof label_text, &label->shape));
  n->out[0] = new_loss(g, logits);
  return BRIM_OK;
}

static brim_status gradient_loss(brim_autodiff *ad, const brim_node *n)
{
  return brim_autodiff_emit(ad, "softmax_cross_entropy_grad", n, NULL, n->in, n->in_count, n->in, 1);
}

BRIM_OP(softmax_cross_entropy) = {.name = "softmax_cross_entropy",
                                  .kind = BRIM_KIND_REDUCTION,
                                  .wide_in = BRIM_OP_WIDE(1) | BRIM_OP_WIDE(2),
                                  .wide_out = BRIM_OP_WIDE(0),
                                  .signature = "logits [...,K], label [...] or [...,K], [weight [K]] -> loss [...]",
                                  .infer = infer_loss,
                                  .gradient = gradient_loss,
                                  .flops = 5};
BRIM_OP(softmax_cross_entropy_grad) = {.name = "softmax_cross_entropy_grad",
                                       .kind = BRIM_KIND_REDUCTION,
                                       .signature = "logits, label, [weight] -> dlogits",
                                       .inplace = BRIM_OP_INPLACE(0),
                                       .flops = 5};
BRIM_OP(classification_metrics) = {.name = "classification_metrics",
                                   .kind = BRIM_KIND_REDUCTION,
                                   .wide_in = BRIM_OP_WIDE(2),
                                   .signature = "loss [...], logits [...,K], label [...] or [...,K] -> metrics"};

BRIM_OP(regression_metrics) = {.name = "regression_metrics",
                               .kind = BRIM_KIND_REDUCTION,
                               .signature = "loss [N], y [N,K], target [N,K] -> metrics"};

/* ---- with the product included ---- */

static brim_status infer_linear_loss(brim_graph *g, brim_node *n)
{
  const brim_tensor *x = n->in[0], *product = n->in[1], *label = n->in[2];
  const brim_shape *p = &product->shape;
  if (!has_label_per_row(x, label) || product->role != BRIM_ROLE_PARAMETER || p->rank != 2 ||
      p->dim[1] != x->shape.dim[x->shape.rank - 1]) {
    char text[160], product_text[160], label_text[160];
    return brim_graph_fail(
        g, n->op, n->name, "x '%s' %s must be [..., F], '%s' %s a parameter [K, F], and labels '%s' %s %s I32 [...]",
        x->name, brim_shape_format(text, sizeof text, &x->shape), product->name,
        brim_shape_format(product_text, sizeof product_text, p), label->name, brim_dtype_name(label->dtype),
        brim_shape_format(label_text, sizeof label_text, &label->shape));
  }
  if (n->in_count > 3 &&
      (n->in[3]->role != BRIM_ROLE_PARAMETER || !brim_shape_equal(&n->in[3]->shape, &(brim_shape){1, {p->dim[0]}}))) {
    char text[160];
    return brim_graph_fail(g, n->op, n->name, "bias '%s' %s must be a parameter [%lld]", n->in[3]->name,
                           brim_shape_format(text, sizeof text, &n->in[3]->shape), (long long)p->dim[0]);
  }
  n->out[0] = new_loss(g, x);
  n->out[1] = brim_graph_tensor(g, BRIM_ROLE_ACTIVATION, BRIM_DTYPE_I32, &label->shape, "rank");
  return BRIM_OK;
}

/* A frozen product gets no gradient, because that would be as large as the product. */
static brim_status gradient_linear_loss(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *const bias = n->in_count > 3 ? n->in[3] : NULL;
  brim_tensor *const in[] = {n->in[0], n->in[1], n->in[2], n->out[0], bias}, *const of[] = {n->in[0], n->in[1], bias};
  const bool frozen = !brim_autodiff_needs(ad, n->in[1]) && !(bias && brim_autodiff_needs(ad, bias));
  const uint32_t count = frozen ? 1 : bias ? 3 : 2;
  return brim_autodiff_emit(ad, "linear_cross_entropy_grad", n, NULL, in, bias ? 5 : 4, of, count);
}

/* Counts the product of each row of x with the K rows of `product`, and the softmax. */
static uint64_t flops_of_logits(const brim_node *n)
{
  const brim_shape *x = &n->in[0]->shape, *product = &n->in[1]->shape;
  const int64_t rows = brim_shape_count(x) / x->dim[x->rank - 1];
  return (uint64_t)rows * (uint64_t)product->dim[0] * (uint64_t)(2 * product->dim[1] + 5);
}
static void cost_linear_loss(const brim_node *n, brim_cost *out)
{
  out->flops = flops_of_logits(n);
}
/* Counts the logits again, and one or two products for their gradient. */
static void cost_linear_loss_grad(const brim_node *n, brim_cost *out)
{
  out->flops = (n->out_count > 1 ? 3 : 2) * flops_of_logits(n);
}

BRIM_OP(linear_cross_entropy) = {
    .name = "linear_cross_entropy",
    .kind = BRIM_KIND_PRODUCT_LOSS,
    .wide_in = BRIM_OP_WIDE(3),
    .wide_out = BRIM_OP_WIDE(0),
    .signature = "x [...,F], product [K,F], label [...], [bias [K]] -> loss [...], rank [...]",
    .infer = infer_linear_loss,
    .gradient = gradient_linear_loss,
    .cost = cost_linear_loss};
BRIM_OP(linear_cross_entropy_grad) = {.name = "linear_cross_entropy_grad",
                                      .kind = BRIM_KIND_PRODUCT_LOSS,
                                      .signature = "x, product, label, loss, [bias] -> dx, [dproduct, [dbias]]",
                                      .accumulates = BRIM_OP_FROM(1),
                                      .cost = cost_linear_loss_grad};
/* The cost of loss and gradient as one node of the backward pass: see brim_graph_fuse_loss. */
static void cost_linear_loss_both(const brim_node *n, brim_cost *out)
{
  out->flops = (n->out_count > 3 ? 3 : 2) * flops_of_logits(n);
}
BRIM_OP(linear_cross_entropy_both) = {
    .name = "linear_cross_entropy+grad",
    .kind = BRIM_KIND_PRODUCT_LOSS,
    .wide_in = BRIM_OP_WIDE(3),
    .wide_out = BRIM_OP_WIDE(0),
    .signature = "x [...,F], product [K,F], label [...], [bias [K]] -> loss [...], rank [...], dx, [dproduct, [dbias]]",
    .accumulates = BRIM_OP_FROM(3),
    .cost = cost_linear_loss_both};
BRIM_OP(rank_metrics) = {
    .name = "rank_metrics", .kind = BRIM_KIND_REDUCTION, .signature = "loss [...], rank [...] -> metrics"};
