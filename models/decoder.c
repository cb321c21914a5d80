/* decoder: the language models of the Llama family (Touvron et al. 2023, Llama 2: Open Foundation and Fine-Tuned Chat
 * Models) and of its relatives Mistral, Qwen2, Qwen3, SmolLM3, Gemma, Gemma 2, Gemma 3, Phi-3, OLMo 2 and Granite.
 * Names and initial values are those of Hugging Face's models for causal language modelling. model=hf sets the
 * parameters from the config.json of such a model.
 *
 *     token embedding
 *     layers times:  x + o_proj(attention(rotary(q_proj(y)), rotary(k_proj(y)), v_proj(y))),  y = rms_norm(x)
 *                    x + down_proj(silu(gate_proj(z)) * up_proj(z)),                          z = rms_norm(x)
 *     rms_norm   logits by lm_head, or by the token embedding (tied)
 *
 * model.norms=around adds a second norm, on the right operand of each sum; model.norms=after has only these norms.
 * Several heads of queries may share a head of keys and values (grouped-query attention). The attention is causal, so
 * the logits at a position depend only on the tokens up to it. */
#include <math.h>
#include <string.h>

#include "transformer.h"

#define STD 0.02 /* initial standard deviation of weights */

/* Values of the parameters' enumerations. Those of rope_type follow enum brim_rotary_kind. */
enum { ROPE_DYNAMIC = BRIM_ROTARY_LONGROPE + 1 };
enum { NORMS_BEFORE, NORMS_AROUND, NORMS_AFTER };
enum { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_WIDTH };
enum { ACTIVATION_SILU, ACTIVATION_GELU_TANH };
enum { WEIGHTS_FLOAT32, WEIGHTS_BFLOAT16, WEIGHTS_FLOAT16, WEIGHTS_FLOAT64 };

typedef struct decoder {
  int64_t layers, heads, kv_heads, head_size, width, mlp_width, vocabulary, context, window, window_pattern,
      window_from;
  double rope_base, sliding_rope_base, rope_share, norm_eps, norm_offset;
  int32_t rope_type, norms, qk_norm, activation, weights_type;
  double rope_factor, rope_low, rope_high, rope_beta_slow, rope_beta_fast, rope_original, rope_amplitude, rope_mscale,
      rope_mscale_all_dim;
  double embedding_scale, query_size, attention_scale, attention_softcap, residual_scale, logit_divisor, logit_softcap;
  brim_list rope_layers, window_layers, rope_short, rope_long;
  bool tied, fused, qkv_bias, out_bias, mlp_bias;
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
    BRIM_PARAM(I64, decoder, window, "0", "[0,16777216]", "the last tokens that a token sees, itself included; 0: all"),
    BRIM_PARAM(LIST, decoder, window_layers, "[]", "[0,1]",
               "1 for each block with the window, 0 for each without; []: see window_pattern"),
    BRIM_PARAM(I64, decoder, window_pattern, "0", "[0,1024]",
               "of each group of this number of blocks, all but the last have the window; 0: see window_from"),
    BRIM_PARAM(I64, decoder, window_from, "0", "[0,1024]",
               "without window_layers and window_pattern: the first block with the window, counted from 0"),
    BRIM_PARAM(F64, decoder, rope_base, "10000", "(0,inf)", "base of the rotary embedding's frequencies (rope_theta)"),
    BRIM_PARAM(F64, decoder, sliding_rope_base, "0", "[0,inf)",
               "base in blocks with a window, whose frequencies are not scaled; 0: rope_base"),
    BRIM_PARAM(F64, decoder, rope_share, "1", "(0,1]", "the part of a head that is rotated (partial_rotary_factor)"),
    BRIM_PARAM(ENUM, decoder, rope_type, "default", "default|linear|llama3|yarn|longrope|dynamic",
               "scaling of frequencies for samples longer than in pretraining, by its name in transformers"),
    BRIM_PARAM(F64, decoder, rope_factor, "0", "[0,inf)",
               "divides frequencies, all of them (linear) or low ones (llama3, yarn); 0: context / rope_original"),
    BRIM_PARAM(F64, decoder, rope_low, "1", "(0,inf)",
               "llama3: frequencies with fewer rotations within rope_original positions are divided (low_freq_factor)"),
    BRIM_PARAM(F64, decoder, rope_high, "4", "(0,inf)",
               "llama3: frequencies with more rotations are not divided (high_freq_factor)"),
    BRIM_PARAM(F64, decoder, rope_beta_slow, "1", "(0,inf)", "yarn: as rope_low (beta_slow)"),
    BRIM_PARAM(F64, decoder, rope_beta_fast, "32", "(0,inf)", "yarn: as rope_high (beta_fast)"),
    BRIM_PARAM(LIST, decoder, rope_short, "[]", "(0,inf)",
               "longrope: divides each frequency, for texts of at most rope_original tokens (short_factor)"),
    BRIM_PARAM(LIST, decoder, rope_long, "[]", "(0,inf)",
               "longrope: divides each frequency, for longer texts (long_factor)"),
    BRIM_PARAM(F64, decoder, rope_original, "0", "[0,inf)",
               "positions in pretraining (original_max_position_embeddings); 0: context"),
    BRIM_PARAM(F64, decoder, rope_amplitude, "0", "[0,inf)",
               "multiplies rotated queries and keys (attention_factor); 0: with yarn 0.1 ln(rope_factor) + 1, with "
               "longrope sqrt(1 + ln(rope_factor) / ln(rope_original))"),
    BRIM_PARAM(F64, decoder, rope_mscale, "0", "[0,inf)",
               "yarn, without rope_amplitude: multiplies the logarithm in it, which then is divided by the same with "
               "rope_mscale_all_dim (mscale); 0: off"),
    BRIM_PARAM(F64, decoder, rope_mscale_all_dim, "0", "[0,inf)", "see rope_mscale (mscale_all_dim); 0: off"),
    BRIM_PARAM(LIST, decoder, rope_layers, "[]", "[0,1]",
               "1 for each block with a rotary embedding, 0 for each without; []: all have one"),
    BRIM_PARAM(ENUM, decoder, norms, "before", "before|around|after",
               "norms of a block: before attention and MLP, before and after each, or after each"),
    BRIM_PARAM(F64, decoder, norm_eps, "1e-5", "(0,1]", "eps of rms_norm"),
    BRIM_PARAM(F64, decoder, norm_offset, "0", "(-inf,inf)", "added to the weights of norms"),
    BRIM_PARAM(ENUM, decoder, activation, "silu", "silu|gelu_tanh", "function of the MLP's gate"),
    BRIM_PARAM(F64, decoder, embedding_scale, "1", "[0,inf)",
               "multiplies the token embeddings; 0: sqrt(width), rounded to weights_type"),
    BRIM_PARAM(ENUM, decoder, weights_type, "float32", "float32|bfloat16|float16|float64",
               "type of the pretrained weights, for embedding_scale"),
    BRIM_PARAM(F64, decoder, query_size, "0", "[0,inf)",
               "scores are divided by its square root (query_pre_attn_scalar); 0: by that of head_size"),
    BRIM_PARAM(F64, decoder, attention_scale, "0", "[0,inf)",
               "factor on scores, instead of the one that follows from query_size; 0: off"),
    BRIM_PARAM(F64, decoder, attention_softcap, "0", "[0,inf)", "scores x become softcap * tanh(x / softcap); 0: off"),
    BRIM_PARAM(F64, decoder, residual_scale, "1", "(0,inf)", "factor of attention and MLP in the residual sums"),
    BRIM_PARAM(F64, decoder, logit_divisor, "1", "(0,inf)", "divides the logits"),
    BRIM_PARAM(F64, decoder, logit_softcap, "0", "[0,inf)", "as attention_softcap, for the logits"),
    BRIM_PARAM(BOOL, decoder, tied, "true", NULL, "the token embedding is also the last layer"),
    BRIM_PARAM(BOOL, decoder, qkv_bias, "false", NULL, "q_proj, k_proj and v_proj have a bias"),
    BRIM_PARAM(BOOL, decoder, out_bias, "false", NULL, "o_proj has a bias"),
    BRIM_PARAM(BOOL, decoder, mlp_bias, "false", NULL, "the MLP's layers have biases"),
    BRIM_PARAM(BOOL, decoder, fused, "false", NULL,
               "one layer qkv_proj for queries, keys and values, and one layer gate_up_proj for gate and up"),
    BRIM_PARAM(ENUM, decoder, qk_norm, "none", "none|head|width",
               "rms_norm of queries and keys: for each head (head), or over all heads (width)"),
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

static int64_t rotated(const decoder *m)
{
  return (int64_t)((double)head_size(m) * m->rope_share);
}

static double rope_original(const decoder *m)
{
  return m->rope_original > 0 ? m->rope_original : (double)m->context;
}

/* Returns whether block i has a sliding window and the rotary frequencies of such blocks. */
static bool slides(const decoder *m, int64_t i)
{
  if (m->window_layers.count > 0) return m->window_layers.item[i] > 0;
  if (m->window_pattern > 0) return (i + 1) % m->window_pattern != 0;
  return m->window > 0 && i >= m->window_from;
}

/* ---- rotary embedding ---- */

static double amplitude_of(const decoder *m, double factor)
{
  if (m->rope_amplitude > 0 || factor <= 1) return m->rope_amplitude;
  if (m->rope_type == BRIM_ROTARY_YARN && m->rope_mscale > 0 && m->rope_mscale_all_dim > 0)
    return (0.1 * m->rope_mscale * log(factor) + 1) / (0.1 * m->rope_mscale_all_dim * log(factor) + 1);
  if (m->rope_type == BRIM_ROTARY_YARN) return 0.1 * log(factor) + 1;
  return sqrt(1 + log(factor) / log(rope_original(m)));
}

/* `capacity`, the maximum number of tokens in a text, decides which of longrope's two lists of divisors is used. */
static brim_rotary_scaling scaling_of(const decoder *m, int64_t capacity)
{
  const bool is_yarn = m->rope_type == BRIM_ROTARY_YARN, is_longrope = m->rope_type == BRIM_ROTARY_LONGROPE;
  brim_rotary_scaling s = {.size = sizeof s, .kind = m->rope_type, .factor = m->rope_factor};
  if (m->rope_type == BRIM_ROTARY_PLAIN) return s;
  s.low = is_yarn ? m->rope_beta_slow : m->rope_low;
  s.high = is_yarn ? m->rope_beta_fast : m->rope_high;
  s.original = rope_original(m);
  if (s.factor == 0 && s.original > 0) s.factor = (double)m->context / s.original;
  if (is_yarn || is_longrope) s.amplitude = amplitude_of(m, s.factor);
  if (is_longrope) {
    const brim_list *list = (double)capacity > s.original ? &m->rope_long : &m->rope_short;
    s.divisor = list->item;
    s.divisors = (int64_t)list->count;
  }
  return s;
}

/* The base of "dynamic" frequencies (u/emozilla; as in transformers) grows with the capacity. */
static double dynamic_base(const decoder *m, int64_t capacity)
{
  const double dims = (double)rotated(m), length = fmax((double)capacity, (double)m->context);
  const double stretched = m->rope_factor * length / (double)m->context - (m->rope_factor - 1);
  return m->rope_base * pow(stretched, dims / (dims - 2));
}

static brim_tensor *rotate(brim_graph *g, const decoder *m, brim_tensor *x, int64_t heads, bool is_sliding)
{
  const int64_t capacity = brim_capacity(g);
  brim_rotary_options options = {.heads = heads, .dims = rotated(m), .base = m->rope_base};
  brim_rotary_scaling scaling = scaling_of(m, capacity);
  if (is_sliding && m->sliding_rope_base > 0) {
    options.base = m->sliding_rope_base;
    return brim_rotary(g, x, options);
  }
  if (m->rope_type == ROPE_DYNAMIC) {
    options.base = dynamic_base(m, capacity);
    return brim_rotary(g, x, options);
  }
  return brim_rotary_scaled(g, x, options, &scaling);
}

/* ---- checks ---- */

static brim_status check_rope(const decoder *m)
{
  const brim_rotary_scaling scaling = scaling_of(m, 0);
  const bool has_turns = scaling.kind == BRIM_ROTARY_LLAMA3 || scaling.kind == BRIM_ROTARY_YARN;
  const bool is_yarn = scaling.kind == BRIM_ROTARY_YARN; /* the length of yarn's ramp may be 0, as in transformers */
  if (rotated(m) < 2 || rotated(m) % 2 != 0)
    return brim_fail(BRIM_ECONFIG,
                     "decoder: the rotary embedding needs an even number of a head's %lld elements, not %lld",
                     (long long)head_size(m), (long long)rotated(m));
  if (scaling.kind != BRIM_ROTARY_PLAIN && scaling.kind != BRIM_ROTARY_LONGROPE && scaling.factor < 1)
    return brim_fail(BRIM_ECONFIG, "decoder: model.rope_factor must be at least 1, got %g", scaling.factor);
  if (has_turns && (is_yarn ? scaling.low > scaling.high : scaling.low >= scaling.high))
    return brim_fail(BRIM_ECONFIG, "decoder: model.%s must %s model.%s, got %g and %g",
                     is_yarn ? "rope_beta_slow" : "rope_low", is_yarn ? "not be above" : "be below",
                     is_yarn ? "rope_beta_fast" : "rope_high", scaling.low, scaling.high);
  if ((has_turns || scaling.kind == BRIM_ROTARY_LONGROPE) && scaling.original < 1)
    return brim_fail(BRIM_ECONFIG, "decoder: model.rope_type needs model.rope_original or model.context");
  const size_t pairs = (size_t)rotated(m) / 2;
  if (scaling.kind == BRIM_ROTARY_LONGROPE && (m->rope_short.count != pairs || m->rope_long.count != pairs))
    return brim_fail(BRIM_ECONFIG,
                     "decoder: model.rope_short and model.rope_long need a number for each of the %zu frequencies, "
                     "but have %zu and %zu",
                     pairs, m->rope_short.count, m->rope_long.count);
  if (scaling.kind == ROPE_DYNAMIC && (m->context == 0 || pairs < 2))
    return brim_fail(BRIM_ECONFIG, "decoder: model.rope_type=dynamic needs model.context, and two frequencies");
  return BRIM_OK;
}

/* A list is empty or has a number for each block; further numbers are ignored, as in transformers. */
static brim_status check_list(const decoder *m, const char *key, const brim_list *list)
{
  if (list->count == 0 || (int64_t)list->count >= m->layers) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "decoder: model.%s has %zu numbers for %lld blocks", key, list->count,
                   (long long)m->layers);
}

/* Fails if the parameters do not suit each other or samples of this shape. */
static brim_status check(const decoder *m, const brim_graph *g, const brim_tensor *tokens)
{
  BRIM_TRY(check_samples("decoder", tokens, SAMPLES_TOKENS));
  if (m->context > 0 && tokens->shape.dim[1] > m->context && m->rope_type != ROPE_DYNAMIC)
    return brim_fail(BRIM_ECONFIG,
                     "decoder: samples have %lld tokens, more than model.context %lld\n"
                     "set dataset.context to at most %lld",
                     (long long)tokens->shape.dim[1], (long long)m->context, (long long)m->context);
  if (m->vocabulary > 0 && brim_classes(g) != m->vocabulary)
    return brim_fail(BRIM_ECONFIG, "decoder: the dataset has %lld tokens, but the embedding has only %lld rows",
                     (long long)brim_classes(g), (long long)m->vocabulary);
  if (m->heads % kv_heads(m) != 0)
    return brim_fail(BRIM_ECONFIG, "decoder: model.kv_heads must divide model.heads %lld, but %lld does not",
                     (long long)m->heads, (long long)kv_heads(m));
  if (m->head_size == 0 && m->width % m->heads != 0)
    return brim_fail(BRIM_ECONFIG,
                     "decoder: model.heads must divide model.width %lld, but %lld does not\n"
                     "set model.head_size to another size of a head",
                     (long long)m->width, (long long)m->heads);
  if (m->fused && (m->qkv_bias || m->mlp_bias))
    return brim_fail(BRIM_ECONFIG, "decoder: with model.fused, layers have no biases");
  BRIM_TRY(check_list(m, "rope_layers", &m->rope_layers));
  BRIM_TRY(check_list(m, "window_layers", &m->window_layers));
  return check_rope(m);
}

/* ---- layers ---- */

static brim_tensor *linear(brim_graph *g, const char *name, brim_tensor *x, int64_t out, bool bias)
{
  if (bias) return normal_linear(g, name, x, out, STD);
  char weight[sizeof(scope)];
  x = brim_linear_no_bias(g, name, x, out);
  snprintf(weight, sizeof weight, "%s.weight", name);
  brim_set_init(g, weight, ((brim_init){BRIM_INIT_NORMAL, STD}));
  return x;
}

/* Returns x itself if name is NULL. */
static brim_tensor *norm(brim_graph *g, const decoder *m, scope *b, const char *name, brim_tensor *x)
{
  return name ? brim_rms_norm_offset(g, in(b, name), x, m->norm_eps, m->norm_offset) : x;
}

/* Applies the norm and the rotary embedding to queries or keys: [N, T, heads * size]. */
static brim_tensor *position(brim_graph *g, const decoder *m, scope *b, const char *name, brim_tensor *x, int64_t heads,
                             int64_t block)
{
  const brim_shape shape = brim_shape_of(x);
  if (m->qk_norm == QK_NORM_WIDTH) x = norm(g, m, b, name, x);
  if (m->qk_norm == QK_NORM_HEAD) {
    const int64_t apart[] = {shape.dim[0], shape.dim[1], heads, head_size(m)};
    x = norm(g, m, b, name, brim_reshape(g, x, 4, apart));
    x = brim_reshape(g, x, 3, shape.dim);
  }
  const bool rotates = m->rope_layers.count == 0 || m->rope_layers.item[block] > 0;
  return rotates ? rotate(g, m, x, heads, slides(m, block)) : x;
}

static double scale_of_scores(const decoder *m)
{
  if (m->attention_scale > 0) return m->attention_scale;
  return m->query_size > 0 ? 1 / sqrt(m->query_size) : 0;
}

/* Computes queries, keys and values. */
static void project(brim_graph *g, const decoder *m, scope *b, brim_tensor *x, brim_tensor *out[3])
{
  const char *const name[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  const int64_t keys = kv_heads(m) * head_size(m), size[] = {m->heads * head_size(m), keys, keys};
  brim_tensor *all = m->fused ? linear(g, in(b, "self_attn.qkv_proj"), x, size[0] + 2 * keys, false) : NULL;
  int64_t at = 0;
  for (int i = 0; i < 3; at += size[i++])
    out[i] = m->fused ? brim_slice(g, all, 2, at, size[i]) : linear(g, in(b, name[i]), x, size[i], m->qkv_bias);
}

static brim_tensor *attention(brim_graph *g, const decoder *m, scope *b, brim_tensor *x, int64_t block)
{
  const int64_t few = kv_heads(m);
  const brim_attention_limits limits = {
      .size = sizeof limits, .window = slides(m, block) ? m->window : 0, .softcap = m->attention_softcap};
  const brim_attention_options options = {.heads = m->heads, .kv_heads = few, .causal = 1, .scale = scale_of_scores(m)};
  brim_tensor *p[3];
  project(g, m, b, x, p);
  p[0] = position(g, m, b, "self_attn.q_norm", p[0], m->heads, block);
  p[1] = position(g, m, b, "self_attn.k_norm", p[1], few, block);
  x = brim_attention_limited(g, p[0], p[1], p[2], options, &limits);
  return linear(g, in(b, "self_attn.o_proj"), x, m->width, m->out_bias);
}

static brim_tensor *mlp(brim_graph *g, const decoder *m, scope *b, brim_tensor *x)
{
  brim_tensor *p[2];
  if (m->fused) {
    brim_split(g, linear(g, in(b, "mlp.gate_up_proj"), x, 2 * m->mlp_width, false), 2, 2, p);
  } else {
    p[0] = linear(g, in(b, "mlp.gate_proj"), x, m->mlp_width, m->mlp_bias);
    p[1] = linear(g, in(b, "mlp.up_proj"), x, m->mlp_width, m->mlp_bias);
  }
  x = m->activation == ACTIVATION_SILU ? brim_silu_mul(g, p[0], p[1]) : brim_gelu_tanh_mul(g, p[0], p[1]);
  return linear(g, in(b, "mlp.down_proj"), x, m->width, m->mlp_bias);
}

/* The names of a block's norms: before and after attention, before and after the MLP. NULL: no norm. */
static const char *const norm_names[][4] = {
    [NORMS_BEFORE] = {"input_layernorm", NULL, "post_attention_layernorm", NULL},
    [NORMS_AROUND] = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                      "post_feedforward_layernorm"},
    [NORMS_AFTER] = {NULL, "post_attention_layernorm", NULL, "post_feedforward_layernorm"},
};

/* Adds the result of attention or of the MLP to the residual sum. */
static brim_tensor *add(brim_graph *g, const decoder *m, scope *b, const char *name, brim_tensor *x, brim_tensor *y)
{
  y = norm(g, m, b, name, y);
  return brim_add(g, x, m->residual_scale == 1 ? y : brim_scale(g, y, m->residual_scale));
}

static brim_tensor *block(brim_graph *g, const decoder *m, brim_tensor *x, int64_t i)
{
  const char *const *name = norm_names[m->norms];
  scope b;
  snprintf(b.prefix, sizeof b.prefix, "model.layers.%lld", (long long)i);
  x = add(g, m, &b, name[1], x, attention(g, m, &b, norm(g, m, &b, name[0], x), i));
  return brim_block(g, add(g, m, &b, name[3], x, mlp(g, m, &b, norm(g, m, &b, name[2], x))));
}

/* Returns sqrt(width) in fp32, rounded to the type of the weights, as Hugging Face's Gemma does. */
static double embedding_factor(const decoder *m)
{
  static const int bits[] = {
      [WEIGHTS_FLOAT32] = 24, [WEIGHTS_BFLOAT16] = 8, [WEIGHTS_FLOAT16] = 11, [WEIGHTS_FLOAT64] = 24};
  if (m->embedding_scale > 0) return m->embedding_scale;
  int exponent;
  const double part = frexp((double)sqrtf((float)m->width), &exponent);
  return ldexp(nearbyint(ldexp(part, bits[m->weights_type])), exponent - bits[m->weights_type]);
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
  if (embedding_factor(m) != 1) x = brim_scale(g, x, embedding_factor(m));
  for (int64_t i = 0; i < m->layers; i++) x = block(g, m, x, i);
  x = brim_rms_norm_offset(g, "model.norm", x, m->norm_eps, m->norm_offset);
  if (m->logit_divisor != 1) x = brim_scale(g, x, 1 / m->logit_divisor);
  x = brim_features(g, x);
  brim_tensor *last = m->tied ? embedding : brim_parameter_new(g, "lm_head.weight", 2, table, init);
  x = brim_linear_with(g, "lm_head", x, last, NULL);
  brim_output(g, m->logit_softcap > 0 ? brim_softcap(g, x, m->logit_softcap) : x);
  return BRIM_OK;
}

static int64_t classes(const void *self, int64_t tokens)
{
  const decoder *m = self;
  return m->vocabulary > tokens ? m->vocabulary : tokens; /* if the vocabulary is too small, build() refuses it */
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
