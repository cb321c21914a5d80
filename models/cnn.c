/* cnn: the network of PyTorch's MNIST example (pytorch/examples, mnist/main.py), with its layers and names. On 1x28x28
 * images and 10 classes it has 1,199,882 parameters.
 *
 *     conv1 3x3, 32   relu   conv2 3x3, 64   relu   max pool 2   dropout   fc1 128   relu   dropout   fc2 */
#include "brim/model.h"
#include "brim/plugin.h"
#include "samples.h"

typedef struct cnn {
  int64_t width;
  double dropout1, dropout2;
} cnn;

static const brim_param params[] = {
    BRIM_PARAM(I64, cnn, width, "32", "[1,4096]", "channels of conv1; conv2 has twice, fc1 four times that"),
    BRIM_PARAM(F64, cnn, dropout1, "0.25", "[0,1)", "dropout probability after the pooling"),
    BRIM_PARAM(F64, cnn, dropout2, "0.5", "[0,1)", "dropout probability after fc1"),
    BRIM_PARAMS_END,
};

static brim_status build(const void *self, brim_graph *g)
{
  const cnn *m = self;
  brim_tensor *x = brim_input(g);
  BRIM_TRY(check_samples("cnn", x, SAMPLES_IMAGES));
  x = brim_relu(g, brim_conv2d(g, "conv1", x, m->width, (brim_conv2d_options){.kernel = {3, 3}}));
  x = brim_relu(g, brim_conv2d(g, "conv2", x, 2 * m->width, (brim_conv2d_options){.kernel = {3, 3}}));
  x = brim_max_pool2d(g, x, (brim_pool2d_options){.kernel = {2, 2}});
  x = brim_dropout(g, x, m->dropout1);
  x = brim_flatten(g, x);
  x = brim_relu(g, brim_linear(g, "fc1", x, 4 * m->width));
  x = brim_dropout(g, x, m->dropout2);
  brim_output(g, brim_linear(g, "fc2", brim_features(g, x), brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "cnn",
    .help = "the network of PyTorch's MNIST example: two convolutions, two linear layers",
    .params_size = sizeof(cnn),
    .params = params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-cnn", "0.1", plugins)
