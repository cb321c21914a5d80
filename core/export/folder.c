/* Writes a folder in Hugging Face's format: config.json, weights, tokenizer, chat template. See base.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "export/base.h"
#include "store/gguf_tokenizer.h"
#include "store/rundir.h"

/* Files of the base that do not depend on the weights. */
static const char *const copied[] = {"generation_config.json",
                                     "tokenizer.json",
                                     "tokenizer_config.json",
                                     "special_tokens_map.json",
                                     "added_tokens.json",
                                     "vocab.json",
                                     "merges.txt",
                                     "tokenizer.model",
                                     "chat_template.jinja",
                                     "chat_template.json"};
#define COPIED (sizeof copied / sizeof copied[0])
#define WEIGHTS "model.safetensors"

/* ---- config.json ---- */

static const char *dtype_word(uint32_t dtype)
{
  return dtype == BRIM_DTYPE_BF16  ? "bfloat16"
         : dtype == BRIM_DTYPE_F16 ? "float16"
         : dtype == BRIM_DTYPE_F64 ? "float64"
                                   : "float32";
}

/* Sets the keys that training changes: the type of the values, and the number of tokens. */
static void change_config(const brim_export_model *m, json_t *config)
{
  const char *key = json_object_get(config, "dtype") ? "dtype" : "torch_dtype";
  const brim_safetensor *table = NULL;
  for (size_t i = 0; i < m->parameters->count; i++)
    if (strcmp(m->parameters->tensor[i].name, "model.embed_tokens.weight") == 0) table = &m->parameters->tensor[i];
  const uint32_t dtype = m->dtype ? m->dtype : table ? table->dtype : BRIM_DTYPE_F32;
  json_object_set_new(config, key, json_string(dtype_word(dtype)));
  json_object_del(config, "quantization_config");
  if (table && json_object_get(config, "vocab_size"))
    json_object_set_new(config, "vocab_size", json_integer((json_int_t)table->shape.dim[0]));
}

/* Returns JSON with the fewest digits that keep all numbers. The caller frees it. */
static char *dump(const json_t *value)
{
  char *text = NULL;
  for (size_t digits = 15; digits <= 17; digits++) {
    free(text);
    text = json_dumps(value, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(digits));
    json_t *again = text ? json_loads(text, 0, NULL) : NULL;
    const bool same = again && json_equal(again, value);
    json_decref(again);
    if (same) break;
  }
  return text;
}

static brim_status write_json(const char *folder, const char *name, const json_t *value)
{
  char path[BRIM_PATH_MAX];
  json_error_t error;
  BRIM_TRY(brim_path_join(path, folder, name));
  char *dumped = dump(value);
  if (!dumped) return brim_fail(BRIM_EINTERNAL, "cannot format '%s'", path);
  brim_text text = {0};
  brim_text_printf(&text, "%s\n", dumped);
  free(dumped);
  brim_status status = brim_file_write(path, brim_text_str(&text), text.length);
  brim_text_release(&text);
  BRIM_TRY(status);
  json_t *again = json_load_file(path, 0, &error);
  if (!again || !json_equal(again, value))
    status = brim_fail(BRIM_EINTERNAL, "'%s' has other values when it is read again", path);
  json_decref(again);
  return status;
}

/* ---- the other files ---- */

static brim_status copy_one(const char *from_folder, const char *to_folder, const char *name)
{
  char from[BRIM_PATH_MAX], to[BRIM_PATH_MAX];
  uint64_t bytes[2], hash[2];
  BRIM_TRY(brim_path_join(from, from_folder, name));
  if (access(from, F_OK) != 0) return BRIM_OK;
  BRIM_TRY(brim_path_join(to, to_folder, name));
  BRIM_TRY(brim_file_copy(from, to));
  BRIM_TRY(brim_file_xxh64(from, &bytes[0], &hash[0]));
  BRIM_TRY(brim_file_xxh64(to, &bytes[1], &hash[1]));
  if (bytes[0] == bytes[1] && hash[0] == hash[1]) return BRIM_OK;
  return brim_fail(BRIM_EINTERNAL, "'%s' differs from '%s', of which it is a copy", to, from);
}

static brim_status write_text(const char *folder, const char *name, const brim_text *text)
{
  char path[BRIM_PATH_MAX];
  BRIM_TRY(brim_path_join(path, folder, name));
  return brim_file_write(path, brim_text_str(text), text->length);
}

/* Writes the files that a GGUF file's metadata correspond to. */
static brim_status write_from_gguf(const brim_export_base *b, const char *folder)
{
  static const char *const ids[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
  brim_text text[2] = {{0}, {0}};
  brim_status status = brim_gguf_tokenizer_text(b->gguf, &text[0], &text[1]);
  if (status == BRIM_OK) status = write_text(folder, "tokenizer.json", &text[0]);
  if (status == BRIM_OK) status = write_text(folder, "tokenizer_config.json", &text[1]);
  brim_text_release(&text[0]);
  brim_text_release(&text[1]);
  BRIM_TRY(status);
  json_t *generation = json_object();
  for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
    if (json_object_get(b->config, ids[i])) json_object_set(generation, ids[i], json_object_get(b->config, ids[i]));
  status = write_json(folder, "generation_config.json", generation);
  json_decref(generation);
  return status;
}

static brim_status write_files(const brim_export_model *m, brim_export_base *b, const char *folder)
{
  char path[BRIM_PATH_MAX];
  change_config(m, b->config);
  BRIM_TRY(write_json(folder, "config.json", b->config));
  if (b->gguf) BRIM_TRY(write_from_gguf(b, folder));
  for (size_t i = 0; i < COPIED && !b->gguf; i++) BRIM_TRY(copy_one(b->path, folder, copied[i]));
  BRIM_TRY(brim_path_join(path, folder, WEIGHTS));
  BRIM_TRY(brim_export_write(m->parameters, m->map, m->dtype, m->data, path));
  return brim_export_check(m, path);
}

/* ---- the folder ---- */

/* Replaces an old folder by the complete one. Moves the old one away first, so a kill leaves one of the two. */
static brim_status replace(const char *aside, const char *path, const char *parent)
{
  char old[BRIM_PATH_MAX];
  if (!brim_is_folder(path)) return brim_file_publish(aside, path, parent);
  if (snprintf(old, sizeof old, "%s.old", aside) >= (int)sizeof old)
    return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", path);
  (void)brim_folder_remove(old);
  if (rename(path, old) != 0) return brim_fail(BRIM_EIO, "cannot move '%s' away: %s", path, strerror(errno));
  const brim_status status = brim_file_publish(aside, path, parent);
  if (status != BRIM_OK && rename(old, path) != 0)
    brim_fail_add(status, "the folder that was there is now '%s'", old);
  else
    (void)brim_folder_remove(old);
  return status;
}

brim_status brim_export_write_folder(const brim_export_model *m, brim_export_base *b, const char *path)
{
  char parent[BRIM_PATH_MAX], aside[BRIM_PATH_MAX];
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  path = brim_arena_string_n(&b->arena, path, length);
  BRIM_TRY(brim_path_aside(path, parent, aside));
  (void)brim_folder_remove(aside); /* left by a killed process; if it cannot be removed, mkdir fails */
  if (mkdir(aside, 0777) != 0) return brim_fail(BRIM_EIO, "cannot make the folder '%s': %s", aside, strerror(errno));
  brim_status status = write_files(m, b, aside);
  if (status == BRIM_OK) status = brim_folder_sync(aside);
  if (status == BRIM_OK) status = replace(aside, path, parent);
  if (status != BRIM_OK) (void)brim_folder_remove(aside);
  return status;
}
