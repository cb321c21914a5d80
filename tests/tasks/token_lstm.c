/* token_lstm: the smallest language model. It has the embedding of each token, an LSTM over the embeddings, and a
 * product that gives the logits of the next token. With `tied` the product uses the embedding's weights. */
#include "brim/model.h"
#include "brim/plugin.h"

typedef struct token_lstm {
  int64_t dim, layers;
  bool tied;
} token_lstm;

static const brim_param params[] = {
    BRIM_PARAM(I64, token_lstm, dim, "16", "[1,4096]", "size of the embedding and of the LSTM's state"),
    BRIM_PARAM(I64, token_lstm, layers, "1", "[0,8]", "LSTMs one after the other; 0: none"),
    BRIM_PARAM(BOOL, token_lstm, tied, "false", NULL, "the logits are made with the embedding's weights"),
    BRIM_PARAMS_END,
};

static brim_status build(const void *self, brim_graph *g)
{
  const token_lstm *m = self;
  const int64_t size[] = {brim_classes(g), m->dim};
  brim_tensor *tokens = brim_parameter_new(g, "tokens.weight", 2, size, (brim_init){BRIM_INIT_NORMAL, 0.1});
  brim_tensor *x = brim_embedding_with(g, brim_input(g), tokens);
  if (m->layers > 0) x = brim_lstm(g, "lstm", x, m->dim, (brim_lstm_options){.layers = (int32_t)m->layers});
  if (m->tied)
    brim_output(g, brim_linear_with(g, "head", x, tokens, NULL));
  else
    brim_output(g, brim_linear(g, "head", x, brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "token_lstm",
    .help = "an embedding, an LSTM and a product",
    .params_size = sizeof(token_lstm),
    .params = params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("tests-token_lstm", "0.1", plugins)
