/* Deep models of common architectures for tests of recompute: built in the test program and planned for a mock backend
 * that runs nothing. */
#ifndef TESTS_UNIT_RECOMPUTE_MODELS_H
#define TESTS_UNIT_RECOMPUTE_MODELS_H
#include <stdio.h>

#include "brim/brim.h"
#include "graph/fuse.h"
#include "graph/plan.h"

enum { TOKENS = 64, WIDTH = 64, HEADS = 4, CHANNELS = 16, IMAGE = 16 };

enum norm { NORM_NONE, NORM_BATCH, NORM_GROUP };

typedef struct deep {
  const char *name;
  brim_tensor *(*block)(brim_graph *g, brim_tensor *x, const char *name, enum norm norm);
  enum norm norm;
  bool is_sequence;
  int blocks;
  int marked; /* the model marks the end of a block after every `marked` blocks; 0: never */
} deep;

static const char *part(char out[64], const char *block, const char *what)
{
  snprintf(out, 64, "%s.%s", block, what);
  return out;
}

static brim_tensor *normalised(brim_graph *g, brim_tensor *x, const char *name, enum norm norm)
{
  if (norm == NORM_BATCH) return brim_batch_norm(g, name, x, 1e-5, 0.1);
  if (norm == NORM_GROUP) return brim_group_norm(g, name, x, 4, 1e-5);
  return x;
}

static brim_tensor *convolved(brim_graph *g, brim_tensor *x, const char *name)
{
  return brim_conv2d(g, name, x, CHANNELS, (brim_conv2d_options){.kernel = {3, 3}, .padding = {1, 1}});
}

/* Builds a convolution, an optional norm, and relu. */
static brim_tensor *chain_block(brim_graph *g, brim_tensor *x, const char *name, enum norm norm)
{
  char text[64];
  x = convolved(g, x, part(text, name, "conv"));
  return brim_relu(g, normalised(g, x, part(text, name, "norm"), norm));
}

/* Builds the basic block of He et al., Deep Residual Learning for Image Recognition, 2016. */
static brim_tensor *residual_block(brim_graph *g, brim_tensor *x, const char *name, enum norm norm)
{
  char text[64];
  brim_tensor *y = convolved(g, x, part(text, name, "conv1"));
  y = brim_relu(g, normalised(g, y, part(text, name, "norm1"), norm));
  y = convolved(g, y, part(text, name, "conv2"));
  y = normalised(g, y, part(text, name, "norm2"), norm);
  return brim_relu(g, brim_add(g, x, y));
}

/* Builds a pre-norm block: norms before attention and before the MLP, with residual connections. */
static brim_tensor *transformer_of(brim_graph *g, brim_tensor *x, const char *name, double dropout)
{
  char text[64];
  brim_tensor *h = brim_layer_norm(g, part(text, name, "ln1"), x, 1e-5);
  brim_tensor *q = brim_linear(g, part(text, name, "q"), h, WIDTH),
              *k = brim_linear(g, part(text, name, "k"), h, WIDTH);
  brim_tensor *v = brim_linear(g, part(text, name, "v"), h, WIDTH);
  h = brim_attention(g, q, k, v, (brim_attention_options){.heads = HEADS, .dropout = dropout});
  x = brim_add(g, x, brim_dropout(g, brim_linear(g, part(text, name, "proj"), h, WIDTH), dropout));
  h = brim_layer_norm(g, part(text, name, "ln2"), x, 1e-5);
  h = brim_gelu(g, brim_linear(g, part(text, name, "fc1"), h, 4 * WIDTH), 0);
  return brim_add(g, x, brim_dropout(g, brim_linear(g, part(text, name, "fc2"), h, WIDTH), dropout));
}

static brim_tensor *transformer_block(brim_graph *g, brim_tensor *x, const char *name, enum norm norm)
{
  (void)norm;
  return transformer_of(g, x, name, 0.1);
}

/* Builds the same block, with sum and norm as one node. */
static brim_tensor *plain_transformer_block(brim_graph *g, brim_tensor *x, const char *name, enum norm norm)
{
  (void)norm;
  return transformer_of(g, x, name, 0);
}

static const deep deep_models[] = {
    {"convolutions", chain_block, NORM_NONE, false, 0},
    {"convolutions with batch norm", chain_block, NORM_BATCH, false, 0},
    {"residual blocks with batch norm", residual_block, NORM_BATCH, false, 0},
    {"residual blocks with group norm", residual_block, NORM_GROUP, false, 0},
    {"transformer", transformer_block, NORM_NONE, true, 0},
    {"transformer without dropout", plain_transformer_block, NORM_NONE, true, 0},
};
enum { DEEP_MODELS = sizeof deep_models / sizeof deep_models[0] };

static brim_status build_deep(const void *self, brim_graph *g)
{
  const deep *d = self;
  char name[32];
  brim_tensor *x = brim_input(g);
  x = d->is_sequence ? brim_linear(g, "stem", x, WIDTH) : convolved(g, x, "stem");
  for (int i = 0; i < d->blocks; i++) {
    snprintf(name, sizeof name, "blocks.%d", i);
    x = d->block(g, x, name, d->norm);
    if (d->marked > 0 && (i + 1) % d->marked == 0) x = brim_block(g, x);
  }
  if (!d->is_sequence) x = brim_max_pool2d(g, x, (brim_pool2d_options){.kernel = {4, 4}});
  brim_output(g, brim_linear(g, "head", brim_flatten(g, x), brim_classes(g)));
  return BRIM_OK;
}

static brim_plan_request request_of_deep(const deep *d, const brim_backend_ops *backend, void *self, int64_t batch)
{
  static const brim_model_ops model = {sizeof model, build_deep};
  return (brim_plan_request){
      .graph = {.model = &model,
                .model_self = d,
                .loss.op = "softmax_cross_entropy",
                .sample = d->is_sequence ? (brim_shape){2, {TOKENS, WIDTH}} : (brim_shape){3, {3, IMAGE, IMAGE}},
                .classes = 10,
                .norm_group = 4,
                .real = BRIM_DTYPE_F32,
                .fuse = BRIM_FUSE_ALL},
      .backend = backend,
      .backend_self = self,
      .update = {.op = "sgd", .state_count = 1},
      .shape = {{BRIM_PROGRAM_TRAIN, batch}},
      .shape_count = 1};
}

#endif
