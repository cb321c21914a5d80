/* gpt2: a language model of tokens (Radford et al. 2019, Language Models are Unsupervised Multitask Learners), as
 * Hugging Face's GPT2LMHeadModel, with its names and initial values. With 12 layers of 768 values and 50257 tokens it
 * has 124,439,808 parameters. Weights of linear layers are [out, in]; Hugging Face's Conv1D has [in, out].
 *
 *     token embedding + position embedding   dropout
 *     layers times:  x + c_proj(attention(c_attn(ln_1(x))))   x + c_proj(gelu(c_fc(ln_2(x))))
 *     ln_f   logits by the token embedding (tied)
 *
 * The attention is causal, so the logits at a position depend only on the tokens up to it. */
#include <math.h>

#include "transformer.h"

#define EPS 1e-5
#define STD 0.02 /* initial standard deviation of weights */

typedef struct gpt2 {
  int64_t layers, heads, width, context;
  double dropout;
} gpt2;

static const brim_param params[] = {
    BRIM_PARAM(I64, gpt2, layers, "12", "[1,1024]", "number of blocks"),
    BRIM_PARAM(I64, gpt2, heads, "12", "[1,1024]", "number of attention heads; must divide width"),
    BRIM_PARAM(I64, gpt2, width, "768", "[1,65536]", "size of a token's vector"),
    BRIM_PARAM(I64, gpt2, context, "1024", "[1,1048576]", "number of position embeddings, the most tokens in a sample"),
    BRIM_PARAM(F64, gpt2, dropout, "0.1", "[0,1)",
               "dropout probability of embeddings, attention weights and residual branches"),
    BRIM_PARAMS_END,
};

/* Fails if the parameters do not suit samples of this shape. */
static brim_status check(const gpt2 *m, const brim_tensor *tokens)
{
  BRIM_TRY(check_samples("gpt2", tokens, SAMPLES_TOKENS));
  if (tokens->shape.dim[1] > m->context)
    return brim_fail(BRIM_ECONFIG,
                     "gpt2: samples have %lld tokens, but only %lld positions have an embedding\n"
                     "set model.context to at least dataset.context",
                     (long long)tokens->shape.dim[1], (long long)m->context);
  if (m->width % m->heads != 0)
    return brim_fail(BRIM_ECONFIG, "gpt2: model.heads must divide model.width %lld, but %lld does not",
                     (long long)m->width, (long long)m->heads);
  return BRIM_OK;
}

/* Adds a layer whose result is added to the residual sum. Each block has two; with more blocks their initial weights
 * are smaller. */
static brim_tensor *projection(brim_graph *g, const gpt2 *m, const char *name, brim_tensor *x)
{
  x = normal_linear(g, name, x, m->width, STD / sqrt(2 * (double)m->layers));
  return brim_dropout(g, x, m->dropout);
}

static brim_tensor *attention(brim_graph *g, const gpt2 *m, scope *b, brim_tensor *x)
{
  const brim_attention_options options = {.heads = m->heads, .causal = 1, .dropout = m->dropout};
  brim_tensor *qkv[3] = {NULL};
  brim_split(g, normal_linear(g, in(b, "attn.c_attn"), x, 3 * m->width, STD), 2, 3, qkv);
  return projection(g, m, in(b, "attn.c_proj"), brim_attention(g, qkv[0], qkv[1], qkv[2], options));
}

static brim_tensor *mlp(brim_graph *g, const gpt2 *m, scope *b, brim_tensor *x)
{
  x = brim_gelu(g, normal_linear(g, in(b, "mlp.c_fc"), x, 4 * m->width, STD), BRIM_GELU_TANH);
  return projection(g, m, in(b, "mlp.c_proj"), x);
}

/* Returns the embeddings of positions 0 to count - 1, or of each token's place in its document. */
static brim_tensor *positions(brim_graph *g, const gpt2 *m, int64_t count)
{
  brim_tensor *places = brim_positions(g);
  brim_tensor *all = brim_parameter_new(g, "transformer.wpe.weight", 2, ((int64_t[]){m->context, m->width}),
                                        ((brim_init){BRIM_INIT_NORMAL, STD}));
  if (places) return brim_embedding_with(g, places, all);
  return count < m->context ? brim_slice(g, all, 0, 0, count) : all;
}

static brim_status build(const void *self, brim_graph *g)
{
  const gpt2 *m = self;
  brim_tensor *tokens = brim_input(g);
  BRIM_TRY(check(m, tokens));
  brim_tensor *wte = brim_parameter_new(g, "transformer.wte.weight", 2, ((int64_t[]){brim_classes(g), m->width}),
                                        ((brim_init){BRIM_INIT_NORMAL, STD}));
  brim_tensor *x = brim_embedding_with(g, tokens, wte);
  x = brim_dropout(g, brim_add(g, x, positions(g, m, brim_shape_of(tokens).dim[1])), m->dropout);
  for (int64_t i = 0; i < m->layers; i++) {
    scope b;
    snprintf(b.prefix, sizeof b.prefix, "transformer.h.%lld", (long long)i);
    x = brim_add(g, x, attention(g, m, &b, brim_layer_norm(g, in(&b, "ln_1"), x, EPS)));
    x = brim_add(g, x, mlp(g, m, &b, brim_layer_norm(g, in(&b, "ln_2"), x, EPS)));
  }
  x = brim_layer_norm(g, "transformer.ln_f", x, EPS);
  brim_output(g, brim_linear_with(g, "lm_head", brim_features(g, x), wte, NULL));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "gpt2",
    .help = "GPT-2, a language model: causal blocks of attention and MLP, logits from the tied token embedding",
    .params_size = sizeof(gpt2),
    .params = params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-gpt2", "0.1", plugins)
