/* lightcnn: a small network for many clients. It has three blocks of a 3x3 convolution, a normalisation, relu and
 * (except in the last block) pooling, then the mean over all places. With 1 channel and 10 classes it has 24,058
 * parameters for images of any size.
 *
 *     (conv 3x3, norm, relu, max pool 2) with 16 and 32 channels   (conv 3x3, norm, relu) with 64   mean   fc */
#include <stdio.h>

#include "brim/model.h"
#include "brim/plugin.h"
#include "samples.h"

enum norm { NORM_BATCH, NORM_GROUP, NORM_NONE };

typedef struct lightcnn {
  int64_t width;
  int32_t norm;
  double dropout;
} lightcnn;

static const brim_param params[] = {
    BRIM_PARAM(I64, lightcnn, width, "16", "[1,4096]",
               "channels of the first block; the others have 2 and 4 times that"),
    BRIM_PARAM(ENUM, lightcnn, norm, "batch", "batch|group|none",
               "batch: batch norm; group: group norm with 4 groups (for clients with few samples); none"),
    BRIM_PARAM(F64, lightcnn, dropout, "0", "[0,1)", "dropout probability before the last layer"),
    BRIM_PARAMS_END,
};

static brim_tensor *block(brim_graph *g, const lightcnn *m, brim_tensor *x, int number, int64_t channels)
{
  char conv[16], norm[16];
  snprintf(conv, sizeof conv, "conv%d", number);
  snprintf(norm, sizeof norm, "norm%d", number);
  x = brim_conv2d(g, conv, x, channels,
                  (brim_conv2d_options){.kernel = {3, 3}, .padding = {1, 1}, .no_bias = m->norm != NORM_NONE});
  if (m->norm == NORM_BATCH) x = brim_batch_norm(g, norm, x, 1e-5, 0.1);
  if (m->norm == NORM_GROUP) x = brim_group_norm(g, norm, x, channels % 4 == 0 ? 4 : 1, 1e-5);
  return brim_relu(g, x);
}

static brim_status build(const void *self, brim_graph *g)
{
  const lightcnn *m = self;
  const brim_pool2d_options half = {.kernel = {2, 2}};
  brim_tensor *x = brim_input(g);
  BRIM_TRY(check_samples("lightcnn", x, SAMPLES_IMAGES));
  x = brim_max_pool2d(g, block(g, m, x, 1, m->width), half);
  x = brim_max_pool2d(g, block(g, m, x, 2, 2 * m->width), half);
  x = brim_global_avg_pool(g, block(g, m, x, 3, 4 * m->width));
  brim_output(g, brim_linear(g, "fc", brim_dropout(g, brim_features(g, x), m->dropout), brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "lightcnn",
    .help = "a small network for federations: three 3x3 convolutions with normalisation, then a global mean",
    .params_size = sizeof(lightcnn),
    .params = params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-lightcnn", "0.1", plugins)
