/* The figures of a run, and the files that contain them. */
#include "train/report.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/table.h"
#include "drive/distribute.h"
#include "drive/precision.h"
#include "graph/pieces.h"
#include "graph/plan_json.h"
#include "planner/figures.h"
#include "store/record.h"
#include "store/rundir.h"
#include "store/summary.h"
#include "train/run.h"
#include "train/scores.h"

void brim_report_init(brim_report *r)
{
  const brim_evaluation none = brim_evaluation_none();
  *r = (brim_report){.figures = {none, none, none},
                     .test_step = -1,
                     .first_step_seconds = NAN,
                     .client_model = "",
                     .client_accuracy = {NAN, NAN, NAN},
                     .finetuned_accuracy = {NAN, NAN, NAN}};
}

void brim_report_begin(brim_report *r, const brim_drive *d)
{
  r->client_model = brim_setup_is_ditto(d->setup)      ? ", by its personal model"
                    : brim_setup_is_personal(d->setup) ? ", in its last training"
                                                       : "";
  if (d->setup->data.count[BRIM_PART_TEST] == 0) { /* name the dataset's parameters that create a test split */
    const brim_plugin *dataset = brim_config_choice_of(d->setup->config, "dataset")->plugin;
    brim_text keys = {0};
    for (const brim_param *p = dataset->params; p && p->key; p++)
      if (brim_starts_with(p->key, "test"))
        brim_text_printf(&keys, "%sdataset.%s", keys.length > 0 ? " or " : "", p->key);
    if (keys.length > 0)
      snprintf(r->no_test, sizeof r->no_test, "no test data; to get some, set %s (see brim train dataset=%s --help)",
               brim_text_str(&keys), dataset->id);
    else
      snprintf(r->no_test, sizeof r->no_test, "no test data: dataset '%s' has no test split", dataset->id);
    brim_text_release(&keys);
  }
  r->task = d->setup->data.train.task;
  r->says_memory = d->setup->settings->observe.memory_summary;
  r->tokens_each = r->task == BRIM_TASK_TOKENS ? d->setup->data.elements : 0;
  for (size_t part = 0; part < sizeof r->figures / sizeof r->figures[0]; part++) r->figures[part].task = r->task;
}

void brim_report_release(brim_report *r)
{
  free(r->confusion);
  r->confusion = NULL;
  r->figures[BRIM_PART_TEST].confusion = NULL;
}

/* The first step includes one-time costs, so rates leave it out. */
void brim_report_step(brim_report *r, int64_t samples, double seconds, double since_start)
{
  if (isnan(r->first_step_seconds)) {
    r->first_step_seconds = since_start;
    return;
  }
  r->samples += samples;
  r->train_seconds += seconds;
}

brim_status brim_report_evaluation(brim_report *r, enum brim_part part, const brim_evaluation *e, int64_t step)
{
  brim_evaluation *own = &r->figures[part];
  const size_t bytes = e->confusion ? (size_t)(e->classes * e->classes) * sizeof(double) : 0;
  const bool is_test = part == BRIM_PART_TEST;
  if (is_test && bytes > 0 && !r->confusion) r->confusion = brim_try_malloc(bytes);
  if (is_test && bytes > 0 && !r->confusion)
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a confusion matrix");
  *own = *e;
  own->confusion = NULL; /* the trainer's counts change in the next evaluation */
  if (!is_test) return BRIM_OK;
  r->test_step = step;
  if (bytes > 0) own->confusion = memcpy(r->confusion, e->confusion, bytes);
  return BRIM_OK;
}

void brim_report_memory(brim_report *r, const brim_trainer *t)
{
  const brim_drive *d = brim_trainer_drive(t);
  const brim_plan *plan = brim_trainer_plan(t);
  if (plan && plan->peak_bytes > r->planned_peak_bytes) r->planned_peak_bytes = plan->peak_bytes;
  r->predicted_rss_bytes = brim_trainer_footprint(t)->total_bytes;
  r->host_bytes = brim_trainer_host_bytes(t);
  r->device_bytes = brim_trainer_device_bytes(t);
  if (r->device_bytes > r->device_peak_bytes) r->device_peak_bytes = r->device_bytes;
  r->device_taken_bytes = d->planner.device_info.taken_bytes + d->planner.comm_bytes;
  snprintf(r->device, sizeof r->device, "%s:%d", brim_setup_backend_id(d->setup), d->planner.device);
  snprintf(r->device_name, sizeof r->device_name, "%s", d->planner.device_info.name);
}

double brim_report_rate(const brim_report *r)
{
  return r->train_seconds > 0 ? (double)r->samples / r->train_seconds : 0;
}

static void begin_event_at(brim_jsonl *events, const char *what, int64_t step, double time)
{
  brim_jsonl_begin(events);
  brim_jsonl_number(events, "time", floor(1e3 * time) / 1e3);
  brim_jsonl_string(events, "event", what);
  brim_jsonl_int(events, "step", step);
}

/* Begins a record; false if another rank writes the events. */
static bool begin_event(brim_jsonl *events, const char *what, int64_t step)
{
  if (events->fd < 0) return false;
  begin_event_at(events, what, step, brim_wall_now());
  return true;
}

static void end_event(brim_jsonl *events)
{
  if (brim_jsonl_end(events) != BRIM_OK) brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
}

void brim_report_event(brim_jsonl *events, const char *what, int64_t step, const char *detail)
{
  if (!begin_event(events, what, step)) return;
  if (detail) brim_jsonl_string(events, "detail", detail);
  end_event(events);
}

/* Writes the event "seen". */
static void report_sight(brim_jsonl *events, const brim_sight *s, int64_t step)
{
  (void)begin_event(events, "seen", step);
  brim_jsonl_number(events, "at", s->at);
  brim_jsonl_string(events, "question", s->question);
  if (s->kind == BRIM_SIGHT_DEVICE) {
    brim_jsonl_string(events, "device", s->device);
    brim_jsonl_int(events, "is_shared", s->is_shared);
    brim_jsonl_int(events, "on_host", s->on_host);
    brim_jsonl_int(events, "waiting", s->waiting);
    brim_jsonl_int(events, "waiting_bytes", (int64_t)s->waiting_bytes);
  }
  if (s->kind == BRIM_SIGHT_PLAN) {
    brim_jsonl_int(events, "micro_batch", s->micro_batch);
    brim_jsonl_int(events, "peak_bytes", (int64_t)s->peak_bytes);
    if (s->step_seconds > 0) brim_jsonl_number(events, "step_seconds", s->step_seconds);
    if (s->step_seconds > 0) brim_jsonl_int(events, "basis", s->basis);
  }
  if (s->kind == BRIM_SIGHT_RUN) {
    brim_jsonl_int(events, "grain", s->grain);
    brim_jsonl_int(events, "norm_group", s->norm_group);
    brim_jsonl_int(events, "samples", s->samples);
    brim_jsonl_int(events, "steps", s->steps);
  }
  if (s->kind == BRIM_SIGHT_DEVICE || s->kind == BRIM_SIGHT_HOST) {
    brim_jsonl_int(events, "total_bytes", (int64_t)s->total_bytes);
    brim_jsonl_int(events, "free_bytes", (int64_t)s->free_bytes);
    brim_jsonl_int(events, "own_bytes", (int64_t)s->own_bytes);
  }
  end_event(events);
}

/* Writes the events "waiting" and "claimed". Their time is that of the wait or the claim, which may be earlier than the
 * run's folder. */
static void report_wait(brim_jsonl *events, const brim_sight *s, int64_t step)
{
  begin_event_at(events, s->queue_seconds < 0 ? "waiting" : "claimed", step, s->at);
  brim_jsonl_string(events, "device", s->device);
  brim_jsonl_int(events, "need_bytes", (int64_t)s->peak_bytes);
  if (s->queue_seconds >= 0) brim_jsonl_number(events, "queue_seconds", s->queue_seconds);
  brim_jsonl_string(events, "detail", s->detail);
  end_event(events);
}

void brim_report_decision(brim_jsonl *events, const brim_decision *decision, int64_t step)
{
  if (events->fd < 0) return;
  if (decision->sight) {
    (decision->sight->kind == BRIM_SIGHT_WAIT ? report_wait : report_sight)(events, decision->sight, step);
    return;
  }
  (void)begin_event(events, "decision", step);
  brim_jsonl_string(events, "by", decision->policy);
  brim_jsonl_string(events, "choice", decision->choice);
  brim_jsonl_string(events, "reason", decision->reason);
  if (decision->action) brim_jsonl_string(events, "action", decision->action);
  end_event(events);
}

void brim_report_pressure(brim_jsonl *events, bool acts, int64_t step, const char *detail, uint64_t target_bytes)
{
  if (!begin_event(events, acts ? "memory_critical" : "memory_warning", step)) return;
  brim_jsonl_string(events, "detail", detail);
  if (acts) brim_jsonl_int(events, "target_bytes", (int64_t)target_bytes);
  end_event(events);
}

void brim_report_recovered(brim_jsonl *events, int64_t step, const char *what, double seconds)
{
  if (!begin_event(events, "recovered", step)) return;
  brim_jsonl_string(events, "detail", what);
  brim_jsonl_number(events, "recovered_seconds", seconds);
  end_event(events);
}

void brim_report_rank(brim_jsonl *events, int32_t rank, const brim_rank_figures *f, int64_t step)
{
  if (!begin_event(events, "rank", step)) return;
  brim_jsonl_int(events, "rank", rank);
  brim_jsonl_number(events, "busy_seconds", f->busy_seconds);
  brim_jsonl_number(events, "waiting_seconds", f->waiting_seconds);
  brim_jsonl_int(events, "device_bytes", (int64_t)f->device_bytes);
  brim_jsonl_int(events, "rss_bytes", (int64_t)f->resident_bytes);
  brim_jsonl_int(events, "micro_batch", f->batch);
  brim_jsonl_int(events, "step_samples", f->step_samples);
  end_event(events);
}

/* Writes a file; the caller syncs the folder later. */
static brim_status write_text(const char *dir, const char *name, const brim_text *text)
{
  char path[4200];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return brim_file_replace(path, brim_text_str(text), text->length);
}

static brim_status write_json(const char *dir, const char *name, json_t *json)
{
  brim_text text = {0};
  brim_status status = brim_record_print(name, json, &text);
  if (status == BRIM_OK) status = write_text(dir, name, &text);
  brim_text_release(&text);
  json_decref(json);
  return status;
}

/* Returns the hash "fnv1a64:..." of the file that a choice comes from; null for brim's own plugins. Reads each file
 * only once: `all` describes the choices before this one. */
static json_t *hash_of(const brim_config *c, size_t i, const json_t *all)
{
  uint64_t bytes = 0, hash = 0;
  const char *file = c->choice[i].file;
  if (!file[0]) return json_null();
  for (size_t k = 0; k < i; k++)
    if (strcmp(c->choice[k].file, file) == 0)
      return json_copy(json_object_get(json_object_get(all, c->choice[k].group), "hash"));
  if (brim_file_hash(file, &bytes, &hash) == BRIM_OK) return json_sprintf("fnv1a64:%016" PRIx64, hash);
  brim_log(BRIM_LOG_WARN, "plugins.json has no hash for one file: %s", brim_error_text());
  return json_null();
}

static json_t *describe_plugins(const brim_config *c)
{
  json_t *all = json_object();
  for (size_t i = 0; i < c->choice_count; i++) {
    const brim_config_choice *choice = &c->choice[i];
    char file[PATH_MAX];
    const bool found = choice->file[0] && realpath(choice->file, file);
    json_t *one = json_pack("{s:s, s:s, s:s?, s:o, s:s}", "id", choice->plugin->id, "version", choice->version, "file",
                            found             ? file
                            : choice->file[0] ? choice->file
                                              : NULL,
                            "hash", hash_of(c, i, all), "help", choice->plugin->help);
    json_object_set_new(all, choice->group, one);
  }
  return all;
}

/* Copies files that a backend's parameters name, such as its profile, into the run's folder, and changes the paths in
 * the kept configuration to the copies, because a resumed run must use the same files. "backend.profile" is copied to
 * "profile". The strings live in `arena`. */
static brim_status keep_files(const char *dir, const brim_config *config, brim_arena *arena)
{
  const brim_config_choice *backend = brim_config_choice_of(config, "backend");
  for (const brim_param *row = backend->plugin->params; row && row->key; row++) {
    char key[128], path[BRIM_PATH_MAX], folder[PATH_MAX];
    snprintf(key, sizeof key, "backend.%s", row->key);
    brim_yaml *node = brim_yaml_get_path(config->root, key);
    if (row->type != BRIM_PATH || !node || node->kind != BRIM_YAML_SCALAR || !node->scalar[0]) continue;
    if (access(node->scalar, F_OK) != 0) continue; /* the backend may write this file, but had nothing to write */
    if (!realpath(dir, folder)) return brim_fail(BRIM_EIO, "cannot resolve the path '%s': %s", dir, strerror(errno));
    BRIM_TRY(brim_path_join(path, folder, row->key));
    BRIM_TRY(brim_file_copy(node->scalar, path));
    node->scalar = brim_arena_string(arena, path);
  }
  return BRIM_OK;
}

/* Writes the configuration. config.yaml makes the folder a run's folder, so everything else that a resume needs is
 * written and synced first. sources.yaml describes the sources with which the run began. If it is missing, they are not
 * compared; if it does not match config.yaml, brim refuses to resume. So it is deleted before a configuration is
 * replaced, and written last. */
static brim_status write_configuration(const char *dir, const brim_config *config)
{
  char path[BRIM_PATH_MAX];
  brim_text text = {0};
  BRIM_TRY(brim_path_join(path, dir, "sources.yaml"));
  if (unlink(path) != 0 && errno != ENOENT) return brim_fail(BRIM_EIO, "cannot delete '%s': %s", path, strerror(errno));
  BRIM_TRY(brim_folder_sync(dir));
  brim_config_print(config, &text, false);
  brim_status status = write_text(dir, "config.yaml", &text);
  if (status == BRIM_OK) status = brim_folder_sync(dir);
  brim_text_clear(&text);
  brim_config_print(config, &text, true);
  if (status == BRIM_OK) status = write_text(dir, "sources.yaml", &text);
  brim_text_release(&text);
  return status == BRIM_OK ? brim_folder_sync(dir) : status;
}

/* Writes the data of the plan's picture, for the page; not for a very large plan. */
static brim_status write_pieces(const char *dir, const brim_plan *plan, int64_t micro_batch)
{
  brim_arena scratch = {0};
  brim_pieces pieces;
  const brim_program *train = brim_plan_program(plan, BRIM_PROGRAM_TRAIN, micro_batch);
  if (!train && plan->lane_count > 0) train = brim_plan_program(plan->lane[0], BRIM_PROGRAM_TRAIN, micro_batch);
  if (!train) return BRIM_OK;
  brim_pieces_collect(&scratch, plan, train, &pieces);
  json_t *described = brim_pieces_json(&pieces);
  brim_arena_release(&scratch);
  char *text = described ? json_dumps(described, JSON_COMPACT) : NULL;
  json_decref(described);
  if (!text) return BRIM_OK;
  const brim_text whole = {.s = text, .length = strlen(text)};
  const brim_status status = write_text(dir, BRIM_PIECES_NAME, &whole);
  free(text);
  return status;
}

brim_status brim_report_write_inputs(const char *dir, brim_config *config, brim_drive *drive, const brim_plan *plan)
{
  brim_text text = {0};
  brim_precision_record(config, drive->setup);
  BRIM_TRY(keep_files(dir, config, &config->arena));
  for (size_t i = 0; i < config->override_count; i++) { /* a list of quoted words, so that any text reads back */
    brim_text_add(&text, "- '");
    for (const char *s = config->overrides[i]; *s; s++)
      brim_text_add_n(&text, *s == '\'' ? "''" : s, *s == '\'' ? 2 : 1);
    brim_text_add(&text, "'\n");
  }
  if (config->override_count == 0) brim_text_add(&text, "[]\n");
  brim_status status = write_text(dir, "overrides.yaml", &text);
  if (status == BRIM_OK) status = write_json(dir, "plugins.json", describe_plugins(config));
  if (status == BRIM_OK) {
    json_t *described = brim_plan_json(plan, drive->choice.micro_batch);
    const double seconds = brim_planner_step_seconds(&drive->planner, plan, drive->choice.micro_batch);
    if (isfinite(seconds)) json_object_set_new(described, "step_seconds", json_real(seconds));
    brim_distribution_describe(drive, described);
    brim_precision_describe(drive->setup, described);
    status = write_json(dir, "plan.json", described);
  }
  if (status == BRIM_OK) status = write_pieces(dir, plan, drive->choice.micro_batch);
  if (status == BRIM_OK) status = write_json(dir, BRIM_SETUP_DATA_NAME, json_incref(drive->setup->kept));
  brim_text_clear(&text);
  if (drive->planner.profile) brim_profile_print_used(drive->planner.profile, &text); /* a resumed run uses these */
  if (status == BRIM_OK && text.length > 0) status = write_text(dir, BRIM_PROFILE_NAME, &text);
  brim_text_release(&text);
  return status == BRIM_OK ? write_configuration(dir, config) : status;
}

/* Returns the Gini coefficient of accuracies; 0 if all accuracies are 0. */
static double accuracy_gini(const brim_spread *accuracy)
{
  return accuracy->mean > 0 ? accuracy->gini : 0;
}

static void set_number(json_t *object, const char *key, double value)
{
  json_object_set_new(object, key, brim_json_figure(value));
}

/* Adds the accuracies of clients: "client_accuracy_mean" and so on. */
static void set_accuracy(json_t *object, const char *name, const brim_spread *accuracy)
{
  const double value[] = {accuracy->mean, accuracy->variance, accuracy_gini(accuracy)};
  static const char *const figure[] = {"mean", "variance", "gini"};
  char key[64];
  for (size_t i = 0; i < 3 && isfinite(accuracy->mean); i++) {
    snprintf(key, sizeof key, "%s_%s", name, figure[i]);
    set_number(object, key, value[i]);
  }
}

static void set_bytes(json_t *object, const char *key, uint64_t value)
{
  json_object_set_new(object, key, json_integer((json_int_t)value));
}

/* Returns the name of a class: the dataset's, or its number. */
static const char *name_of(const brim_evaluation *e, int64_t class_index, char *room, size_t bytes)
{
  if (e->class_names) return e->class_names[class_index];
  snprintf(room, bytes, "%" PRId64, class_index);
  return room;
}

/* Adds, for the test data, the confusion matrix, the figures derived from it, and the names of those that are left
 * out. */
static void set_scores(json_t *object, const brim_report *r)
{
  char text[200];
  const brim_evaluation *e = &r->figures[BRIM_PART_TEST];
  json_t *confusion = brim_scores_confusion_json(e->confusion, e->classes);
  if (confusion) json_object_set_new(object, "test_confusion", confusion);
  json_t *rows = e->confusion ? json_array() : NULL;
  for (int64_t i = 0; rows && i < e->classes; i++) {
    const brim_class_score score = brim_scores_of(e->confusion, e->classes, i);
    json_t *name = json_string(name_of(e, i, text, sizeof text)); /* NULL if a folder's name is not UTF-8 */
    json_array_append_new(
        rows, json_pack("{s:o, s:f, s:f, s:f, s:I}", "class", name ? name : json_sprintf("%" PRId64, i), "precision",
                        score.precision, "recall", score.recall, "f1", score.f1, "support", (json_int_t)score.support));
  }
  if (rows) json_object_set_new(object, "test_classes", rows);
  if (r->test_step < 0 || r->task != BRIM_TASK_CLASS) return;
  if (brim_scores_left_out(text, sizeof text, e->classes)[0])
    json_object_set_new(object, "left_out", json_string(text));
}

static void set_figures(json_t *object, const brim_report *r)
{
  const bool is_values = r->task == BRIM_TASK_VALUES;
  char top[32];
  for (enum brim_part part = 0; part < BRIM_PART_COUNT; part++) {
    const brim_evaluation *e = &r->figures[part];
    brim_summary_set(object, part, "loss", e->loss);
    brim_summary_set(object, part, is_values ? "mae" : "accuracy", is_values ? e->mae : e->accuracy);
    if (is_values && part != BRIM_PART_TRAIN) { /* training computes only the first of these errors */
      brim_summary_set(object, part, "mape", e->mape);
      brim_summary_set(object, part, "rmse", e->rmse);
      brim_summary_set(object, part, "r2", e->r2);
    }
    if (r->task == BRIM_TASK_TOKENS) brim_summary_set(object, part, "perplexity", brim_evaluation_perplexity(e));
    if (r->task == BRIM_TASK_CLASS && part != BRIM_PART_TRAIN) brim_summary_set(object, part, "f1", e->f1);
    snprintf(top, sizeof top, "accuracy_top%d", (int)e->top_k);
    if (e->top_k > 0) brim_summary_set(object, part, top, e->accuracy_top);
  }
}

const char *brim_report_ending(brim_status status)
{
  return status == BRIM_OK ? "finished" : status == BRIM_EINTERRUPTED ? "interrupted" : "failed";
}

/* Bytes of the error that are not UTF-8, as in a file's name, are replaced. */
static void set_error(json_t *object, const char *error)
{
  brim_text shown = {0};
  json_t *text = json_string(error);
  if (!text) {
    brim_text_add_shown(&shown, error, "\n\t");
    text = json_string(brim_text_str(&shown));
    brim_text_release(&shown);
  }
  json_object_set_new(object, "error", text);
}

brim_status brim_report_write_summary(brim_report *r, const char *dir, const brim_plan *plan, brim_status status,
                                      const char *error, int64_t steps, double wall_seconds)
{
  json_t *s = json_object();
  json_object_set_new(s, "status", json_string(brim_report_ending(status)));
  if (error[0]) set_error(s, error);
  json_object_set_new(s, "steps", json_integer(steps));
  set_figures(s, r);
  set_number(s, "samples_per_second", r->train_seconds > 0 ? brim_report_rate(r) : NAN);
  if (r->tokens_each > 0)
    set_number(s, "tokens_per_second", r->train_seconds > 0 ? (double)r->tokens_each * brim_report_rate(r) : NAN);
  json_object_set_new(s, "device", json_string(r->device));
  json_object_set_new(s, "device_name", json_string(r->device_name));
  set_bytes(s, "planned_peak_bytes", r->planned_peak_bytes);
  set_bytes(s, "device_bytes", r->device_bytes);
  set_bytes(s, "device_reserved_bytes", r->device_bytes + r->device_taken_bytes);
  set_bytes(s, "device_peak_bytes", r->device_peak_bytes);
  set_bytes(s, "loader_bytes", r->host_bytes);
  set_bytes(s, "predicted_rss_bytes", r->predicted_rss_bytes);
  set_bytes(s, "rss_bytes", brim_rss_bytes());
  set_bytes(s, "rss_peak_bytes", brim_rss_peak_bytes());
  set_number(s, "first_step_seconds", r->first_step_seconds);
  set_number(s, "wall_seconds", wall_seconds);
  set_number(s, "queue_seconds", r->queue_seconds);
  json_object_set_new(s, "retries", json_integer(r->retries));
  if (plan) json_object_set_new(s, "kernels", brim_plan_kernels_json(plan));
  if (r->loss_scale > 0) {
    set_number(s, "loss_scale", r->loss_scale);
    json_object_set_new(s, "skipped_steps", json_integer(r->skipped_steps));
  }
  if (r->epsilon > 0) {
    set_number(s, "epsilon", r->epsilon);
    set_number(s, "delta", r->delta);
  }
  if (r->has_world) {
    set_number(s, "simulated_seconds", r->world_seconds);
    set_number(s, "joules", r->world_joules);
    set_bytes(s, "bytes", (uint64_t)r->world_bytes);
  }
  set_accuracy(s, "client_accuracy", &r->client_accuracy);
  set_accuracy(s, "finetuned_accuracy", &r->finetuned_accuracy);
  set_scores(s, r);
  brim_report_release(r);
  const brim_status written = brim_record_write(dir, "summary.json", s);
  json_decref(s);
  return written;
}

#define CLASSES_SAID_MAX 20 /* with more classes, only the summary lists them */

static void say_classes(const brim_evaluation *e)
{
  static const char *const head[] = {"class", "precision", "recall", "f1", "support"};
  brim_arena arena = {0};
  brim_table table = {.arena = &arena, .columns = sizeof head / sizeof head[0]};
  brim_text text = {0};
  char number[24];
  if (!e->confusion || e->classes > CLASSES_SAID_MAX) return;
  for (size_t i = 0; i < table.columns; i++) brim_table_add(&table, head[i]);
  for (int64_t i = 0; i < e->classes; i++) {
    const brim_class_score s = brim_scores_of(e->confusion, e->classes, i);
    brim_table_add(&table, name_of(e, i, number, sizeof number));
    brim_table_number(&table, s.precision, 3);
    brim_table_number(&table, s.recall, 3);
    brim_table_number(&table, s.f1, 3);
    brim_table_number(&table, (double)s.support, 0);
  }
  brim_table_print(&table, &text);
  for (const char *s = brim_text_str(&text); *s; s += strcspn(s, "\n") + 1) brim_say("%.*s", (int)strcspn(s, "\n"), s);
  brim_text_release(&text);
  brim_arena_release(&arena);
}

const char *brim_report_format(char *out, size_t room, const brim_evaluation *e)
{
  brim_text text = {0};
  if (e->task == BRIM_TASK_TOKENS) brim_text_printf(&text, ", perplexity %.4g", brim_evaluation_perplexity(e));
  if (e->task != BRIM_TASK_VALUES) brim_text_printf(&text, ", accuracy %.2f %%", 100 * e->accuracy);
  if (e->task == BRIM_TASK_VALUES)
    brim_text_printf(&text, ", MAE %.4g, MAPE %.4g %%, RMSE %.4g, R2 %.4f", e->mae, e->mape, e->rmse, e->r2);
  snprintf(out, room, "%s", brim_text_str(&text));
  brim_text_release(&text);
  return out;
}

/* Logs the accuracy of clients, if it was evaluated. */
static void say_accuracy(const char *of, const brim_spread *accuracy)
{
  if (isfinite(accuracy->mean))
    brim_say("accuracy on each client's samples%s: mean %.2f %%, standard deviation %.2f %%, Gini %.4f", of,
             100 * accuracy->mean, 100 * sqrt(accuracy->variance), accuracy_gini(accuracy));
}

void brim_report_say(const brim_report *r, const char *dir, double wall_seconds)
{
  const double gb = 1e-9; /* gigabytes, the unit in which the systems that brim replaces print memory */
  const brim_evaluation *e = &r->figures[BRIM_PART_TEST];
  char time[32], rate[48] = "", first[48] = "", queue[64] = "", queued[32], sent[32];
  if (r->train_seconds > 0) /* leaves out the slower first step, which may have been the only one */
    snprintf(rate, sizeof rate, "%.0f %s/s, ", (double)(r->tokens_each > 0 ? r->tokens_each : 1) * brim_report_rate(r),
             r->tokens_each > 0 ? "tokens" : "samples");
  if (isfinite(r->first_step_seconds)) /* a run that was resumed after its last step made no step */
    snprintf(first, sizeof first, "first step after %.2f s", r->first_step_seconds);
  if (isfinite(e->loss)) {
    char figures[BRIM_REPORT_ROOM], top[48] = "", f1[32] = "";
    if (e->top_k > 0) snprintf(top, sizeof top, ", top-%d accuracy %.2f %%", (int)e->top_k, 100 * e->accuracy_top);
    say_classes(e);
    if (e->confusion) snprintf(f1, sizeof f1, ", macro F1 %.4f", e->f1);
    brim_say("test loss %.4f%s%s%s", e->loss, brim_report_format(figures, sizeof figures, e), top, f1);
  }
  if (r->no_test[0]) brim_say("%s", r->no_test);
  say_accuracy(r->client_model, &r->client_accuracy);
  say_accuracy(", after fine-tuning on them", &r->finetuned_accuracy);
  if (r->queue_seconds > 0)
    snprintf(queue, sizeof queue, ", after %s in the queue",
             brim_format_seconds(queued, sizeof queued, r->queue_seconds));
  brim_say("done in %s%s%s%s%s", brim_format_seconds(time, sizeof time, wall_seconds), queue, first[0] ? ": " : "",
           rate, first);
  if (r->has_world)
    brim_say("simulated: %.6g s, %.4g J, %s sent and received", r->world_seconds, r->world_joules,
             brim_format_bytes(sent, sizeof sent, (uint64_t)r->world_bytes));
  if (r->epsilon > 0) brim_say("privacy of clients: epsilon %.4g at delta %g", r->epsilon, r->delta);
  if (r->says_memory) {
    brim_say("[Memory] %s: allocated %.3f GB, reserved %.3f GB, max allocated %.3f GB", r->device,
             gb * (double)r->device_bytes, gb * (double)(r->device_bytes + r->device_taken_bytes),
             gb * (double)r->device_peak_bytes);
    brim_say("[Memory] host: resident %.3f GB, max resident %.3f GB", gb * (double)brim_rss_bytes(),
             gb * (double)brim_rss_peak_bytes());
  }
  if (r->skipped_steps > 0)
    brim_say("%lld step%s skipped because values left the range of fp16; the loss scale is %.0f",
             (long long)r->skipped_steps, r->skipped_steps == 1 ? " was" : "s were", r->loss_scale);
  brim_say("results in %s", dir);
}

bool brim_run_is_finished(const char *dir)
{
  brim_summary summary;
  return brim_summary_read(dir, &summary) && strcmp(summary.status, "finished") == 0;
}
