/* brim export: writes a run's parameters to a file that other programs can read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/run_folder.h"
#include "drive/drive.h"
#include "export/base.h"
#include "export/export_config.h"
#include "export/merge.h"
#include "store/record.h"

#define DEFAULT_OUTPUT "model.safetensors"
#define PEFT "peft" /* a folder with the parameters trained on a frozen model */
#define PEFT_OUTPUT "adapter"
#define GGUF "gguf" /* a file with tokenizer and chat template */
#define GGUF_OUTPUT "model.gguf"
#define FOLDER_FORMAT "hf" /* a whole folder, unless the output is a .safetensors file */

/* The type of the values: `type` for a GGUF file, `dtype` for other files; dtype 0: the parameters' own type. */
typedef struct wanted_type {
  uint32_t dtype;
  const brim_gguf_type *type;
} wanted_type;

typedef struct export_wishes {
  const brim_cli *cli;
  const char *run, *which, *output, *format, *dtype; /* as the user typed them; which and dtype may be NULL */
  bool force, merge;
  const char *const
      *word; /* overrides of the run's configuration, and their positions, for a model that wraps another */
  const int *number;
  size_t words;
} export_wishes;

static bool is_peft(const export_wishes *w)
{
  return strcmp(w->format, PEFT) == 0;
}

static bool is_gguf(const export_wishes *w)
{
  return strcmp(w->format, GGUF) == 0;
}

static bool is_whole_folder(const export_wishes *w)
{
  return strcmp(w->format, FOLDER_FORMAT) == 0 && !brim_ends_with(w->output, ".safetensors");
}

/* Whether the export contains files of the model from which the run began. */
static bool needs_base(const export_wishes *w)
{
  return is_gguf(w) || is_whole_folder(w);
}

static brim_status parse_dtype(const export_wishes *w, wanted_type *out)
{
  static const struct {
    const char *name, *other, *gguf;
    uint32_t dtype;
  } types[] = {{"f32", "fp32", "F32", BRIM_DTYPE_F32},
               {"bf16", "bf16", "BF16", BRIM_DTYPE_BF16},
               {"f16", "fp16", "F16", BRIM_DTYPE_F16},
               {"q8_0", "Q8_0", "Q8_0", 0}};
  const char *word = w->dtype ? w->dtype : is_gguf(w) ? "f32" : NULL;
  *out = (wanted_type){0};
  for (size_t i = 0; word && i < sizeof types / sizeof types[0]; i++) {
    if (strcmp(word, types[i].name) != 0 && strcmp(word, types[i].other) != 0) continue;
    if (is_gguf(w)) out->type = brim_gguf_type_named(types[i].gguf);
    if (!is_gguf(w)) out->dtype = types[i].dtype;
  }
  if (!word || out->dtype || out->type) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "--dtype must be f32, bf16, f16 or, with --format gguf, q8_0; got '%s'", word);
}

static brim_status check_absent(const export_wishes *w, const char *path)
{
  if (w->force || access(path, F_OK) != 0) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "'%s' exists already\nname another file with -o FILE, or replace it with --force",
                   path);
}

/* Formats of whole models cannot express the parameters of low-rank updates or of a probe alone. */
static brim_status check_merge(const export_wishes *w, const brim_parameters *p)
{
  if (w->merge || is_peft(w) || !needs_base(w)) return BRIM_OK;
  for (size_t i = 0; i < p->count; i++)
    if (brim_ends_with(p->tensor[i].name, ".lora_A.weight"))
      return brim_fail(BRIM_ECONFIG,
                       "the run trained low-rank updates of a model, and --format %s is for whole models\n"
                       "--merge adds the updates to the model's weights; --format peft writes the updates alone",
                       w->format);
  return BRIM_OK;
}

static brim_status check_output(const export_wishes *w)
{
  if (is_peft(w) && (w->merge || w->dtype))
    return brim_fail(BRIM_ECONFIG, "--format peft writes the trained parameters in single precision: leave out %s",
                     w->merge ? "--merge" : "--dtype");
  if (is_gguf(w) && !brim_is_gguf(w->output))
    return brim_fail(BRIM_ECONFIG, "-o %s: the name of a GGUF file must end in .gguf", w->output);
  if (!is_peft(w) && !needs_base(w) && !brim_ends_with(w->output, ".safetensors"))
    return brim_fail(BRIM_ECONFIG,
                     "-o %s: with --format %s the file's name must end in .safetensors\nto write into a folder: -o "
                     "%s%smodel.safetensors",
                     w->output, w->format, w->output, brim_ends_with(w->output, "/") ? "" : "/");
  if (is_peft(w) && brim_ends_with(w->output, ".safetensors"))
    return brim_fail(BRIM_ECONFIG, "-o %s: --format peft writes a folder: give its name, without .safetensors",
                     w->output);
  BRIM_TRY(brim_cli_check_folder(w->output));
  if ((is_peft(w) || is_whole_folder(w)) && access(w->output, F_OK) == 0 && !brim_is_folder(w->output))
    return brim_fail(BRIM_ECONFIG, "-o %s is a file, but --format %s writes a folder: give another name", w->output,
                     w->format);
  if (!is_peft(w) && !is_whole_folder(w) && brim_is_folder(w->output))
    return brim_fail(BRIM_ECONFIG, "-o %s is a folder: name a file in it", w->output);
  return check_absent(w, w->output);
}

/* Writes the path of config.json, in the folder of the output file. */
static brim_status config_path(const export_wishes *w, char *path, size_t room)
{
  const char *slash = strrchr(w->output, '/');
  const int length = snprintf(path, room, "%.*sconfig.json", slash ? (int)(slash - w->output) + 1 : 0, w->output);
  if (length < 0 || (size_t)length >= room) return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", w->output);
  return check_absent(w, path);
}

/* Reads the run's stored description of its data, as a line of JSON; NULL: none. */
static brim_status read_data(const export_wishes *w, brim_arena *arena, const char **out)
{
  json_t *kept = NULL;
  *out = NULL;
  BRIM_TRY(brim_record_read(w->run, BRIM_SETUP_DATA_NAME, &kept));
  char *text = kept ? json_dumps(kept, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
  if (text) *out = brim_arena_string(arena, text);
  free(text);
  json_decref(kept);
  return BRIM_OK;
}

/* Finds the folder or the GGUF file from which the run began: in the last override, or else in the run's
 * configuration. */
static brim_status find_base(const export_wishes *w, brim_arena *arena, const char **out)
{
  static const char key[] = "model.weights=";
  char file[4096];
  brim_yaml *run;
  *out = NULL;
  BRIM_TRY(brim_cli_run_config(w->cli, w->run, file, sizeof file));
  BRIM_TRY(brim_yaml_parse_file(arena, file, &run));
  const brim_yaml *node = brim_yaml_get_path(run, "model.weights");
  if (node && node->kind == BRIM_YAML_SCALAR && !brim_yaml_is_null(node)) *out = node->scalar;
  for (size_t i = 0; i < w->words; i++)
    if (brim_starts_with(w->word[i], key)) *out = w->word[i] + strlen(key);
  if (*out && (*out)[0]) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG,
                   "--format %s takes configuration and tokenizer from the model that a run began with, but this run "
                   "began without one\nset model.weights=FOLDER to a folder with config.json and a tokenizer, or to a "
                   "GGUF file",
                   w->format);
}

/* Writes a whole folder, or a GGUF file. */
static brim_status write_with_base(const export_wishes *w, brim_export_model *model, brim_arena *arena)
{
  const char *path;
  brim_export_base base;
  BRIM_TRY(find_base(w, arena, &path));
  BRIM_TRY(brim_export_base_open(path, &base));
  const brim_status status =
      is_gguf(w) ? brim_export_write_gguf(model, &base, w->output) : brim_export_write_folder(model, &base, w->output);
  brim_export_base_close(&base);
  BRIM_TRY(status);
  brim_say("%zu tensors in %s, with configuration, tokenizer and chat template of %s; read again and compared: equal",
           model->parameters->count, w->output, path);
  return BRIM_OK;
}

static brim_status write_parameters(const brim_cli *cli, const export_wishes *w, const wanted_type *wanted,
                                    brim_arena *arena, const brim_parameters *p)
{
  const uint32_t dtype = wanted->dtype;
  brim_cli_search search;
  const brim_weights_map *map;
  brim_cli_search_path(cli, &search);
  const brim_weights_search where = {search.folder, search.count};
  char config[4096];
  const char *data = NULL;
  BRIM_TRY(read_data(w, arena, &data));
  if (is_gguf(w))
    return write_with_base(w, &(brim_export_model){.parameters = p, .type = wanted->type, .search = where}, arena);
  BRIM_TRY(brim_export_choose(arena, &where, w->format, p, &map));
  const bool has_config = map && map->config;
  if (is_whole_folder(w) && !has_config)
    return write_with_base(
        w, &(brim_export_model){.parameters = p, .map = map, .dtype = dtype, .search = where, .data = data}, arena);
  if (is_whole_folder(w))
    return brim_fail(BRIM_ECONFIG,
                     "-o %s: for this model --format %s writes a file and config.json beside it\nthe file's "
                     "name must end in .safetensors",
                     w->output, w->format);
  if (has_config) BRIM_TRY(config_path(w, config, sizeof config));
  BRIM_TRY(brim_export_write(p, map, dtype, data, w->output));
  if (has_config) {
    char file[4096];
    brim_yaml *run;
    BRIM_TRY(brim_cli_run_config(w->cli, w->run, file, sizeof file));
    BRIM_TRY(brim_yaml_parse_file(arena, file, &run));
    if (w->merge) brim_yaml_set(arena, run, "model", brim_yaml_get(run, "backbone"));
    BRIM_TRY(brim_export_write_config(map, run, p, config));
  }
  brim_say("%zu tensors in %s%s%s%s", p->count, w->output, map ? ", named by map " : ", named as in brim",
           map ? map->name : "", has_config ? "; config.json beside it" : "");
  return BRIM_OK;
}

static brim_status write_wrapper(const brim_cli *cli, const export_wishes *w, const wanted_type *wanted,
                                 const char *checkpoint, const brim_setup *s, brim_arena *arena,
                                 const brim_parameters *trained)
{
  brim_parameters merged;
  if (w->merge) {
    BRIM_TRY(brim_merge(s, checkpoint, trained, arena, &merged));
    return write_parameters(cli, w, wanted, arena, &merged);
  }
  BRIM_TRY(brim_peft_write(s, trained, w->output));
  brim_say("%zu tensors in %s, in PEFT's format", trained->count, w->output);
  return BRIM_OK;
}

/* Exports a model that wraps another; the configuration names the wrapped model and its weights. Uses double precision
 * on the host, independent of the device that the run used. */
static brim_status export_wrapper(const brim_cli *cli, const export_wishes *w, const wanted_type *wanted,
                                  const char *checkpoint, brim_arena *arena, const brim_parameters *trained)
{
  char file[4096];
  static const char *const own[] = {"backend=reference", "device=auto", "precision=fp32", "dist.ranks=1"};
  const size_t owns = sizeof own / sizeof own[0];
  const char **word = BRIM_ARENA_NEW(arena, const char *, owns + w->words);
  int *number = BRIM_ARENA_NEW(arena, int, owns + w->words);
  memcpy(word, own, sizeof own);
  for (size_t i = 0; i < w->words; i++) {
    word[owns + i] = w->word[i];
    number[owns + i] = w->number[i];
  }
  brim_config *config = NULL;
  brim_drive *d = NULL;
  BRIM_TRY(brim_cli_run_config(cli, w->run, file, sizeof file));
  BRIM_TRY(brim_cli_config(cli, file, word, number, owns + w->words, &config));
  brim_status status = brim_drive_open(
      config, &(brim_setup_options){.run = w->run, .unread = true, .whole = true, .no_timing = true}, &d);
  if (status == BRIM_OK) status = write_wrapper(cli, w, wanted, checkpoint, d->setup, arena, trained);
  brim_drive_close(d);
  brim_config_free(config);
  return status;
}

static brim_status export_run(const brim_cli *cli, const export_wishes *w, brim_arena *arena)
{
  char config[4096], checkpoint[4096];
  wanted_type wanted;
  brim_parameters parameters;
  BRIM_TRY(parse_dtype(w, &wanted));
  BRIM_TRY(brim_cli_run_config(cli, w->run, config, sizeof config));
  BRIM_TRY(check_output(w));
  BRIM_TRY(brim_cli_run_checkpoint(w->run, w->which, checkpoint, sizeof checkpoint));
  BRIM_TRY(brim_parameters_read(arena, checkpoint, &parameters));
  brim_status status = check_merge(w, &parameters);
  if (status == BRIM_OK)
    status = is_peft(w) || w->merge ? export_wrapper(cli, w, &wanted, checkpoint, arena, &parameters)
                                    : write_parameters(cli, w, &wanted, arena, &parameters);
  brim_parameters_close(&parameters);
  return status;
}

static const brim_option options[] = {
    {"--checkpoint", BRIM_CLI_STRING(export_wishes, which), "best|last|PATH",
     "checkpoint of the run (default: best, or last if there is no best)"},
    {"-o", BRIM_CLI_STRING(export_wishes, output), "FILE", NULL},
    {"--output", BRIM_CLI_STRING(export_wishes, output), "FILE",
     "output file; for peft and hf a folder (default: model.safetensors, model.gguf, adapter)"},
    {"--format", BRIM_CLI_STRING(export_wishes, format), "brim|timm|torchvision|hf|peft|gguf",
     "names and order of the parameters (default: brim)"},
    {"--dtype", BRIM_CLI_STRING(export_wishes, dtype), "f32|bf16|f16|q8_0",
     "type of the values (default: f32); q8_0, for gguf: 8 bits in blocks of 32"},
    {"--merge", BRIM_CLI_FLAG(export_wishes, merge), NULL,
     "for lora and linear_probe: merge the model with its backbone into one plain model"},
    {"--force", BRIM_CLI_FLAG(export_wishes, force), NULL, "overwrite an existing file"},
    {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  export_wishes w = {.cli = cli, .format = "brim"};
  brim_operands o;
  brim_status status = brim_cli_parse(argc, argv, options, &w, &o);
  if (status == BRIM_OK && o.count == 0)
    status = brim_fail(BRIM_ECONFIG, "brim export needs the folder of a run: brim export RUN");
  if (status == BRIM_OK) {
    w.run = o.word[0];
    w.word = o.word + 1;
    w.number = o.number + 1;
    w.words = o.count - 1;
  }
  if (!w.output) w.output = is_peft(&w) ? PEFT_OUTPUT : is_gguf(&w) ? GGUF_OUTPUT : DEFAULT_OUTPUT;
  if (status == BRIM_OK && !w.merge && !is_peft(&w) && !needs_base(&w))
    status =
        brim_cli_at_most(&o, 1, "brim export takes one run, and overrides with --merge or --format peft, hf or gguf");
  if (status == BRIM_OK) status = export_run(cli, &w, &o.arena);
  return brim_cli_end(status, &o);
}

const brim_command brim_command_export = {
    "export", "write a run's parameters for other programs", run_command,
    "usage: brim export RUN [key=value]... [-o FILE.safetensors] [--format brim|timm|torchvision|hf|peft|gguf]\n"
    "                   [--dtype f32|bf16|f16|q8_0] [--checkpoint best|last|PATH] [--merge] [--force]\n"
    "\n"
    "  brim export runs/a                             the best checkpoint (or the last), to model.safetensors\n"
    "  brim export runs/a --format timm -o vit.safetensors   with timm's names and order\n"
    "  brim export runs/a --dtype bf16 --force        half the size; overwrite an existing file\n"
    "  brim export runs/lora --merge                  merge lora or linear_probe with its backbone into one plain "
    "model\n"
    "  brim export runs/lora --format peft -o adapter    only the trained parameters, in a folder for PEFT\n"
    "  brim export runs/lora --merge model.weights=there/clip.safetensors   with the new path of the backbone's "
    "weights\n"
    "\n"
    "  brim export runs/lora --merge --format hf -o tuned         a whole folder for transformers\n"
    "  brim export runs/lora --merge --format gguf --dtype q8_0 -o tuned.gguf    a file for llama.cpp\n"
    "\n"
    "PyTorch reads the file with safetensors.torch.load_file, brim with model.weights=FILE. The formats are the name\n"
    "maps in configs/weights; --format also takes the name of a map, or the path of a .yaml file. For GPT-2 in\n"
    "Hugging Face's format, brim also writes config.json. A folder of a language model and a GGUF file get their\n"
    "configuration, tokenizer and chat template from the model that the run began with (model.weights). brim reads "
    "them\n"
    "again and compares all values before they get their names.\n",
    options};
