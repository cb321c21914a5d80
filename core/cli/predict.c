/* brim predict: prints the class and its probability, or the predicted numbers, of each sample in some files, as CSV or
 * JSON. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/run_folder.h"
#include "store/rundir.h"
#include "train/predict.h"

typedef struct predict {
  const char *run, *which, *output; /* as the user typed them; which and output may be NULL */
  bool json, force;
  char checkpoint[4096];
  brim_predicted_file *file;
  size_t file_count;
  int64_t values;           /* predicted real numbers per sample; 0: a class */
  const char *const *names; /* names of the classes; NULL: the classes have no names */
} predict;

static void format_csv(const predict *p, brim_text *out)
{
  brim_text_add(out, "file,index");
  for (int64_t k = 0; k < p->values; k++) brim_text_printf(out, ",value%" PRId64, k);
  if (p->values == 0) brim_text_printf(out, ",class,probability%s", p->names ? ",name" : "");
  brim_text_add(out, "\n");
  for (size_t f = 0; f < p->file_count; f++)
    for (int64_t i = 0; i < p->file[f].count; i++) {
      const brim_prediction *r = &p->file[f].prediction[i];
      brim_text_add_csv(out, p->file[f].path);
      brim_text_printf(out, ",%" PRId64, i);
      for (int64_t k = 0; k < p->values; k++) brim_text_printf(out, ",%.9g", r->value[k]);
      if (p->values == 0) brim_text_printf(out, ",%" PRId64 ",%.9g", r->class, r->probability);
      if (p->names) brim_text_add(out, ",");
      if (p->names) brim_text_add_csv(out, p->names[r->class]);
      brim_text_add(out, "\n");
    }
}

static json_t *json_of(const predict *p, const brim_predicted_file *file, int64_t i)
{
  const brim_prediction *r = &file->prediction[i];
  json_t *row = json_pack("{s:s, s:I}", "file", file->path, "index", (json_int_t)i);
  if (!row) return NULL;
  if (p->values == 0) {
    json_object_set_new(row, "class", json_integer((json_int_t)r->class));
    json_object_set_new(row, "probability", json_real(r->probability));
    if (p->names) json_object_set_new(row, "name", json_string(p->names[r->class]));
    return row;
  }
  json_t *values = json_array();
  for (int64_t k = 0; k < p->values; k++) json_array_append_new(values, json_real(r->value[k]));
  json_object_set_new(row, "values", values);
  return row;
}

static brim_status format_json(const predict *p, brim_text *out)
{
  json_t *rows = json_array();
  for (size_t f = 0; f < p->file_count; f++)
    for (int64_t i = 0; i < p->file[f].count; i++) {
      if (json_array_append_new(rows, json_of(p, &p->file[f], i)) == 0) continue;
      json_decref(rows);
      return brim_fail(BRIM_EINVAL, "cannot write '%s' as JSON: its name is not UTF-8\nleave out --json",
                       p->file[f].path);
    }
  json_t *root = json_pack("{s:s, s:s, s:o}", "run", p->run, "checkpoint", p->checkpoint, "predictions", rows);
  const size_t escaped = !p->output && isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0;
  char *text = root ? json_dumps(root, JSON_INDENT(2) | escaped) : NULL;
  json_decref(root);
  if (!text) return brim_fail(BRIM_EINVAL, "cannot write the predictions as JSON: is the run's path not UTF-8?");
  brim_text_add(out, text);
  brim_text_add(out, "\n");
  free(text);
  return BRIM_OK;
}

static brim_status write_out(const predict *p, const brim_text *out)
{
  struct stat st;
  const bool special = p->output && stat(p->output, &st) == 0 && !S_ISREG(st.st_mode); /* a pipe, /dev/null */
  if (p->output && !special) return brim_file_write_atomic(p->output, brim_text_str(out), out->length);
  if (!p->output && !p->json && isatty(STDOUT_FILENO)) { /* programs get names unescaped */
    brim_cli_print(brim_text_str(out));
    return BRIM_OK;
  }
  FILE *file = p->output ? fopen(p->output, "we") : stdout;
  bool failed = !file || fputs(brim_text_str(out), file) < 0 || fflush(file) != 0;
  if (file && file != stdout) failed = fclose(file) != 0 || failed;
  return failed ? brim_fail(BRIM_EIO, "cannot write the predictions to %s: %s",
                            p->output ? p->output : "standard output", strerror(errno))
                : BRIM_OK;
}

static brim_status run(predict *p, const brim_config *config, brim_arena *arena)
{
  brim_drive *drive = NULL;
  brim_text out = {0};
  BRIM_TRY(brim_drive_open(config, &(brim_setup_options){.run = p->run, .unread = true, .whole = true}, &drive));
  brim_status status = brim_predict(drive, p->checkpoint, arena, p->file, p->file_count);
  p->values = drive->setup->data.train.task == BRIM_TASK_VALUES ? drive->setup->answers : 0;
  p->names = drive->setup->data.train.class_names;
  if (status == BRIM_OK && p->json) status = format_json(p, &out);
  if (status == BRIM_OK && !p->json) format_csv(p, &out);
  if (status == BRIM_OK) status = write_out(p, &out);
  brim_text_release(&out);
  brim_drive_close(drive);
  return status;
}

/* Whether a word with '=' is an override: yes, unless it is explicitly a path (./a=b, /a=b, ../a=b), or a file in a
 * folder (label=cat/1.png). */
static bool is_override(const char *word)
{
  const bool has_folder = strchr(word, '/') != NULL;
  return word[0] != '.' && word[0] != '/' && strchr(word, '=') != NULL && !(has_folder && access(word, F_OK) == 0);
}

/* Moves files to p->file and overrides to the front of `word`. */
static size_t sort_words(predict *p, const char **word, int *number, size_t count)
{
  size_t overrides = 0;
  for (size_t i = 0; i < count; i++) {
    if (!is_override(word[i])) {
      p->file[p->file_count++].path = word[i];
      continue;
    }
    word[overrides] = word[i];
    number[overrides++] = number[i];
  }
  return overrides;
}

/* Checks that the output would not replace an input. */
static brim_status check_output(const predict *p)
{
  struct stat output, input;
  if (p->output) BRIM_TRY(brim_cli_check_folder(p->output));
  if (!p->output || stat(p->output, &output) != 0) return BRIM_OK;
  if (S_ISDIR(output.st_mode)) return brim_fail(BRIM_ECONFIG, "-o %s is a folder: name a file in it", p->output);
  for (size_t i = 0; i < p->file_count; i++)
    if (stat(p->file[i].path, &input) == 0 && input.st_dev == output.st_dev && input.st_ino == output.st_ino)
      return brim_fail(BRIM_ECONFIG, "-o %s is also an input file: name another output file", p->output);
  return brim_cli_check_absent(p->output, p->force);
}

static brim_status check_files(const predict *p)
{
  for (size_t i = 0; i < p->file_count; i++)
    if (brim_is_folder(p->file[i].path))
      return brim_fail(BRIM_ELOAD, "'%s' is a folder: name the files in it, for example %s%s*", p->file[i].path,
                       p->file[i].path, brim_ends_with(p->file[i].path, "/") ? "" : "/");
  return BRIM_OK;
}

static const brim_option options[] = {
    {"--checkpoint", BRIM_CLI_STRING(predict, which), "best|last|PATH",
     "checkpoint of the run (default: best, or last if there is no best)"},
    {"-o", BRIM_CLI_STRING(predict, output), "FILE", NULL},
    {"--output", BRIM_CLI_STRING(predict, output), "FILE", "output file (default: standard output)"},
    {"--json", BRIM_CLI_FLAG(predict, json), NULL, "print JSON"},
    {"--force", BRIM_CLI_FLAG(predict, force), NULL, BRIM_CLI_FORCE_HELP},
    {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  predict p = {0};
  brim_operands o;
  size_t overrides = 0;
  char file[4096];
  brim_config *config = NULL;
  brim_status status = brim_cli_parse(argc, argv, options, &p, &o);
  if (status == BRIM_OK && o.count > 0) {
    p.run = o.word[0];
    p.file = BRIM_ARENA_NEW(&o.arena, brim_predicted_file, o.count);
    overrides = sort_words(&p, o.word + 1, o.number + 1, o.count - 1);
  }
  if (status == BRIM_OK && p.file_count == 0)
    status = brim_fail(BRIM_ECONFIG, "brim predict needs the folder of a run and files: brim predict RUN FILE...");
  if (status == BRIM_OK) status = check_files(&p);
  if (status == BRIM_OK) status = check_output(&p);
  if (status == BRIM_OK) status = brim_cli_run_config(cli, p.run, file, sizeof file);
  if (status == BRIM_OK) status = brim_cli_run_checkpoint(p.run, p.which, p.checkpoint, sizeof p.checkpoint);
  if (status == BRIM_OK) status = brim_cli_config(cli, file, o.word + 1, o.number + 1, overrides, &config);
  if (status == BRIM_OK) status = brim_cli_refuse_weights(p.run, config, o.word + 1, overrides);
  if (status == BRIM_OK) status = run(&p, config, &o.arena);
  brim_config_free(config);
  return brim_cli_end(status, &o);
}

const brim_command brim_command_predict = {
    "predict",
    "predict the class, or real numbers, for samples in files",
    run_command,
    "usage: brim predict RUN FILE... [key=value]... [--checkpoint best|last|PATH] [-o FILE] [--force]\n"
    "                    [--json]\n"
    "\n"
    "  brim predict runs/a t10k-images-idx3-ubyte     file,index,class,probability on standard output\n"
    "  brim predict runs/a a.idx b.idx.gz -o out.csv  two files, to a CSV file\n"
    "  brim predict runs/a a.idx --json               as JSON\n"
    "\n"
    "If the model predicts real numbers, the columns are file,index,value0,...\n"
    "Files must have the format of the run's dataset: for idx, images in IDX files, plain or gzip. An argument with\n"
    "'=' is an override unless it names a file in a folder; write ./a=b for a file with such a name.\n",
    options,
    true};
