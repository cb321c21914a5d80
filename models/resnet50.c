/* resnet50: the residual network of 50 layers (He et al. 2015, arXiv:1512.03385), like torchvision's, which puts a
 * block's stride at its 3x3 convolution. On 3x224x224 images and 1000 classes it has 25,557,032 parameters.
 *
 *     stem   3, 4, 6 and 3 blocks   mean   fc
 *     block: relu(x + norm(conv 1x1(relu(norm(conv 3x3(relu(norm(conv 1x1(x)))))))))    the last with 4 times the
 * channels */
#include "resnet.h"

#define EXPANSION 4

static brim_tensor *block(brim_graph *g, const resnet *m, scope *s, brim_tensor *x, int64_t channels, int64_t stride)
{
  brim_tensor *y = brim_relu(g, resnet_conv_norm(g, s, 1, x, channels, 1, 1));
  y = brim_relu(g, resnet_conv_norm(g, s, 2, y, channels, 3, stride));
  y = resnet_conv_norm(g, s, 3, y, EXPANSION * channels, 1, 1);
  return resnet_join(g, m, s, x, y, 3, stride);
}

static brim_status build(const void *self, brim_graph *g)
{
  return resnet_build(self, g, "resnet50", block, (int[]){3, 4, 6, 3});
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "resnet50",
    .help = "residual network of 50 layers, for small and large images",
    .params_size = sizeof(resnet),
    .params = resnet_params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-resnet50", "0.1", plugins)
