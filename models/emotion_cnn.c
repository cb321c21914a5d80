/* emotion_cnn: recognizes emotions in faces. On 1x48x48 images and 7 classes (FER-2013) it has 2,345,607 parameters;
 * images must have at least 28 rows and columns.
 *
 *     conv1 32   conv2 64   max pool 2   dropout   conv3 128   max pool 2   conv4 128   max pool 2   dropout
 *     fc1 1024   dropout   fc2            all convolutions are 3x3 without padding; relu follows every layer except the
 * last */
#include "brim/model.h"
#include "brim/plugin.h"
#include "samples.h"

typedef struct emotion_cnn {
  double dropout, dropout_fc;
} emotion_cnn;

static const brim_param params[] = {
    BRIM_PARAM(F64, emotion_cnn, dropout, "0.25", "[0,1)", "dropout probability after each pooling"),
    BRIM_PARAM(F64, emotion_cnn, dropout_fc, "0.5", "[0,1)", "dropout probability after fc1"),
    BRIM_PARAMS_END,
};

static brim_status build(const void *self, brim_graph *g)
{
  const emotion_cnn *m = self;
  const brim_conv2d_options conv = {.kernel = {3, 3}};
  const brim_pool2d_options half = {.kernel = {2, 2}};
  brim_tensor *x = brim_input(g);
  BRIM_TRY(check_samples("emotion_cnn", x, SAMPLES_IMAGES));
  x = brim_relu(g, brim_conv2d(g, "conv1", x, 32, conv));
  x = brim_relu(g, brim_conv2d(g, "conv2", x, 64, conv));
  x = brim_dropout(g, brim_max_pool2d(g, x, half), m->dropout);
  x = brim_max_pool2d(g, brim_relu(g, brim_conv2d(g, "conv3", x, 128, conv)), half);
  x = brim_max_pool2d(g, brim_relu(g, brim_conv2d(g, "conv4", x, 128, conv)), half);
  x = brim_dropout(g, x, m->dropout);
  x = brim_relu(g, brim_linear(g, "fc1", brim_flatten(g, x), 1024));
  brim_output(g, brim_linear(g, "fc2", brim_dropout(g, brim_features(g, x), m->dropout_fc), brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "emotion_cnn",
    .help = "emotions from 48x48 images of faces: four convolutions, two linear layers",
    .params_size = sizeof(emotion_cnn),
    .params = params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-emotion_cnn", "0.1", plugins)
