/* See generate_model.h. */
#include "cli/generate_model.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/run_folder.h"
#include "store/rundir.h"

/* ---- finding it ---- */

static bool has_file(const char *folder, const char *name)
{
  char path[4096];
  const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
  return length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0;
}

/* Whether the path is a model without a run. A run's folder may have a config.json, but it also has a config.yaml. */
static bool is_model(const char *path)
{
  struct stat info;
  const bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
  if (is_folder) return has_file(path, "config.json") && !has_file(path, "config.yaml");
  return brim_ends_with(path, ".gguf");
}

/* Explains a path that is neither a run nor a model. */
static brim_status check_path(const char *path)
{
  struct stat info;
  if (stat(path, &info) != 0) return brim_fail(BRIM_ELOAD, "there is no run or model '%s': %s", path, strerror(errno));
  if (!S_ISDIR(info.st_mode) || has_file(path, "config.yaml") || has_file(path, "config.json")) return BRIM_OK;
  if (has_file(path, BRIM_RUN_LOCK_NAME)) return BRIM_OK; /* the folder of a run that ended early */
  return brim_fail(BRIM_ELOAD,
                   "'%s' is neither the folder of a run, which has config.yaml, nor that of a model from Hugging Face, "
                   "which has config.json",
                   path);
}

/* Makes the configuration of a model: its network, its tokenizer, and the longest samples that it allows. The data is
 * never read, so its path does not matter. */
static brim_status configure_model(const brim_cli *cli, const brim_operands *o, brim_generate_model *m)
{
  static const char *const keys[] = {"model=hf",
                                     "model.weights=",
                                     "dataset=text",
                                     "dataset.tokens=hf",
                                     "dataset.tokenizer=",
                                     "dataset.path=",
                                     "dataset.context=${model.context}"};
  enum { KEYS = sizeof keys / sizeof keys[0] };
  brim_arena arena = {0};
  const size_t count = KEYS + o->count - 1;
  const char **word = BRIM_ARENA_NEW(&arena, const char *, count);
  int *number = BRIM_ARENA_NEW(&arena, int, count);
  for (size_t i = 0; i < KEYS; i++) {
    word[i] = brim_ends_with(keys[i], "=") ? brim_arena_printf(&arena, "%s%s", keys[i], m->path) : keys[i];
    number[i] = o->number[0];
  }
  for (size_t i = 1; i < o->count; i++) {
    word[KEYS + i - 1] = o->word[i];
    number[KEYS + i - 1] = o->number[i];
  }
  const brim_status status = brim_cli_config(cli, NULL, word, number, count, &m->config);
  brim_arena_release(&arena);
  return status;
}

brim_status brim_generate_model_open(const brim_cli *cli, const brim_operands *o, const char *which,
                                     brim_generate_model *out)
{
  out->path = o->word[0];
  BRIM_TRY(check_path(out->path));
  if (!is_model(out->path)) {
    char file[4096];
    out->run = out->path;
    BRIM_TRY(brim_cli_run_config(cli, out->run, file, sizeof file));
    BRIM_TRY(brim_cli_run_checkpoint(out->run, which, out->checkpoint, sizeof out->checkpoint));
    BRIM_TRY(brim_cli_config(cli, file, o->word + 1, o->number + 1, o->count - 1, &out->config));
    return brim_cli_refuse_weights(out->run, out->config, o->word + 1, o->count - 1);
  }
  if (which) return brim_fail(BRIM_ECONFIG, "--checkpoint is for runs, but '%s' is a model", out->path);
  return configure_model(cli, o, out);
}

void brim_generate_model_close(brim_generate_model *m)
{
  brim_config_free(m->config);
  m->config = NULL;
}

/* ---- generation_config.json ---- */

typedef struct reading {
  const char *path;
  const json_t *root;
} reading;

/* Reads a number in [least, most], unless the file lacks it or has null. */
static brim_status read_number(const reading *r, const char *key, double least, double most, double *out)
{
  const json_t *value = json_object_get(r->root, key);
  if (!value || json_is_null(value)) return BRIM_OK;
  if (!json_is_number(value) || !(json_number_value(value) >= least && json_number_value(value) <= most))
    return brim_fail(BRIM_ELOAD, "%s: %s must be a number in [%g,%g]", r->path, key, least, most);
  *out = json_number_value(value);
  return BRIM_OK;
}

/* As in transformers: without do_sample, the most probable token is chosen. */
static brim_status read_sampling(const reading *r, brim_sampling *out)
{
  const json_t *samples = json_object_get(r->root, "do_sample");
  double top_k = 50; /* the default of transformers */
  BRIM_TRY(read_number(r, "repetition_penalty", 1e-3, 1000, &out->repetition_penalty));
  if (samples && !json_is_boolean(samples) && !json_is_null(samples))
    return brim_fail(BRIM_ELOAD, "%s: do_sample must be true or false", r->path);
  if (!json_is_true(samples)) {
    out->temperature = 0;
    return BRIM_OK;
  }
  out->temperature = 1;
  BRIM_TRY(read_number(r, "temperature", 0, 1000, &out->temperature));
  BRIM_TRY(read_number(r, "top_p", 1e-9, 1, &out->top_p));
  BRIM_TRY(read_number(r, "top_k", 0, INT32_MAX, &top_k));
  out->top_k = (int64_t)top_k;
  return BRIM_OK;
}

static brim_status add_stop(const reading *r, const json_t *value, brim_stops *out)
{
  if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > INT32_MAX)
    return brim_fail(BRIM_ELOAD, "%s: eos_token_id must be the number of a token, or a list of them", r->path);
  if (out->count == BRIM_STOPS_MAX)
    return brim_fail(BRIM_ELOAD, "%s: eos_token_id has more than %d tokens", r->path, BRIM_STOPS_MAX);
  out->token[out->count++] = (int32_t)json_integer_value(value);
  return BRIM_OK;
}

static brim_status read_stops(const reading *r, brim_stops *out)
{
  const json_t *value = json_object_get(r->root, "eos_token_id");
  if (!value || json_is_null(value)) return BRIM_OK;
  if (!json_is_array(value)) return add_stop(r, value, out);
  for (size_t i = 0; i < json_array_size(value); i++) BRIM_TRY(add_stop(r, json_array_get(value, i), out));
  return BRIM_OK;
}

brim_status brim_generate_model_defaults(const brim_generate_model *m, brim_generate_options *out)
{
  char path[4096];
  json_error_t problem;
  const char *folder = m->config->settings.model.weights;
  const int length = snprintf(path, sizeof path, "%s/generation_config.json", folder);
  if (folder[0] && is_model(folder)) out->sampling.temperature = 0; /* the default of transformers */
  if (!folder[0] || length < 0 || (size_t)length >= sizeof path || access(path, F_OK) != 0) return BRIM_OK;
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &problem);
  if (!root) return brim_fail(BRIM_ELOAD, "%s:%d:%d: %s", path, problem.line, problem.column, problem.text);
  if (!json_is_object(root)) {
    json_decref(root);
    return brim_fail(BRIM_ELOAD, "%s:1:1: it must be an object", path);
  }
  const reading r = {path, root};
  brim_status status = read_sampling(&r, &out->sampling);
  if (status == BRIM_OK) status = read_stops(&r, &out->stops);
  json_decref(root);
  return status;
}
