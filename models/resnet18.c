/* resnet18: the residual network of 18 layers (He et al. 2015, arXiv:1512.03385), like torchvision's. On 3x224x224
 * images and 1000 classes it has 11,689,512 parameters.
 *
 *     stem   2, 2, 2 and 2 blocks   mean   fc
 *     block: relu(x + norm(conv 3x3(relu(norm(conv 3x3(x))))))  */
#include "resnet.h"

static brim_tensor *block(brim_graph *g, const resnet *m, scope *s, brim_tensor *x, int64_t channels, int64_t stride)
{
  brim_tensor *y = brim_relu(g, resnet_conv_norm(g, s, 1, x, channels, 3, stride));
  y = resnet_conv_norm(g, s, 2, y, channels, 3, 1);
  return resnet_join(g, m, s, x, y, 2, stride);
}

static brim_status build(const void *self, brim_graph *g)
{
  return resnet_build(self, g, "resnet18", block, (int[]){2, 2, 2, 2});
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "resnet18",
    .help = "residual network of 18 layers, for small and large images",
    .params_size = sizeof(resnet),
    .params = resnet_params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-resnet18", "0.1", plugins)
