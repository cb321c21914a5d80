#include "simulate/scenario.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "param/problems.h"
#include "param/value.h"
#include "simulate/scenario_keys.h"

typedef struct reader {
  brim_arena *arena;
  brim_problems problems;
} reader;

/* ---- maps and lists ---- */

static const char *path_of(reader *r, const char *section, const char *key)
{
  return section[0] ? brim_arena_printf(r->arena, "%s.%s", section, key) : key;
}

static void refuse_key(reader *r, const brim_scene_section *section, const char *key, const brim_yaml *value)
{
  const brim_yaml_origin origin = brim_yaml_key_origin(value);
  const char *best = NULL;
  const size_t length = strlen(section->path);
  int distance = INT_MAX;
  for (const brim_param *row = section->table; row->key; row++) brim_suggest(key, row->key, &distance, &best);
  for (const brim_scene_section *s = brim_scene_sections; s->path; s++) {
    const bool below = strncmp(s->path, section->path, length) == 0 && (length == 0 || s->path[length] == '.');
    const char *name = below ? s->path + length + (length > 0) : "";
    if (name[0] && !strchr(name, '.')) brim_suggest(key, name, &distance, &best);
  }
  brim_problem_at(&r->problems, &origin, "unknown key '%s' in a scenario", path_of(r, section->path, key));
  if (best) brim_problem_hint(&r->problems, "did you mean '%s'?", path_of(r, section->path, best));
}

/* Reads a map by the table of its section; NULL: all defaults. The caller reads its inner maps. */
static void read_map(reader *r, const char *path, const brim_yaml *map, void *out)
{
  const brim_scene_section *section = brim_scene_find(path);
  if (map && map->kind != BRIM_YAML_MAP) {
    const char *what = path[0] ? brim_arena_printf(r->arena, "'%s'", path) : "a scenario";
    brim_problem_at(&r->problems, &map->origin, "%s%s must be a map of keys and values",
                    section->items_max ? "an item of " : "", what);
    return;
  }
  for (size_t i = 0; map && i < map->count; i++)
    if (!brim_scene_is_key(section, map->key[i])) refuse_key(r, section, map->key[i], map->item[i]);
  for (const brim_param *row = section->table; row->key; row++) {
    const brim_yaml *given = map ? brim_yaml_get(map, row->key) : NULL;
    const brim_yaml *value = given ? given : brim_value_default(row, r->arena);
    brim_text problem = {0};
    if (!value)
      brim_problem_at(&r->problems, &map->origin, "'%s' is missing", path_of(r, path, row->key));
    else if (brim_value_parse(row, value, out, r->arena, &problem) != BRIM_OK)
      brim_problem_at(&r->problems, &value->origin, "'%s' %s", path_of(r, path, row->key), brim_text_str(&problem));
    brim_text_release(&problem);
  }
}

static const brim_yaml *map_below(const brim_yaml *map, const char *key)
{
  return map && map->kind == BRIM_YAML_MAP ? brim_yaml_get(map, key) : NULL;
}

/* Reads a list of maps by the section's table; *out is an array in the arena. Reports a value that is not a list, or a
 * list that is too long. */
static size_t read_list(reader *r, const char *section, const brim_yaml *list, size_t item_bytes, void *out)
{
  const size_t most = brim_scene_find(section)->items_max;
  const bool is_list = list && list->kind == BRIM_YAML_LIST;
  const size_t count = is_list && list->count <= most ? list->count : 0;
  if (list && !is_list)
    brim_problem_at(&r->problems, &list->origin, "'%s' must be a list", section);
  else if (list && list->count > most)
    brim_problem_at(&r->problems, &list->origin, "'%s' has %zu items; the maximum is %zu", section, list->count, most);
  char *items = brim_arena_alloc(r->arena, (count > 0 ? count : 1) * item_bytes);
  for (size_t i = 0; i < count; i++) read_map(r, section, list->item[i], items + i * item_bytes);
  memcpy(out, &items, sizeof items);
  return count;
}

/* ---- the parts ---- */

static void check_rising(reader *r, const brim_yaml *list, size_t i, bool rises, const char *key)
{
  if (!rises) brim_problem_at(&r->problems, &list->item[i]->origin, "'%s' must increase from item to item", key);
}

static size_t read_use(reader *r, const char *section, const brim_yaml *list, brim_scene_use **out)
{
  const size_t count = read_list(r, section, list, sizeof **out, out);
  for (size_t i = 1; i < count; i++) check_rising(r, list, i, (*out)[i].at > (*out)[i - 1].at, "at");
  return count;
}

static void read_devices(reader *r, const brim_yaml *list, brim_scenario *s)
{
  s->device_count = read_list(r, "devices", list, sizeof *s->device, &s->device);
  if (s->device_count == 0 && r->problems.count == 0)
    brim_problem(&r->problems, BRIM_ECONFIG, "%s: a scenario needs at least one item in 'devices'", s->file);
  for (size_t i = 0; i < s->device_count; i++) {
    brim_scene_device *d = &s->device[i];
    d->use_count = read_use(r, "devices.use", map_below(list->item[i], "use"), &d->use);
    const brim_yaml *line = map_below(list->item[i], "line");
    d->line_count = read_list(r, "devices.line", line, sizeof *d->line, &d->line);
    for (size_t k = 1; k < d->line_count; k++) check_rising(r, line, k, d->line[k].at > d->line[k - 1].at, "at");
    if (d->memory > 0 && d->used > d->memory)
      brim_problem_at(&r->problems, &list->item[i]->origin, "'devices.used' is more than the device's memory");
  }
}

/* Reads a model. Levels of recompute are ordered by decreasing memory, peaks by increasing size. */
static void read_model(reader *r, const char *section, const brim_yaml *map, brim_scene_model *m)
{
  const char *levels = path_of(r, section, "recompute");
  const brim_yaml *recompute = map_below(map, "recompute"), *peaks = map_below(map, "peaks");
  read_map(r, section, map, m);
  m->recompute_count = read_list(r, levels, recompute, sizeof *m->recompute, &m->recompute);
  for (size_t i = 1; i < m->recompute_count; i++)
    if (!(m->recompute[i].memory < m->recompute[i - 1].memory))
      brim_problem_at(&r->problems, &recompute->item[i]->origin, "'%s' must leave less memory from level to level",
                      levels);
  m->peak_count = read_list(r, path_of(r, section, "peaks"), peaks, sizeof *m->peak, &m->peak);
  for (size_t i = 1; i < m->peak_count; i++)
    check_rising(r, peaks, i,
                 m->peak[i].micro_batch > m->peak[i - 1].micro_batch && m->peak[i].bytes >= m->peak[i - 1].bytes,
                 "micro_batch and bytes");
}

static const brim_yaml *read_settings(reader *r, const brim_yaml *map)
{
  const brim_yaml *settings = map_below(map, "settings");
  if (settings && settings->kind != BRIM_YAML_MAP)
    brim_problem_at(&r->problems, &settings->origin, "'settings' must be a map of keys and values");
  else if (settings && settings->count > BRIM_SCENE_SETTINGS_MAX)
    brim_problem_at(&r->problems, &settings->origin, "'settings' has %zu keys; the maximum is %d", settings->count,
                    BRIM_SCENE_SETTINGS_MAX);
  return settings && settings->kind == BRIM_YAML_MAP ? settings : NULL;
}

/* Reads the events of a recorded run, by step. */
static void read_recorded(reader *r, const brim_yaml *root, brim_scenario *s)
{
  const brim_yaml *looks = map_below(root, "looks"), *pressures = map_below(root, "pressures");
  s->look_count = read_list(r, "looks", looks, sizeof *s->look, &s->look);
  for (size_t i = 1; i < s->look_count; i++)
    check_rising(r, looks, i, s->look[i].at > s->look[i - 1].at && s->look[i].step > s->look[i - 1].step,
                 "at and step");
  s->pressure_count = read_list(r, "pressures", pressures, sizeof *s->pressure, &s->pressure);
  for (size_t i = 1; i < s->pressure_count; i++)
    check_rising(r, pressures, i, s->pressure[i].step > s->pressure[i - 1].step, "step");
}

static void read_jobs(reader *r, const brim_yaml *list, brim_scenario *s)
{
  s->job_count = read_list(r, "jobs", list, sizeof *s->job, &s->job);
  for (size_t i = 0; i < s->job_count; i++) {
    s->job[i].settings = read_settings(r, list->item[i]);
    if (s->job[i].name && !s->job[i].name[0]) s->job[i].name = brim_arena_printf(r->arena, "job %zu", i + 1);
  }
  if (s->job_count > 0) return;
  s->job = BRIM_ARENA_NEW(r->arena, brim_scene_job, 1);
  s->job[0].name = "job 1";
  s->job_count = 1;
}

/* Checks that a device number exists. */
static void check_device(reader *r, const brim_scenario *s, const char *section, const brim_yaml *item, int64_t device)
{
  if (device < (int64_t)s->device_count) return;
  brim_problem_at(&r->problems, &item->origin, "'%s.device' is %lld, but the last of 'devices' is %zu", section,
                  (long long)device, s->device_count - 1);
}

/* Adds the maximum number of visits until the scenario's end to those of the other entries, and checks the total. */
static void check_visits(reader *r, const brim_yaml *item, const char *name, double from, double lasts, double every,
                         double until, double *all)
{
  const bool fits = *all <= BRIM_SCENE_VISITS_MAX, comes_again = every != 0 && lasts != 0;
  const double again = comes_again ? floor((until - from) / fmax(fmax(every, lasts), BRIM_SCENE_MOMENT)) : 0;
  const double visits = from > until ? 0 : 1 + again;
  *all += visits;
  if (!fits || *all <= BRIM_SCENE_VISITS_MAX) return;
  brim_problem_at(&r->problems, &item->origin, "'%s' comes %.0f times, %.0f with those before it; the maximum is %d",
                  name, visits, *all, BRIM_SCENE_VISITS_MAX);
  brim_problem_hint(&r->problems, "set a longer 'every', or an earlier end ('until')");
}

static void read_others(reader *r, const brim_yaml *root, brim_scenario *s)
{
  const brim_yaml *programs = map_below(root, "programs"), *runs = map_below(root, "runs");
  s->program_count = read_list(r, "programs", programs, sizeof *s->program, &s->program);
  s->run_count = read_list(r, "runs", runs, sizeof *s->run, &s->run);
  s->failure_count = read_list(r, "failures", map_below(root, "failures"), sizeof *s->failure, &s->failure);
  const bool is_sound = r->problems.count == 0;
  double visits = 0;
  for (size_t i = 0; i < s->program_count && is_sound; i++) {
    const brim_scene_program *p = &s->program[i];
    check_visits(r, programs->item[i], p->name, p->from, p->lasts, p->every, s->until, &visits);
  }
  for (size_t i = 0; i < s->run_count && is_sound; i++) {
    const brim_scene_run *run = &s->run[i];
    check_visits(r, runs->item[i], run->name, run->from, run->lasts, run->every, s->until, &visits);
  }
  if (s->device_count == 0) return;
  for (size_t i = 0; i < s->program_count; i++) check_device(r, s, "programs", programs->item[i], s->program[i].device);
  for (size_t i = 0; i < s->run_count; i++) check_device(r, s, "runs", runs->item[i], s->run[i].device);
}

static void read_start(reader *r, const brim_yaml *root, brim_scenario *s)
{
  struct tm time = {0};
  const char *end = s->start ? strptime(s->start, "%Y-%m-%d %H:%M", &time) : NULL;
  if (end && *end == ':') end = strptime(end, ":%S", &time);
  s->start_seconds = (double)timegm(&time);
  if (!s->start || (end && !*end)) return;
  const brim_yaml *value = brim_yaml_get(root, "start");
  brim_problem_at(&r->problems, value ? &value->origin : NULL,
                  "'start' must be a time such as 2025-01-06 09:00, got %.60s", s->start);
}

static void read_backend(reader *r, const brim_yaml *root, const brim_scenario *s)
{
  const char *id = s->backend ? s->backend : "cuda";
  const size_t length = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_");
  const brim_yaml *value = brim_yaml_get(root, "backend");
  if (length > 0 && length < 40 && id[length] == '\0') return;
  brim_problem_at(&r->problems, value ? &value->origin : NULL, "'backend' must consist of a-z, 0-9 and _, got %.60s",
                  id);
}

static void read_root(reader *r, const brim_yaml *root, brim_scenario *s)
{
  const brim_yaml *host = map_below(root, "host"), *small = map_below(root, "small_model");
  read_map(r, "", root, s);
  if (root->kind != BRIM_YAML_MAP) return;
  read_start(r, root, s);
  read_backend(r, root, s);
  read_devices(r, brim_yaml_get(root, "devices"), s);
  read_map(r, "host", host, &s->host);
  s->host.use_count = read_use(r, "host.use", map_below(host, "use"), &s->host.use);
  read_model(r, "model", map_below(root, "model"), &s->model);
  if (small) read_model(r, "small_model", small, &s->small_model);
  read_others(r, root, s);
  read_recorded(r, root, s);
  read_jobs(r, brim_yaml_get(root, "jobs"), s);
  s->settings = read_settings(r, root);
}

/* ---- the whole scenario ---- */

static brim_status read_scenario(const char *text, size_t bytes, const char *file, brim_scenario **out)
{
  brim_scenario *s = brim_xcalloc(1, sizeof *s);
  brim_yaml *root = NULL;
  reader r = {.arena = &s->arena, .problems = {.arena = &s->arena}};
  s->file = brim_arena_string(&s->arena, file);
  brim_status status =
      text ? brim_yaml_parse(&s->arena, text, bytes, file, &root) : brim_yaml_parse_file(&s->arena, file, &root);
  if (status == BRIM_OK) {
    read_root(&r, root, s);
    status = brim_problems_status(&r.problems);
  }
  if (status == BRIM_OK)
    *out = s;
  else
    brim_scenario_free(s);
  return status;
}

brim_status brim_scenario_read(const char *path, brim_scenario **out)
{
  return read_scenario(NULL, 0, path, out);
}

brim_status brim_scenario_parse(const char *text, size_t bytes, const char *file, brim_scenario **out)
{
  return read_scenario(text ? text : "", bytes, file, out);
}

void brim_scenario_free(brim_scenario *s)
{
  if (!s) return;
  brim_arena_release(&s->arena);
  free(s);
}

/* ---- settings ---- */

/* Prints a value in the form of the command line, with lists and maps in brackets. */
static void print_value(const brim_yaml *value, brim_text *out)
{
  const bool map = value->kind == BRIM_YAML_MAP;
  if (value->kind == BRIM_YAML_SCALAR) {
    const char *quote = value->quoted ? "'" : "";
    brim_text_add(out, quote);
    for (const char *c = value->scalar; *c; c++)
      brim_text_add_n(out, value->quoted && *c == '\'' ? "''" : c, value->quoted && *c == '\'' ? 2 : 1);
    brim_text_add(out, quote);
    return;
  }
  brim_text_add(out, map ? "{" : "[");
  for (size_t i = 0; i < value->count; i++) {
    brim_text_printf(out, "%s%s%s", i ? ", " : "", map ? value->key[i] : "", map ? ": " : "");
    print_value(value->item[i], out);
  }
  brim_text_add(out, map ? "}" : "]");
}

size_t brim_scenario_words(brim_arena *arena, const brim_yaml *settings, const char **out, size_t room)
{
  size_t count = 0;
  for (size_t i = 0; settings && i < settings->count && count < room; i++) {
    brim_text value = {0};
    print_value(settings->item[i], &value);
    out[count++] = brim_arena_printf(arena, "%s=%s", settings->key[i], brim_text_str(&value));
    brim_text_release(&value);
  }
  return count;
}
