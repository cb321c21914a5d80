/* Converts a run's folder to a scenario. The run's events ("seen") record the input of policies: devices at each look,
 * waiting runs, and the peaks of the plans in question. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "brim/policy.h"
#include "simulate/recording_parts.h"
#include "store/record.h"

/* ---- events ---- */

static double number(const json_t *event, const char *key)
{
  const json_t *value = json_object_get(event, key);
  return json_is_number(value) ? json_number_value(value) : 0;
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

static brim_status read_events(brim_recording *r)
{
  char path[BRIM_PATH_MAX], *line = NULL;
  size_t room = 0;
  BRIM_TRY(brim_path_join(path, r->run, "events.jsonl"));
  FILE *file = brim_fopen_to_read(path);
  if (!file) return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", path, brim_open_reason(errno));
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

/* Reports, once for each list, that entries were left out, because a scenario's lists are limited. */
static void leave_out(brim_recording *r, int most, const char *what)
{
  size_t i = 0;
  while (r->cut[i] && strcmp(r->cut[i], what) != 0) i++;
  if (r->cut[i]) return;
  r->cut[i] = what;
  brim_log(BRIM_LOG_WARN, "'%s' has more than %d %s: the scenario omits the others", r->run, most, what);
}

/* ---- devices ---- */

/* Whether a device belongs to another backend. A scenario's devices have one backend, but a run that could not get its
 * own device was also shown the host's processors. */
static bool is_of_another_backend(brim_recording *r, const char *name)
{
  const char *first = r->device[0].name;
  const size_t length = strcspn(first, ":");
  if (r->devices == 0 || (strncmp(first, name, length) == 0 && strcspn(name, ":") == length)) return false;
  if (!r->is_mixed)
    brim_log(BRIM_LOG_WARN,
             "'%s' also considered %s, but a scenario's devices have one backend: it keeps only those of '%.*s'",
             r->run, name, (int)length, first);
  r->is_mixed = true;
  return true;
}

static brim_record_device *find_device(brim_recording *r, const char *name)
{
  if (is_of_another_backend(r, name)) return NULL;
  for (size_t i = 0; i < r->devices; i++)
    if (strcmp(r->device[i].name, name) == 0) return &r->device[i];
  if (r->devices == BRIM_SCENE_DEVICES_MAX) {
    leave_out(r, BRIM_SCENE_DEVICES_MAX, "devices");
    return NULL;
  }
  brim_record_device *d = &r->device[r->devices++];
  snprintf(d->name, sizeof d->name, "%s", name);
  return d;
}

static void add_change(brim_recording *r, brim_record_series *s, double at, uint64_t bytes, int64_t waiting)
{
  const double when = fmax(0, round(1e3 * (at - r->start)) / 1e3);
  brim_scene_line *last = s->count > 0 ? &s->change[s->count - 1] : NULL;
  if (!s->change) s->change = BRIM_ARENA_NEW(r->arena, brim_scene_line, BRIM_RECORD_CHANGES_MAX);
  if (last && last->bytes == bytes && last->waiting == waiting) return;
  if (last && when <= last->at) {
    last->bytes = bytes;
    last->waiting = waiting;
    return;
  }
  if (r->changes == BRIM_RECORD_CHANGES_MAX) {
    leave_out(r, BRIM_RECORD_CHANGES_MAX, "changes in the use of its devices and its host by others");
    return;
  }
  r->changes++;
  s->change[s->count++] = (brim_scene_line){when, waiting, bytes};
}

static uint64_t others_of(const json_t *event)
{
  const uint64_t total = bytes_of(event, "total_bytes");
  const uint64_t own = bytes_of(event, "free_bytes") + bytes_of(event, "own_bytes");
  return total > own ? total - own : 0;
}

static void take_device(brim_recording *r, const json_t *event, const char *question)
{
  brim_record_device *d = find_device(r, brim_json_string(event, "device"));
  const double at = number(event, "at");
  if (!d) return;
  d->total = bytes_of(event, "total_bytes");
  d->is_shared = number(event, "is_shared") != 0;
  d->on_host = number(event, "on_host") != 0;
  if (strcmp(question, "line") == 0 || strcmp(question, "step") == 0)
    add_change(r, &d->line, at, bytes_of(event, "waiting_bytes"), count_of(event, "waiting"));
  if (strcmp(question, "line") != 0) add_change(r, &d->use, at, others_of(event), 0);
}

/* ---- plans ---- */

static void take_plan(brim_recording *r, int64_t micro_batch, uint64_t bytes, double time, int64_t basis)
{
  size_t i = 0;
  while (i < r->plans && r->plan[i].micro_batch < micro_batch) i++;
  const bool known = i < r->plans && r->plan[i].micro_batch == micro_batch;
  if (micro_batch < 1 || micro_batch > 1048576) return;
  if (!known && r->plans == BRIM_RECORD_PLANS_MAX) {
    leave_out(r, BRIM_RECORD_PLANS_MAX, "plans");
    return;
  }
  if (!known) {
    memmove(&r->plan[i + 1], &r->plan[i], (r->plans - i) * sizeof r->plan[0]);
    r->plan[i] = (brim_scene_peak){.micro_batch = micro_batch};
    r->plans++;
  }
  r->plan[i].bytes = bytes;
  if (time <= 0 || basis < BRIM_BASIS_TIMED || basis > BRIM_BASIS_GUESSED) return;
  r->plan[i].time = time;
  r->plan[i].basis = (int32_t)(basis - BRIM_BASIS_TIMED);
}

/* ---- events of the run ---- */

/* Records when policies were asked after `step`; of several questions after one step, keeps the last. */
static void take_look(brim_recording *r, int64_t step, double at)
{
  brim_scene_look *last = r->looks > 0 ? &r->look[r->looks - 1] : NULL;
  if (last && (step <= last->step || at <= last->at)) {
    if (step == last->step && at > last->at) last->at = at;
    return;
  }
  if (r->looks < BRIM_RECORD_LOOKS_MAX)
    r->look[r->looks++] = (brim_scene_look){at, step};
  else
    leave_out(r, BRIM_RECORD_LOOKS_MAX, "looks between steps");
}

static void take_pressure(brim_recording *r, int64_t step, uint64_t bytes)
{
  const brim_scene_pressure *last = r->pressures > 0 ? &r->pressure[r->pressures - 1] : NULL;
  if (last && step <= last->step) return;
  if (r->pressures < BRIM_RECORD_PRESSURES_MAX)
    r->pressure[r->pressures++] = (brim_scene_pressure){step, bytes};
  else
    leave_out(r, BRIM_RECORD_PRESSURES_MAX, "reactions to memory pressure");
}

/* Records that the run waited until there was room for its plan. */
static void take_claim(brim_recording *r, const json_t *event)
{
  brim_record_device *d = find_device(r, brim_json_string(event, "device"));
  const uint64_t need = bytes_of(event, "need_bytes");
  const brim_record_series *use = d ? &d->use : NULL;
  if (!d || use->count == 0 || need > d->total || use->change[use->count - 1].bytes <= d->total - need) return;
  add_change(r, &d->use, number(event, "time"), d->total - need, 0);
}

static void take_seen(brim_recording *r, const json_t *event)
{
  const char *question = brim_json_string(event, "question");
  const double at = number(event, "at");
  if (strcmp(question, "step") == 0 || strcmp(question, "line") == 0) take_look(r, count_of(event, "step"), at);
  if (json_object_get(event, "grain")) {
    r->grain = count_of(event, "grain");
    r->norm_group = count_of(event, "norm_group");
    r->samples = count_of(event, "samples");
    r->steps = count_of(event, "steps");
    if (r->plan_time == 0) r->plan_time = fmax(0, round(1e3 * (at - r->start)) / 1e3);
  } else if (json_object_get(event, "micro_batch")) {
    take_plan(r, count_of(event, "micro_batch"), bytes_of(event, "peak_bytes"), number(event, "step_seconds"),
              count_of(event, "basis"));
  } else if (brim_json_string(event, "device")[0]) {
    take_device(r, event, question);
  } else {
    r->host_total = bytes_of(event, "total_bytes");
    r->process = bytes_of(event, "own_bytes");
    add_change(r, &r->host, at, others_of(event), 0);
  }
}

/* Records a failure from an action of the ladder. Each action follows one failure of the step with which the reason
 * begins: "step 3: the error". */
static void take_decision(brim_recording *r, const json_t *event)
{
  long long step = 0;
  brim_scene_failure *last = r->failures > 0 ? &r->failure[r->failures - 1] : NULL;
  const char *action = brim_json_string(event, "action"), *reason = brim_json_string(event, "reason");
  int length = 0; /* length of the part before the text */
  if (!action[0]) return;
  if (sscanf(reason, "step %lld:%n", &step, &length) != 1 || length == 0) return;
  if (strcmp(action, "rewind") == 0) {
    if (last) last->loses = true;
  } else if (last && last->step == step) {
    last->times++;
  } else if (r->failures < BRIM_RECORD_FAILURES_MAX) {
    r->failure[r->failures++] = (brim_scene_failure){step, 1, false, reason + length};
  } else {
    leave_out(r, BRIM_RECORD_FAILURES_MAX, "failures");
  }
}

static void take_events(brim_recording *r)
{
  size_t i;
  json_t *event;
  json_array_foreach(r->event, i, event)
  {
    const char *what = brim_json_string(event, "event");
    const bool seen = strcmp(what, "seen") == 0;
    if (seen && r->start == 0) r->start = number(event, "at");
    if (seen) take_seen(r, event);
    if (strcmp(what, "decision") == 0) take_decision(r, event);
    if (strcmp(what, "memory_critical") == 0)
      take_pressure(r, count_of(event, "step"), bytes_of(event, "target_bytes"));
    if (strcmp(what, "claimed") == 0) take_claim(r, event);
    if (strcmp(what, "recovered") == 0) r->replan_time = number(event, "recovered_seconds");
  }
}

/* ---- policies ---- */

static void list_policies(brim_recording *r, const brim_yaml *config, const char **word)
{
  const brim_yaml *policies = brim_yaml_get(config, "policy");
  const brim_yaml *ids = policies ? brim_yaml_get(policies, "id") : NULL;
  size_t count = 0;
  brim_text all = {0};
  for (size_t i = 0; ids && i < ids->count; i++)
    brim_text_printf(&all, "%s%s", i ? "," : "", ids->item[i]->scalar ? ids->item[i]->scalar : "");
  word[count++] = brim_arena_printf(r->arena, "policy=[%s]", brim_text_str(&all));
  for (size_t i = 0; ids && i < ids->count; i++) {
    const char *params[BRIM_RECORD_WORDS_MAX], *id = ids->item[i]->scalar;
    if (ids->item[i]->kind != BRIM_YAML_SCALAR) continue;
    const size_t found = brim_scenario_words(r->arena, brim_yaml_get(policies, id), params, BRIM_RECORD_WORDS_MAX);
    for (size_t k = 0; k < found && count < BRIM_RECORD_WORDS_MAX - 1; k++)
      word[count++] = brim_arena_printf(r->arena, "policy.%s.%s", id, params[k]);
  }
  word[count] = NULL;
  brim_text_release(&all);
}

/* ---- the whole recording ---- */

static brim_status read_run(brim_recording *r, brim_yaml **config)
{
  char path[BRIM_PATH_MAX];
  json_t *first = NULL;
  BRIM_TRY(brim_path_join(path, r->run, "config.yaml"));
  BRIM_TRY(brim_yaml_parse_file(r->arena, path, config));
  BRIM_TRY(read_events(r));
  take_events(r);
  BRIM_TRY(brim_record_read(r->run, "plan.json", &first));
  if (first) take_plan(r, count_of(first, "batch_size"), bytes_of(first, "peak_bytes"), 0, 0);
  json_decref(first);
  /* A scenario's peaks must rise with the micro-batch; those of real plans almost always do. */
  for (size_t i = 1; i < r->plans; i++)
    if (r->plan[i].bytes < r->plan[i - 1].bytes) r->plan[i].bytes = r->plan[i - 1].bytes;
  if (r->devices > 0 && r->steps > 0) return BRIM_OK;
  return brim_fail(BRIM_ELOAD,
                   "the events of '%s' do not record the input of its policies: it ended before its first step, or "
                   "an older version of brim trained it",
                   r->run);
}

brim_status brim_scene_record(brim_arena *arena, const char *run, brim_text *out, const char **word)
{
  brim_yaml *config = NULL;
  brim_recording *r = BRIM_ARENA_NEW(arena, brim_recording, 1);
  r->arena = arena;
  r->run = run;
  r->event = json_array();
  const brim_status status = read_run(r, &config);
  if (status == BRIM_OK) {
    brim_recording_print(r, config, out);
    list_policies(r, config, word);
  }
  json_decref(r->event);
  return status;
}
