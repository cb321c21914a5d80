/* LSTM, as torch.nn.LSTM(batch_first=True) from state 0. One operation is one layer in one direction; several of them
 * form layers, and two directions joined by concat. */
#include <math.h>
#include <stdio.h>

#include "graph/graph.h"

#undef brim_concat
#undef brim_dropout
#undef brim_lstm

#define HIDDEN_MAX (1 << 24) /* weights [4H,H] do not overflow; the tensor's own check rejects larger ones */

/* Outputs: y [N,T,H], gates [N,T,4H], cell [N,T,H]. */
static brim_status infer_lstm(brim_graph *g, brim_node *n)
{
  brim_shape y = n->in[0]->shape, gates = y;
  gates.dim[2] = n->in[1]->shape.dim[0];
  y.dim[2] = gates.dim[2] / 4;
  n->out[0] = brim_graph_like(g, n, &y);
  n->out[1] = brim_graph_like(g, n, &gates);
  n->out[2] = brim_graph_like(g, n, &y);
  return BRIM_OK;
}

/* Emits the gradient of the gates' input, [N,T,4H], and the gradients that follow from it. */
static brim_status gradient_lstm(brim_autodiff *ad, const brim_node *n)
{
  brim_tensor *x = n->in[0], *y = n->out[0], *gates = n->out[1], *cell = n->out[2];
  brim_tensor *const back[] = {brim_autodiff_of(ad, y), gates, cell, n->in[2]};
  brim_tensor *dgates = brim_autodiff_compute(ad, "lstm_grad", n, NULL, back, 4, &gates->shape);
  if (!dgates) return BRIM_EINVAL; /* the graph has the error */
  brim_tensor *const for_weight[] = {x, y, dgates};
  BRIM_TRY(brim_autodiff_emit(ad, "lstm_grad_weight", n, NULL, for_weight, 3, &n->in[1], 4));
  if (!brim_autodiff_needs(ad, x)) return BRIM_OK;
  brim_tensor *const for_input[] = {dgates, n->in[1]};
  return brim_autodiff_emit(ad, "linear_grad_input", n, NULL, for_input, 2, &x, 1);
}

/* Counts both products, of the input and of the state; the elementwise part is small in comparison. */
static uint64_t flops_of(const brim_tensor *gates, int64_t inputs, int64_t hidden)
{
  return 2 * (uint64_t)brim_shape_count(&gates->shape) * (uint64_t)(inputs + hidden);
}
static void cost_lstm(const brim_node *n, brim_cost *out)
{
  out->flops = flops_of(n->out[1], n->in[0]->shape.dim[2], n->out[0]->shape.dim[2]);
}
static void cost_lstm_grad(const brim_node *n, brim_cost *out)
{
  out->flops = flops_of(n->out[0], 0, n->in[0]->shape.dim[2]);
}
static void cost_lstm_grad_weight(const brim_node *n, brim_cost *out)
{
  out->flops = flops_of(n->in[2], n->in[0]->shape.dim[2], n->in[1]->shape.dim[2]);
}

BRIM_OP(lstm) = {.name = "lstm",
                 .kind = BRIM_KIND_RECURRENT,
                 .signature = "x [N,T,F], weight_ih [4H,F], weight_hh [4H,H], bias_ih [4H], bias_hh [4H]"
                              " -> y [N,T,H], gates [N,T,4H], cell [N,T,H]",
                 .infer = infer_lstm,
                 .gradient = gradient_lstm,
                 .cost = cost_lstm};
BRIM_OP(lstm_grad) = {.name = "lstm_grad",
                      .kind = BRIM_KIND_RECURRENT,
                      .signature = "dy, gates, cell, weight_hh -> dgates",
                      .inplace = BRIM_OP_INPLACE(1),
                      .cost = cost_lstm_grad};
BRIM_OP(lstm_grad_weight) = {.name = "lstm_grad_weight",
                             .kind = BRIM_KIND_RECURRENT,
                             .signature = "x, y, dgates -> dweight_ih, dweight_hh, dbias_ih, dbias_hh",
                             .accumulates = BRIM_OP_FROM(0),
                             .cost = cost_lstm_grad_weight};

/* Makes one direction of one layer; its parameters have the names and initial values of torch.nn.LSTM's. */
static brim_tensor *make_direction(brim_graph *g, const char *name, brim_tensor *x, int64_t hidden, int32_t layer,
                                   bool reverse)
{
  const brim_shape shape[] = {{2, {4 * hidden, x->shape.dim[2]}}, {2, {4 * hidden, hidden}}, {1, {4 * hidden}}};
  const char *const what[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
  const double bound = 1 / sqrt((double)hidden);
  brim_tensor *in[5] = {x};
  for (int i = 0; i < 4; i++) {
    char text[48];
    snprintf(text, sizeof text, "%s_l%d%s", what[i], layer, reverse ? "_reverse" : "");
    in[1 + i] = brim_graph_weight(g, name, text, &shape[i < 2 ? i : 2], bound);
    if (!in[1 + i]) return NULL;
  }
  return brim_graph_apply(g, "lstm", name, in, 5, &(brim_attr){.lstm = {.reverse = reverse}});
}

static bool check_lstm(brim_graph *g, const char *name, const brim_tensor *x, int64_t hidden,
                       const brim_lstm_options *options)
{
  char text[160];
  if (!brim_graph_named(g, "lstm", name) || !brim_graph_accepts(g, "lstm", name, x)) return false;
  if (x->shape.rank != 3 || x->dtype != g->real) {
    brim_graph_fail(g, "lstm", name, "input must be [N, T, F] of real numbers, got '%s' %s %s", x->name,
                    brim_dtype_name(x->dtype), brim_shape_format(text, sizeof text, &x->shape));
  } else if (hidden < 1 || hidden > HIDDEN_MAX) {
    brim_graph_fail(g, "lstm", name, "hidden must be in [1,%d], got %lld", HIDDEN_MAX, (long long)hidden);
  } else if (options->layers < 0) {
    brim_graph_fail(g, "lstm", name, "layers must be at least 1 (0 means 1), got %d", options->layers);
  } else if (!(options->dropout >= 0 && options->dropout < 1)) {
    brim_graph_fail(g, "lstm", name, "dropout must be in [0,1), got %g", options->dropout);
  }
  return g->status == BRIM_OK;
}

brim_tensor *brim_lstm(brim_graph *g, const char *name, brim_tensor *x, int64_t hidden, brim_lstm_options options)
{
  if (!check_lstm(g, name, x, hidden, &options)) return NULL;
  const int32_t layers = options.layers ? options.layers : 1;
  for (int32_t layer = 0; x && layer < layers; layer++) {
    brim_tensor *both[2] = {make_direction(g, name, x, hidden, layer, false), NULL};
    if (options.bidirectional) {
      if (both[0]) both[1] = make_direction(g, name, x, hidden, layer, true);
      x = both[1] ? brim_concat(g, 2, both, 2) : NULL;
    } else {
      x = both[0];
    }
    if (x && layer + 1 < layers && options.dropout > 0) x = brim_dropout(g, x, options.dropout);
  }
  return x;
}
