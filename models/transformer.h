/* The common parts of the vision transformers vit and clip_vit: patch tokens, the class token and checks. */
#ifndef BRIM_MODELS_TRANSFORMER_H
#define BRIM_MODELS_TRANSFORMER_H
#include "brim/model.h"
#include "brim/plugin.h"
#include "samples.h"
#include "scope.h"

/* Adds a linear layer. Its initial weights are normal with this standard deviation, and its initial bias is 0. */
static inline brim_tensor *normal_linear(brim_graph *g, const char *name, brim_tensor *x, int64_t out, double std)
{
  char full[sizeof(scope)];
  x = brim_linear(g, name, x, out);
  snprintf(full, sizeof full, "%s.weight", name);
  brim_set_init(g, full, ((brim_init){BRIM_INIT_NORMAL, std}));
  snprintf(full, sizeof full, "%s.bias", name);
  brim_set_init(g, full, ((brim_init){BRIM_INIT_CONSTANT, 0}));
  return x;
}

/* Fails if a model's parameters do not suit samples of this shape. */
static inline brim_status check_tokens(const char *id, const brim_shape *image, int64_t patch, int64_t width,
                                       int64_t heads, double mlp_ratio)
{
  if (image->dim[2] % patch != 0 || image->dim[3] % patch != 0)
    return brim_fail(BRIM_ECONFIG, "%s: model.patch must divide images of %lldx%lld, but %lld does not", id,
                     (long long)image->dim[2], (long long)image->dim[3], (long long)patch);
  if (width % heads != 0)
    return brim_fail(BRIM_ECONFIG, "%s: model.heads must divide model.width %lld, but %lld does not", id,
                     (long long)width, (long long)heads);
  if (mlp_ratio * (double)width < 1)
    return brim_fail(BRIM_ECONFIG, "%s: model.mlp_ratio %g leaves no values between the MLP's layers", id, mlp_ratio);
  return BRIM_OK;
}

/* Converts [N, C, H, W] to [N, tokens, width], one token for each patch, row by row. */
static inline brim_tensor *patch_tokens(brim_graph *g, const char *name, brim_tensor *image, int64_t patch,
                                        int64_t width, int no_bias)
{
  const brim_conv2d_options conv = {.kernel = {patch, patch}, .stride = {patch, patch}, .no_bias = no_bias};
  brim_tensor *x = brim_conv2d(g, name, image, width, conv);
  x = brim_reshape(g, x, 3, ((int64_t[]){brim_shape_of(image).dim[0], width, -1}));
  return brim_transpose(g, x, 1, 2);
}

/* Prepends the class token, a parameter of `width` values, to each sample's tokens. To repeat it for N samples, it is
 * added to N zeros, which are made from each image's first pixel. */
static inline brim_tensor *with_class_token(brim_graph *g, brim_tensor *image, brim_tensor *token, brim_tensor *x)
{
  const int64_t n = brim_shape_of(image).dim[0];
  brim_tensor *zero = brim_flatten(g, image);
  zero = brim_reshape(g, brim_scale(g, brim_slice(g, zero, 1, 0, 1), 0), 3, ((int64_t[]){n, 1, 1}));
  return brim_concat(g, 2, ((brim_tensor *[]){brim_add(g, zero, token), x}), 1);
}

/* Returns the class token: [N, tokens, width] becomes [N, width]. */
static inline brim_tensor *class_token(brim_graph *g, brim_tensor *x)
{
  return brim_flatten(g, brim_slice(g, x, 1, 0, 1));
}
#endif
