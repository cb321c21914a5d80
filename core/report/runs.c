/* Reads the folders of runs, and finds the differences between them. */
#include "report/runs.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "report/epochs.h"
#include "report/find.h"
#include "store/record.h"

#define KEY_DEPTH_MAX 16 /* limit for the depth of keys; deeper maps are compared as a whole */

/* ---- runs ---- */

void brim_compare_summarize(brim_compared *run)
{
  const brim_series *split = run->metrics.split, *train = &split[BRIM_PART_TRAIN];
  brim_summary *s = &run->summary;
  brim_summary_clear(s);
  snprintf(s->status, sizeof s->status, "unfinished");
  s->steps = train->count ? train->step[train->count - 1] : NAN;
  for (int part = 0; part < BRIM_PART_COUNT; part++) {
    s->loss[part] = brim_series_last(&split[part], "loss");
    for (int k = 0; k < BRIM_SCORE_COUNT; k++) s->score[k][part] = brim_series_last(&split[part], brim_score_keys[k]);
  }
}

static bool has_file(const char *dir, const char *name)
{
  char path[BRIM_PATH_MAX];
  return brim_path_join(path, dir, name) == BRIM_OK && access(path, R_OK) == 0;
}

static brim_status read_run(brim_comparison *c, const char *dir)
{
  char path[BRIM_PATH_MAX];
  brim_yaml *config = NULL;
  BRIM_TRY(brim_path_join(path, dir, "config.yaml"));
  BRIM_TRY(brim_yaml_parse_file(&c->arena, path, &config));
  brim_compared run = {.dir = brim_arena_string(&c->arena, dir), .config = config};
  BRIM_TRY(brim_path_join(path, dir, "metrics.jsonl"));
  if (has_file(dir, "metrics.jsonl")) BRIM_TRY(brim_metrics_read(&c->arena, path, &run.metrics));
  if (!brim_summary_read(dir, &run.summary)) brim_compare_summarize(&run);
  run.epoch_count = brim_epochs_list(&c->arena, &run.metrics, &run.epoch, &run.by_evaluation);
  if (c->count == BRIM_COMPARE_RUNS_MAX)
    return brim_fail(BRIM_ECONFIG, "cannot compare more than %d runs", BRIM_COMPARE_RUNS_MAX);
  BRIM_ARENA_GROW(&c->arena, c->run, c->count, c->room);
  c->run[c->count++] = run;
  return BRIM_OK;
}

/* Reads the jobs of a sweep that have a folder. */
static brim_status read_sweep(brim_comparison *c, const char *dir)
{
  char path[BRIM_PATH_MAX];
  json_error_t error;
  BRIM_TRY(brim_path_join(path, dir, "sweep.json"));
  json_t *root = brim_json_load(path, 0, &error);
  if (!root) return brim_fail(BRIM_ELOAD, "'%s' is not JSON: %s", path, error.text);
  const size_t jobs = json_array_size(json_object_get(root, "jobs"));
  json_decref(root);
  for (size_t i = 0; i < jobs; i++) {
    const char *job = brim_arena_printf(&c->arena, "%s/%zu", dir, i);
    if (has_file(job, "config.yaml")) BRIM_TRY(read_run(c, job));
  }
  return BRIM_OK;
}

/* Reads the runs below a folder. If one cannot be read, warns and still adds the others. */
static brim_status read_folder(brim_comparison *c, const char *dir)
{
  brim_found_list found;
  const size_t before = c->count;
  if (!brim_is_folder(dir) || brim_find_runs(&c->arena, dir, &found) != BRIM_OK) found.count = 0;
  for (size_t i = 0; i < found.count; i++) {
    const char *run = brim_arena_printf(&c->arena, "%s/%s", dir, found.item[i].name);
    /* read_run() reports that there are too many runs. */
    if (c->count == BRIM_COMPARE_RUNS_MAX) return read_run(c, run);
    if (found.item[i].error)
      brim_log(BRIM_LOG_WARN, "left out: cannot read '%s': %s", run, strerror(found.item[i].error));
    else if (read_run(c, run) != BRIM_OK)
      brim_log(BRIM_LOG_WARN, "left out: %s", brim_error_text());
  }
  if (c->count > before) return BRIM_OK;
  if (access(dir, F_OK) != 0) return brim_fail(BRIM_ELOAD, "there is no run '%s': %s", dir, strerror(errno));
  if (!brim_is_folder(dir)) return brim_fail(BRIM_ELOAD, "'%s' is a file, not the folder of a run", dir);
  if (access(dir, R_OK | X_OK) != 0)
    return brim_fail(BRIM_ELOAD, "cannot read the folder '%s': %s", dir, strerror(errno));
  return brim_fail(BRIM_ELOAD,
                   "'%s' is not the folder of a run or of a sweep, as it has no readable config.yaml, and there are no "
                   "readable runs in it",
                   dir);
}

brim_status brim_compare_add(brim_comparison *c, const char *dir)
{
  char path[BRIM_PATH_MAX];
  size_t length = strlen(dir);
  while (length > 1 && dir[length - 1] == '/') length--;
  dir = brim_arena_string_n(&c->arena, dir, length);
  if (brim_path_join(path, dir, "config.yaml") == BRIM_OK && access(path, F_OK) == 0)
    return read_run(c, dir); /* a folder with config.yaml is a run, even if a sweep has failed in it before */
  if (has_file(dir, "sweep.json")) return read_sweep(c, dir);
  return read_folder(c, dir);
}

/* ---- names ---- */

/* Returns the last `parts` parts of a path. */
static const char *end_of_path(const char *dir, int parts)
{
  const char *s = dir + strlen(dir);
  for (; s > dir; s--)
    if (s[-1] == '/' && --parts == 0) return s;
  return dir;
}

static bool is_unique(const brim_comparison *c, size_t i, int parts)
{
  for (size_t k = 0; k < c->count; k++)
    if (k != i && strcmp(end_of_path(c->run[k].dir, parts), end_of_path(c->run[i].dir, parts)) == 0) return false;
  return true;
}

static bool are_unique(const brim_comparison *c, int parts)
{
  for (size_t i = 0; i < c->count; i++)
    if (!is_unique(c, i, parts)) return false;
  return true;
}

/* Whether a name is a number, as the jobs of a sweep have: it needs the sweep's name before it. */
static bool is_numbered(const char *name)
{
  return strspn(name, "0123456789") == strlen(name);
}

/* ---- configurations ---- */

void brim_compare_add_value(const brim_yaml *node, brim_text *out)
{
  const bool map = node->kind == BRIM_YAML_MAP;
  if (node->kind == BRIM_YAML_SCALAR) {
    brim_text_add(out, node->scalar[0] ? node->scalar : "''");
    return;
  }
  brim_text_add(out, map ? "{" : "[");
  for (size_t i = 0; i < node->count; i++) {
    brim_text_printf(out, "%s%s%s", i ? ", " : "", map ? node->key[i] : "", map ? ": " : "");
    brim_compare_add_value(node->item[i], out);
  }
  brim_text_add(out, map ? "}" : "]");
}

enum brim_part brim_compare_judged(const brim_metrics *metrics)
{
  return metrics->split[BRIM_PART_VALIDATION].count ? BRIM_PART_VALIDATION : BRIM_PART_TEST;
}

const brim_series *brim_compare_judged_series(const brim_metrics *metrics)
{
  return &metrics->split[brim_compare_judged(metrics)];
}

const char *brim_compare_value(brim_comparison *c, const brim_compared *run, const char *key)
{
  const brim_yaml *node = brim_yaml_get_path(run->config, key);
  brim_text text = {0};
  if (!node) return "-";
  brim_compare_add_value(node, &text);
  const char *out = brim_arena_string(&c->arena, brim_text_str(&text));
  brim_text_release(&text);
  return out;
}

const char *brim_compare_dataset(brim_comparison *c, const brim_compared *run)
{
  const bool has_option = brim_yaml_get_path(run->config, "dataset.option") != NULL;
  return brim_compare_value(c, run, has_option ? "dataset.option" : "dataset.id");
}

bool brim_compare_is_federated(const brim_compared *run)
{
  const brim_yaml *node = brim_yaml_get_path(run->config, "total_clients");
  return node && node->kind == BRIM_YAML_SCALAR && strtoll(node->scalar, NULL, 10) > 0;
}

double brim_compare_clock(const brim_compared *run, double step)
{
  const brim_series *train = &run->metrics.split[BRIM_PART_TRAIN];
  const double *clock = brim_series_values(train, "simulated_clock");
  size_t i = 0;
  while (clock && i < train->count && train->step[i] < step) i++;
  return clock && i < train->count ? clock[i] : NAN;
}

const double brim_compare_goals[BRIM_GOALS] = {0.5, 0.8, 0.9};

size_t brim_compare_reached(const brim_compared *run, double least)
{
  const brim_series *judged = brim_compare_judged_series(&run->metrics);
  const double *accuracy = brim_series_values(judged, "accuracy");
  size_t i = 0;
  while (i < judged->count && !(accuracy && accuracy[i] >= least)) i++;
  return i;
}

const char *brim_compare_step(const brim_comparison *c)
{
  for (size_t i = 0; i < c->count; i++)
    if (!brim_compare_is_federated(&c->run[i])) return "step";
  return "round";
}

static bool differs(brim_comparison *c, const char *key)
{
  const char *first = brim_compare_value(c, &c->run[0], key);
  for (size_t i = 1; i < c->count; i++)
    if (strcmp(first, brim_compare_value(c, &c->run[i], key)) != 0) return true;
  return false;
}

typedef struct names {
  const char **item;
  size_t count, room;
} names;

/* Adds a name unless it exists. */
static void add_name(brim_arena *arena, names *list, const char *name)
{
  for (size_t i = 0; i < list->count; i++)
    if (strcmp(list->item[i], name) == 0) return;
  BRIM_ARENA_GROW(arena, list->item, list->count, list->room);
  list->item[list->count++] = brim_arena_string(arena, name);
}

/* Collects each key once, in order of first appearance. */
static void collect_keys(brim_comparison *c, const brim_yaml *node, const char *path, int depth, names *all)
{
  for (size_t i = 0; i < node->count; i++) {
    const brim_yaml *child = node->item[i];
    const char *full = path[0] ? brim_arena_printf(&c->arena, "%s.%s", path, node->key[i]) : node->key[i];
    if (child->kind == BRIM_YAML_MAP && child->count > 0 && depth < KEY_DEPTH_MAX)
      collect_keys(c, child, full, depth + 1, all);
    else
      add_name(&c->arena, all, full);
  }
}

void brim_compare_finish(brim_comparison *c)
{
  names all = {0};
  enum { PARTS_MAX = 4 };
  int parts = 1;
  while (parts < PARTS_MAX && !are_unique(c, parts)) parts++;
  for (size_t i = 0; i < c->count; i++) {
    const char *name = end_of_path(c->run[i].dir, parts);
    if (is_numbered(name)) name = end_of_path(c->run[i].dir, parts + 1);
    c->run[i].name = parts < PARTS_MAX ? name : c->run[i].dir;
  }
  for (size_t i = 0; i < c->count; i++)
    if (c->run[i].config->kind == BRIM_YAML_MAP) collect_keys(c, c->run[i].config, "", 0, &all);
  c->key = BRIM_ARENA_NEW(&c->arena, const char *, all.count);
  for (size_t i = 0; i < all.count; i++) {
    /* the place of a run does not affect its training */
    if (strcmp(all.item[i], "run.dir") == 0 || strcmp(all.item[i], "run.name") == 0) continue;
    if (differs(c, all.item[i])) c->key[c->key_count++] = all.item[i];
  }
}

void brim_compare_release(brim_comparison *c)
{
  brim_arena_release(&c->arena);
}
