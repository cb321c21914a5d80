/* mlp: a multilayer perceptron. It has linear layers fc1, fc2, ... of the given widths, each followed by relu and
 * dropout, and a last linear layer for the outputs. */
#include <stdio.h>

#include "brim/model.h"
#include "brim/plugin.h"
#include "samples.h"

typedef struct mlp {
  brim_list hidden;
  double dropout;
} mlp;

static const brim_param params[] = {
    BRIM_PARAM(LIST, mlp, hidden, "[512, 256]", "[1,1048576]", "width of each hidden layer"),
    BRIM_PARAM(F64, mlp, dropout, "0", "[0,1)", "dropout probability after each hidden layer"),
    BRIM_PARAMS_END,
};

static brim_status build(const void *self, brim_graph *g)
{
  const mlp *m = self;
  char name[32];
  brim_tensor *x = brim_input(g);
  BRIM_TRY(check_samples("mlp", x, SAMPLES_NUMBERS));
  x = brim_flatten(g, x);
  for (size_t i = 0; i < m->hidden.count; i++) {
    const int64_t width = (int64_t)m->hidden.item[i];
    if ((double)width != m->hidden.item[i])
      return brim_fail(BRIM_ECONFIG, "mlp: hidden: a layer's width must be a whole number, not %g", m->hidden.item[i]);
    snprintf(name, sizeof name, "fc%zu", i + 1);
    x = brim_dropout(g, brim_relu(g, brim_linear(g, name, x, width)), m->dropout);
  }
  snprintf(name, sizeof name, "fc%zu", m->hidden.count + 1);
  brim_output(g, brim_linear(g, name, brim_features(g, x), brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "mlp",
    .help = "multilayer perceptron: linear layers with relu and dropout",
    .params_size = sizeof(mlp),
    .params = params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-mlp", "0.1", plugins)
