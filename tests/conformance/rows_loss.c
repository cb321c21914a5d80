/* Rows of the losses other than those that the core appends to a model (rows.c): softmax cross-entropy over sequences,
 * with ignored labels, and with the product inside; and the mean losses. */
#include <math.h>

#include "brim/loss.h"
#include "conformance/bench.h"

/* Picks any smoothing, and in some cases a label that the loss ignores. */
static brim_attr pick_attr(bench *b, int64_t classes)
{
  return (brim_attr){.loss = {.smoothing = bench_pick(b, 0, 1) ? 0 : (double)bench_pick(b, 1, 9) / 10,
                              .ignores = (int32_t)bench_pick(b, 0, 1),
                              .ignore_index = (int32_t)bench_pick(b, 0, classes - 1)}};
}

/* Picks a shape [N] with up to two more dimensions. */
static brim_shape pick_rows(bench *b)
{
  brim_shape rows = {(int32_t)bench_pick(b, 1, 3), {b->o.batch}};
  for (int32_t d = 1; d < rows.rank; d++) rows.dim[d] = b->o.size == SIZE_ONE ? 1 : bench_pick(b, 1, 4);
  return rows;
}

static int64_t pick_classes(bench *b)
{
  return b->o.size == SIZE_ONE ? 1 : bench_pick(b, 2, b->o.size == SIZE_BLOCKED ? 64 : 20);
}

static brim_shape with(brim_shape rows, int64_t last)
{
  rows.dim[rows.rank++] = last;
  return rows;
}

static brim_tensor *make_cross_entropy(bench *b)
{
  const brim_shape rows = pick_rows(b);
  const int64_t classes = pick_classes(b);
  const brim_attr attr = pick_attr(b, classes);
  const brim_shape shape = with(rows, classes), weight_shape = {1, {classes}};
  brim_tensor *in[3] = {bench_input(b, &shape, "logits")};
  in[1] = bench_indices(b, &rows, classes, "label");
  const bool weighted = bench_pick(b, 0, 1) == 1;
  if (weighted) in[2] = brim_graph_tensor(b->g, BRIM_ROLE_OPTIMIZER, b->g->real, &weight_shape, "weight");
  return brim_graph_apply(b->g, "softmax_cross_entropy", "loss", in, weighted ? 3 : 2, &attr);
}
BENCH_ROW(loss_rows) = {"loss: rows", make_cross_entropy, .is_loss = true, .by_sample = true, .skips = true};

/* A token that the loss ignores does not count as a prediction either. */
static brim_tensor *make_token_loss(bench *b)
{
  brim_graph *g = b->g;
  const brim_shape rows = pick_rows(b);
  const int64_t classes = pick_classes(b);
  const brim_shape shape = with(rows, classes), metrics = {1, {3}};
  const int32_t ignored = (int32_t)bench_pick(b, 0, classes - 1), ignores = (int32_t)bench_pick(b, 0, 1);
  const brim_attr loss_attr = {.loss = {.ignores = ignores, .ignore_index = ignored}};
  const brim_attr metrics_attr = {
      .metrics = {.top_k = (int32_t)bench_pick(b, 0, 3), .ignores = ignores, .ignore_index = ignored}};
  brim_tensor *in[3] = {NULL, bench_input(b, &shape, "logits"), bench_indices(b, &rows, classes, "label")};
  brim_tensor *loss = in[0] = brim_graph_apply(g, "softmax_cross_entropy", "loss", &in[1], 2, &loss_attr);
  if (!loss) return NULL;
  g->metrics = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &metrics, "metrics");
  brim_graph_node_into(g, "classification_metrics", "metrics", in, 3, &g->metrics, 1, &metrics_attr);
  return loss;
}
BENCH_ROW(token_loss) = {"loss: tokens", make_token_loss, .is_loss = true, .by_sample = true, .skips = true};

/* Builds a loss with class probabilities as labels. Here the labels are any numbers, and metrics use the largest. */
static brim_tensor *make_share_loss(bench *b)
{
  brim_graph *g = b->g;
  const brim_shape rows = pick_rows(b);
  const int64_t classes = pick_classes(b);
  const brim_shape shape = with(rows, classes), weight_shape = {1, {classes}};
  const brim_attr loss_attr = pick_attr(b, classes);
  const brim_attr metrics_attr = {
      .metrics = {.confusion = (int32_t)bench_pick(b, 0, 1), .top_k = (int32_t)bench_pick(b, 0, 3)}};
  const int64_t cells = metrics_attr.metrics.confusion ? classes * classes : 0;
  const brim_shape metrics = {1, {2 + cells + (metrics_attr.metrics.top_k > 0)}};
  brim_tensor *in[4] = {NULL, bench_input(b, &shape, "logits"),
                        brim_graph_tensor(g, BRIM_ROLE_DATA, g->real, &shape, "label")};
  const bool weighted = bench_pick(b, 0, 1) == 1;
  if (weighted) in[3] = brim_graph_tensor(g, BRIM_ROLE_OPTIMIZER, g->real, &weight_shape, "weight");
  brim_tensor *loss = in[0] =
      brim_graph_apply(g, "softmax_cross_entropy", "loss", &in[1], weighted ? 3 : 2, &loss_attr);
  if (!loss) return NULL;
  g->metrics = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &metrics, "metrics");
  brim_graph_node_into(g, "classification_metrics", "metrics", in, 3, &g->metrics, 1, &metrics_attr);
  return loss;
}
/* .terms: with a single class the gradient is a difference of two equal numbers. */
BENCH_ROW(share_loss) = {"loss: shares", make_share_loss, .is_loss = true, .by_sample = true, .terms = 0.1};

static brim_tensor *linear_loss_capped(bench *b, const brim_shape *rows, int64_t features, int64_t classes, bool biased,
                                       double softcap)
{
  brim_graph *g = b->g;
  brim_attr attr = pick_attr(b, classes);
  attr.loss.softcap = softcap;
  if (softcap > 0) attr.loss.smoothing = 0;
  const brim_attr top = {.metrics = {.top_k = (int32_t)bench_pick(b, 0, 3)}};
  const brim_shape shape = with(*rows, features), product = {2, {classes, features}}, bias = {1, {classes}};
  const brim_shape metrics = {1, {3}};
  brim_tensor *in[4] = {bench_input(b, &shape, "x")};
  in[1] = bench_parameter(b, "product", &product, 1);
  in[2] = bench_indices(b, rows, classes, "label");
  if (biased) in[3] = bench_parameter(b, "bias", &bias, 1);
  const brim_node *n = brim_graph_node(g, "linear_cross_entropy", "loss", in, biased ? 4 : 3, &attr);
  if (!n) return NULL;
  g->metrics = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &metrics, "metrics");
  brim_graph_node_into(g, "rank_metrics", "metrics", n->out, 2, &g->metrics, 1, &top);
  return n->out[0];
}

static brim_tensor *linear_loss(bench *b, const brim_shape *rows, int64_t features, int64_t classes, bool biased)
{
  return linear_loss_capped(b, rows, features, classes, biased, 0);
}

static brim_tensor *make_linear_loss_capped(bench *b)
{
  const brim_shape rows = pick_rows(b);
  const int64_t features = bench_pick_channels(b), classes = pick_classes(b);
  const bool biased = bench_pick(b, 0, 1) > 0;
  return linear_loss_capped(b, &rows, features, classes, biased, (double)bench_pick(b, 1, 20) / 2);
}
BENCH_ROW(linear_loss_capped) = {"linear_cross_entropy, cap", make_linear_loss_capped, .is_loss = true,
                                 .by_sample = true, .skips = true};
BENCH_ROW(linear_loss_capped_once) = {"linear_cross_entropy+grad, cap",
                                      make_linear_loss_capped,
                                      .is_loss = true,
                                      .by_sample = true,
                                      .skips = true,
                                      .keeps_logits = true};

static brim_tensor *make_linear_loss(bench *b)
{
  const brim_shape rows = pick_rows(b);
  const int64_t features = bench_pick_channels(b);
  return linear_loss(b, &rows, features, pick_classes(b), false);
}
static brim_tensor *make_linear_loss_bias(bench *b)
{
  const brim_shape rows = pick_rows(b);
  const int64_t features = bench_pick_channels(b);
  return linear_loss(b, &rows, features, pick_classes(b), true);
}
BENCH_ROW(linear_loss) = {"linear_cross_entropy", make_linear_loss, .is_loss = true, .by_sample = true, .skips = true};
BENCH_ROW(linear_loss_bias) = {"linear_cross_entropy, bias", make_linear_loss_bias, .is_loss = true, .by_sample = true,
                               .skips = true};

/* The parameters are frozen, so the backward pass has a product only for the gradient of x. With one class all
 * gradients would be 0. */
static brim_tensor *make_linear_loss_frozen(bench *b)
{
  const brim_shape rows = pick_rows(b);
  const int64_t features = bench_pick_channels(b);
  b->g->freezing = true;
  brim_tensor *loss = linear_loss(b, &rows, features, pick_classes(b) + 1, bench_pick(b, 0, 1) > 0);
  b->g->freezing = false;
  return loss;
}
BENCH_ROW(linear_loss_frozen) = {"linear_cross_entropy, frozen", make_linear_loss_frozen, .is_loss = true,
                                 .by_sample = true, .skips = true};

/* The loss and its gradient are one node. */
BENCH_ROW(linear_loss_once) = {"linear_cross_entropy+grad", make_linear_loss, .is_loss = true,
                               .by_sample = true,           .skips = true,    .keeps_logits = true};
BENCH_ROW(linear_loss_bias_once) = {"linear_cross_entropy+grad, bias",
                                    make_linear_loss_bias,
                                    .is_loss = true,
                                    .by_sample = true,
                                    .skips = true,
                                    .keeps_logits = true};
BENCH_ROW(linear_loss_frozen_once) = {"linear_cross_entropy+grad, frozen",
                                      make_linear_loss_frozen,
                                      .is_loss = true,
                                      .by_sample = true,
                                      .skips = true,
                                      .keeps_logits = true};

/* More rows and classes than one piece has, and more features than one block of a product. */
static brim_tensor *make_linear_loss_large(bench *b)
{
  const brim_shape rows = {2, {b->o.batch, 67}};
  return linear_loss(b, &rows, 5, 2100, false);
}
static brim_tensor *make_linear_loss_bias_large(bench *b)
{
  const brim_shape rows = {2, {b->o.batch, 67}};
  return linear_loss(b, &rows, 5, 2100, true);
}
BENCH_ROW(linear_loss_large) = {"linear_cross_entropy, large",
                                make_linear_loss_large,
                                .is_loss = true,
                                .by_sample = true,
                                .skips = true,
                                .large = true};
BENCH_ROW(linear_loss_bias_large) = {"linear_cross_entropy, bias, large",
                                     make_linear_loss_bias_large,
                                     .is_loss = true,
                                     .by_sample = true,
                                     .skips = true,
                                     .large = true};
BENCH_ROW(linear_loss_bias_large_once) = {"linear_cross_entropy+grad, bias, large",
                                          make_linear_loss_bias_large,
                                          .is_loss = true,
                                          .by_sample = true,
                                          .skips = true,
                                          .keeps_logits = true,
                                          .large = true};

static brim_tensor *make_linear_loss_capped_large(bench *b)
{
  const brim_shape rows = {2, {b->o.batch, 67}};
  return linear_loss_capped(b, &rows, 5, 2100, true, 2);
}
BENCH_ROW(linear_loss_capped_large) = {"linear_cross_entropy+grad, cap, large",
                                       make_linear_loss_capped_large,
                                       .is_loss = true,
                                       .by_sample = true,
                                       .skips = true,
                                       .keeps_logits = true,
                                       .large = true};

/* Builds a loss with labels or with a target of y's shape. No difference is near a kink of the loss, because
 * differences of VALUES_DISTINCT are multiples of 2e-4, up to rounding. */
static brim_tensor *make_mean_loss(bench *b, const char *op)
{
  const brim_attr attr = {.loss = {.delta = 0.1 * (double)bench_pick(b, 1, 12) + 1e-4}};
  const bool by_label = bench_pick(b, 0, 2) == 0;
  const brim_shape samples = {1, {b->o.batch}};
  const brim_shape rows = by_label ? samples : pick_rows(b), shape = with(rows, bench_pick_channels(b));
  brim_tensor *const in[] = {
      bench_input(b, &shape, "y"),
      by_label ? bench_indices(b, &samples, shape.dim[1], "label")
               : brim_graph_tensor(b->g, BRIM_ROLE_DATA, b->g->real, &shape, "target"),
  };
  return brim_graph_apply(b->g, op, "loss", in, 2, &attr);
}
static brim_tensor *make_mse(bench *b)
{
  return make_mean_loss(b, "mse");
}
BENCH_ROW(mse) = {"mse", make_mse, .is_loss = true, .by_sample = true};
static brim_tensor *make_mae(bench *b)
{
  return make_mean_loss(b, "mae");
}
BENCH_ROW(mae) = {"mae", make_mae, .is_loss = true, .by_sample = true};
static brim_tensor *make_huber(bench *b)
{
  return make_mean_loss(b, "huber");
}
BENCH_ROW(huber) = {"huber", make_huber, .is_loss = true, .by_sample = true};
static brim_tensor *make_bce(bench *b)
{
  return make_mean_loss(b, "bce");
}
BENCH_ROW(bce) = {"bce", make_bce, .is_loss = true, .by_sample = true};

/* Builds a loss with real targets, and the metrics that the core appends. The metrics compare the output with the
 * targets in the targets' own type, whatever the type of activations. */
static brim_tensor *make_regression(bench *b)
{
  brim_graph *g = b->g;
  static const char *const ops[] = {"mse", "mae", "huber"};
  const brim_shape shape = {2, {b->o.batch, bench_pick_channels(b)}};
  const brim_shape metrics = {1, {BRIM_ERRORS_COUNT(shape.dim[1])}};
  const brim_attr attr = {.loss = {.delta = 0.7001}};
  const brim_attr metrics_attr = {.metrics = {.errors = (int32_t)bench_pick(b, 0, 1)}};
  g->task = BRIM_TASK_VALUES;
  g->classes = shape.dim[1];
  g->output = brim_scale(g, bench_input(b, &shape, "x"), 1.5);
  g->label = brim_graph_tensor(g, BRIM_ROLE_DATA, g->real, &shape, "target");
  brim_tensor *in[3] = {NULL, g->output, g->label};
  in[0] = brim_graph_apply(g, ops[bench_pick(b, 0, 2)], "loss", &in[1], 2, &attr);
  if (!in[0]) return NULL;
  g->metrics = brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &metrics, "metrics");
  brim_graph_node_into(g, "regression_metrics", "metrics", in, 3, &g->metrics, 1, &metrics_attr);
  return in[0];
}
BENCH_ROW(regression) = {"loss: regression", make_regression, .is_loss = true, .by_sample = true};

/* ---- losses of plugins ---- */

/* Builds the loss as core/graph/loss_build.c does. */
static brim_tensor *make_built(bench *b, const char *formula)
{
  const brim_shape rows = pick_rows(b);
  const int64_t classes = b->g->classes = pick_classes(b);
  const brim_attr attr = pick_attr(b, classes);
  const brim_shape shape = with(rows, classes), weight_shape = {1, {classes}};
  const bool weighted = bench_pick(b, 0, 1) == 1;
  brim_tensor *x = bench_input(b, &shape, "logits");
  brim_tensor *label = bench_indices(b, &rows, classes, "label");
  brim_tensor *target = brim_graph_apply(b->g, "one_hot", "target", &label, 1, &attr);
  b->g->builds_loss = true;
  b->g->output = x;
  b->g->label = label;
  brim_tensor *each = brim_elementwise(b->g, formula, BRIM_ELEMENTS("x", x), BRIM_ELEMENTS("t", target),
                                       BRIM_NUMBER("a", 0.25), BRIM_NUMBER("gamma", 2));
  brim_tensor *in[] = {brim_sum(b->g, each, 1, (const int32_t[]){-1}, 0), label, NULL};
  if (weighted) in[2] = brim_graph_tensor(b->g, BRIM_ROLE_OPTIMIZER, b->g->real, &weight_shape, "weight");
  return brim_graph_apply(b->g, "sample_loss", "loss", in, weighted ? 3 : 2, &attr);
}

static brim_tensor *make_built_focal(bench *b)
{
  return make_built(b, "c = max(x, 0) - x * t + log1p(exp(-abs(x)))\n"
                       "q = sigmoid(x) * (1 - t) + sigmoid(-x) * t\n"
                       "y = c * exp(gamma * log(max(q, 1e-30))) * (t * a + (1 - t) * (1 - a))");
}
BENCH_ROW(built_focal) = {"loss of a plugin: focal", make_built_focal, .is_loss = true, .skips = true};

/* Uses every function that has a derivative. */
static brim_tensor *make_built_all(bench *b)
{
  return make_built(b, "e = x - t\n"
                       "s = tanh(x * a) + erf(e * a) + sqrt(e * e + 1) / (2 + exp(-abs(x)))\n"
                       "y = s + where(x < a, e * e, min(x, gamma) * max(e, -gamma)) - log(abs(e) + 1) + log1p(x * x)");
}
BENCH_ROW(built_all) = {"loss of a plugin: functions", make_built_all, .is_loss = true, .skips = true};
