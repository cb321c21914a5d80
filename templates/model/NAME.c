/* @NAME@: a convolutional network for images of any size. A model only builds its forward graph; brim derives the
 * backward pass, the update and the memory plan. brim/model.h has all operations. */
#include <brim/brim.h>
#include <stdio.h>

typedef struct settings { /* brim fills this struct from the table below */
  int64_t width, blocks;
  double dropout;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(I64, settings, width, "16", "[1,1024]",
               "channels of the first block; each further one has twice as many"),
    BRIM_PARAM(I64, settings, blocks, "2", "[1,6]", "blocks, each of which halves rows and columns"),
    BRIM_PARAM(F64, settings, dropout, "0.1", "[0,1)", "dropout probability before the last layer"),
    BRIM_PARAMS_END,
};

/* x [N, C, H, W] -> [N, channels, H/2, W/2]. The names are the parameters' in checkpoints: "block1.conv.weight". */
static brim_tensor *block(brim_graph *g, brim_tensor *x, int64_t number, int64_t channels)
{
  char conv[32], norm[32];
  snprintf(conv, sizeof conv, "block%lld.conv", (long long)number);
  snprintf(norm, sizeof norm, "block%lld.norm", (long long)number);
  x = brim_conv2d(g, conv, x, channels, (brim_conv2d_options){.kernel = {3, 3}, .padding = {1, 1}, .no_bias = 1});
  x = brim_relu(g, brim_batch_norm(g, norm, x, 1e-5, 0.1));
  return brim_max_pool2d(g, x, (brim_pool2d_options){.kernel = {2, 2}});
}

/* brim checks shapes as the graph grows; an error names the operation, the shapes and the line in this file. */
static brim_status build(const void *self, brim_graph *g)
{
  const settings *s = self;
  brim_tensor *x = brim_input(g); /* [N, C, H, W], as the dataset defines */
  for (int64_t i = 0; i < s->blocks; i++) x = block(g, x, i + 1, s->width << i);
  x = brim_flatten(g, brim_adaptive_avg_pool2d(g, x, 4, 4));
  x = brim_dropout(g, x, s->dropout);
  x = brim_features(g, x); /* other models, as linear_probe, can be built on these features */
  brim_output(g, brim_linear(g, "head", x, brim_classes(g))); /* logits: the loss applies the softmax */
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_MODEL,
                                   .id = "@NAME@",
                                   .help = "a convolutional network of a few blocks",
                                   .params_size = sizeof(settings),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("@NAME@", "0.1", plugins)
