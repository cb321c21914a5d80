/* Converts config.json to metadata. See gguf_config.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "config/gguf_config_parts.h"

const char *brim_gguf_architecture_of(const char *model_type)
{
  for (size_t i = 0; brim_gguf_models[i].architecture; i++)
    if (strcmp(brim_gguf_models[i].model_type, model_type) == 0) return brim_gguf_models[i].architecture;
  return NULL;
}

static brim_status refuse(const brim_yaml *node, const char *key)
{
  brim_text place = {0};
  brim_yaml_print_origin(&node->origin, &place);
  const brim_status status =
      brim_fail(BRIM_ECONFIG, "GGUF cannot express '%s' of config.json\n%s", key, brim_text_str(&place));
  brim_text_release(&place);
  return status;
}

static brim_status put_row(const brim_gguf_row *w, const char *architecture, const brim_yaml *node,
                           brim_gguf_head *head)
{
  char key[200], *end = NULL;
  if (!node || brim_yaml_is_null(node)) return BRIM_OK;
  if (node->kind != BRIM_YAML_SCALAR) return refuse(node, w->config);
  snprintf(key, sizeof key, "%s.%s", architecture, w->key);
  const double value = strtod(node->scalar, &end);
  if (w->kind == BRIM_GGUF_TEXT)
    brim_gguf_put_text(head, key, node->scalar, strlen(node->scalar));
  else if (*end || !isfinite(value) ||
           (w->kind == BRIM_GGUF_U32 && (value < 0 || value > UINT32_MAX || value != floor(value))))
    return refuse(node, w->config);
  else if (w->kind == BRIM_GGUF_U32)
    brim_gguf_put_u32(head, key, (uint32_t)value);
  else
    brim_gguf_put_f32(head, key, (float)value);
  return BRIM_OK;
}

static double number_of(const brim_yaml *config, const char *key, double otherwise)
{
  const brim_yaml *node = brim_yaml_get(config, key);
  return node && node->kind == BRIM_YAML_SCALAR && !brim_yaml_is_null(node) ? strtod(node->scalar, NULL) : otherwise;
}

/* In version 5 of transformers, rope_parameters contains everything about the rotary embedding. */
const brim_yaml *brim_gguf_find_rope(const brim_yaml *config, const char *key)
{
  const brim_yaml *now = brim_yaml_get(config, "rope_parameters"), *old = brim_yaml_get(config, "rope_scaling");
  const brim_yaml *full = now && now->kind == BRIM_YAML_MAP ? brim_yaml_get(now, "full_attention") : NULL;
  if (full && full->kind == BRIM_YAML_MAP) now = full;
  const brim_yaml *node = now && now->kind == BRIM_YAML_MAP ? brim_yaml_get(now, key) : NULL;
  if (!node && old && old->kind == BRIM_YAML_MAP) node = brim_yaml_get(old, key);
  if (!node && old && old->kind == BRIM_YAML_MAP && strcmp(key, "rope_type") == 0) node = brim_yaml_get(old, "type");
  if (!node && strcmp(key, "rope_theta") == 0) node = brim_yaml_get(config, key);
  return node;
}

static double rope_number(const brim_yaml *config, const char *key, double otherwise)
{
  const brim_yaml *node = brim_gguf_find_rope(config, key);
  return node && node->kind == BRIM_YAML_SCALAR && !brim_yaml_is_null(node) ? strtod(node->scalar, NULL) : otherwise;
}

/* Adds longrope's factors as tensors. transformers computes the amplitude if config.json has none; llama.cpp does
 * not. */
static brim_status put_longrope(const brim_yaml *config, const char *architecture, brim_gguf_head *head)
{
  char key[200];
  const double most = number_of(config, "max_position_embeddings", 0);
  const double original = rope_number(config, "original_max_position_embeddings",
                                      number_of(config, "original_max_position_embeddings", most));
  const double factor = rope_number(config, "factor", original > 0 ? most / original : 1);
  const double amplitude =
      rope_number(config, "attention_factor", factor > 1 ? sqrt(1 + log(factor) / log(original)) : 1);
  snprintf(key, sizeof key, "%s.rope.scaling.attn_factor", architecture);
  brim_gguf_put_f32(head, key, (float)amplitude);
  if (strcmp(architecture, "phi3") == 0) return BRIM_OK; /* phi3's key for the original length is already written */
  snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", architecture);
  brim_gguf_put_u32(head, key, (uint32_t)original);
  return BRIM_OK;
}

/* llama.cpp has the usual amplitude of yarn in its program, which these two keys replace. */
static brim_status check_mscale(const brim_yaml *config)
{
  const brim_yaml *mscale = brim_gguf_find_rope(config, "mscale");
  const bool counts = rope_number(config, "mscale", 0) != 0 && rope_number(config, "mscale_all_dim", 0) != 0;
  return counts && rope_number(config, "attention_factor", 0) == 0 ? refuse(mscale, "mscale") : BRIM_OK;
}

static brim_status put_rope(const brim_yaml *config, const char *architecture, brim_gguf_head *head)
{
  const brim_yaml *type = brim_gguf_find_rope(config, "rope_type");
  const char *name = type && type->kind == BRIM_YAML_SCALAR ? type->scalar : "default";
  if (strcmp(name, "default") == 0) return BRIM_OK;
  if (strcmp(name, "llama3") == 0) { /* its divisors are a tensor */
    for (size_t i = 0; i < BRIM_GGUF_LLAMA3_ROWS; i++)
      brim_gguf_put_f32(head, brim_gguf_llama3_rows[i].key,
                        (float)rope_number(config, brim_gguf_llama3_rows[i].config, brim_gguf_llama3_rows[i].usual));
    return BRIM_OK;
  }
  if (strcmp(name, "longrope") == 0) return put_longrope(config, architecture, head);
  if (strcmp(name, "linear") != 0 && strcmp(name, "yarn") != 0) return refuse(type, "rope_type");
  if (strcmp(name, "yarn") == 0) BRIM_TRY(check_mscale(config));
  for (size_t i = 0; brim_gguf_scaling_rows[i].key; i++)
    BRIM_TRY(put_row(&brim_gguf_scaling_rows[i], architecture,
                     brim_gguf_find_rope(config, brim_gguf_scaling_rows[i].config), head));
  return BRIM_OK;
}

/* Adds the number of heads of keys and values. If config.json lacks it, transformers assumes other numbers in some
 * families. */
static brim_status put_kv_heads(const brim_yaml *config, const char *type, const char *architecture,
                                brim_gguf_head *head)
{
  static const char key[] = "attention.head_count_kv", *const as_queries[] = {"llama", "phi3", "olmo2", "granite"};
  char name[200];
  bool is_known = brim_yaml_get(config, "num_key_value_heads") != NULL;
  for (size_t i = 0; i < sizeof as_queries / sizeof as_queries[0]; i++)
    is_known = is_known || strcmp(as_queries[i], type) == 0;
  if (!is_known)
    return brim_fail(BRIM_ECONFIG, "config.json of the type %s needs 'num_key_value_heads' for an export to GGUF",
                     type);
  snprintf(name, sizeof name, "%s.%s", architecture, key);
  brim_gguf_put_u32(head, name, (uint32_t)brim_gguf_config_heads(config, key));
  return BRIM_OK;
}

static double head_size_of(const brim_yaml *config)
{
  const double width = number_of(config, "hidden_size", 0), heads = number_of(config, "num_attention_heads", 1);
  return number_of(config, "head_dim", heads > 0 ? width / heads : 0);
}

/* Adds the size of a head, of which all or a part is rotated. */
static void put_head_size(const brim_yaml *config, const char *architecture, brim_gguf_head *head)
{
  char key[200];
  const double size = head_size_of(config);
  snprintf(key, sizeof key, "%s.attention.key_length", architecture);
  brim_gguf_put_u32(head, key, (uint32_t)size);
  snprintf(key, sizeof key, "%s.attention.value_length", architecture);
  brim_gguf_put_u32(head, key, (uint32_t)size);
  snprintf(key, sizeof key, "%s.rope.dimension_count", architecture);
  brim_gguf_put_u32(head, key,
                    (uint32_t)lround(size * number_of(config, "partial_rotary_factor",
                                                      rope_number(config, "partial_rotary_factor", 1))));
  snprintf(key, sizeof key, "%s.vocab_size", architecture);
  brim_gguf_put_u32(head, key, (uint32_t)number_of(config, "vocab_size", 0));
}

/* Whether the layers of an architecture may have a sliding window in llama.cpp. */
static bool has_window(const char *architecture)
{
  return brim_starts_with(architecture, "gemma") || strcmp(architecture, "phi3") == 0;
}

/* Whether llama.cpp and brim take a number for the key if a GGUF file lacks it, so that such a file cannot express
 * null. */
static bool has_default(const char *architecture, const char *key)
{
  const bool is_gemma2 = strcmp(architecture, "gemma2") == 0, is_gemma3 = strcmp(architecture, "gemma3") == 0;
  if (strcmp(key, "sliding_window") == 0) return is_gemma2 || is_gemma3;
  return is_gemma2 && brim_ends_with(key, "_logit_softcapping");
}

/* Returns the value of a key, which version 5 of transformers stores elsewhere. */
static const brim_yaml *find_value(const brim_yaml *config, const char *key)
{
  if (strcmp(key, "rope_theta") == 0) return brim_gguf_find_rope(config, key);
  const brim_yaml *node = brim_yaml_get(config, key);
  if (node) return node;
  if (strcmp(key, "sliding_window_pattern") == 0) return brim_yaml_get(config, "_sliding_window_pattern");
  if (strcmp(key, "rope_local_base_freq") == 0)
    return brim_yaml_get_path(config, "rope_parameters.sliding_attention.rope_theta");
  return NULL;
}

/* Checks the pattern of layers with a window, because llama.cpp has Gemma's pattern in its program. */
static brim_status check_layer_types(const brim_yaml *config, const char *architecture)
{
  const size_t pattern = strcmp(architecture, "gemma2") == 0 ? 2 : strcmp(architecture, "gemma3") == 0 ? 6 : 0;
  const brim_yaml *list = brim_yaml_get(config, "layer_types");
  const brim_yaml *number = find_value(config, "sliding_window_pattern");
  if (pattern > 0 && !list && number && number->kind == BRIM_YAML_SCALAR &&
      strtod(number->scalar, NULL) != (double)pattern)
    return refuse(number, "sliding_window_pattern");
  for (size_t i = 0; pattern > 0 && list && list->kind == BRIM_YAML_LIST && i < list->count; i++) {
    const char *want = (i + 1) % pattern == 0 ? "full_attention" : "sliding_attention";
    if (list->item[i]->kind != BRIM_YAML_SCALAR || strcmp(list->item[i]->scalar, want) != 0)
      return refuse(list->item[i], "layer_types");
  }
  return BRIM_OK;
}

/* llama.cpp has the activation of each architecture in its program: silu, but gelu for Gemma. */
static brim_status check_activation(const brim_yaml *config, const char *architecture)
{
  const brim_yaml *node = brim_yaml_get(config, "hidden_act");
  if (!node || brim_yaml_is_null(node) || brim_starts_with(architecture, "gemma")) return BRIM_OK;
  const bool is_silu =
      node->kind == BRIM_YAML_SCALAR && (strcmp(node->scalar, "silu") == 0 || strcmp(node->scalar, "swish") == 0);
  return is_silu ? BRIM_OK : refuse(node, "hidden_act");
}

brim_status brim_gguf_put_config(const brim_yaml *config, brim_gguf_head *head)
{
  const brim_yaml *type = brim_yaml_get(config, "model_type");
  const char *architecture = type && type->kind == BRIM_YAML_SCALAR ? brim_gguf_architecture_of(type->scalar) : NULL;
  if (!type) return brim_fail(BRIM_ECONFIG, "config.json has no model_type");
  if (!architecture) return refuse(type, "model_type");
  const brim_yaml *window = brim_yaml_get(config, "sliding_window");
  const brim_yaml *uses_window = brim_yaml_get(config, "use_sliding_window"); /* of Qwen */
  if (strcmp(type->scalar, "mistral") == 0 && window && !brim_yaml_is_null(window))
    return refuse(window, "sliding_window");
  if (uses_window && uses_window->kind == BRIM_YAML_SCALAR && strcmp(uses_window->scalar, "true") == 0)
    return refuse(uses_window, "use_sliding_window");
  BRIM_TRY(check_layer_types(config, architecture));
  BRIM_TRY(check_activation(config, architecture));
  brim_gguf_put_text(head, "general.architecture", architecture, strlen(architecture));
  for (size_t i = 0; brim_gguf_rows[i].key; i++) {
    if (strcmp(brim_gguf_rows[i].config, "sliding_window") == 0 && !has_window(architecture)) continue;
    if (strcmp(brim_gguf_rows[i].config, "sliding_window_pattern") == 0) continue; /* see check_layer_types */
    if (strcmp(brim_gguf_rows[i].config, "num_key_value_heads") == 0) continue;    /* see put_kv_heads */
    const brim_yaml *value = find_value(config, brim_gguf_rows[i].config);
    if (value && brim_yaml_is_null(value) && has_default(architecture, brim_gguf_rows[i].config))
      return refuse(value, brim_gguf_rows[i].config);
    BRIM_TRY(put_row(&brim_gguf_rows[i], architecture, value, head));
  }
  put_head_size(config, architecture, head);
  BRIM_TRY(put_kv_heads(config, type->scalar, architecture, head));
  static const brim_gguf_row original = {"rope.scaling.original_context_length", "original_max_position_embeddings",
                                         BRIM_GGUF_U32};
  if (strcmp(architecture, "phi3") == 0)
    BRIM_TRY(put_row(&original, architecture, brim_yaml_get(config, original.config), head));
  return put_rope(config, architecture, head);
}

int64_t brim_gguf_config_heads(const brim_yaml *config, const char *key)
{
  const double heads = number_of(config, "num_attention_heads", 0);
  return (int64_t)(strcmp(key, "attention.head_count") == 0 ? heads : number_of(config, "num_key_value_heads", heads));
}

static brim_status read_llama3(const brim_yaml *config, const brim_yaml *type, brim_arena *arena,
                               brim_gguf_factors *out)
{
  const double size = head_size_of(config), factor = rope_number(config, "factor", 8);
  const double low = rope_number(config, "low_freq_factor", 1), high = rope_number(config, "high_freq_factor", 4);
  const double original = rope_number(config, "original_max_position_embeddings", 8192);
  if (!(size >= 2 && size <= BRIM_GGUF_FACTOR_MAX && high > low && low > 0)) return refuse(type, "rope_type");
  const int64_t count = (int64_t)size / 2;
  float *value = BRIM_ARENA_NEW(arena, float, count);
  for (int64_t i = 0; i < count; i++)
    value[i] = (float)brim_gguf_llama3_divisor(factor, low, high, original, rope_number(config, "rope_theta", 10000), i,
                                               2 * count);
  *out = (brim_gguf_factors){"rope_freqs.weight", value, count};
  return BRIM_OK;
}

static brim_status read_list(const brim_yaml *config, const brim_yaml *type, const char *key, const char *name,
                             brim_arena *arena, brim_gguf_factors *out)
{
  const brim_yaml *list = brim_gguf_find_rope(config, key);
  if (!list || list->kind != BRIM_YAML_LIST || list->count == 0) return refuse(type, "rope_type");
  float *value = BRIM_ARENA_NEW(arena, float, list->count);
  for (size_t i = 0; i < list->count; i++) {
    char *end = NULL;
    if (list->item[i]->kind == BRIM_YAML_SCALAR) value[i] = strtof(list->item[i]->scalar, &end);
    if (!end || *end || !(value[i] > 0)) return refuse(list->item[i], key);
  }
  *out = (brim_gguf_factors){name, value, (int64_t)list->count};
  return BRIM_OK;
}

brim_status brim_gguf_read_factors(const brim_yaml *config, brim_arena *arena,
                                   brim_gguf_factors out[BRIM_GGUF_FACTORS_MAX], size_t *count)
{
  const brim_yaml *type = brim_gguf_find_rope(config, "rope_type");
  const char *name = type && type->kind == BRIM_YAML_SCALAR ? type->scalar : "default";
  *count = 0;
  if (strcmp(name, "llama3") == 0) {
    *count = 1;
    return read_llama3(config, type, arena, &out[0]);
  }
  if (strcmp(name, "longrope") != 0) return BRIM_OK;
  *count = 2;
  BRIM_TRY(read_list(config, type, "long_factor", "rope_factors_long.weight", arena, &out[0]));
  return read_list(config, type, "short_factor", "rope_factors_short.weight", arena, &out[1]);
}
