/* A model and a data set as written for ABI 1.0, the first one. make.sh built plugins_1_0.so from it, with the headers
 * of that time, and this brim must accept it unchanged. */
#include <brim/dataset.h>
#include <brim/model.h>
#include <brim/plugin.h>

/* ---- the model ---- */

typedef struct network {
  int64_t width;
  brim_list hidden;
  double dropout;
  int32_t activation;
} network;
static const brim_param network_params[] = {
    BRIM_PARAM(I64, network, width, "8", "[1,64]", "channels of the convolution"),
    BRIM_PARAM(LIST, network, hidden, "[16, 8]", "[1,64]", "width of each hidden layer"),
    BRIM_PARAM(F64, network, dropout, "0.25", "[0,1)", "probability of dropping"),
    BRIM_PARAM(ENUM, network, activation, "gelu", "relu|gelu", "behind each hidden layer"),
    BRIM_PARAMS_END,
};

static brim_status build(const void *self, brim_graph *g)
{
  static const char *const name[] = {"fc1", "fc2", "fc3", "fc4"};
  const network *n = self;
  if (n->hidden.count > 3) return brim_fail(BRIM_ECONFIG, "hidden: %d layers, at most 3", (int)n->hidden.count);
  brim_tensor *x = brim_conv2d(g, "conv", brim_input(g), n->width,
                               (brim_conv2d_options){.kernel = {3, 3}, .padding = {1, 1}, .stride = {2, 2}});
  x = brim_flatten(g, brim_relu(g, brim_batch_norm(g, "norm", x, 1e-5, 0.1)));
  for (size_t i = 0; i < n->hidden.count; i++) {
    x = brim_linear(g, name[i], x, (int64_t)n->hidden.item[i]);
    x = brim_dropout(g, n->activation ? brim_gelu(g, x, BRIM_GELU_EXACT) : brim_relu(g, x), n->dropout);
  }
  brim_output(g, brim_linear(g, "head", x, brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops network_ops = {.size = sizeof network_ops, .build = build};
static const brim_plugin network_plugin = {.size = sizeof network_plugin,
                                           .kind = BRIM_MODEL,
                                           .id = "kept",
                                           .help = "a model of ABI 1.0",
                                           .params_size = sizeof(network),
                                           .params = network_params,
                                           .ops = &network_ops};

/* ---- the data set: pictures of 8x8 with a bright column, which says the class ---- */

enum { SIDE = 8, CLASSES = 4 };
typedef struct columns {
  int64_t count;
} columns;
static const brim_param columns_params[] = {
    BRIM_PARAM(I64, columns, count, "64", "[1,1024]", "samples in each split"),
    BRIM_PARAMS_END,
};

static brim_status open_split(void *self, const char *split)
{
  (void)self;
  return split[0] == 't' ? BRIM_OK : brim_fail(BRIM_ENOTSUP, "no split '%s'", split);
}

static brim_status describe(const void *self, const char *split, brim_dataset_info *out)
{
  static const char *const names[CLASSES] = {"first", "second", "third", "fourth"};
  (void)split;
  out->count = ((const columns *)self)->count;
  out->sample = (brim_shape){3, {1, SIDE, SIDE}};
  out->dtype = BRIM_DTYPE_U8;
  out->classes = CLASSES;
  out->class_names = names;
  return BRIM_OK;
}

static brim_status read_sample(const void *self, const char *split, int64_t index, void *values, int32_t *label)
{
  uint8_t *pixel = values;
  (void)self;
  *label = (int32_t)(index % CLASSES);
  for (int i = 0; i < SIDE * SIDE; i++) pixel[i] = i % SIDE / 2 == *label ? 255 : (uint8_t)(i * 7 + index + split[1]);
  return BRIM_OK;
}

static const brim_dataset_ops columns_ops = {
    .size = sizeof columns_ops, .open = open_split, .describe = describe, .read = read_sample};
static const brim_plugin columns_plugin = {.size = sizeof columns_plugin,
                                           .kind = BRIM_DATASET,
                                           .id = "kept",
                                           .help = "a data set of ABI 1.0",
                                           .params_size = sizeof(columns),
                                           .params = columns_params,
                                           .ops = &columns_ops};

static const brim_plugin *const plugins[] = {&network_plugin, &columns_plugin, NULL};
BRIM_MODULE("kept", "1.0", plugins)
