/* brim data: shows the samples that a run would train on: their number, the part of each row that tokens fill, the
 * tokens that count, and the samples and tokens that are left out. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "brim/host.h"
#include "cli/characters.h"
#include "cli/cli.h"
#include "data/describe.h"
#include "drive/drive.h"

#define COUNTS "\033[1;32m" /* bold green */
#define PLAIN "\033[0m"

typedef struct data_command {
  const char *samples, *split; /* both as the user typed them */
  bool json;
  int64_t sample_count;
  bool colour; /* shows classes in colour; otherwise in brackets */
  const brim_data *data;
  int32_t *values, *labels; /* values and labels of one sample; with documents, values also contains places */
} data_command;

/* A split of tokens. */
typedef struct totals {
  int64_t rows, places, filled, counted, documents;
} totals;

/* ---- a row ---- */

static const int32_t *places_of(const data_command *c)
{
  return c->data->train.documents ? c->values + c->data->elements : NULL;
}

static brim_status read_row(const data_command *c, const char *split, int64_t row)
{
  if (brim_stop_wanted()) return brim_fail(BRIM_EINTERRUPTED, "interrupted while reading samples");
  return c->data->ops->read(c->data->self, split, row, c->values, c->labels);
}

static bool is_label(const data_command *c, int64_t i)
{
  return c->labels[i] != BRIM_NO_TOKEN;
}

/* Returns the number of tokens before the free places at the end of a row. */
static int64_t filled_of(const data_command *c)
{
  const int32_t *places = places_of(c);
  int64_t end = c->data->elements;
  while (end > 0 && !is_label(c, end - 1) && (!places || places[end - 1] == 0)) end--;
  return end;
}

/* Returns the end of the document that begins at `at`. */
static int64_t document_end(const data_command *c, int64_t at, int64_t filled)
{
  const int32_t *places = places_of(c);
  int64_t end = at + 1;
  while (end < filled && !(places && places[end] == 0)) end++;
  return end;
}

static brim_status count_rows(const data_command *c, const char *split, const brim_dataset_info *info, totals *out)
{
  *out = (totals){.rows = info->count, .places = info->count * c->data->elements};
  for (int64_t row = 0; row < info->count; row++) {
    BRIM_TRY(read_row(c, split, row));
    const int64_t filled = filled_of(c);
    out->filled += filled;
    for (int64_t i = 0; i < filled; i++) out->counted += is_label(c, i);
    for (int64_t at = 0; at < filled; at = document_end(c, at, filled)) out->documents++;
  }
  return BRIM_OK;
}

static double share_of(int64_t part, int64_t all)
{
  return all > 0 ? (double)part / (double)all : 0;
}

/* ---- facts ---- */

/* Gets the dataset's own report about a split; *out is NULL if it has none. */
static brim_status report_of(const data_command *c, const char *split, json_t **out)
{
  const char *text = NULL;
  *out = NULL;
  if (!BRIM_HAS(brim_dataset_ops, c->data->ops, report)) return BRIM_OK;
  BRIM_TRY(c->data->ops->report(c->data->self, split, &text));
  json_error_t error;
  *out = text ? json_loads(text, 0, &error) : NULL;
  if (!text || json_is_object(*out)) return BRIM_OK;
  json_decref(*out);
  *out = NULL;
  return brim_fail(BRIM_EINTERNAL, "the report of dataset '%s' is not a JSON object", c->data->plugin->id);
}

static void print_value(const json_t *value, brim_text *out)
{
  if (json_is_string(value))
    brim_text_add_shown(out, json_string_value(value), "");
  else if (json_is_integer(value))
    brim_text_int(out, json_integer_value(value));
  else
    brim_text_printf(out, "%g", json_number_value(value));
}

/* Prints a line for each number or text, or for each object of them. */
static void print_report(json_t *report, brim_text *out)
{
  const char *key, *inner;
  json_t *value, *item;
  json_object_foreach(report, key, value)
  {
    brim_text_printf(out, "  %s: ", key);
    if (!json_is_object(value)) print_value(value, out);
    bool first = true;
    json_object_foreach(value, inner, item)
    {
      brim_text_printf(out, first ? "%s " : ", %s ", inner);
      print_value(item, out);
      first = false;
    }
    brim_text_add(out, "\n");
  }
}

/* Prints the samples of the training split that dataset.validation_fraction takes. */
static void print_held_out(const data_command *c, const brim_dataset_info *info, brim_text *out)
{
  const int64_t count = c->data->count[BRIM_PART_VALIDATION];
  if (info == &c->data->train && c->data->validation.count == 0 && count > 0)
    brim_text_printf(out, "  held out for validation: %" PRId64 " of the %s\n", count,
                     info->task == BRIM_TASK_TOKENS ? "rows" : "samples");
}

static brim_status show_split(const data_command *c, const char *split, const brim_dataset_info *info, json_t *json,
                              brim_text *text)
{
  totals n;
  json_t *report = NULL;
  if (info->task != BRIM_TASK_TOKENS) {
    brim_text_printf(text, "%s: %" PRId64 " sample%s of [", split, info->count, brim_plural(info->count));
    for (int32_t i = 0; i < info->sample.rank; i++)
      brim_text_printf(text, "%s%" PRId64, i ? "," : "", info->sample.dim[i]);
    brim_text_printf(text, "], %" PRId64 " %s\n", info->task == BRIM_TASK_VALUES ? info->targets : info->classes,
                     info->task == BRIM_TASK_VALUES ? "targets" : "classes");
    print_held_out(c, info, text);
    json_object_set_new(json, split, json_pack("{s:I}", "samples", (json_int_t)info->count));
    return BRIM_OK;
  }
  BRIM_TRY(count_rows(c, split, info, &n));
  BRIM_TRY(report_of(c, split, &report));
  json_t *facts =
      json_pack("{s:I, s:I, s:f, s:I, s:I}", "rows", (json_int_t)n.rows, "tokens", (json_int_t)n.filled, "filled",
                share_of(n.filled, n.places), "counted", (json_int_t)n.counted, "documents", (json_int_t)n.documents);
  brim_text_printf(text, "%s: %" PRId64 " row%s of %" PRId64 " tokens, %.2f %% full", split, n.rows,
                   brim_plural(n.rows), c->data->elements, 100 * share_of(n.filled, n.places));
  if (c->data->train.documents)
    brim_text_printf(text, "; %" PRId64 " document%s", n.documents, brim_plural(n.documents));
  brim_text_printf(text, "\n  tokens: %" PRId64 ", of which %" PRId64 " count (%.1f %%)\n", n.filled, n.counted,
                   100 * share_of(n.counted, n.filled));
  print_held_out(c, info, text);
  if (report) {
    print_report(report, text);
    json_object_set(facts, "report", report);
  }
  json_decref(report);
  json_object_set_new(json, split, facts);
  return BRIM_OK;
}

/* ---- samples ---- */

/* Adds a token's bytes, or its number. */
static brim_status add_token(const data_command *c, int32_t token, bool first, brim_text *out)
{
  const char *bytes = NULL;
  size_t count = 0;
  const brim_dataset_ops *ops = c->data->ops;
  const brim_status status =
      BRIM_HAS(brim_dataset_ops, ops, decode) ? ops->decode(c->data->self, token, &bytes, &count) : BRIM_ENOTSUP;
  if (status == BRIM_OK)
    brim_text_add_n(out, bytes, count);
  else if (status == BRIM_ENOTSUP)
    brim_text_printf(out, first ? "%" PRId32 : " %" PRId32, token);
  return status == BRIM_ENOTSUP ? BRIM_OK : status;
}

static void end_part(const data_command *c, bool counted, brim_text *bytes, json_t *parts, brim_text *out)
{
  brim_text part = {0};
  if (bytes->length == 0) return;
  brim_characters_take(bytes, true, &part);
  if (counted) brim_text_add(out, c->colour ? COUNTS : "⟦");
  brim_text_add_shown(out, brim_text_str(&part), "\n\t");
  if (counted) brim_text_add(out, c->colour ? PLAIN : "⟧");
  json_array_append_new(parts, json_pack("{s:s%, s:b}", "text", brim_text_str(&part), part.length, "counts", counted));
  brim_text_release(&part);
}

/* Shows the document at [at, end) of the row, and the token that its last token predicts. */
static brim_status show_document(const data_command *c, int64_t at, int64_t end, json_t *json, brim_text *out)
{
  json_t *tokens = json_array(), *marks = json_array(), *parts = json_array();
  brim_text bytes = {0};
  brim_status status = BRIM_OK;
  bool counted = false;
  for (int64_t i = at; i <= end && status == BRIM_OK; i++) {
    const bool counts = i > at && is_label(c, i - 1);
    if (i == end && !counts) break;
    const int32_t token = i < end ? c->values[i] : c->labels[i - 1];
    if (counts != counted) end_part(c, counted, &bytes, parts, out);
    counted = counts;
    status = add_token(c, token, bytes.length == 0, &bytes);
    json_array_append_new(tokens, json_integer(token));
    json_array_append_new(marks, json_boolean(counts));
  }
  end_part(c, counted, &bytes, parts, out);
  brim_text_add(out, "\n");
  brim_text_release(&bytes);
  json_array_append_new(json, json_pack("{s:o, s:o, s:o}", "tokens", tokens, "counts", marks, "parts", parts));
  return status;
}

/* Shows documents from rows that are spread over the split. */
static brim_status show_samples(const data_command *c, const char *split, int64_t rows, json_t *json, brim_text *out)
{
  const int64_t count = c->sample_count;
  for (int64_t k = 0; k < count && k < rows; k++) {
    const int64_t row = count < rows ? k * rows / count : k;
    BRIM_TRY(read_row(c, split, row));
    const int64_t filled = filled_of(c);
    if (filled == 0) continue;
    int64_t at = 0, end = document_end(c, 0, filled);
    for (int64_t skip = k; skip > 0 && end < filled; skip--) {
      at = end;
      end = document_end(c, at, filled);
    }
    brim_text_printf(out, "\n--- %s, row %" PRId64 ", from token %" PRId64 "\n", split, row, at);
    BRIM_TRY(show_document(c, at, end, json, out));
  }
  return BRIM_OK;
}

/* ---- the work ---- */

static brim_status reserve(data_command *c)
{
  const size_t elements = (size_t)c->data->elements;
  if (c->data->train.task != BRIM_TASK_TOKENS) return BRIM_OK;
  c->values = brim_try_calloc(2 * elements, sizeof *c->values);
  c->labels = brim_try_calloc(elements, sizeof *c->labels);
  return c->values && c->labels ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no host memory for a sample");
}

static brim_status show(data_command *c, json_t *root, brim_text *text)
{
  const brim_data *d = c->data;
  const struct {
    const char *name;
    const brim_dataset_info *info;
  } split[] = {
      {BRIM_SPLIT_TRAIN, &d->train}, {brim_data_validation_split(d->ops), &d->validation}, {BRIM_SPLIT_TEST, &d->test}};
  json_t *splits = json_object(), *samples = json_array();
  brim_status status = reserve(c);
  bool found = !c->split;
  for (size_t i = 0; i < 3 && status == BRIM_OK; i++) {
    if (!split[i].name || split[i].info->count == 0 || (c->split && strcmp(c->split, split[i].name) != 0)) continue;
    status = show_split(c, split[i].name, split[i].info, splits, text);
    const bool shows = status == BRIM_OK && d->train.task == BRIM_TASK_TOKENS && (c->split || i == 0);
    if (shows) status = show_samples(c, split[i].name, split[i].info->count, samples, text);
    found = true;
  }
  if (status == BRIM_OK && !found)
    status = brim_fail(BRIM_ECONFIG, "dataset '%s' has no split '%s'", d->plugin->id, c->split);
  json_object_set_new(root, "dataset", json_string(d->plugin->id));
  json_object_set_new(root, "splits", splits);
  json_object_set_new(root, "samples", samples);
  return status;
}

static brim_status run(data_command *c, const brim_config *config)
{
  brim_drive *drive = NULL;
  brim_text text = {0};
  json_t *root = json_object();
  brim_status status = brim_drive_open(config, &(brim_setup_options){.read_data = true, .no_timing = true}, &drive);
  if (status == BRIM_OK) status = brim_setup_start_data(drive->setup);
  if (status == BRIM_OK) status = brim_setup_finish_data(drive->setup);
  if (status == BRIM_OK) {
    c->data = &drive->setup->data;
    status = show(c, root, &text);
  }
  if (status == BRIM_OK && c->json) {
    status = brim_cli_print_json(json_incref(root));
  } else if (status == BRIM_OK) {
    fputs(brim_text_str(&text), stdout);
  }
  json_decref(root);
  brim_text_release(&text);
  free(c->values);
  free(c->labels);
  brim_drive_close(drive);
  return status;
}

static brim_status take_numbers(data_command *c)
{
  c->sample_count = 3;
  BRIM_TRY(brim_cli_whole_number("--samples", c->samples, 0, 1000000, &c->sample_count));
  const char *term = getenv("TERM");
  c->colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR") && !(term && strcmp(term, "dumb") == 0);
  return BRIM_OK;
}

static const brim_option options[] = {
    {"--samples", BRIM_CLI_STRING(data_command, samples), "N", "number of samples to show (default: 3)"},
    {"--split", BRIM_CLI_STRING(data_command, split), "NAME", "show this split only: train, validation or test"},
    {"--json", BRIM_CLI_FLAG(data_command, json), NULL, "print JSON"},
    {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  data_command c = {0};
  brim_operands o;
  brim_config *config = NULL;
  brim_status status = brim_cli_parse(argc, argv, options, &c, &o);
  if (status == BRIM_OK) status = take_numbers(&c);
  if (status == BRIM_OK) status = brim_cli_config(cli, NULL, o.word, o.number, o.count, &config);
  if (status == BRIM_OK) status = run(&c, config);
  brim_config_free(config);
  return brim_cli_end(status, &o);
}

const brim_command brim_command_data = {
    "data", "show the samples that a run would train on", run_command,
    "usage: brim data [key=value]... [--samples N] [--split NAME] [--json]\n"
    "\n"
    "  brim data model=hf_lora model.weights=Qwen3-0.6B dataset=chat dataset.path=a.jsonl\n"
    "                                 lengths, how full the rows are, which tokens count, and three samples\n"
    "  brim data ... --samples 20     more samples\n"
    "  brim data ... --json           the same, as JSON, with the numbers of the tokens\n"
    "\n"
    "Tokens that count are those whose prediction adds to the loss. They are green on a terminal, and elsewhere\n"
    "between double brackets. Samples with dataset=chat are conversations; a row has several of them.\n",
    options};
