/* Converts GGUF metadata to config.json. See gguf_config.h. Names of GGUF's keys: gguf-py's constants.py; of
 * config.json's: transformers. */
#include "config/gguf_config_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* ---- names ---- */

const brim_gguf_model brim_gguf_models[] = {{"llama", "llama", "LlamaForCausalLM"},
                                            {"qwen2", "qwen2", "Qwen2ForCausalLM"},
                                            {"qwen3", "qwen3", "Qwen3ForCausalLM"},
                                            {"smollm3", "smollm3", "SmolLM3ForCausalLM"},
                                            {"gemma", "gemma", "GemmaForCausalLM"},
                                            {"gemma2", "gemma2", "Gemma2ForCausalLM"},
                                            {"gemma3", "gemma3_text", "Gemma3ForCausalLM"},
                                            {"phi3", "phi3", "Phi3ForCausalLM"},
                                            {"olmo2", "olmo2", "Olmo2ForCausalLM"},
                                            {"granite", "granite", "GraniteForCausalLM"},
                                            {"llama", "mistral", "MistralForCausalLM"}, /* only written */
                                            {NULL, NULL, NULL}};

const brim_gguf_row brim_gguf_rows[] = {{"block_count", "num_hidden_layers", BRIM_GGUF_U32},
                                        {"context_length", "max_position_embeddings", BRIM_GGUF_U32},
                                        {"embedding_length", "hidden_size", BRIM_GGUF_U32},
                                        {"feed_forward_length", "intermediate_size", BRIM_GGUF_U32},
                                        {"attention.head_count", "num_attention_heads", BRIM_GGUF_U32},
                                        {"attention.head_count_kv", "num_key_value_heads", BRIM_GGUF_U32},
                                        {"attention.layer_norm_rms_epsilon", "rms_norm_eps", BRIM_GGUF_F32},
                                        {"attention.sliding_window", "sliding_window", BRIM_GGUF_U32},
                                        {"attention.sliding_window_pattern", "sliding_window_pattern", BRIM_GGUF_U32},
                                        {"attention.scale", "attention_multiplier", BRIM_GGUF_F32},
                                        {"embedding_scale", "embedding_multiplier", BRIM_GGUF_F32},
                                        {"residual_scale", "residual_multiplier", BRIM_GGUF_F32},
                                        {"logit_scale", "logits_scaling", BRIM_GGUF_F32},
                                        {"attn_logit_softcapping", "attn_logit_softcapping", BRIM_GGUF_F32},
                                        {"final_logit_softcapping", "final_logit_softcapping", BRIM_GGUF_F32},
                                        {"rope.freq_base", "rope_theta", BRIM_GGUF_F32},
                                        {"rope.freq_base_swa", "rope_local_base_freq", BRIM_GGUF_F32},
                                        {NULL, NULL, BRIM_GGUF_U32}};
const brim_gguf_row brim_gguf_scaling_rows[] = {
    {"rope.scaling.type", "rope_type", BRIM_GGUF_TEXT},
    {"rope.scaling.factor", "factor", BRIM_GGUF_F32},
    {"rope.scaling.original_context_length", "original_max_position_embeddings", BRIM_GGUF_U32},
    {"rope.scaling.attn_factor", "attention_factor", BRIM_GGUF_F32},
    {"rope.scaling.yarn_beta_fast", "beta_fast", BRIM_GGUF_F32},
    {"rope.scaling.yarn_beta_slow", "beta_slow", BRIM_GGUF_F32},
    {NULL, NULL, BRIM_GGUF_U32}};
static const struct {
  const char *key, *config;
} token_rows[] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                  {"tokenizer.ggml.eos_token_id", "eos_token_id"},
                  {"tokenizer.ggml.padding_token_id", "pad_token_id"}};
/* Keys that this file uses below, or that do not change the network. */
static const char *const others[] = {"vocab_size",           "attention.key_length", "attention.value_length",
                                     "rope.dimension_count", "tensor_data_layout",   "rope.scaling.finetuned"};
/* Keys that have no meaning if they are 0. */
static const char *const zeros[] = {"expert_count", "expert_used_count"};

typedef struct reading {
  brim_arena *arena;
  const brim_gguf *file;
  brim_yaml *out;
} reading;

/* ---- values ---- */

static brim_yaml_origin origin_of(const reading *r, const char *what)
{
  return (brim_yaml_origin){.file = brim_gguf_path(r->file), .text = what};
}

static void put(const reading *r, brim_yaml *map, const char *config, const char *text, bool quoted, const char *what)
{
  brim_yaml *node = brim_yaml_scalar(r->arena, text, origin_of(r, what));
  node->quoted = quoted;
  brim_yaml_set(r->arena, map, config, node);
}

/* Returns the shortest text that gives this number in the file's precision. */
static const char *number_text(brim_arena *arena, double value, bool is_single)
{
  return brim_arena_string(arena, brim_format_number((char[BRIM_NUMBER_BYTES]){0}, value, is_single));
}

/* The text of element `i`. */
static const char *element_text(const reading *r, const brim_gguf_value *v, uint64_t i)
{
  int64_t integer;
  double number;
  if (v->kind == BRIM_GGUF_TEXT) return brim_gguf_text(r->file, v->key);
  if (brim_gguf_integer(v, i, &integer))
    return v->kind == BRIM_GGUF_BOOL ? (integer ? "true" : "false")
                                     : brim_arena_printf(r->arena, "%lld", (long long)integer);
  if (brim_gguf_number(v, i, &number)) return number_text(r->arena, number, v->kind == BRIM_GGUF_F32);
  return brim_arena_printf(r->arena, "(value %llu)", (unsigned long long)i);
}

#define LIST_MAX 1024 /* values of an array */

static void put_value(const reading *r, brim_yaml *map, const char *config, const brim_gguf_value *v)
{
  if (!v->is_array) {
    put(r, map, config, element_text(r, v, 0), v->kind == BRIM_GGUF_TEXT, v->key);
    return;
  }
  brim_yaml *list = brim_yaml_list(r->arena, origin_of(r, v->key));
  for (uint64_t i = 0; i < v->count && i < LIST_MAX && v->kind != BRIM_GGUF_TEXT; i++)
    brim_yaml_append(r->arena, list, brim_yaml_scalar(r->arena, element_text(r, v, i), origin_of(r, v->key)));
  brim_yaml_set(r->arena, map, config, list);
}

static bool integer_of(const reading *r, const char *key, int64_t *out)
{
  const brim_gguf_value *v = brim_gguf_find_own(r->file, key);
  return v && !v->is_array && brim_gguf_integer(v, 0, out);
}

static const char *own_key(const reading *r, const char *key)
{
  return brim_arena_printf(r->arena, "%s.%s", brim_gguf_architecture(r->file), key);
}

/* ---- the rotary embedding ---- */

static float divisor_at(const brim_gguf_tensor *t, int64_t i)
{
  float value;
  t->type->unpack(t->data + (size_t)i * t->type->bytes, 1, &value);
  return value;
}

/* Adds a vector of the file as a list of numbers. */
static void put_factors(const reading *r, brim_yaml *map, const char *config, const brim_gguf_tensor *t)
{
  brim_yaml *list = brim_yaml_list(r->arena, origin_of(r, t->name));
  for (int64_t i = 0; i < brim_shape_count(&t->shape) && i < BRIM_GGUF_FACTOR_MAX && t->type->count == 1; i++) {
    const char *text = number_text(r->arena, (double)divisor_at(t, i), true);
    brim_yaml_append(r->arena, list, brim_yaml_scalar(r->arena, text, origin_of(r, t->name)));
  }
  brim_yaml_set(r->arena, map, config, list);
}

double brim_gguf_llama3_divisor(double factor, double low, double high, double original, double base, int64_t i,
                                int64_t dims)
{
  const double wavelength = 2 * 3.14159265358979323846 * pow(base, 2.0 * (double)i / (double)dims);
  if (wavelength < original / high) return 1;
  if (wavelength > original / low) return factor;
  const double smooth = (original / wavelength - low) / (high - low);
  return 1 / ((1 - smooth) / factor + smooth);
}

const brim_gguf_llama3_row brim_gguf_llama3_rows[] = {
    {"brim.rope.low_freq_factor", "low_freq_factor", 1},
    {"brim.rope.high_freq_factor", "high_freq_factor", 4},
    {"brim.rope.original_max_position_embeddings", "original_max_position_embeddings", 8192},
    {"brim.rope.factor", "factor", 0}};

static brim_status put_llama3(const reading *r, brim_yaml *scaling, const brim_gguf_tensor *t)
{
  const brim_gguf_value *base_value = brim_gguf_find_own(r->file, "rope.freq_base");
  const int64_t count = brim_shape_count(&t->shape);
  double base = 10000, number[BRIM_GGUF_LLAMA3_ROWS], most = 1;
  bool same = t->type->count == 1 && count > 0;
  if (base_value) brim_gguf_number(base_value, 0, &base);
  for (int64_t i = 0; i < count && same; i++) most = fmax(most, (double)divisor_at(t, i));
  for (size_t i = 0; i < BRIM_GGUF_LLAMA3_ROWS; i++) {
    const brim_gguf_value *v = brim_gguf_find(r->file, brim_gguf_llama3_rows[i].key);
    number[i] = brim_gguf_llama3_rows[i].usual > 0 ? brim_gguf_llama3_rows[i].usual : most;
    if (v) brim_gguf_number(v, 0, &number[i]);
  }
  for (int64_t i = 0; i < count && same; i++) {
    const double want = brim_gguf_llama3_divisor(number[3], number[0], number[1], number[2], base, i, 2 * count);
    same = fabs((double)divisor_at(t, i) - want) <= 1e-4 * want;
  }
  if (!same)
    return brim_fail(BRIM_ELOAD,
                     "'%s': %s has other divisors of the rotary embedding's frequencies than rope_type llama3 with "
                     "low_freq_factor %g, high_freq_factor %g and %g positions",
                     brim_gguf_path(r->file), t->name, number[0], number[1], number[2]);
  put(r, scaling, "rope_type", "llama3", true, t->name);
  for (size_t i = 0; i < BRIM_GGUF_LLAMA3_ROWS; i++)
    put(r, scaling, brim_gguf_llama3_rows[i].config, number_text(r->arena, number[i], true), false, t->name);
  return BRIM_OK;
}

static brim_status put_scaling(const reading *r)
{
  const brim_gguf_value *type = brim_gguf_find_own(r->file, "rope.scaling.type");
  const brim_gguf_tensor *divisors = brim_gguf_tensor_find(r->file, "rope_freqs.weight");
  const brim_gguf_tensor *length = brim_gguf_tensor_find(r->file, "rope_factors_long.weight");
  const brim_gguf_tensor *brief = brim_gguf_tensor_find(r->file, "rope_factors_short.weight");
  brim_yaml *scaling = brim_yaml_map(r->arena, origin_of(r, "rope.scaling"));
  const bool none = !type || strcmp(brim_gguf_text(r->file, type->key), "none") == 0;
  for (size_t i = 0; brim_gguf_scaling_rows[i].key && !none; i++) {
    const brim_gguf_value *v = brim_gguf_find_own(r->file, brim_gguf_scaling_rows[i].key);
    if (v) put_value(r, scaling, brim_gguf_scaling_rows[i].config, v);
  }
  if (length && brief) {
    const brim_gguf_value *original = brim_gguf_find_own(r->file, "rope.scaling.original_context_length");
    const brim_gguf_value *amplitude = brim_gguf_find_own(r->file, "rope.scaling.attn_factor");
    put(r, scaling, "rope_type", "longrope", true, length->name);
    put_factors(r, scaling, "long_factor", length);
    put_factors(r, scaling, "short_factor", brief);
    if (amplitude) put_value(r, scaling, "attention_factor", amplitude);
    if (original) put_value(r, scaling, "original_max_position_embeddings", original);
  } else if (divisors) {
    BRIM_TRY(put_llama3(r, scaling, divisors));
  }
  if (scaling->count > 0) brim_yaml_set(r->arena, r->out, "rope_scaling", scaling);
  return BRIM_OK;
}

/* ---- values that follow from the tensors and the architecture ---- */

static void put_sizes(const reading *r)
{
  int64_t width = 0, heads = 0, size = 0, rotated = 0;
  const brim_gguf_tensor *table = brim_gguf_tensor_find(r->file, "token_embd.weight");
  const brim_gguf_value *tokens = brim_gguf_find(r->file, "tokenizer.ggml.tokens");
  const char *from = own_key(r, "attention.key_length");
  if (table && table->shape.rank == 2)
    put(r, r->out, "vocab_size", brim_arena_printf(r->arena, "%lld", (long long)table->shape.dim[0]), false,
        table->name);
  else if (tokens)
    put(r, r->out, "vocab_size", brim_arena_printf(r->arena, "%lld", (long long)tokens->count), false, tokens->key);
  integer_of(r, "embedding_length", &width);
  integer_of(r, "attention.head_count", &heads);
  integer_of(r, "rope.dimension_count", &rotated);
  if (!integer_of(r, "attention.key_length", &size)) {
    const bool is_head = rotated > 0 && strcmp(brim_gguf_architecture(r->file), "llama") == 0;
    size = is_head ? rotated : heads > 0 && width % heads == 0 ? width / heads : 0;
    from = own_key(r, is_head ? "rope.dimension_count" : "embedding_length");
  }
  if (size > 0) put(r, r->out, "head_dim", brim_arena_printf(r->arena, "%lld", (long long)size), false, from);
  if (rotated > 0 && size > 0 && rotated != size)
    put(r, r->out, "partial_rotary_factor", number_text(r->arena, (double)rotated / (double)size, false), false,
        own_key(r, "rope.dimension_count"));
}

/* If the number is missing, there are as many heads of keys and values as of queries; transformers has other
 * defaults. */
static void put_kv_heads(const reading *r)
{
  const brim_gguf_value *heads = brim_gguf_find_own(r->file, "attention.head_count");
  if (heads && !brim_gguf_find_own(r->file, "attention.head_count_kv"))
    put_value(r, r->out, "num_key_value_heads", heads);
}

static bool has_tensor(const reading *r, const char *name)
{
  return brim_gguf_tensor_find(r->file, name) != NULL;
}

/* Adds switches that the metadata do not contain, because llama.cpp derives them from the architecture or the
 * tensors. */
static void put_switches(const reading *r)
{
  const char *architecture = brim_gguf_architecture(r->file);
  int64_t layers = 0, width = 0, heads = 0, size = 0;
  integer_of(r, "block_count", &layers);
  integer_of(r, "embedding_length", &width);
  integer_of(r, "attention.head_count", &heads);
  if (brim_gguf_tensor_count(r->file) > 0)
    put(r, r->out, "tie_word_embeddings", has_tensor(r, "output.weight") ? "false" : "true", false,
        has_tensor(r, "output.weight") ? "output.weight" : "no output.weight");
  if (has_tensor(r, "blk.0.attn_output.bias"))
    put(r, r->out, "attention_bias", "true", false, "blk.0.attn_output.bias");
  if (has_tensor(r, "blk.0.ffn_up.bias")) put(r, r->out, "mlp_bias", "true", false, "blk.0.ffn_up.bias");
  if (strcmp(architecture, "smollm3") == 0) {
    brim_yaml *list = brim_yaml_list(r->arena, origin_of(r, "general.architecture"));
    for (int64_t i = 0; i < layers && i < LIST_MAX; i++)
      brim_yaml_append(r->arena, list, brim_yaml_scalar(r->arena, (i + 1) % 4 ? "1" : "0", list->origin));
    brim_yaml_set(r->arena, r->out, "no_rope_layers", list);
  }
  if (strcmp(architecture, "phi3") == 0) {
    const brim_gguf_value *original = brim_gguf_find_own(r->file, "rope.scaling.original_context_length");
    if (!original) original = brim_gguf_find_own(r->file, "context_length");
    if (original) put_value(r, r->out, "original_max_position_embeddings", original);
  }
  const bool is_gemma2 = strcmp(architecture, "gemma2") == 0, is_gemma3 = strcmp(architecture, "gemma3") == 0;
  if (!is_gemma2 && !is_gemma3) return;
  const brim_yaml *head = brim_yaml_get(r->out, "head_dim");
  size = head ? strtoll(head->scalar, NULL, 10) : 0;
  if (heads > 0 && layers == (is_gemma2 ? 46 : 62)) size = width / heads; /* the models of 27 billion parameters */
  put(r, r->out, "query_pre_attn_scalar", brim_arena_printf(r->arena, "%lld", (long long)size), false,
      own_key(r, "attention.key_length"));
}

/* ---- all ---- */

static bool is_among(const char *word, const char *const *list, size_t count)
{
  for (size_t i = 0; i < count; i++)
    if (strcmp(list[i], word) == 0) return true;
  return false;
}

static bool is_known(const reading *r, const char *key)
{
  int64_t value = 1;
  for (size_t i = 0; brim_gguf_rows[i].key; i++)
    if (strcmp(brim_gguf_rows[i].key, key) == 0) return true;
  for (size_t i = 0; brim_gguf_scaling_rows[i].key; i++)
    if (strcmp(brim_gguf_scaling_rows[i].key, key) == 0) return true;
  if (is_among(key, zeros, sizeof zeros / sizeof zeros[0]) && integer_of(r, key, &value) && value == 0) return true;
  return is_among(key, others, sizeof others / sizeof others[0]);
}

static void put_unknown(const reading *r)
{
  const char *architecture = brim_gguf_architecture(r->file);
  const size_t length = strlen(architecture);
  for (size_t i = 0; i < brim_gguf_value_count(r->file); i++) {
    const brim_gguf_value *v = brim_gguf_value_at(r->file, i);
    if (strncmp(v->key, architecture, length) != 0 || v->key[length] != '.') continue;
    if (!is_known(r, v->key + length + 1)) put_value(r, r->out, v->key, v);
  }
}

brim_status brim_gguf_config_of(brim_arena *arena, const brim_gguf *file, brim_yaml **out)
{
  reading r = {.arena = arena, .file = file};
  r.out = brim_yaml_map(arena, (brim_yaml_origin){.file = brim_arena_string(arena, brim_gguf_path(file))});
  *out = r.out;
  const char *architecture = brim_gguf_architecture(r.file);
  size_t m = 0;
  while (brim_gguf_models[m].architecture && strcmp(brim_gguf_models[m].architecture, architecture) != 0) m++;
  if (!brim_gguf_models[m].architecture) {
    const char *known = "";
    for (m = 0; brim_gguf_models[m].architecture; m++)
      if (m == 0 || !strstr(known, brim_gguf_models[m].architecture))
        known = brim_arena_printf(r.arena, "%s%s%s", known, m ? ", " : "", brim_gguf_models[m].architecture);
    return brim_fail(BRIM_ELOAD, "'%s': brim does not know the general.architecture '%.100s'\nit knows: %s",
                     brim_gguf_path(r.file), architecture, known);
  }
  brim_yaml *classes = brim_yaml_list(r.arena, origin_of(&r, "general.architecture"));
  brim_yaml_append(r.arena, classes, brim_yaml_scalar(r.arena, brim_gguf_models[m].class_name, classes->origin));
  brim_yaml_set(r.arena, r.out, "architectures", classes);
  put(&r, r.out, "model_type", brim_gguf_models[m].model_type, true, "general.architecture");
  for (size_t i = 0; brim_gguf_rows[i].key; i++) {
    const brim_gguf_value *v = brim_gguf_find_own(r.file, brim_gguf_rows[i].key);
    if (v) put_value(&r, r.out, brim_gguf_rows[i].config, v);
  }
  put_sizes(&r);
  put_kv_heads(&r);
  put_switches(&r);
  BRIM_TRY(put_scaling(&r));
  for (size_t i = 0; i < sizeof token_rows / sizeof token_rows[0]; i++) {
    const brim_gguf_value *v = brim_gguf_find(r.file, token_rows[i].key);
    if (v) put_value(&r, r.out, token_rows[i].config, v);
  }
  put(&r, r.out, "torch_dtype", "float32", true, "general.architecture");
  put_unknown(&r);
  return BRIM_OK;
}

/* Copies origins and texts, because the tree outlives the file. */
static void keep(brim_arena *arena, brim_yaml *node, const char *path)
{
  if (node->kind == BRIM_YAML_SCALAR) node->scalar = brim_arena_string(arena, node->scalar);
  node->origin.file = path;
  if (node->origin.text) node->origin.text = brim_arena_string(arena, node->origin.text);
  for (size_t i = 0; i < node->count; i++) {
    if (node->kind == BRIM_YAML_MAP) node->key[i] = brim_arena_string(arena, node->key[i]);
    keep(arena, node->item[i], path);
  }
}

brim_status brim_gguf_config(brim_arena *arena, const char *path, brim_yaml **out)
{
  brim_gguf *file = NULL;
  BRIM_TRY(brim_gguf_open(path, &file));
  const brim_status status = brim_gguf_config_of(arena, file, out);
  if (status == BRIM_OK) keep(arena, *out, brim_arena_string(arena, path));
  brim_gguf_close(file);
  return status;
}
