/* vit: the vision transformer (Dosovitskiy et al. 2020, arXiv:2010.11929) for images of any size. Names and initial
 * values are those of timm's VisionTransformer. On 1x28x28 images and 10 classes it has 5,353,738 parameters.
 *
 *     patches by a convolution   prepend the class token   + positions   dropout
 *     depth times:  x + attention(layer norm(x))   x + fc2(gelu(fc1(layer norm(x))))
 *     layer norm   class token, or the mean of all tokens   head */
#include "transformer.h"

#define EPS 1e-6 /* epsilon of the norms, as in timm; PyTorch's default is 1e-5 */
#define STD 0.02 /* initial standard deviation of weights */
#define CLS_STD 1e-6

enum pool { POOL_TOKEN, POOL_MEAN };

typedef struct vit {
  int64_t patch, depth, width, heads;
  double mlp_ratio, dropout;
  int32_t pool;
} vit;

static const brim_param params[] = {
    BRIM_PARAM(I64, vit, patch, "4", "[1,1024]", "side of a patch in pixels; must divide the image's height and width"),
    BRIM_PARAM(I64, vit, depth, "12", "[1,1024]", "number of blocks"),
    BRIM_PARAM(I64, vit, width, "192", "[1,65536]", "size of a token's vector"),
    BRIM_PARAM(I64, vit, heads, "3", "[1,1024]", "number of attention heads; must divide width"),
    BRIM_PARAM(F64, vit, mlp_ratio, "4", "(0,64]", "hidden size of a block's MLP, as a multiple of width"),
    BRIM_PARAM(F64, vit, dropout, "0", "[0,1)",
               "dropout probability of position embeddings, attention weights and the MLP's layers"),
    BRIM_PARAM(ENUM, vit, pool, "token", "token|mean",
               "input of the head: a class token (token), or the mean of all tokens (mean)"),
    BRIM_PARAMS_END,
};

static brim_tensor *positions(brim_graph *g, const vit *m, brim_tensor *x)
{
  const int64_t dim[] = {1, brim_shape_of(x).dim[1], m->width};
  return brim_add(g, x, brim_parameter_new(g, "pos_embed", 3, dim, ((brim_init){BRIM_INIT_NORMAL, STD})));
}

/* timm truncates the normal distribution at 2, which is a hundred standard deviations and so makes no difference. */
static brim_tensor *linear(brim_graph *g, const char *name, brim_tensor *x, int64_t out)
{
  return normal_linear(g, name, x, out, STD);
}

static brim_tensor *attention(brim_graph *g, const vit *m, scope *b, brim_tensor *x)
{
  brim_tensor *qkv[3] = {NULL};
  brim_split(g, linear(g, in(b, "attn.qkv"), x, 3 * m->width), 2, 3, qkv);
  x = brim_attention(g, qkv[0], qkv[1], qkv[2], ((brim_attention_options){.heads = m->heads, .dropout = m->dropout}));
  return brim_dropout(g, linear(g, in(b, "attn.proj"), x, m->width), m->dropout);
}

static brim_tensor *mlp(brim_graph *g, const vit *m, scope *b, brim_tensor *x)
{
  x = brim_gelu(g, linear(g, in(b, "mlp.fc1"), x, (int64_t)(m->mlp_ratio * (double)m->width)), BRIM_GELU_EXACT);
  return brim_dropout(g, linear(g, in(b, "mlp.fc2"), brim_dropout(g, x, m->dropout), m->width), m->dropout);
}

static brim_status build(const void *self, brim_graph *g)
{
  const vit *m = self;
  brim_tensor *image = brim_input(g);
  const brim_shape shape = brim_shape_of(image);
  BRIM_TRY(check_samples("vit", image, SAMPLES_IMAGES));
  BRIM_TRY(check_tokens("vit", &shape, m->patch, m->width, m->heads, m->mlp_ratio));
  brim_tensor *x = patch_tokens(g, "patch_embed.proj", image, m->patch, m->width, 0);
  if (m->pool == POOL_TOKEN) {
    const brim_init init = {BRIM_INIT_NORMAL, CLS_STD};
    x = with_class_token(g, image, brim_parameter_new(g, "cls_token", 3, ((int64_t[]){1, 1, m->width}), init), x);
  }
  x = brim_dropout(g, positions(g, m, x), m->dropout);
  for (int64_t i = 0; i < m->depth; i++) {
    scope b;
    snprintf(b.prefix, sizeof b.prefix, "blocks.%lld", (long long)i);
    x = brim_add(g, x, attention(g, m, &b, brim_layer_norm(g, in(&b, "norm1"), x, EPS)));
    x = brim_add(g, x, mlp(g, m, &b, brim_layer_norm(g, in(&b, "norm2"), x, EPS)));
  }
  x = brim_layer_norm(g, "norm", x, EPS);
  x = m->pool == POOL_TOKEN ? class_token(g, x) : brim_mean(g, x, 1, (int32_t[]){1}, 0);
  brim_output(g, linear(g, "head", brim_features(g, x), brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "vit",
    .help = "vision transformer: patches of an image as tokens, blocks of attention and MLP",
    .params_size = sizeof(vit),
    .params = params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-vit", "0.1", plugins)
