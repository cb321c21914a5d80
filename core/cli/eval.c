/* brim eval: evaluates a run's checkpoint on data, or a language model on texts. Writes no files. */
#include <stdio.h>
#include <string.h>

#include "base/table.h"
#include "cli/cli.h"
#include "cli/eval_texts.h"
#include "cli/run_folder.h"
#include "data/keep.h"
#include "store/summary.h"
#include "train/report.h"
#include "train/scores.h"
#include "train/trainer.h"

#define CONFUSION_COLUMNS_MAX 20 /* with more classes, the matrix is not printed as text */

typedef struct eval {
  const char *run, *which, *split; /* as the user typed them; which and split may be NULL */
  bool json;
  brim_eval_texts texts;
  char checkpoint[4096];
  enum brim_part part;
  brim_drive *drive;
  brim_trainer *trainer;
  brim_evaluation result;
} eval;

static const char *class_name(const eval *e, int64_t class)
{
  const char *const *names = e->drive->setup->data.train.class_names;
  return names ? names[class] : "";
}

/* ---- output ---- */

/* Lists the figures of each class; null: not counted. */
static json_t *json_of_classes(const eval *e)
{
  if (!e->result.confusion) return json_null();
  json_t *rows = json_array();
  for (int64_t c = 0; c < e->result.classes; c++) {
    const brim_class_score f = brim_scores_of(e->result.confusion, e->result.classes, c);
    json_t *row = json_pack("{s:I, s:f, s:f, s:f, s:I}", "class", (json_int_t)c, "precision", f.precision, "recall",
                            f.recall, "f1", f.f1, "support", (json_int_t)f.support);
    if (class_name(e, c)[0]) json_object_set_new(row, "name", json_string(class_name(e, c)));
    json_array_append_new(rows, row);
  }
  return rows;
}

static void set_answers(const eval *e, json_t *root)
{
  const brim_evaluation *r = &e->result;
  char top[32], left_out[200];
  json_object_set_new(root, "accuracy", brim_json_figure(r->accuracy));
  snprintf(top, sizeof top, "accuracy_top%d", (int)r->top_k);
  if (r->top_k > 0) json_object_set_new(root, top, brim_json_figure(r->accuracy_top));
  if (r->task == BRIM_TASK_TOKENS) {
    json_object_set_new(root, "perplexity", brim_json_figure(brim_evaluation_perplexity(r)));
    return;
  }
  json_object_set_new(root, "f1", brim_json_figure(r->f1));
  json_object_set_new(root, "per_class", json_of_classes(e));
  json_t *confusion = brim_scores_confusion_json(r->confusion, r->classes);
  json_object_set_new(root, "confusion", confusion ? confusion : json_null());
  if (brim_scores_left_out(left_out, sizeof left_out, r->classes)[0])
    json_object_set_new(root, "left_out", json_string(left_out));
}

static void set_errors(const eval *e, json_t *root)
{
  const brim_evaluation *r = &e->result;
  json_object_set_new(root, "mae", brim_json_figure(r->mae));
  json_object_set_new(root, "mape", brim_json_figure(r->mape));
  json_object_set_new(root, "rmse", brim_json_figure(r->rmse));
  json_object_set_new(root, "r2", brim_json_figure(r->r2));
}

static void add_confusion(const brim_evaluation *r, brim_arena *arena, brim_text *out)
{
  if (r->classes > BRIM_MATRIX_CLASSES_MAX) return; /* add_scores reports that */
  if (r->classes > CONFUSION_COLUMNS_MAX) {
    brim_text_printf(out, "\nthe confusion matrix of %lld classes is in the output of --json\n", (long long)r->classes);
    return;
  }
  brim_table table = {.arena = arena, .columns = (size_t)r->classes + 1};
  brim_table_add(&table, "label");
  for (int64_t k = 0; k < r->classes; k++) brim_table_number(&table, (double)k, 0);
  for (int64_t i = 0; i < r->classes; i++) {
    brim_table_number(&table, (double)i, 0);
    for (int64_t k = 0; k < r->classes; k++) brim_table_number(&table, r->confusion[i * r->classes + k], 0);
  }
  brim_text_add(out, "\nconfusion: number of samples of each label (rows) by predicted class\n");
  brim_table_print(&table, out);
}

static void add_scores(const eval *e, brim_arena *arena, brim_text *out)
{
  char left_out[200];
  if (e->result.confusion) {
    brim_table table = {.arena = arena, .columns = 6};
    static const char *const head[] = {"class", "name", "precision", "recall", "f1", "support"};
    for (size_t i = 0; i < sizeof head / sizeof head[0]; i++) brim_table_add(&table, head[i]);
    for (int64_t c = 0; c < e->result.classes; c++) {
      const brim_class_score f = brim_scores_of(e->result.confusion, e->result.classes, c);
      brim_table_number(&table, (double)c, 0);
      brim_table_add(&table, class_name(e, c));
      brim_table_number(&table, f.precision, 4);
      brim_table_number(&table, f.recall, 4);
      brim_table_number(&table, f.f1, 4);
      brim_table_number(&table, (double)f.support, 0);
    }
    brim_text_add(out, "\n");
    brim_table_print(&table, out);
    add_confusion(&e->result, arena, out);
  }
  if (brim_scores_left_out(left_out, sizeof left_out, e->result.classes)[0]) brim_text_printf(out, "\n%s\n", left_out);
}

static void print_text(const eval *e)
{
  const brim_evaluation *r = &e->result;
  const char *slash = strrchr(e->checkpoint, '/');
  brim_arena arena = {0};
  brim_text out = {0};
  char figures[BRIM_REPORT_ROOM];
  brim_text_printf(&out, "%s, checkpoint %s\n%s loss %.4f%s", e->run, slash ? slash + 1 : e->checkpoint,
                   brim_part_names[e->part], r->loss, brim_report_format(figures, sizeof figures, r));
  if (r->top_k > 0) brim_text_printf(&out, ", top-%d accuracy %.2f %%", (int)r->top_k, 100 * r->accuracy_top);
  if (r->confusion) brim_text_printf(&out, ", macro F1 %.4f", r->f1);
  brim_text_printf(&out, " (%lld sample%s)\n", (long long)r->samples, brim_plural(r->samples));
  if (r->task == BRIM_TASK_CLASS) add_scores(e, &arena, &out);
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
  brim_arena_release(&arena);
}

/* ---- the work ---- */

/* Checks that a validation part of the training samples is the run's own, because any other contains samples on which
 * the model was trained. */
static brim_status check_share(const eval *e)
{
  const brim_drive *d = e->drive;
  const bool is_share = e->part == BRIM_PART_VALIDATION && d->setup->data.validation.count == 0;
  if (!is_share || !d->setup->was || !brim_data_is_kept_of(d->setup->was, d->setup->data.plugin)) return BRIM_OK;
  return brim_data_compare(d->setup->was, d->setup->kept, true);
}

static brim_status choose_part(eval *e)
{
  const int64_t *count = e->drive->setup->data.count;
  if (!e->split)
    e->part = count[BRIM_PART_TEST] || !count[BRIM_PART_VALIDATION] ? BRIM_PART_TEST : BRIM_PART_VALIDATION;
  else if (strcmp(e->split, "test") == 0)
    e->part = BRIM_PART_TEST;
  else if (strcmp(e->split, "validation") == 0)
    e->part = BRIM_PART_VALIDATION;
  else
    return brim_fail(BRIM_ECONFIG, "--split must be test or validation, got '%s'", e->split);
  if (count[e->part]) return check_share(e);
  return brim_fail(BRIM_ECONFIG, e->part == BRIM_PART_TEST
                                     ? "the dataset has no test split\n--split validation uses the validation data"
                                     : "the run kept no validation data: dataset.validation_fraction is 0");
}

static brim_status evaluate(eval *e, const brim_config *config)
{
  BRIM_TRY(brim_drive_open(config, &(brim_setup_options){.run = e->run, .read_data = true, .whole = true}, &e->drive));
  BRIM_TRY(choose_part(e));
  const int64_t count = e->drive->setup->data.count[e->part];
  BRIM_TRY(brim_trainer_open_evaluation(e->drive, count, brim_drive_eval_batch(e->drive), false, e->checkpoint,
                                        &e->trainer));
  BRIM_TRY(brim_trainer_evaluate(e->trainer, e->part, NULL, &e->result));
  if (e->json) {
    const brim_evaluation *r = &e->result;
    json_t *root = json_pack("{s:s, s:s, s:I, s:s, s:I, s:o, s:I}", "run", e->run, "checkpoint", e->checkpoint, "step",
                             (json_int_t)brim_trainer_state(e->trainer)->step, "split", brim_part_names[e->part],
                             "samples", (json_int_t)r->samples, "loss", brim_json_figure(r->loss), "device_peak_bytes",
                             (json_int_t)brim_trainer_device_bytes(e->trainer));
    if (root && r->task == BRIM_TASK_VALUES) set_errors(e, root);
    if (root && r->task != BRIM_TASK_VALUES) set_answers(e, root);
    return brim_cli_print_json(root);
  }
  print_text(e);
  return BRIM_OK;
}

static const brim_option options[] = {
    {"--text", BRIM_CLI_STRING(eval, texts.text), "FILE", "perplexity and bits per byte of a text"},
    {"--stride", BRIM_CLI_STRING(eval, texts.stride), "N",
     "with --text: tokens by which the window moves (default: half of the context)"},
    {"--choices", BRIM_CLI_STRING(eval, texts.choices), "FILE",
     "answer multiple-choice questions: a JSON object a line"},
    {"--shots", BRIM_CLI_STRING(eval, texts.shots), "N", "with --choices: examples before each question (default: 0)"},
    {"--shots-from", BRIM_CLI_STRING(eval, texts.shots_from), "FILE",
     "file of the examples, with the same keys as the questions"},
    {"--context", BRIM_CLI_STRING(eval, texts.context), "N",
     "with --text or --choices: tokens that the model sees at a time (default: those of a sample, or of the model)"},
    {"--checkpoint", BRIM_CLI_STRING(eval, which), "best|last|PATH",
     "checkpoint of the run (default: best, or last if there is no best)"},
    {"--split", BRIM_CLI_STRING(eval, split), "test|validation", "data to evaluate on (default: test)"},
    {"--json", BRIM_CLI_FLAG(eval, json), NULL, "print JSON"},
    {NULL}};

static brim_status run_on_data(const brim_cli *cli, const brim_operands *o, eval *e)
{
  char file[4096];
  brim_config *config = NULL;
  brim_status status = brim_cli_run_config(cli, e->run, file, sizeof file);
  if (status == BRIM_OK) status = brim_cli_run_checkpoint(e->run, e->which, e->checkpoint, sizeof e->checkpoint);
  if (status == BRIM_OK) status = brim_cli_config(cli, file, o->word + 1, o->number + 1, o->count - 1, &config);
  if (status == BRIM_OK) status = brim_cli_refuse_weights(e->run, config, o->word + 1, o->count - 1);
  if (status == BRIM_OK) status = evaluate(e, config);
  brim_trainer_close(e->trainer);
  brim_drive_close(e->drive);
  brim_config_free(config);
  return status;
}

static brim_status run_on_texts(const brim_cli *cli, const brim_operands *o, eval *e)
{
  if (e->split) return brim_fail(BRIM_ECONFIG, "--split is for a run's own data, and excludes --text and --choices");
  e->texts.checkpoint = e->which;
  e->texts.json = e->json;
  return brim_eval_texts_run(cli, o, &e->texts);
}

static int run_command(brim_cli *cli, int argc, char **argv)
{
  eval e = {0};
  brim_operands o;
  brim_status status = brim_cli_parse(argc, argv, options, &e, &o);
  if (status == BRIM_OK && o.count == 0)
    status = brim_fail(BRIM_ECONFIG, "brim eval needs the folder of a run: brim eval RUN");
  if (o.count > 0) e.run = o.word[0];
  if (status == BRIM_OK) status = brim_eval_texts_check(&e.texts);
  if (status == BRIM_OK)
    status = brim_eval_wants_texts(&e.texts) ? run_on_texts(cli, &o, &e) : run_on_data(cli, &o, &e);
  return brim_cli_end(status, &o);
}

const brim_command brim_command_eval = {
    "eval",
    "evaluate a run's checkpoint, or a language model",
    run_command,
    "usage: brim eval RUN [key=value]... [--checkpoint best|last|PATH] [--split test|validation] [--json]\n"
    "       brim eval RUN|MODEL --text FILE [--stride N] [--context N] [--json]\n"
    "       brim eval RUN|MODEL --choices FILE [--shots N --shots-from FILE] [--context N] [--json]\n"
    "\n"
    "  brim eval runs/a                               the best checkpoint (or the last) on the test data\n"
    "  brim eval runs/a --split validation            on the validation data\n"
    "  brim eval runs/a --checkpoint step-00000050    a given checkpoint, by name or path\n"
    "  brim eval runs/a dataset.path=other --json     on other data of the same shape, as JSON\n"
    "  brim eval Qwen3-0.6B --text book.txt           perplexity of a model's folder, or GGUF file\n"
    "  brim eval runs/a --choices mmlu.jsonl --json   multiple choice, with the scores of each question\n"
    "\n"
    "For classes it prints loss and accuracy, samples, precision, recall and F1 per class, and the confusion matrix\n"
    "for up to 256 classes; with 4096 or more classes only loss and accuracy. For tokens it prints loss, perplexity\n"
    "and accuracy; for real numbers loss, mean absolute error (also in percent), root mean square error and R2. It\n"
    "needs only the memory of evaluation, and writes no files.\n"
    "\n"
    "--text moves a window over the text: each token but the first is predicted once, and the other tokens of a "
    "window\n"
    "are its context. A run's windows are as long as its samples; those of a model without a run at most 2048 tokens.\n"
    "--choices reads the keys of MMLU (subject, question, choices, answer), ARC (question, choices, answerKey) and\n"
    "HellaSwag (activity_label, ctx_a, ctx_b, endings, label), or question, choices and answer. The answer is the "
    "choice\n"
    "with the greatest probability; also counted are answers by probability per character and per byte.\n",
    options,
    true};
