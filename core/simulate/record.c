/* A run's folder as a scenario. What policies were shown is in its events ("seen"): devices as they were looked at, who
 * waited, and the peaks of the plans that were asked about. */
#include "simulate/record.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/file.h"
#include "brim/policy.h"
#include "config/yaml.h"
#include "observe/metrics.h"
#include "simulate/scenario.h"
#include "store/record.h"

#define CHANGES_MAX 4096 /* of what others have of a device */
#define PLANS_MAX 256
#define FAILURES_MAX 256

/* How something was from a moment on. */
typedef struct change {
  double at; /* seconds from the first look, to a millisecond */
  uint64_t bytes;
  int64_t waiting;
} change;
typedef struct series {
  change *change;
  size_t count;
} series;
typedef struct device {
  char name[64];
  uint64_t total;
  bool is_shared, on_host;
  series use, line;
} device;
typedef struct plan {
  int64_t micro_batch;
  uint64_t bytes;
  double time;
  int64_t basis; /* enum brim_basis */
} plan;
typedef struct failure {
  int64_t step, times;
  bool loses;
  const char *says;
} failure;

typedef struct recording {
  brim_arena *arena;
  const char *run;
  json_t *event; /* an array */
  double start;  /* since 1970; 0: not known yet */
  double plan_time, replan_time;
  device device[BRIM_SCENE_DEVICES_MAX];
  plan plan[PLANS_MAX];
  failure failure[FAILURES_MAX];
  size_t devices, plans, failures;
  uint64_t host_total, process;
  series host;
  int64_t grain, norm_group, samples, steps;
} recording;

/* ---- events ---- */

static double number(const json_t *event, const char *key)
{
  const json_t *value = json_object_get(event, key);
  return json_is_number(value) ? json_number_value(value) : 0;
}

static const char *text(const json_t *event, const char *key)
{
  const char *value = json_string_value(json_object_get(event, key));
  return value ? value : "";
}

static uint64_t bytes_of(const json_t *event, const char *key)
{
  const double value = number(event, key);
  return value > 0 && value < 0x1p62 ? (uint64_t)value : 0;
}

static int64_t count_of(const json_t *event, const char *key)
{
  return (int64_t)bytes_of(event, key);
}

static brim_status read_events(recording *r)
{
  char path[BRIM_PATH_MAX], *line = NULL;
  size_t room = 0;
  BRIM_TRY(brim_path_join(path, r->run, "events.jsonl"));
  FILE *file = fopen(path, "re");
  if (!file) return brim_fail(BRIM_ELOAD, "cannot read '%s': it is not there, or not for you", path);
  for (ssize_t length; (length = getline(&line, &room, file)) >= 0;) {
    json_t *event = json_loadb(line, (size_t)length, 0, NULL);
    if (json_is_object(event))
      json_array_append_new(r->event, event);
    else
      json_decref(event);
  }
  free(line);
  fclose(file);
  return BRIM_OK;
}

/* ---- devices ---- */

static device *find_device(recording *r, const char *name)
{
  for (size_t i = 0; i < r->devices; i++)
    if (strcmp(r->device[i].name, name) == 0) return &r->device[i];
  if (r->devices == BRIM_SCENE_DEVICES_MAX) return NULL;
  device *d = &r->device[r->devices++];
  snprintf(d->name, sizeof d->name, "%s", name);
  return d;
}

static void add_change(recording *r, series *s, double at, uint64_t bytes, int64_t waiting)
{
  const double when = fmax(0, round(1e3 * (at - r->start)) / 1e3);
  change *last = s->count > 0 ? &s->change[s->count - 1] : NULL;
  if (!s->change) s->change = BRIM_ARENA_NEW(r->arena, change, CHANGES_MAX);
  if (last && last->bytes == bytes && last->waiting == waiting) return;
  if (last && when <= last->at) {
    last->bytes = bytes;
    last->waiting = waiting;
    return;
  }
  if (s->count < CHANGES_MAX) s->change[s->count++] = (change){when, bytes, waiting};
}

static uint64_t others_of(const json_t *event)
{
  const uint64_t total = bytes_of(event, "total_bytes");
  const uint64_t own = bytes_of(event, "free_bytes") + bytes_of(event, "own_bytes");
  return total > own ? total - own : 0;
}

static void take_device(recording *r, const json_t *event, const char *question)
{
  device *d = find_device(r, text(event, "device"));
  const double at = number(event, "at");
  if (!d) return;
  d->total = bytes_of(event, "total_bytes");
  d->is_shared = number(event, "is_shared") != 0;
  d->on_host = number(event, "on_host") != 0;
  if (strcmp(question, "line") == 0 || strcmp(question, "step") == 0)
    add_change(r, &d->line, at, bytes_of(event, "waiting_bytes"), count_of(event, "waiting"));
  if (strcmp(question, "line") != 0) add_change(r, &d->use, at, others_of(event), 0);
}

static void take_host(recording *r, const json_t *event)
{
  r->host_total = bytes_of(event, "total_bytes");
  r->process = bytes_of(event, "own_bytes");
  add_change(r, &r->host, number(event, "at"), others_of(event), 0);
}

/* ---- plans ---- */

static void take_plan(recording *r, int64_t micro_batch, uint64_t bytes, double time, int64_t basis)
{
  size_t i = 0;
  while (i < r->plans && r->plan[i].micro_batch < micro_batch) i++;
  const bool known = i < r->plans && r->plan[i].micro_batch == micro_batch;
  if (micro_batch < 1 || micro_batch > 1048576 || (!known && r->plans == PLANS_MAX)) return;
  if (!known) {
    memmove(&r->plan[i + 1], &r->plan[i], (r->plans - i) * sizeof r->plan[0]);
    r->plan[i] = (plan){.micro_batch = micro_batch};
    r->plans++;
  }
  r->plan[i].bytes = bytes;
  if (time <= 0 || basis < BRIM_BASIS_TIMED || basis > BRIM_BASIS_GUESSED) return;
  r->plan[i].time = time;
  r->plan[i].basis = basis;
}

/* A scenario's peaks rise with the micro-batch; those of plans do, or nearly so. */
static void make_rising(recording *r)
{
  for (size_t i = 1; i < r->plans; i++)
    if (r->plan[i].bytes < r->plan[i - 1].bytes) r->plan[i].bytes = r->plan[i - 1].bytes;
}

/* ---- what happened ---- */

static void take_seen(recording *r, const json_t *event)
{
  const char *question = text(event, "question");
  const double at = number(event, "at");
  if (json_object_get(event, "grain")) {
    r->grain = count_of(event, "grain");
    r->norm_group = count_of(event, "norm_group");
    r->samples = count_of(event, "samples");
    r->steps = count_of(event, "steps");
    if (r->plan_time == 0) r->plan_time = fmax(0, round(1e3 * (at - r->start)) / 1e3);
  } else if (json_object_get(event, "micro_batch")) {
    take_plan(r, count_of(event, "micro_batch"), bytes_of(event, "peak_bytes"), number(event, "step_seconds"),
              count_of(event, "basis"));
  } else if (text(event, "device")[0]) {
    take_device(r, event, question);
  } else {
    take_host(r, event);
  }
}

/* Each action of the ladder comes of one failure of the step that is named in front of the reason. */
static void take_decision(recording *r, const json_t *event)
{
  long long step = 0;
  failure *last = r->failures > 0 ? &r->failure[r->failures - 1] : NULL;
  const char *choice = text(event, "choice");
  if (strcmp(text(event, "by"), "recovery") != 0 || sscanf(text(event, "reason"), "step %lld:", &step) != 1) return;
  if (brim_starts_with(choice, "back to step")) {
    if (last) last->loses = true;
    return;
  }
  const bool acts = strstr(choice, "cleanup, ") || strstr(choice, "more recompute, ") || strstr(choice, "micro-batch ");
  if (!acts || brim_starts_with(choice, "no smaller") || brim_starts_with(choice, "gives up")) return;
  if (last && last->step == step)
    last->times++;
  else if (r->failures < FAILURES_MAX)
    r->failure[r->failures++] = (failure){step, 1, false, strchr(text(event, "reason"), ':')};
}

static void take_events(recording *r)
{
  size_t i;
  json_t *event;
  json_array_foreach(r->event, i, event)
  {
    const char *what = text(event, "event");
    const bool seen = strcmp(what, "seen") == 0;
    if (seen && r->start == 0) r->start = number(event, "at");
    if (seen) take_seen(r, event);
    if (strcmp(what, "decision") == 0) take_decision(r, event);
    if (strcmp(what, "recovered") == 0) r->replan_time = number(event, "recovered_seconds");
  }
}

static brim_status take_first_plan(recording *r)
{
  json_t *first = NULL;
  BRIM_TRY(brim_record_read(r->run, "plan.json", &first));
  if (first) take_plan(r, count_of(first, "batch_size"), bytes_of(first, "peak_bytes"), 0, 0);
  json_decref(first);
  return BRIM_OK;
}

/* Seconds of a sample, over all training records; 0: none has any. */
static double seconds_of_sample(const recording *r)
{
  char path[BRIM_PATH_MAX];
  brim_metrics metrics;
  double all = 0, samples = 0;
  if (brim_path_join(path, r->run, "metrics.jsonl") != BRIM_OK ||
      brim_metrics_read(r->arena, path, &metrics) != BRIM_OK)
    return 0;
  const brim_series *train = &metrics.split[BRIM_SPLIT_TRAIN];
  const double *seconds = brim_series_values(train, "seconds"), *count = brim_series_values(train, "samples");
  for (size_t i = 0; seconds && count && i < train->count; i++) {
    if (!isfinite(seconds[i]) || !isfinite(count[i])) continue;
    all += seconds[i];
    samples += count[i];
  }
  return samples > 0 && all > 0 ? fmin(fmax(all / samples, 1e-6), 3600) : 0;
}

/* ---- as YAML ---- */

static void print_head(const recording *r, brim_text *out)
{
  char start[64] = "2025-01-06 09:00";
  struct tm utc;
  const time_t at = r->start > 0 && r->start < 1e11 ? (time_t)r->start : 0;
  const device *d = &r->device[0];
  if (at > 0 && gmtime_r(&at, &utc)) strftime(start, sizeof start, "%Y-%m-%d %H:%M:%S", &utc);
  brim_text_printf(out, "# What the policies of a run were shown, recorded by brim simulate --record.\n");
  brim_text_printf(out, "about: a recorded run\nstart: %s\n", start);
  brim_text_printf(out, "backend: %.*s\n", (int)strcspn(d->name, ":"), d->name);
  brim_text_printf(out, "kind: %s\n", !d->on_host ? "gpu" : d->is_shared ? "share" : "host");
  brim_text_printf(out, "samples: %lld\n", (long long)(r->samples > 0 ? r->samples : 1));
  brim_text_printf(out, "grain: %lld\nnorm_group: %lld\n", (long long)r->grain, (long long)r->norm_group);
  brim_text_printf(out, "plan_time: %.3fs\nreplan_time: %.3fs\n", r->plan_time, r->replan_time);
}

static void print_use(const series *s, const char *indent, brim_text *out)
{
  if (s->count == 0) return;
  brim_text_printf(out, "%suse:\n", indent);
  for (size_t i = 0; i < s->count; i++)
    brim_text_printf(out, "%s  - {at: %.3fs, bytes: %llu}\n", indent, s->change[i].at,
                     (unsigned long long)s->change[i].bytes);
}

static void print_line(const series *s, brim_text *out)
{
  if (s->count < 2 && (s->count == 0 || s->change[0].waiting == 0)) return;
  brim_text_add(out, "    line:\n");
  for (size_t i = 0; i < s->count; i++)
    brim_text_printf(out, "      - {at: %.3fs, waiting: %lld, bytes: %llu}\n", s->change[i].at,
                     (long long)s->change[i].waiting, (unsigned long long)s->change[i].bytes);
}

static void print_devices(const recording *r, brim_text *out)
{
  brim_text_add(out, "devices:\n");
  for (size_t i = 0; i < r->devices; i++) {
    brim_text_printf(out, "  - memory: %llu\n", (unsigned long long)r->device[i].total);
    print_use(&r->device[i].use, "    ", out);
    print_line(&r->device[i].line, out);
  }
  if (r->host_total == 0 || r->host_total > UINT64_C(1) << 60) return;
  brim_text_printf(out, "host:\n  memory: %llu\n  process: %llu\n", (unsigned long long)r->host_total,
                   (unsigned long long)r->process);
  print_use(&r->host, "  ", out);
}

static void print_model(const recording *r, const char *id, brim_text *out)
{
  static const char *const basis[] = {[BRIM_BASIS_TIMED] = "timed", "derived", "guessed"};
  const double time = seconds_of_sample(r);
  brim_text_printf(out, "model:\n  id: %s\n", id);
  if (time > 0) brim_text_printf(out, "  sample_time: %.9gs\n", time);
  if (r->plans > 0) brim_text_add(out, "  peaks:\n");
  for (size_t i = 0; i < r->plans; i++) {
    brim_text_printf(out, "    - {micro_batch: %lld, bytes: %llu", (long long)r->plan[i].micro_batch,
                     (unsigned long long)r->plan[i].bytes);
    if (r->plan[i].time > 0)
      brim_text_printf(out, ", time: %.17gs, basis: %s", r->plan[i].time, basis[r->plan[i].basis]);
    brim_text_add(out, "}\n");
  }
}

static void print_failures(const recording *r, brim_text *out)
{
  if (r->failures > 0) brim_text_add(out, "failures:\n");
  for (size_t i = 0; i < r->failures; i++) {
    brim_text_printf(out, "  - {step: %lld, times: %lld%s, says: '", (long long)r->failure[i].step,
                     (long long)r->failure[i].times, r->failure[i].loses ? ", loses: true" : "");
    for (const char *c = r->failure[i].says + strspn(r->failure[i].says, ": "); *c; c++)
      brim_text_add_n(out, *c == '\'' ? "''" : c, *c == '\'' ? 2 : 1);
    brim_text_add(out, "'}\n");
  }
}

/* Those keys of the run's configuration that what is simulated goes by. */
static void print_settings(const recording *r, const brim_yaml *config, brim_text *out)
{
  static const char *const keys[] = {"device",
                                     "auto_device",
                                     "min_gpu_memory_mb",
                                     "wait_for_gpu",
                                     "gpu_wait_timeout_minutes",
                                     "gpu_check_interval_seconds",
                                     "min_batch_size",
                                     "max_retries",
                                     "precision",
                                     "training.batch_size",
                                     "training.gradient_accumulation_steps",
                                     "training.effective_batch_size",
                                     "training.eval_every_steps",
                                     "training.checkpoint_every_steps",
                                     "training.clear_cache_every_n_rounds",
                                     "memory.limit_mb",
                                     "memory.limit",
                                     "memory.recompute",
                                     "memory.recompute_budget_mb",
                                     "memory.warn_percent",
                                     "memory.critical_percent"};
  brim_text_printf(out, "settings:\n  training.steps: %lld\n", (long long)r->steps);
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    const brim_yaml *value = brim_yaml_get_path(config, keys[i]);
    if (!value || value->kind != BRIM_YAML_SCALAR) continue;
    const bool chooses = strcmp(keys[i], "memory.recompute") == 0; /* none is not to be taken for a choice */
    if (!chooses || strcmp(value->scalar, "none") != 0)
      brim_text_printf(out, "  %s: %s\n", keys[i], value->scalar[0] ? value->scalar : "''");
  }
}

/* ---- policies ---- */

static size_t add_policy(recording *r, const brim_yaml *policies, const char *id, const char **word, size_t count)
{
  const char *params[BRIM_RECORD_WORDS_MAX];
  const size_t found = brim_scenario_words(r->arena, brim_yaml_get(policies, id), params, BRIM_RECORD_WORDS_MAX);
  for (size_t i = 0; i < found && count < BRIM_RECORD_WORDS_MAX - 1; i++)
    word[count++] = brim_arena_printf(r->arena, "policy.%s.%s", id, params[i]);
  return count;
}

static void list_policies(recording *r, const brim_yaml *config, const char **word)
{
  const brim_yaml *policies = brim_yaml_get(config, "policy");
  const brim_yaml *ids = policies ? brim_yaml_get(policies, "id") : NULL;
  size_t count = 0;
  brim_text all = {0};
  for (size_t i = 0; ids && i < ids->count; i++)
    brim_text_printf(&all, "%s%s", i ? "," : "", ids->item[i]->scalar ? ids->item[i]->scalar : "");
  word[count++] = brim_arena_printf(r->arena, "policy=[%s]", brim_text_str(&all));
  for (size_t i = 0; ids && i < ids->count; i++)
    if (ids->item[i]->kind == BRIM_YAML_SCALAR) count = add_policy(r, policies, ids->item[i]->scalar, word, count);
  word[count] = NULL;
  brim_text_release(&all);
}

/* ---- all of it ---- */

static brim_status read_run(recording *r, brim_yaml **config)
{
  char path[BRIM_PATH_MAX];
  BRIM_TRY(brim_path_join(path, r->run, "config.yaml"));
  BRIM_TRY(brim_yaml_parse_file(r->arena, path, config));
  BRIM_TRY(read_events(r));
  take_events(r);
  BRIM_TRY(take_first_plan(r));
  make_rising(r);
  if (r->devices > 0 && r->steps > 0) return BRIM_OK;
  return brim_fail(BRIM_ELOAD,
                   "the events of '%s' do not say what its policies were shown: it ended before its first "
                   "step, or was trained by an older brim",
                   r->run);
}

static const char *model_of(const brim_yaml *config)
{
  const brim_yaml *id = brim_yaml_get_path(config, "model.id");
  return id && id->kind == BRIM_YAML_SCALAR ? id->scalar : "model";
}

brim_status brim_scene_record(brim_arena *arena, const char *run, brim_text *out, const char **word)
{
  brim_yaml *config = NULL;
  recording *r = BRIM_ARENA_NEW(arena, recording, 1);
  r->arena = arena;
  r->run = run;
  r->event = json_array();
  const brim_status status = read_run(r, &config);
  if (status == BRIM_OK) {
    print_head(r, out);
    print_devices(r, out);
    print_model(r, model_of(config), out);
    print_failures(r, out);
    print_settings(r, config, out);
    list_policies(r, config, word);
  }
  json_decref(r->event);
  return status;
}
