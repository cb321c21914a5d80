/* mental_state: classifies mental states from EEG and other signals, by convolutions over time, a bidirectional LSTM,
 * attention over its states, and their mean.
 *
 *     conv1 64   relu   max pool 2   conv2 128   relu   max pool 2   dropout      (along time, kernel 3)
 *     bidirectional lstm 64   layer norm(x + attention of 4 heads)   mean over time   dropout   fc
 *
 * Samples are [channels, T]; [T] counts as one channel, an image [1, H, W] as H channels of W. */
#include "brim/model.h"
#include "brim/plugin.h"
#include "samples.h"

typedef struct mental_state {
  int64_t width, hidden, heads;
  double dropout;
} mental_state;

static const brim_param params[] = {
    BRIM_PARAM(I64, mental_state, width, "64", "[1,4096]", "channels of conv1; conv2 has twice that"),
    BRIM_PARAM(I64, mental_state, hidden, "64", "[1,65536]", "size of the LSTM's state in each direction"),
    BRIM_PARAM(I64, mental_state, heads, "4", "[1,1024]",
               "number of attention heads; must divide twice the LSTM's state"),
    BRIM_PARAM(F64, mental_state, dropout, "0.3", "[0,1)", "dropout probability"),
    BRIM_PARAMS_END,
};

/* Converts samples of any supported shape to [N, channels, T]. */
static brim_tensor *as_signals(brim_graph *g, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  if (s.rank == 2) return brim_reshape(g, x, 3, (int64_t[]){s.dim[0], 1, s.dim[1]});
  if (s.rank == 4 && s.dim[1] == 1) return brim_reshape(g, x, 3, (int64_t[]){s.dim[0], s.dim[2], s.dim[3]});
  return x;
}

/* Self-attention with projections, like torch.nn.MultiheadAttention. */
static brim_tensor *attend(brim_graph *g, const mental_state *m, brim_tensor *x)
{
  const int64_t size = 2 * m->hidden;
  brim_tensor *q = brim_linear(g, "attention.q", x, size);
  brim_tensor *k = brim_linear(g, "attention.k", x, size);
  brim_tensor *v = brim_linear(g, "attention.v", x, size);
  x = brim_attention(g, q, k, v, (brim_attention_options){.heads = m->heads, .dropout = m->dropout});
  return brim_linear(g, "attention.out", x, size);
}

static brim_status build(const void *self, brim_graph *g)
{
  const mental_state *m = self;
  const brim_conv1d_options conv = {.kernel = 3, .padding = 1};
  brim_tensor *x = brim_input(g);
  BRIM_TRY(check_samples("mental_state", x, SAMPLES_NUMBERS));
  x = as_signals(g, x);
  x = brim_max_pool1d(g, brim_relu(g, brim_conv1d(g, "conv1", x, m->width, conv)), 2, 2, 0);
  x = brim_max_pool1d(g, brim_relu(g, brim_conv1d(g, "conv2", x, 2 * m->width, conv)), 2, 2, 0);
  x = brim_transpose(g, brim_dropout(g, x, m->dropout), 1, 2); /* [N, T, channels] */
  x = brim_lstm(g, "lstm", x, m->hidden, (brim_lstm_options){.bidirectional = 1});
  x = brim_layer_norm(g, "norm", brim_add(g, x, attend(g, m, x)), 1e-5);
  x = brim_mean(g, x, 1, (int32_t[]){1}, 0);
  brim_output(g, brim_linear(g, "fc", brim_dropout(g, brim_features(g, x), m->dropout), brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "mental_state",
    .help = "mental states from signals: convolutions over time, a bidirectional LSTM, attention",
    .params_size = sizeof(mental_state),
    .params = params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-mental_state", "0.1", plugins)
