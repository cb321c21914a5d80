/* temperature_lstm: predicts the next value of a time series from the last state of an LSTM. With loss=mse, mae or
 * huber it has one output for each target of the dataset; with classes it classifies sequences.
 *
 *     lstm 50   last element   dropout   fc
 *
 * Samples are [T, F]; [F] counts as F elements of one number, an image [1, H, W] as H elements of W numbers. */
#include "brim/model.h"
#include "brim/plugin.h"
#include "samples.h"

typedef struct temperature_lstm {
  int64_t hidden, layers;
  double dropout;
} temperature_lstm;

static const brim_param params[] = {
    BRIM_PARAM(I64, temperature_lstm, hidden, "50", "[1,65536]", "size of the LSTM's state"),
    BRIM_PARAM(I64, temperature_lstm, layers, "1", "[1,64]", "number of stacked LSTM layers"),
    BRIM_PARAM(F64, temperature_lstm, dropout, "0", "[0,1)", "dropout probability between layers and before fc"),
    BRIM_PARAMS_END,
};

/* Converts samples of any supported shape to [N, T, F]. */
static brim_tensor *as_sequence(brim_graph *g, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  if (s.rank == 2) return brim_reshape(g, x, 3, (int64_t[]){s.dim[0], s.dim[1], 1});
  if (s.rank == 4 && s.dim[1] == 1) return brim_reshape(g, x, 3, (int64_t[]){s.dim[0], s.dim[2], s.dim[3]});
  return x;
}

static brim_status build(const void *self, brim_graph *g)
{
  const temperature_lstm *m = self;
  brim_tensor *x = brim_input(g);
  BRIM_TRY(check_samples("temperature_lstm", x, SAMPLES_NUMBERS));
  x = as_sequence(g, x);
  x = brim_lstm(g, "lstm", x, m->hidden, (brim_lstm_options){.layers = (int32_t)m->layers, .dropout = m->dropout});
  x = brim_flatten(g, brim_slice(g, x, 1, brim_shape_of(x).dim[1] - 1, 1));
  brim_output(g, brim_linear(g, "fc", brim_dropout(g, brim_features(g, x), m->dropout), brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "temperature_lstm",
    .help = "an LSTM over a time series, and a linear layer on its last state",
    .params_size = sizeof(temperature_lstm),
    .params = params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-temperature_lstm", "0.1", plugins)
