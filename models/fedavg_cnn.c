/* fedavg_cnn: the network of McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data
 * (AISTATS 2017), section 3. On 1x28x28 images and 10 classes it has 1,663,370 parameters.
 *
 *     conv1 5x5, 32   relu   max pool 2   conv2 5x5, 64   relu   max pool 2   fc1 512   relu   fc2  */
#include "brim/model.h"
#include "brim/plugin.h"
#include "samples.h"

typedef struct fedavg_cnn {
  int64_t width;
} fedavg_cnn;

static const brim_param params[] = {
    BRIM_PARAM(I64, fedavg_cnn, width, "32", "[1,4096]", "channels of conv1; conv2 has twice, fc1 16 times that"),
    BRIM_PARAMS_END,
};

static brim_status build(const void *self, brim_graph *g)
{
  const fedavg_cnn *m = self;
  const brim_conv2d_options same = {.kernel = {5, 5}, .padding = {2, 2}};
  const brim_pool2d_options half = {.kernel = {2, 2}};
  brim_tensor *x = brim_input(g);
  BRIM_TRY(check_samples("fedavg_cnn", x, SAMPLES_IMAGES));
  x = brim_max_pool2d(g, brim_relu(g, brim_conv2d(g, "conv1", x, m->width, same)), half);
  x = brim_max_pool2d(g, brim_relu(g, brim_conv2d(g, "conv2", x, 2 * m->width, same)), half);
  x = brim_relu(g, brim_linear(g, "fc1", brim_flatten(g, x), 16 * m->width));
  brim_output(g, brim_linear(g, "fc2", brim_features(g, x), brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "fedavg_cnn",
    .help = "the convolutional network of the FedAvg paper: 1,663,370 parameters on MNIST",
    .params_size = sizeof(fedavg_cnn),
    .params = params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-fedavg_cnn", "0.1", plugins)
