/* decoder: the language models of the Llama family (Touvron et al. 2023, Llama 2: Open Foundation and Fine-Tuned Chat
 * Models), with the names and initial values of Hugging Face's LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM,
 * Qwen3ForCausalLM and SmolLM3ForCausalLM. model=hf sets the parameters from the config.json of such a model.
 *
 *     token embedding
 *     layers times:  x + o_proj(attention(rotary(q_proj(y)), rotary(k_proj(y)), v_proj(y))),  y = rms_norm(x)
 *                    x + down_proj(silu(gate_proj(z)) * up_proj(z)),                          z = rms_norm(x)
 *     rms_norm   logits by lm_head, or by the token embedding (tied)
 *
 * Several heads of queries share a head of keys and values (grouped-query attention). The attention is causal, so the
 * logits at a position depend only on the tokens up to it. */
#include <math.h>

#include "transformer.h"

#define STD 0.02 /* initial, of weights */

typedef struct decoder {
  int64_t layers, heads, kv_heads, head_size, width, mlp_width, vocabulary, context, window;
  double rope_base, norm_eps;
  int32_t rope_type;
  double rope_factor, rope_low, rope_high, rope_beta_slow, rope_beta_fast, rope_original, rope_amplitude;
  brim_list rope_layers, window_layers;
  double attention_softcap;
  bool tied, qkv_bias, out_bias, mlp_bias, qk_norm;
} decoder;

static const brim_param params[] = {
    BRIM_PARAM(I64, decoder, layers, "12", "[1,1024]", "number of blocks"),
    BRIM_PARAM(I64, decoder, heads, "12", "[1,1024]", "number of attention heads"),
    BRIM_PARAM(I64, decoder, kv_heads, "0", "[0,1024]",
               "number of heads of keys and values; must divide heads; 0: as many as heads"),
    BRIM_PARAM(I64, decoder, head_size, "0", "[0,65536]", "size of a head, even; 0: width / heads"),
    BRIM_PARAM(I64, decoder, width, "768", "[1,65536]", "size of a token's vector"),
    BRIM_PARAM(I64, decoder, mlp_width, "2048", "[1,1048576]", "number of values between the MLP's layers"),
    BRIM_PARAM(I64, decoder, vocabulary, "0", "[0,16777216]",
               "rows of the token embedding, at least the number of the dataset's tokens; 0: that number"),
    BRIM_PARAM(I64, decoder, context, "0", "[0,16777216]", "the most tokens in a sample; 0: any number"),
    BRIM_PARAM(I64, decoder, window, "0", "[0,16777216]",
               "the last tokens that a token sees, itself included (sliding_window); 0: all"),
    BRIM_PARAM(LIST, decoder, window_layers, "[]", "[0,1]",
               "1 for each block with the window, 0 for each that sees all; []: all have it"),
    BRIM_PARAM(F64, decoder, attention_softcap, "0", "[0,inf)",
               "limit of attention's scores, by tanh (attn_logit_softcapping); 0: none"),
    BRIM_PARAM(F64, decoder, rope_base, "10000", "(0,inf)", "base of the rotary embedding's frequencies (rope_theta)"),
    BRIM_PARAM(ENUM, decoder, rope_type, "default", "default|linear|llama3|yarn",
               "frequencies for samples longer than those of the first training, as transformers has them"),
    BRIM_PARAM(F64, decoder, rope_factor, "0", "[0,inf)",
               "divides frequencies, all of them (linear) or low ones (llama3, yarn); 0: context / rope_original"),
    BRIM_PARAM(F64, decoder, rope_low, "1", "(0,inf)",
               "llama3: frequencies with fewer rotations within rope_original positions are divided (low_freq_factor)"),
    BRIM_PARAM(F64, decoder, rope_high, "4", "(0,inf)", "llama3: those with more are not (high_freq_factor)"),
    BRIM_PARAM(F64, decoder, rope_beta_slow, "1", "(0,inf)", "yarn: as rope_low (beta_slow)"),
    BRIM_PARAM(F64, decoder, rope_beta_fast, "32", "(0,inf)", "yarn: as rope_high (beta_fast)"),
    BRIM_PARAM(F64, decoder, rope_original, "0", "[0,inf)",
               "positions of the first training (original_max_position_embeddings); 0: context"),
    BRIM_PARAM(F64, decoder, rope_amplitude, "0", "[0,inf)",
               "yarn: multiplies rotated queries and keys (attention_factor); 0: 0.1 ln(rope_factor) + 1"),
    BRIM_PARAM(LIST, decoder, rope_layers, "[]", "[0,1]",
               "1 for each block with a rotary embedding, 0 for each without; []: all have one"),
    BRIM_PARAM(F64, decoder, norm_eps, "1e-5", "(0,1]", "eps of rms_norm"),
    BRIM_PARAM(BOOL, decoder, tied, "true", NULL, "the token embedding is also the last layer"),
    BRIM_PARAM(BOOL, decoder, qkv_bias, "false", NULL, "q_proj, k_proj and v_proj have a bias"),
    BRIM_PARAM(BOOL, decoder, out_bias, "false", NULL, "o_proj has a bias"),
    BRIM_PARAM(BOOL, decoder, mlp_bias, "false", NULL, "the MLP's layers have biases"),
    BRIM_PARAM(BOOL, decoder, qk_norm, "false", NULL, "rms_norm of each head's queries and keys"),
    BRIM_PARAMS_END,
};

static int64_t kv_heads(const decoder *m)
{
  return m->kv_heads > 0 ? m->kv_heads : m->heads;
}

static int64_t head_size(const decoder *m)
{
  return m->head_size > 0 ? m->head_size : m->width / m->heads;
}

static brim_rotary_scaling scaling_of(const decoder *m)
{
  const bool is_yarn = m->rope_type == BRIM_ROTARY_YARN;
  brim_rotary_scaling s = {.size = sizeof s, .kind = m->rope_type, .factor = m->rope_factor};
  if (m->rope_type == BRIM_ROTARY_PLAIN) return s;
  s.low = is_yarn ? m->rope_beta_slow : m->rope_low;
  s.high = is_yarn ? m->rope_beta_fast : m->rope_high;
  s.original = m->rope_original > 0 ? m->rope_original : (double)m->context;
  if (s.factor == 0 && s.original > 0) s.factor = (double)m->context / s.original;
  if (is_yarn) s.amplitude = m->rope_amplitude;
  if (is_yarn && s.amplitude == 0 && s.factor > 1) s.amplitude = 0.1 * log(s.factor) + 1;
  return s;
}

/* Fails if the parameters do not suit each other, or samples of this shape. */
static brim_status check(const decoder *m, const brim_graph *g, const brim_tensor *tokens)
{
  BRIM_TRY(check_samples("decoder", tokens, SAMPLES_TOKENS));
  if (m->context > 0 && tokens->shape.dim[1] > m->context)
    return brim_fail(BRIM_ECONFIG, "decoder: samples have %lld tokens, more than model.context %lld",
                     (long long)tokens->shape.dim[1], (long long)m->context);
  if (m->vocabulary > 0 && brim_classes(g) != m->vocabulary)
    return brim_fail(BRIM_ECONFIG, "decoder: the dataset has %lld tokens, but the embedding has only %lld rows",
                     (long long)brim_classes(g), (long long)m->vocabulary);
  const brim_rotary_scaling scaling = scaling_of(m);
  if (scaling.kind != BRIM_ROTARY_PLAIN && scaling.factor < 1)
    return brim_fail(BRIM_ECONFIG, "decoder: model.rope_factor must be at least 1, got %g", scaling.factor);
  if (scaling.kind > BRIM_ROTARY_LINEAR && scaling.low >= scaling.high)
    return brim_fail(BRIM_ECONFIG, "decoder: model.%s must be below model.%s, got %g and %g",
                     scaling.kind == BRIM_ROTARY_YARN ? "rope_beta_slow" : "rope_low",
                     scaling.kind == BRIM_ROTARY_YARN ? "rope_beta_fast" : "rope_high", scaling.low, scaling.high);
  if (scaling.kind > BRIM_ROTARY_LINEAR && scaling.original < 1)
    return brim_fail(BRIM_ECONFIG, "decoder: model.rope_type needs model.rope_original or model.context");
  if (m->rope_layers.count > 0 && (int64_t)m->rope_layers.count != m->layers)
    return brim_fail(BRIM_ECONFIG, "decoder: model.rope_layers has %zu numbers for %lld blocks", m->rope_layers.count,
                     (long long)m->layers);
  if (m->window_layers.count > 0 && (int64_t)m->window_layers.count != m->layers)
    return brim_fail(BRIM_ECONFIG, "decoder: model.window_layers has %zu numbers for %lld blocks",
                     m->window_layers.count, (long long)m->layers);
  if (m->heads % kv_heads(m) != 0)
    return brim_fail(BRIM_ECONFIG, "decoder: model.kv_heads must divide model.heads %lld, but %lld does not",
                     (long long)m->heads, (long long)kv_heads(m));
  if (m->head_size == 0 && m->width % m->heads != 0)
    return brim_fail(BRIM_ECONFIG,
                     "decoder: model.heads must divide model.width %lld, but %lld does not\n"
                     "set model.head_size to another size of a head",
                     (long long)m->width, (long long)m->heads);
  if (head_size(m) % 2 != 0)
    return brim_fail(BRIM_ECONFIG, "decoder: the rotary embedding needs an even size of a head, not %lld",
                     (long long)head_size(m));
  return BRIM_OK;
}

static brim_tensor *linear(brim_graph *g, const char *name, brim_tensor *x, int64_t out, bool bias)
{
  if (bias) return normal_linear(g, name, x, out, STD);
  char weight[sizeof(scope)];
  x = brim_linear_no_bias(g, name, x, out);
  snprintf(weight, sizeof weight, "%s.weight", name);
  brim_set_init(g, weight, ((brim_init){BRIM_INIT_NORMAL, STD}));
  return x;
}

/* Norm and rotary embedding of queries or keys: [N, T, heads * size]. */
static brim_tensor *position(brim_graph *g, const decoder *m, const char *norm, brim_tensor *x, int64_t heads,
                             bool rotates)
{
  const brim_shape shape = brim_shape_of(x);
  if (m->qk_norm) {
    const int64_t apart[] = {shape.dim[0], shape.dim[1], heads, head_size(m)};
    x = brim_rms_norm(g, norm, brim_reshape(g, x, 4, apart), m->norm_eps);
    x = brim_reshape(g, x, 3, shape.dim);
  }
  if (!rotates) return x;
  const brim_rotary_scaling scaling = scaling_of(m);
  return brim_rotary_scaled(g, x, ((brim_rotary_options){.heads = heads, .base = m->rope_base}), &scaling);
}

/* Whether block i has a property that a list has a number for; without numbers, all have it. */
static bool has(const brim_list *list, int64_t i)
{
  return list->count == 0 || list->item[i] > 0;
}

/* Attention of block i. */
static brim_tensor *attention(brim_graph *g, const decoder *m, scope *b, brim_tensor *x, int64_t i)
{
  const int64_t size = head_size(m), few = kv_heads(m);
  const bool rotates = has(&m->rope_layers, i);
  const brim_attention_limits limits = {
      .size = sizeof limits, .window = has(&m->window_layers, i) ? m->window : 0, .softcap = m->attention_softcap};
  brim_tensor *q = linear(g, in(b, "self_attn.q_proj"), x, m->heads * size, m->qkv_bias);
  brim_tensor *k = linear(g, in(b, "self_attn.k_proj"), x, few * size, m->qkv_bias);
  brim_tensor *v = linear(g, in(b, "self_attn.v_proj"), x, few * size, m->qkv_bias);
  q = position(g, m, in(b, "self_attn.q_norm"), q, m->heads, rotates);
  k = position(g, m, in(b, "self_attn.k_norm"), k, few, rotates);
  const brim_attention_options options = {.heads = m->heads, .kv_heads = few, .causal = 1};
  x = brim_attention_limited(g, q, k, v, options, &limits);
  return linear(g, in(b, "self_attn.o_proj"), x, m->width, m->out_bias);
}

static brim_tensor *mlp(brim_graph *g, const decoder *m, scope *b, brim_tensor *x)
{
  brim_tensor *gate = brim_silu(g, linear(g, in(b, "mlp.gate_proj"), x, m->mlp_width, m->mlp_bias));
  brim_tensor *up = linear(g, in(b, "mlp.up_proj"), x, m->mlp_width, m->mlp_bias);
  return linear(g, in(b, "mlp.down_proj"), brim_mul(g, gate, up), m->width, m->mlp_bias);
}

static brim_status build(const void *self, brim_graph *g)
{
  const decoder *m = self;
  brim_tensor *tokens = brim_input(g);
  BRIM_TRY(check(m, g, tokens));
  const int64_t table[] = {brim_classes(g), m->width};
  const brim_init init = {BRIM_INIT_NORMAL, STD};
  brim_tensor *embedding = brim_parameter_new(g, "model.embed_tokens.weight", 2, table, init);
  brim_tensor *x = brim_embedding_with(g, tokens, embedding);
  for (int64_t i = 0; i < m->layers; i++) {
    scope b;
    snprintf(b.prefix, sizeof b.prefix, "model.layers.%lld", (long long)i);
    brim_tensor *y = brim_rms_norm(g, in(&b, "input_layernorm"), x, m->norm_eps);
    x = brim_add(g, x, attention(g, m, &b, y, i));
    y = brim_rms_norm(g, in(&b, "post_attention_layernorm"), x, m->norm_eps);
    x = brim_block(g, brim_add(g, x, mlp(g, m, &b, y)));
  }
  x = brim_features(g, brim_rms_norm(g, "model.norm", x, m->norm_eps));
  brim_tensor *last = m->tied ? embedding : brim_parameter_new(g, "lm_head.weight", 2, table, init);
  brim_output(g, brim_linear_with(g, "lm_head", x, last, NULL));
  return BRIM_OK;
}

static int64_t classes(const void *self, int64_t tokens)
{
  const decoder *m = self;
  return m->vocabulary > tokens ? m->vocabulary : tokens; /* build() refuses too few rows */
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build, .classes = classes};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "decoder",
    .help = "language models of the Llama family: rms_norm, rotary embedding, grouped-query attention, gated MLP",
    .params_size = sizeof(decoder),
    .params = params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-decoder", "0.1", plugins)
