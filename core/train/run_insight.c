/* A run's histograms, and its samples with wrong answers. See run_parts.h. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "observe/events.h"
#include "observe/png.h"
#include "train/run_parts.h"

/* Handles the result of making histograms: after a failure, warns and makes no further ones. */
static void heed(brim_running *r, brim_status status)
{
  if (status == BRIM_OK) return;
  if (r->histograms.log.fd >= 0) brim_log(BRIM_LOG_WARN, "the run continues without histograms: %s", brim_error_text());
  brim_histograms_mute(&r->histograms);
}

/* ---- the run in TensorBoard ---- */

#define HYPERPARAMETERS_MAX 128

typedef struct hyperparameters {
  brim_arena arena;
  brim_hyperparameter value[HYPERPARAMETERS_MAX];
  size_t count;
} hyperparameters;

static void add_hyperparameter(hyperparameters *h, const char *name, const brim_yaml *node)
{
  char *end = NULL;
  brim_text text = {0};
  if (h->count == HYPERPARAMETERS_MAX || brim_yaml_is_null(node)) return;
  for (size_t i = 0; node->kind == BRIM_YAML_MAP && i < node->count; i++)
    add_hyperparameter(h, brim_arena_printf(&h->arena, "%s.%s", name, node->key[i]), node->item[i]);
  if (node->kind == BRIM_YAML_MAP) return;
  for (size_t i = 0; node->kind == BRIM_YAML_LIST && i < node->count; i++)
    brim_text_printf(&text, "%s%s", i > 0 ? ", " : "",
                     node->item[i]->kind == BRIM_YAML_SCALAR ? node->item[i]->scalar : "...");
  const char *shown =
      node->kind == BRIM_YAML_SCALAR ? node->scalar : brim_arena_string(&h->arena, brim_text_str(&text));
  const double number = strtod(shown, &end);
  const bool is_number = node->kind == BRIM_YAML_SCALAR && !node->quoted && end != shown && !*end;
  h->value[h->count++] = (brim_hyperparameter){name, shown, is_number ? number : 0, is_number};
  brim_text_release(&text);
}

/* Lists the tags of the scalars by which the run is judged: "accuracy/test". */
static size_t list_metrics(const brim_running *r, hyperparameters *h, const char *metric[6])
{
  static const char *const names[][3] = {[BRIM_TASK_CLASS] = {"loss", "accuracy", "f1"},
                                         [BRIM_TASK_TOKENS] = {"loss", "accuracy", "perplexity"},
                                         [BRIM_TASK_VALUES] = {"loss", "mae", "r2"}};
  static const enum brim_part parts[] = {BRIM_PART_VALIDATION, BRIM_PART_TEST};
  const brim_data *data = &r->drive->setup->data;
  size_t count = 0;
  for (size_t p = 0; p < 2; p++)
    for (size_t k = 0; k < 3 && data->count[parts[p]] > 0; k++)
      metric[count++] = brim_arena_printf(&h->arena, "%s/%s", names[data->train.task][k], brim_part_names[parts[p]]);
  return count;
}

/* Adds the choices and keys that affect the training as hyperparameters, and the configuration as text. */
static void describe_run(brim_running *r)
{
  static const char *const sections[] = {"model",    "dataset",   "optimizer", "schedule", "loss",
                                         "training", "precision", "seed",      "augment",  "method",
                                         "federate", "partition", "privacy"};
  hyperparameters h = {.count = 0};
  const char *metric[6];
  brim_text text = {0};
  for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
    const brim_yaml *node = brim_yaml_get(r->config->root, sections[i]);
    if (node) add_hyperparameter(&h, sections[i], node);
  }
  const size_t metrics = list_metrics(r, &h, metric);
  brim_running_heed_tensorboard(r,
                                brim_tensorboard_hyperparameters(&r->tensorboard, h.value, h.count, metric, metrics));
  brim_text_add(&text, "```yaml\n");
  brim_config_print(r->config, &text, false);
  brim_text_add(&text, "```\n");
  if (r->tensorboard.fd >= 0)
    brim_running_heed_tensorboard(r, brim_tensorboard_text(&r->tensorboard, 0, "config.yaml", brim_text_str(&text)));
  brim_text_release(&text);
  brim_arena_release(&h.arena);
}

/* ---- histograms ---- */

brim_status brim_running_open_insight(brim_running *r)
{
  if (r->tensorboard.fd >= 0) describe_run(r);
  if (!r->settings->observe.histograms || !r->settings->federate.train) return BRIM_OK;
  const char *dir = brim_running_prints(r) ? r->dir : NULL;
  const brim_status status = brim_histograms_open(&r->histograms, r->trainer, dir, r->state->step);
  if (status == BRIM_ECOMM) return status;
  if (status != BRIM_OK && dir) brim_log(BRIM_LOG_WARN, "the run has no histograms: %s", brim_error_text());
  return BRIM_OK;
}

/* Whether a step is one of at most BRIM_HISTOGRAMS_TIMES evaluations, spread evenly over the run. */
static bool is_shown(const brim_running *r, int64_t step)
{
  const int64_t every = r->settings->training.eval_every_steps, steps = r->drive->order.steps;
  const int64_t interval = every > 0 ? every : r->drive->order.steps_per_epoch;
  const int64_t stride = steps / interval / BRIM_HISTOGRAMS_TIMES + 1;
  if (!brim_loop_is_due(&r->loop, step, every)) return false;
  return step == steps || step / interval % stride == 0;
}

bool brim_running_has_histograms(const brim_running *r, int64_t step)
{
  return r->histograms.on && is_shown(r, step);
}

void brim_running_before_step(brim_running *r)
{
  if (!brim_running_has_histograms(r, r->state->step + 1) || brim_trainer_is_ahead(r->trainer)) return;
  heed(r, brim_histograms_before(&r->histograms, r->trainer, r->state->step + 1));
}

brim_status brim_running_after_step(brim_running *r)
{
  if (!brim_running_has_histograms(r, r->state->step)) return BRIM_OK;
  if (brim_trainer_plan(r->trainer)->shards) /* ranks exchange their parts only if all have committed */
    BRIM_TRY(brim_trainer_meet(r->trainer, BRIM_MEET_CHECK, BRIM_OK));
  const brim_status status = brim_histograms_after(&r->histograms, r->trainer, r->state->step,
                                                   r->tensorboard.fd >= 0 ? &r->tensorboard : NULL);
  if (status == BRIM_ECOMM) return status;
  heed(r, status);
  return BRIM_OK;
}

/* ---- samples ---- */

/* Adds a cell of a table in Markdown: the name if there is one, else the value. */
static void add_cell(brim_text *table, const json_t *value, const json_t *name)
{
  char *text = name ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
  brim_text_add(table, "| ");
  for (const char *s = name ? json_string_value(name) : text ? text : ""; *s; s++)
    brim_text_add_n(table, *s == '|' || *s == '\n' ? " " : s, 1);
  free(text);
}

/* The evaluation at the end counts even if a rule ended the run early. */
static bool lists_samples(const brim_running *r, enum brim_part part)
{
  const brim_setup *s = r->drive->setup;
  const bool is_last = r->has_stopped || (part == BRIM_PART_TEST && s->data.count[BRIM_PART_VALIDATION] > 0);
  return (brim_setup_keeps_answers(s) || brim_setup_keeps_token_losses(s)) && (is_last || is_shown(r, r->state->step));
}

/* Adds a picture for each sample, and a table of their answers. */
static brim_status show_samples(brim_tensorboard *t, const json_t *list, int64_t step)
{
  static unsigned char png[1 << 16];
  const char *split = json_string_value(json_object_get(list, "split"));
  const json_t *worst = json_object_get(list, "worst");
  brim_text table = {0};
  brim_status status = BRIM_OK;
  brim_text_add(&table, "| no. | label | answer | probability | loss |\n|---|---|---|---|---|\n");
  for (size_t i = 0; i < json_array_size(worst) && status == BRIM_OK; i++) {
    const json_t *sample = json_array_get(worst, i), *name = json_object_get(sample, "label_name"),
                 *answer = json_object_get(sample, "answer_name"), *picture = json_object_get(sample, "picture");
    char tag[64];
    size_t bytes = sizeof png;
    snprintf(tag, sizeof tag, "most_wrong_%s/%02zu", split, i);
    if (picture && brim_base64_read(json_string_value(picture), png, &bytes))
      status = brim_tensorboard_image(t, step, tag, png, bytes, json_integer_value(json_object_get(sample, "height")),
                                      json_integer_value(json_object_get(sample, "width")), png[25] == 2 ? 3 : 1);
    add_cell(&table, json_object_get(sample, "index"), NULL);
    add_cell(&table, json_object_get(sample, "label"), name);
    add_cell(&table, json_object_get(sample, "answer"), answer);
    add_cell(&table, json_object_get(sample, "answer_probability"), NULL);
    add_cell(&table, json_object_get(sample, "loss"), NULL);
    brim_text_add(&table, "|\n");
  }
  char tag[64];
  snprintf(tag, sizeof tag, "most_wrong_%s", split);
  if (status == BRIM_OK) status = brim_tensorboard_text(t, step, tag, brim_text_str(&table));
  brim_text_release(&table);
  return status;
}

brim_status brim_running_evaluate_samples(brim_running *r, enum brim_part part, const volatile int *stop,
                                          brim_evaluation *out)
{
  const bool lists = lists_samples(r, part);
  r->samples.limit = r->settings->observe.samples;
  brim_trainer_list_samples(r->trainer, lists ? &r->samples : NULL);
  const brim_status status = brim_trainer_evaluate(r->trainer, part, stop, out);
  brim_trainer_list_samples(r->trainer, NULL);
  json_t *list = NULL;
  if (status != BRIM_OK || !lists || !brim_running_prints(r)) return status;
  if (brim_samples_write(&r->samples, r->drive->setup, r->dir, r->state->step, &list) != BRIM_OK)
    brim_log(BRIM_LOG_WARN, "the worst answers of step %lld are not listed: %s", (long long)r->state->step,
             brim_error_text());
  else if (r->tensorboard.fd >= 0)
    brim_running_heed_tensorboard(r, show_samples(&r->tensorboard, list, r->state->step));
  json_decref(list);
  return BRIM_OK;
}
