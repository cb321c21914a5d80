/* clip_vit: the image encoder of CLIP (Radford et al. 2021, arXiv:2103.00020), with a head for classes. Names and
 * initial values are those of Hugging Face's CLIPVisionModelWithProjection. On 3x224x224 images ViT-L/14
 * (model=clip_vit_l14) has 303,966,208 parameters without the head.
 *
 *     patches by a convolution   prepend the class token   + positions   layer norm
 *     depth times:  x + attention(layer norm(x))   x + fc2(gelu(fc1(layer norm(x))))
 *     class token   layer norm   projection   head */
#include <math.h>

#include "transformer.h"

#define EPS 1e-5
#define STD 0.02 /* initial standard deviation of patches and positions */

enum features { FEATURES_PROJECTED, FEATURES_POOLED };

typedef struct clip_vit {
  int64_t patch, depth, width, heads, projection;
  double mlp_ratio;
  int32_t activation, features;
} clip_vit;

static const brim_param params[] = {
    BRIM_PARAM(I64, clip_vit, patch, "32", "[1,1024]",
               "side of a patch in pixels; must divide the image's height and width"),
    BRIM_PARAM(I64, clip_vit, depth, "12", "[1,1024]", "number of blocks"),
    BRIM_PARAM(I64, clip_vit, width, "768", "[1,65536]", "size of a token's vector"),
    BRIM_PARAM(I64, clip_vit, heads, "12", "[1,1024]", "number of attention heads; must divide width"),
    BRIM_PARAM(F64, clip_vit, mlp_ratio, "4", "(0,64]", "hidden size of a block's MLP, as a multiple of width"),
    BRIM_PARAM(I64, clip_vit, projection, "512", "[1,65536]", "size of an image's embedding"),
    BRIM_PARAM(ENUM, clip_vit, activation, "quick_gelu", "gelu|gelu_tanh|quick_gelu",
               "activation of the MLPs: quick_gelu in OpenAI's models, gelu in most later ones"),
    BRIM_PARAM(ENUM, clip_vit, features, "projected", "projected|pooled",
               "input of the head: the embedding (projected), or the class token before the projection (pooled)"),
    BRIM_PARAMS_END,
};

/* Returns the tokens with their positions: [N, 1 + patches, width]. */
static brim_tensor *embeddings(brim_graph *g, const clip_vit *m, brim_tensor *image)
{
  const brim_init positions = {BRIM_INIT_NORMAL, STD}, token = {BRIM_INIT_NORMAL, 1 / sqrt((double)m->width)};
  brim_tensor *x = patch_tokens(g, "vision_model.embeddings.patch_embedding", image, m->patch, m->width, 1);
  brim_set_init(g, "vision_model.embeddings.patch_embedding.weight", positions);
  brim_tensor *first = brim_parameter_new(g, "vision_model.embeddings.class_embedding", 1, &m->width, token);
  x = with_class_token(g, image, first, x);
  const int64_t dim[] = {brim_shape_of(x).dim[1], m->width};
  return brim_add(g, x, brim_parameter_new(g, "vision_model.embeddings.position_embedding.weight", 2, dim, positions));
}

/* Standard deviations of initial weights. in: layers that read the residual sum. out: out_proj of attention. */
typedef struct starts {
  double in, out, fc1;
} starts;

static starts starts_of(const clip_vit *m)
{
  const double out = 1 / sqrt((double)m->width);
  return (starts){.in = out / sqrt(2.0 * (double)m->depth), .out = out, .fc1 = out / sqrt(2)};
}

static brim_tensor *attention(brim_graph *g, const clip_vit *m, scope *s, brim_tensor *x)
{
  const starts std = starts_of(m);
  brim_tensor *q = normal_linear(g, in(s, "self_attn.q_proj"), x, m->width, std.in);
  brim_tensor *k = normal_linear(g, in(s, "self_attn.k_proj"), x, m->width, std.in);
  brim_tensor *v = normal_linear(g, in(s, "self_attn.v_proj"), x, m->width, std.in);
  x = brim_attention(g, q, k, v, ((brim_attention_options){.heads = m->heads}));
  return normal_linear(g, in(s, "self_attn.out_proj"), x, m->width, std.out);
}

static brim_tensor *mlp(brim_graph *g, const clip_vit *m, scope *s, brim_tensor *x)
{
  const starts std = starts_of(m);
  x = normal_linear(g, in(s, "mlp.fc1"), x, (int64_t)(m->mlp_ratio * (double)m->width), std.fc1);
  return normal_linear(g, in(s, "mlp.fc2"), brim_gelu(g, x, m->activation), m->width, std.in);
}

static brim_tensor *encode(brim_graph *g, const clip_vit *m, brim_tensor *x)
{
  x = brim_layer_norm(g, "vision_model.pre_layrnorm", x, EPS); /* the name is misspelled, as in every checkpoint */
  for (int64_t i = 0; i < m->depth; i++) {
    scope s;
    snprintf(s.prefix, sizeof s.prefix, "vision_model.encoder.layers.%lld", (long long)i);
    x = brim_add(g, x, attention(g, m, &s, brim_layer_norm(g, in(&s, "layer_norm1"), x, EPS)));
    x = brim_add(g, x, mlp(g, m, &s, brim_layer_norm(g, in(&s, "layer_norm2"), x, EPS)));
  }
  return brim_layer_norm(g, "vision_model.post_layernorm", class_token(g, x), EPS);
}

static brim_status build(const void *self, brim_graph *g)
{
  const clip_vit *m = self;
  brim_tensor *image = brim_input(g);
  const brim_shape shape = brim_shape_of(image);
  BRIM_TRY(check_samples("clip_vit", image, SAMPLES_IMAGES));
  BRIM_TRY(check_tokens("clip_vit", &shape, m->patch, m->width, m->heads, m->mlp_ratio));
  brim_tensor *x = encode(g, m, embeddings(g, m, image));
  if (m->features == FEATURES_PROJECTED) {
    x = brim_linear_no_bias(g, "visual_projection", x, m->projection);
    brim_set_init(g, "visual_projection.weight", ((brim_init){BRIM_INIT_NORMAL, starts_of(m).out}));
  }
  brim_output(g, brim_linear(g, "head", brim_features(g, x), brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "clip_vit",
    .help = "CLIP's image encoder: a vision transformer with an input norm, quick GELU and a projection",
    .params_size = sizeof(clip_vit),
    .params = params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-clip_vit", "0.1", plugins)
