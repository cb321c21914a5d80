/* brim runs show and diff: shows a run with all its figures, and the differences of runs. See runs.h. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/runs.h"
#include "graph/plan_json.h"
#include "observe/metrics.h"
#include "param/yaml.h"
#include "store/checkpoint.h"
#include "store/trash.h"

#define BAD_LINES_SAID 5

static brim_status open_runs(brim_runs *runs, const char *const *operand, size_t operands, size_t least)
{
  if (operands < least)
    return brim_fail(BRIM_ECONFIG, least == 1 ? "no run is named: brim runs show RUN..."
                                              : "a difference needs two runs: brim runs diff RUN RUN...");
  runs->index = BRIM_ARENA_NEW(runs->arena, brim_index, operands);
  for (size_t i = 0; i < operands; i++) {
    BRIM_TRY(brim_runs_check_operand(runs->arena, operand[i]));
    BRIM_TRY(brim_index_open_run(&runs->index[i], brim_runs_path(runs->arena, operand[i])));
    runs->indexes++;
  }
  return BRIM_OK;
}

static const char *text_of(const brim_runs *runs, size_t i, const char *key)
{
  const brim_index *index = &runs->index[i];
  return brim_runs_cell(runs->arena, index, brim_index_cell_of(index, index->run, key));
}

/* ---- show ---- */

/* Reports the lines of a file that are not records: damaged ones, and those of other programs. */
static void check_lines(const char *run, const char *name, const char *member)
{
  char path[BRIM_PATH_MAX], *line = NULL;
  size_t room = 0, number = 0, bad = 0;
  if (brim_path_join(path, run, name) != BRIM_OK || access(path, F_OK) != 0) return;
  FILE *file = brim_fopen_to_read(path);
  if (!file) {
    brim_log(BRIM_LOG_WARN, "cannot read '%s': %s", path, brim_open_reason(errno));
    return;
  }
  for (ssize_t length; (length = getline(&line, &room, file)) > 0;) {
    json_error_t problem = {.text = ""};
    number++;
    /* The line is incomplete: a process is writing it, or was killed while it wrote. */
    if (line[length - 1] != '\n') break;
    json_t *record = json_loadb(line, (size_t)length, 0, &problem);
    const bool sound = record && (json_object_get(record, member) || json_object_get(record, "lost"));
    if (!sound && bad++ < BAD_LINES_SAID)
      brim_log(BRIM_LOG_WARN, "%s:%zu: %s; brim ignores the line", path, number,
               record ? "not a record of brim" : problem.text);
    json_decref(record);
  }
  if (bad > BAD_LINES_SAID) brim_log(BRIM_LOG_WARN, "%s: %zu more such lines", path, bad - BAD_LINES_SAID);
  free(line);
  fclose(file);
}

/* Adds a row for each line of a value. */
static void add_row(brim_table *table, const char *name, const char *value)
{
  if (strcmp(value, "-") == 0 || !value[0]) return;
  for (const char *s = value; *s; s += strspn(s, "\n")) {
    const size_t length = strcspn(s, "\n");
    brim_table_add(table, s == value ? name : "");
    brim_table_add(table, brim_arena_string_n(table->arena, s, length));
    s += length;
  }
}

/* Returns a cell with all its lines. */
static const char *lines_of(const brim_runs *runs, const brim_index *index, const brim_index_cell *cell)
{
  return cell && cell->text ? brim_index_string(index, cell->text) : brim_runs_cell(runs->arena, index, cell);
}

/* Returns the words of the command line that made the run. */
static const char *overrides_of(brim_arena *arena, const char *run)
{
  char path[BRIM_PATH_MAX];
  brim_yaml *list = NULL;
  const char *out = "";
  if (brim_path_join(path, run, "overrides.yaml") != BRIM_OK || access(path, F_OK) != 0) return out;
  if (brim_yaml_parse_file(arena, path, &list) != BRIM_OK || list->kind != BRIM_YAML_LIST) return out;
  for (size_t i = 0; i < list->count; i++)
    if (list->item[i]->kind == BRIM_YAML_SCALAR)
      out = brim_arena_printf(arena, "%s%s%s", out, out[0] ? " " : "", list->item[i]->scalar);
  return out;
}

static const char *checkpoints_of(brim_arena *arena, const char *run)
{
  char path[BRIM_PATH_MAX], target[64], bytes[32];
  const char **name, *out = "";
  size_t count, steps = 0;
  if (brim_path_join(path, run, BRIM_CHECKPOINTS_NAME) != BRIM_OK || !brim_folder_names(arena, path, &name, &count))
    return "";
  for (size_t i = 0; i < count; i++) steps += brim_starts_with(name[i], "step-");
  for (size_t i = 0; i < count; i++) {
    char link[BRIM_PATH_MAX];
    if (brim_starts_with(name[i], "step-") || brim_path_join(link, path, name[i]) != BRIM_OK) continue;
    const ssize_t length = readlink(link, target, sizeof target - 1);
    if (length > 0) out = brim_arena_printf(arena, "%s, %s: %.*s", out, name[i], (int)length, target);
  }
  return brim_arena_printf(arena, "%zu%s, %s", steps, out,
                           brim_format_bytes(bytes, sizeof bytes, brim_disk_bytes(path)));
}

static void show(const brim_runs *runs, size_t i)
{
  static const char *const top[] = {"status", "started", "model", "dataset", "tag", "note"};
  const brim_index *index = &runs->index[i];
  const char *dir = text_of(runs, i, "name");
  char bytes[32];
  brim_text out = {0};
  brim_table head = {.arena = runs->arena, .columns = 2}, results = head;
  add_row(&head, "run", dir);
  for (size_t k = 0; k < sizeof top / sizeof top[0]; k++)
    add_row(&head, top[k], lines_of(runs, index, brim_index_cell_of(index, index->run, top[k])));
  add_row(&head, "set", overrides_of(runs->arena, dir));
  add_row(&head, "checkpoints", checkpoints_of(runs->arena, dir));
  add_row(&head, "disk", brim_format_bytes(bytes, sizeof bytes, brim_disk_bytes(dir)));
  brim_table_add(&results, "result");
  brim_table_add(&results, "value");
  for (uint32_t k = 0; k < index->run->count; k++) {
    const brim_index_cell *cell = &index->cell[index->id[index->run->first + k]];
    const char *key = brim_index_string(index, cell->key);
    if (brim_starts_with(key, "result.") && strcmp(key, "result.status") != 0)
      add_row(&results, key + strlen("result."), lines_of(runs, index, cell));
  }
  brim_table_print(&head, &out);
  if (results.count > results.columns) brim_text_add(&out, "\n");
  if (results.count > results.columns) brim_table_print(&results, &out);
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
}

/* With --json, prints the same objects as a list does. */
brim_status brim_runs_show(brim_runs *runs, const char *const *operand, size_t operands)
{
  if (runs->options->json) {
    if (operands == 0) return brim_fail(BRIM_ECONFIG, "no run is named: brim runs show RUN...");
    BRIM_TRY(brim_runs_select(runs, operand, operands, "name"));
    return brim_runs_print(runs);
  }
  BRIM_TRY(open_runs(runs, operand, operands, 1));
  for (size_t i = 0; i < operands; i++) {
    if (i > 0) brim_cli_print("\n");
    show(runs, i);
    check_lines(text_of(runs, i, "name"), "metrics.jsonl", "split");
    check_lines(text_of(runs, i, "name"), "events.jsonl", "event");
  }
  brim_runs_warn(runs);
  return BRIM_OK;
}

/* ---- diff ---- */

/* Returns, from another index, the value of a key of the first index. */
static const brim_index_cell *cell_in(const brim_index *index, const char *key)
{
  return brim_index_cell_of(index, index->run, key);
}

static bool is_equal(const brim_runs *runs, size_t i, const char *key)
{
  const brim_index_cell *a = cell_in(&runs->index[0], key), *b = cell_in(&runs->index[i], key);
  if (!a || !b) return a == b;
  if (!a->text || !b->text) return a->text == b->text && a->number == b->number;
  return strcmp(brim_index_string(&runs->index[0], a->text), brim_index_string(&runs->index[i], b->text)) == 0;
}

static bool differs(const brim_runs *runs, const char *key)
{
  for (size_t i = 1; i < runs->indexes; i++)
    if (!is_equal(runs, i, key)) return true;
  return false;
}

/* Adds a row for a key that differs; if both values are numbers, with their difference. */
static void add_difference(const brim_runs *runs, const char *key, size_t skip, bool is_result, brim_table *table)
{
  brim_table_add(table, key + skip);
  for (size_t i = 0; i < runs->indexes; i++)
    brim_table_add(table, brim_runs_cell(runs->arena, &runs->index[i], cell_in(&runs->index[i], key)));
  if (!is_result || runs->indexes != 2) return;
  const brim_index_cell *a = cell_in(&runs->index[0], key), *b = cell_in(&runs->index[1], key);
  const bool numbers = a && b && isfinite(a->number) && isfinite(b->number);
  brim_table_add(table, numbers ? brim_arena_printf(runs->arena, "%+.4g", b->number - a->number) : "-");
}

static void add_json(const brim_runs *runs, const char *key, json_t *out, size_t skip)
{
  json_t *values = json_array();
  for (size_t i = 0; i < runs->indexes; i++) {
    const brim_index_cell *cell = cell_in(&runs->index[i], key);
    json_array_append_new(values, !cell        ? json_null()
                                  : cell->text ? json_string(brim_index_string(&runs->index[i], cell->text))
                                               : json_real(cell->number));
  }
  json_object_set_new(out, key + skip, values);
}

/* Adds the keys with a prefix that differ, each once, in the order of the first run that has them. */
static void compare(const brim_runs *runs, const char *prefix, brim_table *table, json_t *out)
{
  const bool is_result = strcmp(prefix, "result.") == 0;
  const char **seen = NULL;
  size_t count = 0, room = 0;
  for (size_t i = 0; i < runs->indexes; i++)
    for (size_t k = 0; k < runs->index[i].keys; k++) {
      const char *key = brim_index_string(&runs->index[i], runs->index[i].key[k]);
      if (!brim_starts_with(key, prefix) || strcmp(key, "config.run.dir") == 0 || strcmp(key, "config.run.name") == 0)
        continue;
      size_t s = 0;
      while (s < count && strcmp(seen[s], key) != 0) s++;
      if (s < count || !differs(runs, key)) continue;
      BRIM_ARENA_GROW(runs->arena, seen, count, room);
      seen[count++] = key;
      if (out)
        add_json(runs, key, out, strlen(prefix));
      else
        add_difference(runs, key, strlen(prefix), is_result, table);
    }
}

static void begin_table(const brim_runs *runs, const char *first, bool has_difference, brim_table *table)
{
  *table = (brim_table){.arena = runs->arena, .columns = 1 + runs->indexes + has_difference};
  brim_table_add(table, first);
  for (size_t i = 0; i < runs->indexes; i++) brim_table_add(table, text_of(runs, i, "name"));
  if (has_difference) brim_table_add(table, "difference");
}

static brim_status print_json(const brim_runs *runs)
{
  json_t *names = json_array(), *config = json_object(), *results = json_object();
  for (size_t i = 0; i < runs->indexes; i++) json_array_append_new(names, json_string(text_of(runs, i, "name")));
  compare(runs, "config.", NULL, config);
  compare(runs, "result.", NULL, results);
  return brim_cli_print_json(json_pack("{s:o, s:o, s:o}", "runs", names, "config", config, "results", results));
}

brim_status brim_runs_diff(brim_runs *runs, const char *const *operand, size_t operands)
{
  brim_table config, results;
  brim_text out = {0};
  BRIM_TRY(open_runs(runs, operand, operands, 2));
  if (runs->options->json) return print_json(runs);
  begin_table(runs, "key", false, &config);
  begin_table(runs, "result", runs->indexes == 2, &results);
  compare(runs, "config.", &config, NULL);
  compare(runs, "result.", &results, NULL);
  if (config.count > config.columns)
    brim_table_print(&config, &out);
  else
    brim_text_add(&out, "the configurations are equal\n");
  if (results.count > results.columns) brim_text_add(&out, "\n");
  if (results.count > results.columns) brim_table_print(&results, &out);
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
  brim_runs_warn(runs);
  return BRIM_OK;
}
