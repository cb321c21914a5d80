/* Opens the model that a run began with. See base.h. */
#include "export/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "config/gguf_config.h"
#include "param/json.h"
#include "store/gguf_tokenizer.h"

/* ---- GGUF ---- */

static json_t *json_of(const brim_yaml *node)
{
  if (node->kind == BRIM_YAML_SCALAR && node->quoted) return json_string(node->scalar);
  if (node->kind == BRIM_YAML_SCALAR) {
    json_t *value = json_loads(node->scalar, JSON_DECODE_ANY, NULL);
    return value ? value : json_string(node->scalar);
  }
  json_t *out = node->kind == BRIM_YAML_MAP ? json_object() : json_array();
  for (size_t i = 0; i < node->count; i++) {
    if (node->kind == BRIM_YAML_MAP)
      json_object_set_new(out, node->key[i], json_of(node->item[i]));
    else
      json_array_append_new(out, json_of(node->item[i]));
  }
  return out;
}

static brim_status parse_text(const brim_export_base *b, const brim_text *text, json_t **out)
{
  json_error_t error;
  *out = json_loadb(brim_text_str(text), text->length, 0, &error);
  return *out ? BRIM_OK : brim_fail(BRIM_ELOAD, "'%s': its tokenizer: %s", b->path, error.text);
}

static brim_status open_gguf(brim_export_base *b)
{
  brim_text text[2] = {{0}, {0}};
  BRIM_TRY(brim_gguf_open(b->path, &b->gguf));
  BRIM_TRY(brim_gguf_config_of(&b->arena, b->gguf, &b->tree));
  b->config = json_of(b->tree);
  brim_status status = brim_gguf_tokenizer_text(b->gguf, &text[0], &text[1]);
  if (status == BRIM_OK) status = parse_text(b, &text[0], &b->tokenizer);
  if (status == BRIM_OK) status = parse_text(b, &text[1], &b->about);
  brim_text_release(&text[0]);
  brim_text_release(&text[1]);
  b->chat_template = json_string_value(json_object_get(b->about, "chat_template"));
  return status;
}

/* ---- folders ---- */

static brim_status load(const brim_export_base *b, const char *name, bool needed, json_t **out)
{
  char path[BRIM_PATH_MAX];
  json_error_t error;
  BRIM_TRY(brim_path_join(path, b->path, name));
  if (!needed && access(path, F_OK) != 0) return BRIM_OK;
  /* model_max_length is often 1e30, written as an integer, which only this flag can read */
  const size_t flags = strcmp(name, "tokenizer_config.json") == 0 ? JSON_DECODE_INT_AS_REAL : 0;
  *out = json_load_file(path, flags | JSON_ALLOW_NUL, &error);
  if (*out) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "cannot read '%s': line %d: %s", path, error.line, error.text);
}

static brim_status load_template(brim_export_base *b)
{
  char path[BRIM_PATH_MAX];
  BRIM_TRY(brim_path_join(path, b->path, "chat_template.jinja"));
  b->chat_template = json_string_value(json_object_get(b->about, "chat_template"));
  FILE *file = brim_fopen_to_read(path);
  brim_text text = {0};
  char part[4096];
  if (!file) return BRIM_OK;
  for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) brim_text_add_n(&text, part, n);
  fclose(file);
  b->chat_template = brim_arena_string(&b->arena, brim_text_str(&text));
  brim_text_release(&text);
  return BRIM_OK;
}

/* If a model also accepts images, only its language model is exported, whose configuration is an inner map. */
static void go_inside(brim_export_base *b)
{
  json_t *inner = json_object_get(b->config, "text_config");
  const char *type = json_string_value(json_object_get(b->config, "model_type"));
  const brim_yaml *tree = brim_yaml_get(b->tree, "text_config");
  if (!type || strcmp(type, "gemma3") != 0 || !json_is_object(inner) || !tree) return;
  json_t *config = json_deep_copy(inner);
  json_object_set_new(config, "architectures", json_pack("[s]", "Gemma3ForCausalLM"));
  json_object_set_new(config, "model_type", json_string("gemma3_text"));
  json_object_update_missing(config, b->config);
  static const char *const others[] = {"text_config",     "vision_config",     "boi_token_index",
                                       "eoi_token_index", "image_token_index", "mm_tokens_per_image"};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) json_object_del(config, others[i]);
  json_decref(b->config);
  b->config = config;
  b->tree = brim_yaml_clone(&b->arena, tree);
  brim_yaml_set(&b->arena, b->tree, "model_type", brim_yaml_scalar(&b->arena, "gemma3_text", tree->origin));
}

static brim_status open_folder(brim_export_base *b)
{
  char path[BRIM_PATH_MAX];
  const char *slash = strrchr(b->path, '/');
  if (!brim_is_folder(b->path))
    b->path = slash ? brim_arena_string_n(&b->arena, b->path, (size_t)(slash - b->path) + 1) : ".";
  BRIM_TRY(brim_path_join(path, b->path, "config.json"));
  if (access(path, F_OK) != 0)
    return brim_fail(BRIM_ECONFIG,
                     "no config.json in '%s'; an export copies from it the keys that brim does not change\nset "
                     "model.weights to the folder or the GGUF file that the run began with",
                     b->path);
  BRIM_TRY(load(b, "config.json", true, &b->config));
  BRIM_TRY(brim_json_parse_file(&b->arena, path, &b->tree));
  go_inside(b);
  BRIM_TRY(load(b, "tokenizer.json", false, &b->tokenizer));
  BRIM_TRY(load(b, "tokenizer_config.json", false, &b->about));
  return load_template(b);
}

brim_status brim_export_base_open(const char *path, brim_export_base *out)
{
  *out = (brim_export_base){0};
  out->path = brim_arena_string(&out->arena, path);
  const brim_status status = brim_is_gguf(path) ? open_gguf(out) : open_folder(out);
  if (status != BRIM_OK) brim_export_base_close(out);
  return status;
}

void brim_export_base_close(brim_export_base *b)
{
  brim_gguf_close(b->gguf);
  json_decref(b->config);
  json_decref(b->tokenizer);
  json_decref(b->about);
  brim_arena_release(&b->arena);
  *b = (brim_export_base){0};
}
