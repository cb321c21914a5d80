/* Rows of the conformance suite: one for each operation, and small networks of several; other families have separate
 * files, rows_*.c. A row makes a random valid configuration; autodiff adds the gradient operations. Add a row with
 * every new operation. */
#include "conformance/bench.h"

static brim_tensor *make_linear(bench *b)
{
  const int64_t scale = b->o.size == SIZE_BLOCKED || b->o.size == SIZE_ANY ? bench_pick(b, 1, 7) : 1;
  const int64_t in = scale * bench_pick_channels(b), out = bench_pick_channels(b);
  return brim_linear(b->g, "fc", bench_input2(b, in), out);
}
BENCH_ROW(linear) = {"linear", make_linear, .by_sample = true};

/* Applies linear to the last dimension of a tensor of rank 4, whose dimensions convolutions store in another order. */
static brim_tensor *make_linear_image(bench *b)
{
  const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, 1), w = bench_pick_extent(b, 1);
  return brim_linear(b->g, "fc", bench_input4(b, c, h, w), bench_pick_channels(b));
}
BENCH_ROW(linear_image) = {"linear, 4 dimensions", make_linear_image, .by_sample = true};

/* Returns an input [N, C, H, W] or [N, F], for operations that take both. */
static brim_tensor *any_input(bench *b)
{
  if (bench_pick(b, 0, 2) == 0) return bench_input2(b, bench_pick_channels(b) * bench_pick_channels(b));
  const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, 1);
  return bench_input4(b, c, h, bench_pick_extent(b, 1));
}

static brim_tensor *make_relu(bench *b)
{
  return brim_relu(b->g, any_input(b));
}
BENCH_ROW(relu) = {"relu", make_relu, .by_sample = true};

static brim_tensor *make_dropout(bench *b)
{
  brim_tensor *x = any_input(b);
  return brim_dropout(b->g, x, (double)bench_pick(b, 1, 9) / 10);
}
BENCH_ROW(dropout) = {"dropout", make_dropout, .by_sample = true};

static brim_tensor *make_reshape(bench *b)
{
  const int64_t c = bench_pick_channels(b), h = bench_pick_extent(b, 1), w = bench_pick_extent(b, 1);
  switch (bench_pick(b, 0, 3)) {
  case 0:
    return brim_reshape(b->g, bench_input2(b, c * h * w), 4, (int64_t[]){b->o.batch, c, h, w});
  case 1:
    return brim_reshape(b->g, bench_input4(b, c, h, w), 4, (int64_t[]){b->o.batch, h, w, c});
  case 2:
    return brim_reshape(b->g, bench_input4(b, c, h, w), 3, (int64_t[]){b->o.batch, -1, w});
  default:
    return brim_flatten(b->g, bench_input4(b, c, h, w));
  }
}
BENCH_ROW(reshape) = {"reshape", make_reshape, .by_sample = true};

/* Adds the loss and its metrics, as the core appends them to a model. */
static brim_tensor *loss_of(bench *b, brim_tensor *logits, int64_t classes)
{
  brim_graph *g = b->g;
  const brim_shape classes_shape = {1, {classes}};
  brim_tensor *in[4] = {NULL, logits, bench_labels(b, classes)};
  const brim_attr smoothed = {.loss = {bench_pick(b, 0, 1) ? 0 : (double)bench_pick(b, 1, 9) / 10}};
  const bool weighted = bench_pick(b, 0, 2) == 0;
  if (weighted) in[3] = brim_graph_tensor(g, BRIM_ROLE_OPTIMIZER, g->real, &classes_shape, "weight"); /* persistent */
  brim_tensor *loss = in[0] = brim_graph_apply(g, "softmax_cross_entropy", "loss", &in[1], weighted ? 3 : 2, &smoothed);
  const brim_attr attr = {.metrics = {(int32_t)bench_pick(b, 0, 1), (int32_t)bench_pick(b, 0, 3)}};
  g->metrics =
      brim_graph_tensor(g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &(brim_shape){1, {3 + classes * classes}}, "metrics");
  brim_graph_node_into(g, "classification_metrics", "metrics", in, 3, &g->metrics, 1, &attr);
  return loss;
}

static int64_t pick_classes(bench *b)
{
  return b->o.size == SIZE_ONE ? 1 : bench_pick(b, 2, 20);
}

static brim_tensor *make_loss(bench *b)
{
  const int64_t classes = pick_classes(b);
  return loss_of(b, bench_input2(b, classes), classes);
}
BENCH_ROW(loss) = {"softmax_cross_entropy", make_loss, .is_loss = true, .by_sample = true};

static brim_tensor *make_zero(bench *b)
{
  const brim_shape shape = {2, {bench_pick_channels(b), 100 * bench_pick_channels(b)}};
  bench_parameter(b, "p", &shape, 1);
  brim_graph_node_into(b->g, "zero", NULL, NULL, 0, &b->g->parameter[0].gradient, 1, NULL);
  return NULL;
}
BENCH_ROW(zero) = {"zero", make_zero, .skips = true};

/* Updates one parameter of any shape with its optimizer's states. */
static brim_tensor *make_update(bench *b, const char *op, uint32_t states)
{
  const int64_t rows = bench_pick_channels(b), columns = bench_pick_channels(b), rank = bench_pick(b, 1, 2);
  const brim_shape shape = {(int32_t)rank, {rows, rank == 2 ? columns : 0}};
  brim_tensor *in[5] = {bench_parameter(b, "p", &shape, 1)}, *out[3];
  in[1] = b->g->parameter[0].gradient;
  out[0] = in[0];
  for (uint32_t s = 0; s < states; s++)
    in[2 + s] = out[1 + s] = brim_graph_tensor(b->g, BRIM_ROLE_OPTIMIZER, b->g->real, &shape, "state");
  const brim_attr attr = {.update = {.no_decay = bench_pick(b, 1, 3) == 1,
                                     .nesterov = bench_pick(b, 0, 1) == 1,
                                     .scaled = bench_pick(b, 0, 1) == 1}};
  if (attr.update.scaled)
    in[2 + states] = brim_graph_tensor(b->g, BRIM_ROLE_DATA, BRIM_DTYPE_F64, &(brim_shape){1, {2}}, "scale");
  brim_graph_node_into(b->g, op, op, in, 2 + states + (attr.update.scaled ? 1 : 0), out, 1 + states, &attr);
  return NULL;
}
static brim_tensor *make_adamw(bench *b)
{
  return make_update(b, "adamw", 2);
}
BENCH_ROW(adamw) = {"adamw", make_adamw};
static brim_tensor *make_adam(bench *b)
{
  return make_update(b, "adam", 2);
}
BENCH_ROW(adam) = {"adam", make_adam};
static brim_tensor *make_yogi(bench *b)
{
  return make_update(b, "yogi", 2);
}
BENCH_ROW(yogi) = {"yogi", make_yogi};
static brim_tensor *make_adagrad(bench *b)
{
  return make_update(b, "adagrad", 1);
}
BENCH_ROW(adagrad) = {"adagrad", make_adagrad};
static brim_tensor *make_sgd(bench *b)
{
  return make_update(b, "sgd", 1);
}
BENCH_ROW(sgd) = {"sgd", make_sgd};

static brim_tensor *make_ema(bench *b)
{
  const brim_shape shape = {2, {bench_pick_channels(b), 100 * bench_pick_channels(b)}};
  const brim_attr attr = {.ema = {(double)bench_pick(b, 1, 9) / 10}};
  brim_tensor *const parameter = bench_parameter(b, "p", &shape, 1);
  brim_tensor *average = brim_graph_tensor(b->g, BRIM_ROLE_OPTIMIZER, b->g->real, &shape, "average");
  brim_tensor *const in[] = {parameter, average};
  brim_graph_node_into(b->g, "ema", "ema", in, 2, &average, 1, &attr);
  return NULL;
}
BENCH_ROW(ema) = {"ema", make_ema};

/* Clips by the norm of two tensors, or without a norm if the factor depends only on the step. */
static brim_tensor *make_clip(bench *b)
{
  const brim_attr attr = {.clip = {(double)bench_pick(b, 0, 4) / 2}};
  const brim_shape one = {1, {1}}, two = {1, {2}};
  const int64_t scale = b->o.size == SIZE_BLOCKED || b->o.size == SIZE_ANY ? 1000 : 1;
  brim_tensor *sum = NULL, *out;
  for (int i = 0; i < 2; i++) {
    const brim_shape shape = {1, {scale * bench_pick_channels(b)}};
    brim_tensor *const in[] = {brim_graph_tensor(b->g, BRIM_ROLE_DATA, b->g->real, &shape, "x"), sum};
    sum = brim_graph_tensor(b->g, BRIM_ROLE_ACTIVATION, BRIM_DTYPE_F64, &one, "sum");
    brim_graph_node_into(b->g, "squared_norm", "squared_norm", in, i ? 2 : 1, &sum, 1, NULL);
  }
  out = brim_graph_tensor(b->g, BRIM_ROLE_OPTIMIZER, BRIM_DTYPE_F64, &two, "scale");
  brim_graph_node_into(b->g, "gradient_scale", "gradient_scale", &sum, bench_pick(b, 1, 4) > 1 ? 1 : 0, &out, 1, &attr);
  return NULL;
}
BENCH_ROW(clip) = {"clip", make_clip};

static brim_tensor *make_moving_average(bench *b)
{
  const brim_shape shape = {1, {bench_pick_channels(b)}};
  brim_tensor *value = bench_parameter(b, "p", &shape, 1);
  brim_tensor *const in[] = {value, b->g->parameter[0].gradient};
  const brim_attr attr = {.moving_average = {(double)bench_pick(b, 0, 10) / 10}};
  brim_graph_node_into(b->g, "moving_average", NULL, in, 2, &value, 1, &attr);
  return NULL;
}
BENCH_ROW(moving_average) = {"moving_average", make_moving_average};

static brim_tensor *make_accumulate(bench *b)
{
  const brim_shape shape = {2, {bench_pick_channels(b), bench_pick_channels(b)}};
  brim_tensor *x = brim_graph_tensor(b->g, BRIM_ROLE_DATA, b->g->real, &shape, "x");
  bench_parameter(b, "p", &shape, 1);
  brim_graph_node_into(b->g, "accumulate", NULL, &x, 1, &b->g->parameter[0].gradient, 1, NULL);
  return NULL;
}
BENCH_ROW(accumulate) = {"accumulate", make_accumulate};

/* ---- small networks, forward and backward as a whole ---- */

static brim_tensor *make_mlp(bench *b)
{
  brim_graph *g = b->g;
  const int64_t classes = pick_classes(b);
  brim_tensor *x = bench_input2(b, bench_pick_channels(b) * bench_pick_extent(b, 1));
  x = brim_dropout(g, brim_relu(g, brim_linear(g, "fc1", x, 2 * bench_pick_channels(b))), 0.3);
  x = brim_relu(g, brim_linear(g, "fc2", x, bench_pick_channels(b)));
  return loss_of(b, brim_linear(g, "fc3", x, classes), classes);
}
BENCH_ROW(mlp) = {"network: mlp", make_mlp, .is_loss = true, .composite = true, .by_sample = true};

/* Builds the operations of the model cnn in order, in other sizes. */
static brim_tensor *make_cnn(bench *b)
{
  brim_graph *g = b->g;
  const int64_t classes = pick_classes(b), padding = bench_pick(b, 0, 1), stride = bench_pick(b, 1, 2);
  const int64_t h = bench_pick_extent(b, 9), w = bench_pick_extent(b, 9);
  const int64_t width = b->o.size == SIZE_BLOCKED ? 16 : bench_pick(b, 1, b->o.size == SIZE_SMALL ? 2 : 12);
  brim_tensor *x = bench_input4(b, bench_pick(b, 1, 3), h, w);
  x = brim_relu(
      g, brim_conv2d(g, "conv1", x, width, (brim_conv2d_options){.kernel = {3, 3}, .padding = {padding, padding}}));
  x = brim_relu(g, brim_conv2d(g, "conv2", x, bench_pick(b, 1, 2) * width,
                               (brim_conv2d_options){
                                   .kernel = {3, 3}, .stride = {stride, stride}, .padding = {padding, padding}}));
  x = brim_dropout(g, brim_max_pool2d(g, x, (brim_pool2d_options){.kernel = {2, 2}}), 0.25);
  x = brim_relu(g, brim_linear(g, "fc1", brim_flatten(g, x), 4 * width));
  return loss_of(b, brim_linear(g, "fc2", brim_dropout(g, x, 0.5), classes), classes);
}
BENCH_ROW(cnn) = {"network: cnn", make_cnn, .is_loss = true, .composite = true, .by_sample = true};

/* Reads one tensor twice, so its gradient is the sum of two gradients. */
static brim_tensor *make_residual(bench *b)
{
  brim_graph *g = b->g;
  const int64_t classes = pick_classes(b), c = bench_pick_channels(b);
  const int64_t h = bench_pick_extent(b, 4), w = bench_pick_extent(b, 4);
  brim_tensor *x = brim_relu(g, brim_conv2d(g, "conv1", bench_input4(b, 2, h, w), c,
                                            (brim_conv2d_options){.kernel = {3, 3}, .padding = {1, 1}}));
  brim_tensor *y = brim_dropout(
      g, brim_relu(g, brim_conv2d(g, "conv2", x, c, (brim_conv2d_options){.kernel = {3, 3}, .padding = {1, 1}})), 0.2);
  x = brim_max_pool2d(g, brim_add(g, brim_add(g, x, y), x),
                      (brim_pool2d_options){.kernel = {3, 3}, .stride = {2 - (h < 5 || w < 5), 2 - (h < 5 || w < 5)}});
  return loss_of(b, brim_linear(g, "fc", brim_flatten(g, x), classes), classes);
}
BENCH_ROW(residual) = {"network: residual", make_residual, .is_loss = true, .composite = true, .by_sample = true};

/* Builds the models cnn and mlp on 1x28x28 images: libraries choose other algorithms for large shapes than for small
 * ones. */
static brim_tensor *make_cnn_large(bench *b)
{
  brim_graph *g = b->g;
  brim_tensor *x =
      brim_relu(g, brim_conv2d(g, "conv1", bench_input4(b, 1, 28, 28), 32, (brim_conv2d_options){.kernel = {3, 3}}));
  x = brim_relu(g, brim_conv2d(g, "conv2", x, 64, (brim_conv2d_options){.kernel = {3, 3}}));
  x = brim_flatten(g, brim_dropout(g, brim_max_pool2d(g, x, (brim_pool2d_options){.kernel = {2, 2}}), 0.25));
  x = brim_dropout(g, brim_relu(g, brim_linear(g, "fc1", x, 128)), 0.5);
  return loss_of(b, brim_linear(g, "fc2", x, 10), 10);
}
BENCH_ROW(cnn_large) = {"network: cnn, 28x28", make_cnn_large,    .is_loss = true,
                        .composite = true,     .by_sample = true, .large = true};

static brim_tensor *make_mlp_large(bench *b)
{
  brim_graph *g = b->g;
  brim_tensor *x = brim_relu(g, brim_linear(g, "fc1", bench_input2(b, 784), 512));
  x = brim_relu(g, brim_linear(g, "fc2", x, 256));
  return loss_of(b, brim_linear(g, "fc3", x, 10), 10);
}
BENCH_ROW(mlp_large) = {"network: mlp, 784", make_mlp_large,    .is_loss = true,
                        .composite = true,   .by_sample = true, .large = true};
