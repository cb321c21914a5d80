/* Rows of LSTM: one direction of one layer alone, and layers as in models. */
#include <math.h>

#include "conformance/bench.h"

/* Picks a number of hidden units: less than a vector, whole vectors, or whole vectors and a remainder. */
static int64_t pick_hidden(bench *b)
{
  switch (b->o.size) {
  case SIZE_SMALL:
    return bench_pick(b, 1, 3);
  case SIZE_ONE:
    return 1;
  case SIZE_BLOCKED:
    return 16 * bench_pick(b, 1, 2);
  default:
    return 2 * bench_pick(b, 0, 9) + (b->o.size == SIZE_ODD ? 1 : bench_pick(b, 1, 2));
  }
}

static brim_tensor *input(bench *b)
{
  const int64_t steps = bench_pick_extent(b, 1), features = bench_pick_channels(b);
  return bench_input(b, &(brim_shape){3, {b->o.batch, steps, features}}, "x");
}

static brim_tensor *direction(bench *b, brim_tensor *x, int64_t hidden)
{
  const int64_t features = brim_shape_of(x).dim[2];
  const double bound = 1 / sqrt((double)hidden);
  brim_tensor *const in[] = {x, bench_parameter(b, "weight_ih", &(brim_shape){2, {4 * hidden, features}}, bound),
                             bench_parameter(b, "weight_hh", &(brim_shape){2, {4 * hidden, hidden}}, bound),
                             bench_parameter(b, "bias_ih", &(brim_shape){1, {4 * hidden}}, bound),
                             bench_parameter(b, "bias_hh", &(brim_shape){1, {4 * hidden}}, bound)};
  return brim_graph_apply(b->g, "lstm", "lstm", in, 5, &(brim_attr){.lstm = {(int32_t)bench_pick(b, 0, 1)}});
}
static brim_tensor *make_direction(bench *b)
{
  brim_tensor *x = input(b);
  return direction(b, x, pick_hidden(b));
}
BENCH_ROW(lstm) = {"lstm", make_direction, .by_sample = true};

/* Has weights that do not fit the shared memory of a block. */
static brim_tensor *make_direction_130(bench *b)
{
  return direction(b, bench_input(b, &(brim_shape){3, {b->o.batch, 4, 3}}, "x"), 130);
}
BENCH_ROW(lstm_130) = {"lstm of 130", make_direction_130, .by_sample = true, .large = true};

static brim_tensor *make_direction_260(bench *b)
{
  return direction(b, bench_input(b, &(brim_shape){3, {b->o.batch, 3, 2}}, "x"), 260);
}
BENCH_ROW(lstm_260) = {"lstm of 260", make_direction_260, .by_sample = true, .large = true};

static brim_tensor *make_layers(bench *b)
{
  const brim_lstm_options options = {
      .layers = (int32_t)bench_pick(b, 0, 2), .bidirectional = (int32_t)bench_pick(b, 0, 1), .dropout = 0.25};
  brim_tensor *x = input(b);
  return brim_lstm(b->g, "lstm", x, pick_hidden(b), options);
}
BENCH_ROW(lstm_layers) = {"network: lstm layers", make_layers, .composite = true, .by_sample = true};
