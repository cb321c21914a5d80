/* unet: each level halves the image; on the way back each level joins the enlarged image with its own input
 * (Ronneberger, Fischer, Brox 2015, arXiv:1505.04597). Each pixel also gets means over the whole image (Zhao et al.
 * 2017, arXiv:1612.01105):
 *
 *     `levels` times:  x_i = relu(conv(x)), then half the height and width
 *     `levels` times:  x = relu(conv(concat(x_i, conv_transpose(x))))
 *     x + conv(mean over a grid of 3 x 3, scaled up to the image's size)
 *     the mean over all pixels -> head
 *
 * A network that classifies each pixel would end before the last line; this one classifies the image. */
#include <stdio.h>

#include <brim/model.h>
#include <brim/plugin.h>

enum { LEVELS_MAX = 6 };

typedef struct unet {
  int64_t width, levels;
} unet;

static const brim_param table[] = {
    BRIM_PARAM(I64, unet, width, "16", "[1,1024]", "channels of the first level; each further one has twice as many"),
    BRIM_PARAM(I64, unet, levels, "2", "[1,6]", "how many times the image is halved"),
    BRIM_PARAMS_END,
};

static brim_tensor *conv(brim_graph *g, const char *kind, int64_t level, brim_tensor *x, int64_t out, int64_t stride)
{
  char name[32];
  snprintf(name, sizeof name, "%s.%lld", kind, (long long)level); /* names of parameters, as in PyTorch */
  const brim_conv2d_options options = {.kernel = {3, 3}, .stride = {stride, stride}, .padding = {1, 1}};
  return brim_relu(g, brim_conv2d(g, name, x, out, options));
}

/* Doubles the size to that of `like`; output_padding selects one of the two sizes that halve to x's. */
static brim_tensor *enlarge(brim_graph *g, int64_t level, brim_tensor *x, const brim_tensor *like)
{
  char name[32];
  const brim_shape to = brim_shape_of(like);
  const brim_conv_transpose2d_options options = {.kernel = {3, 3},
                                                 .stride = {2, 2},
                                                 .padding = {1, 1},
                                                 .output_padding = {(to.dim[2] + 1) % 2, (to.dim[3] + 1) % 2}};
  snprintf(name, sizeof name, "up.%lld", (long long)level);
  return brim_conv_transpose2d(g, name, x, to.dim[1], options);
}

/* Gives each pixel a coarse summary of the whole image. */
static brim_tensor *surroundings(brim_graph *g, brim_tensor *x)
{
  const brim_shape s = brim_shape_of(x);
  const brim_upsample2d_options all = {.size = {s.dim[2], s.dim[3]}, .mode = BRIM_UPSAMPLE_LINEAR, .align_corners = 1};
  brim_tensor *y = brim_adaptive_avg_pool2d(g, x, 3, 3);
  y = brim_conv2d(g, "context", y, s.dim[1], (brim_conv2d_options){.kernel = {1, 1}});
  return brim_upsample2d(g, y, all);
}

static brim_status build(const void *self, brim_graph *g)
{
  const unet *m = self;
  brim_tensor *kept[LEVELS_MAX], *x = brim_input(g);
  if (brim_shape_of(x).rank != 4) return brim_fail(BRIM_ECONFIG, "unet: samples must be images, [C,H,W]");
  for (int64_t i = 0; i < m->levels; i++) {
    kept[i] = x = conv(g, "down", i, x, m->width << i, 1);
    x = conv(g, "narrow", i, x, m->width << (i + 1), 2);
  }
  for (int64_t i = m->levels - 1; i >= 0; i--) {
    brim_tensor *both[] = {kept[i], enlarge(g, i, x, kept[i])};
    x = brim_block(g, conv(g, "join", i, brim_concat(g, 2, both, 1), m->width << i, 1));
  }
  x = brim_add(g, x, surroundings(g, x));
  x = brim_features(g, brim_global_avg_pool(g, x)); /* so that it can be a backbone */
  brim_output(g, brim_linear(g, "head", x, brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_MODEL,
                                   .id = "unet",
                                   .help = "a network that reduces images and enlarges them again",
                                   .params_size = sizeof(unet),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("unet", "1.0", plugins)
