/* tcn: a temporal convolutional network (Bai, Kolter, Koltun 2018, arXiv:1803.01271) for sequences of real numbers,
 * [T,F]: recordings, sensors, prices. Its convolutions are causal and process the whole sequence at once:
 *
 *     `blocks` times:  relu(x + relu(conv(relu(conv(x)))))   block i reaches back 2 (kernel - 1) 2^i more places
 *     the last place of the sequence -> head
 *
 * The paper's weight normalisation is left out. */
#include <stdio.h>

#include <brim/model.h>
#include <brim/plugin.h>

typedef struct tcn {
  int64_t channels, blocks, kernel;
  double dropout;
} tcn;

static const brim_param table[] = {
    BRIM_PARAM(I64, tcn, channels, "32", "[1,4096]", "channels of each convolution"),
    BRIM_PARAM(I64, tcn, blocks, "4", "[1,16]",
               "residual blocks; each doubles the distance between the values it sees"),
    BRIM_PARAM(I64, tcn, kernel, "3", "[2,64]", "values that a convolution sees"),
    BRIM_PARAM(F64, tcn, dropout, "0.1", "[0,1)", "dropout probability after each convolution"),
    BRIM_PARAMS_END,
};

/* A causal convolution: zeros before the sequence make the result at t depend on values up to t only. */
static brim_tensor *causal(brim_graph *g, const tcn *m, const char *name, brim_tensor *x, int64_t dilation)
{
  const int64_t before[] = {0, 0, (m->kernel - 1) * dilation}, after[] = {0, 0, 0};
  const brim_conv1d_options options = {.kernel = m->kernel, .dilation = dilation};
  x = brim_conv1d(g, name, brim_pad(g, x, before, after, 0), m->channels, options);
  return brim_dropout(g, brim_relu(g, x), m->dropout);
}

static brim_tensor *block(brim_graph *g, const tcn *m, int64_t i, brim_tensor *x)
{
  char conv1[48], conv2[48], narrow[48];
  snprintf(conv1, sizeof conv1, "blocks.%lld.conv1", (long long)i); /* names of parameters, as in PyTorch */
  snprintf(conv2, sizeof conv2, "blocks.%lld.conv2", (long long)i);
  snprintf(narrow, sizeof narrow, "blocks.%lld.downsample", (long long)i);
  brim_tensor *y = causal(g, m, conv2, causal(g, m, conv1, x, INT64_C(1) << i), INT64_C(1) << i);
  if (brim_shape_of(x).dim[1] != m->channels)
    x = brim_conv1d(g, narrow, x, m->channels, (brim_conv1d_options){.kernel = 1});
  return brim_block(g, brim_relu(g, brim_add(g, x, y))); /* memory.recompute=blocks keeps this value */
}

static brim_status build(const void *self, brim_graph *g)
{
  const tcn *m = self;
  brim_tensor *x = brim_input(g);
  if (brim_shape_of(x).rank != 3)
    return brim_fail(BRIM_ECONFIG, "tcn: samples must be sequences of real numbers, [T,F]");
  const int64_t length = brim_shape_of(x).dim[1];
  x = brim_transpose(g, x, 1, 2); /* [N,T,F] -> [N,F,T], as convolutions expect */
  for (int64_t i = 0; i < m->blocks; i++) x = block(g, m, i, x);
  x = brim_features(g, brim_flatten(g, brim_slice(g, x, 2, length - 1, 1))); /* so it can be a backbone */
  brim_output(g, brim_linear(g, "head", x, brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_MODEL,
                                   .id = "tcn",
                                   .help = "temporal convolutional network: causal convolutions over a sequence",
                                   .params_size = sizeof(tcn),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("tcn", "1.0", plugins)
