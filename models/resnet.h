/* The common parts of the residual networks of He et al. 2015 (arXiv:1512.03385), with the names and initial values of
 * torchvision's ResNet:
 *
 *     stem   four layers of blocks with 1, 2, 4 and 8 times `width` channels   mean over all places   fc
 *
 * The first block of each layer except the first has stride 2. Each block ends with relu(its result + its input); if
 * the shapes differ, the input goes through a 1x1 convolution. */
#ifndef BRIM_MODELS_RESNET_H
#define BRIM_MODELS_RESNET_H
#include <math.h>

#include "brim/model.h"
#include "brim/plugin.h"
#include "samples.h"
#include "scope.h"

#define RESNET_SMALL_PIXELS 64 /* images with a shorter side are too small for a stem that divides the size by 4 */

enum resnet_stem { RESNET_STEM_AUTO, RESNET_STEM_IMAGENET, RESNET_STEM_CIFAR };

typedef struct resnet {
  int64_t width;
  int32_t stem;
  bool zero_init_residual;
} resnet;

static const brim_param resnet_params[] = {
    BRIM_PARAM(I64, resnet, width, "64", "[1,4096]", "channels of the stem and of the first layer's 3x3 convolutions"),
    BRIM_PARAM(ENUM, resnet, stem, "auto", "auto|imagenet|cifar",
               "imagenet: 7x7 with stride 2 and max pooling; cifar: 3x3; auto: cifar for sides below 64 pixels"),
    BRIM_PARAM(BOOL, resnet, zero_init_residual, "false", NULL,
               "initialise the last norm of each block to 0, so that a block starts as the identity"),
    BRIM_PARAMS_END,
};

/* Builds a block. `channels`: the channels of its 3x3 convolutions. */
typedef brim_tensor *(*resnet_block)(brim_graph *g, const resnet *m, scope *s, brim_tensor *x, int64_t channels,
                                     int64_t stride);

/* Adds a convolution without bias, padded so that only the stride changes the size. */
static inline brim_tensor *resnet_conv(brim_graph *g, const char *name, brim_tensor *x, int64_t channels,
                                       int64_t kernel, int64_t stride)
{
  char weight[sizeof(scope)];
  const brim_conv2d_options options = {
      .kernel = {kernel, kernel}, .stride = {stride, stride}, .padding = {kernel / 2, kernel / 2}, .no_bias = 1};
  x = brim_conv2d(g, name, x, channels, options);
  snprintf(weight, sizeof weight, "%s.weight", name);
  /* He et al. 2015 (arXiv:1502.01852): keeps the variance of the gradients */
  brim_set_init(g, weight, ((brim_init){BRIM_INIT_NORMAL, sqrt(2.0 / (double)(channels * kernel * kernel))}));
  return x;
}

static inline brim_tensor *resnet_norm(brim_graph *g, const char *name, brim_tensor *x)
{
  return brim_batch_norm(g, name, x, 1e-5, 0.1);
}

/* Adds the convolution and the norm with this number in a block: "layer1.0.conv2", "layer1.0.bn2". */
static inline brim_tensor *resnet_conv_norm(brim_graph *g, scope *s, int number, brim_tensor *x, int64_t channels,
                                            int64_t kernel, int64_t stride)
{
  char conv[16], norm[16];
  snprintf(conv, sizeof conv, "conv%d", number);
  snprintf(norm, sizeof norm, "bn%d", number);
  return resnet_norm(g, in(s, norm), resnet_conv(g, in(s, conv), x, channels, kernel, stride));
}

/* Ends a block that has computed y from x; `last` is the number of its last norm. */
static inline brim_tensor *resnet_join(brim_graph *g, const resnet *m, scope *s, brim_tensor *x, brim_tensor *y,
                                       int last, int64_t stride)
{
  const int64_t channels = brim_shape_of(y).dim[1];
  if (m->zero_init_residual) {
    char weight[16];
    snprintf(weight, sizeof weight, "bn%d.weight", last);
    brim_set_init(g, in(s, weight), ((brim_init){BRIM_INIT_CONSTANT, 0}));
  }
  if (stride != 1 || brim_shape_of(x).dim[1] != channels) {
    x = resnet_conv(g, in(s, "downsample.0"), x, channels, 1, stride);
    x = resnet_norm(g, in(s, "downsample.1"), x);
  }
  return brim_block(g, brim_relu(g, brim_add(g, y, x)));
}

static inline brim_tensor *resnet_stem(brim_graph *g, const resnet *m, brim_tensor *image)
{
  const brim_shape shape = brim_shape_of(image);
  const bool is_small = shape.dim[2] < RESNET_SMALL_PIXELS || shape.dim[3] < RESNET_SMALL_PIXELS;
  const bool cifar = m->stem == RESNET_STEM_CIFAR || (m->stem == RESNET_STEM_AUTO && is_small);
  brim_tensor *x = resnet_conv(g, "conv1", image, m->width, cifar ? 3 : 7, cifar ? 1 : 2);
  x = brim_relu(g, resnet_norm(g, "bn1", x));
  if (cifar) return x;
  return brim_max_pool2d(g, x, ((brim_pool2d_options){.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}));
}

/* Builds the whole network, with blocks[i] blocks in layer i. */
static inline brim_status resnet_build(const resnet *m, brim_graph *g, const char *id, resnet_block block,
                                       const int blocks[4])
{
  brim_tensor *x = brim_input(g);
  BRIM_TRY(check_samples(id, x, SAMPLES_IMAGES));
  x = resnet_stem(g, m, x);
  for (int layer = 0; layer < 4; layer++) {
    for (int i = 0; i < blocks[layer]; i++) {
      scope s;
      snprintf(s.prefix, sizeof s.prefix, "layer%d.%d", layer + 1, i);
      x = block(g, m, &s, x, m->width << layer, layer > 0 && i == 0 ? 2 : 1);
    }
  }
  brim_output(g, brim_linear(g, "fc", brim_features(g, brim_global_avg_pool(g, x)), brim_classes(g)));
  return BRIM_OK;
}
#endif
