/* Chooses runs for `brim runs`. See runs.h. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/runs.h"
#include "report/find.h"
#include "store/rundir.h"

#define NAMES_MAX 256 /* limit for different values of a key, for suggestions */

/* ---- folders ---- */

brim_status brim_runs_default_folders(const char **folder, size_t *count)
{
  static const char *const names[] = {"runs", "multirun"};
  *count = 0;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (brim_is_folder(names[i])) folder[(*count)++] = names[i];
  if (*count > 0) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "there is no folder 'runs' or 'multirun' here\nname the folder of your runs: brim runs "
                               "FOLDER");
}

const char *brim_runs_path(brim_arena *arena, const char *operand)
{
  if (access(operand, F_OK) == 0 || strchr(operand, '/')) return operand;
  const char *below = brim_arena_printf(arena, "runs/%s", operand);
  return access(below, F_OK) == 0 ? below : operand;
}

/* Returns the path closest to one that does not exist: a folder beside it, or below runs if it is only a name. NULL:
 * none. */
static const char *near_path(brim_arena *arena, const char *path)
{
  const char *slash = strrchr(path, '/'), *best = NULL;
  const char *parents[] = {slash ? brim_arena_string_n(arena, path, (size_t)(slash - path) + 1) : "", "runs/",
                           "multirun/"};
  int distance = INT32_MAX;
  for (size_t i = 0; i < (slash ? 1 : sizeof parents / sizeof parents[0]); i++) {
    const char **name, *found = NULL;
    size_t count;
    if (!brim_folder_names(arena, parents[i][0] ? parents[i] : ".", &name, &count)) continue;
    for (size_t k = 0; k < count; k++)
      if (name[k][0] != '.' && brim_is_folder(brim_arena_printf(arena, "%s%s", parents[i], name[k])))
        brim_suggest(slash ? slash + 1 : path, name[k], &distance, &found);
    if (found) best = brim_arena_printf(arena, "%s%s", parents[i], found);
  }
  return best;
}

brim_status brim_runs_check_operand(brim_arena *arena, const char *operand)
{
  const char *path = brim_runs_path(arena, operand);
  size_t end = strlen(path);
  while (end > 1 && path[end - 1] == '/') end--;
  path = brim_arena_string_n(arena, path, end);
  if (access(path, F_OK) == 0 && !brim_is_folder(path))
    return brim_fail(BRIM_ELOAD, "'%s' is a file, not the folder of a run or a folder of runs", path);
  /* The path exists, or reading it will report why it cannot be read. */
  if (access(path, F_OK) == 0 || errno != ENOENT) return BRIM_OK;
  const char *near = near_path(arena, path);
  const brim_status status =
      brim_fail(BRIM_ELOAD, "there is no folder '%s'%s\nexpected the folder of a run, or a folder of runs", path,
                strchr(path, '/') ? "" : ", nor one of this name in 'runs'");
  return near ? brim_fail_add(status, "did you mean '%s'?", near) : status;
}

static brim_status open_operand(brim_runs *runs, const char *operand)
{
  BRIM_TRY(brim_runs_check_operand(runs->arena, operand));
  const char *path = brim_runs_path(runs->arena, operand);
  BRIM_ARENA_GROW(runs->arena, runs->index, runs->indexes, runs->index_room);
  brim_index *index = &runs->index[runs->indexes];
  if (brim_is_run(AT_FDCWD, path, 0)) {
    BRIM_TRY(brim_index_open_run(index, path));
  } else {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    BRIM_TRY(brim_index_open(index, brim_arena_string_n(runs->arena, path, length), !runs->options->no_cache));
  }
  runs->indexes++;
  return BRIM_OK;
}

void brim_runs_release(brim_runs *runs)
{
  for (size_t i = 0; i < runs->indexes; i++) brim_index_release(&runs->index[i]);
  runs->indexes = 0;
}

/* ---- keys ---- */

/* Sets *out to the index of a key in the list of keys to look up, to which it adds the key if needed; `name` may be the
 * title of a column. */
static brim_status add_key(brim_runs *runs, const char *name, size_t *out)
{
  const brim_index_column *column = brim_index_column_of(name);
  size_t i = 0;
  if (column) name = column->key;
  while (i < runs->keys && strcmp(runs->key[i], name) != 0) i++;
  if (i == BRIM_RUNS_KEYS_MAX) return brim_fail(BRIM_ECONFIG, "more than %d different keys", BRIM_RUNS_KEYS_MAX);
  if (i == runs->keys) runs->key[runs->keys++] = name;
  *out = i;
  return BRIM_OK;
}

/* Each key of a list with commas becomes a column. */
static brim_status add_columns(brim_runs *runs, const char *list)
{
  size_t at;
  if (!list[0]) return brim_fail(BRIM_ECONFIG, "--columns needs a key, such as name,test.accuracy");
  for (const char *s = list; *s;) {
    const size_t length = strcspn(s, ",");
    if (length == 0) return brim_fail(BRIM_ECONFIG, "--columns %s: there is an empty name in the list", list);
    BRIM_TRY(add_key(runs, brim_arena_string_n(runs->arena, s, length), &at));
    s += length;
    if (*s == ',' && !*++s) return brim_fail(BRIM_ECONFIG, "--columns %s: there is an empty name in the list", list);
  }
  runs->columns = runs->keys;
  return BRIM_OK;
}

/* Reports an error about a key, with its place in the filter, or the option. */
static brim_status fail_key(const brim_runs *runs, size_t key, const char *problem)
{
  for (size_t i = 0; i < runs->filter.keys; i++)
    if (runs->filter_key[i] == key) return brim_where_fail(&runs->filter, runs->filter.at[i], problem);
  return brim_fail(BRIM_ECONFIG, "%s: %s", key < runs->columns ? "--columns" : "--sort", problem);
}

static brim_status fail_ambiguous(const brim_runs *runs, const brim_index *index, size_t key, const uint32_t *found,
                                  size_t count)
{
  const char *first = brim_index_string(index, found[0]), *second = brim_index_string(index, found[1]);
  return fail_key(runs, key,
                  brim_arena_printf(runs->arena, "'%s' may mean %s or %s%s: write more of the key", runs->key[key],
                                    strchr(first, '.') + 1, strchr(second, '.') + 1, count > 2 ? " and others" : ""));
}

static brim_status fail_unknown(const brim_runs *runs, size_t key)
{
  const char *best = NULL;
  for (size_t i = 0; i < runs->indexes && !best; i++) best = brim_index_suggest(&runs->index[i], runs->key[key]);
  return fail_key(runs, key,
                  brim_arena_printf(runs->arena, "no run here has '%s'%s%s%s", runs->key[key],
                                    best ? "; did you mean '" : "", best ? best : "", best ? "'?" : ""));
}

/* Finds the keys of an index; 0 for a key that it lacks. */
static brim_status bind(const brim_runs *runs, const brim_index *index, uint32_t *out, bool *known)
{
  uint32_t found[2];
  for (size_t k = 0; k < runs->keys; k++) {
    const size_t count = brim_index_find_key(index, runs->key[k], found, 2);
    if (count > 1) return fail_ambiguous(runs, index, k, found, count);
    out[k] = count == 1 ? found[0] : 0;
    known[k] = brim_index_is_known(runs->key[k]);
  }
  return BRIM_OK;
}

/* ---- rows ---- */

/* The value that the list shows, which the filter and the order use too. */
brim_where_value brim_runs_value(const brim_runs *runs, const brim_runs_row *row, size_t key)
{
  const brim_index_cell *cell = row->cell[key];
  const brim_index_column *column = brim_index_column_of(runs->key[key]);
  if (column && column->kind == BRIM_WHERE_PATHS)
    return (brim_where_value){.has = true, .text = row->path, .number = NAN};
  if (!cell) return (brim_where_value){.number = NAN};
  return (brim_where_value){.has = true,
                            .is_list = column && column->is_list,
                            .text = cell->text ? brim_index_string(row->index, cell->text) : NULL,
                            .number = cell->number};
}

static bool is_chosen(const brim_runs *runs, const brim_runs_row *row)
{
  brim_where_value value[BRIM_WHERE_KEYS_MAX];
  for (size_t i = 0; i < runs->filter.keys; i++) value[i] = brim_runs_value(runs, row, runs->filter_key[i]);
  return brim_where_matches(&runs->filter, value);
}

/* Two keys of the user may be the same key of an index, so the first one gets the cells. */
static void add_rows(brim_runs *runs, const brim_index *index, const uint32_t *key)
{
  const brim_index_cell *taken[BRIM_RUNS_KEYS_MAX];
  size_t same[BRIM_RUNS_KEYS_MAX];
  for (size_t k = 0; k < runs->keys; k++) {
    same[k] = 0;
    while (key[same[k]] != key[k]) same[k]++;
  }
  uint8_t *slot = brim_index_slots(index, key, runs->keys);
  for (size_t i = 0; i < index->runs; i++) {
    const brim_index_run *run = &index->run[i];
    brim_runs_row row = {index, run, brim_index_path(runs->arena, index, run), runs->row[runs->rows].cell};
    brim_index_take(index, row.run, slot, taken, runs->keys);
    for (size_t k = 0; k < runs->keys; k++) row.cell[k] = key[k] ? taken[same[k]] : NULL;
    runs->row[runs->rows++] = row;
  }
  free(slot);
}

/* ---- values ---- */

/* Adds a text, or each item of a list of tags, to the names, once. */
static void add_names(brim_runs *runs, const char *text, bool is_list, const char **name, size_t *names)
{
  while (*text && *names < NAMES_MAX) {
    const size_t length = is_list ? strcspn(text, ",") : strlen(text);
    size_t i = 0;
    while (i < *names && (strncmp(name[i], text, length) != 0 || name[i][length])) i++;
    if (i == *names) name[(*names)++] = brim_arena_string_n(runs->arena, text, length);
    text += length + (text[length] == ',');
  }
}

static bool are_flags(const char *const *name, size_t names)
{
  for (size_t i = 0; i < names; i++)
    if (strcmp(name[i], "true") != 0 && strcmp(name[i], "false") != 0) return false;
  return names > 0;
}

/* Returns the kind of the values of a filter's key: from brim's own table, else from the runs. */
static brim_where_values values_of(brim_runs *runs, size_t key)
{
  static const char *const flags[] = {"false", "true"};
  const char *called = runs->key[key];
  const brim_index_column *column = brim_index_column_of(called);
  const bool is_status = strcmp(called, "status") == 0, is_free = strcmp(called, "note") == 0;
  const char **name = BRIM_ARENA_NEW(runs->arena, const char *, NAMES_MAX);
  size_t names = 0, numbers = 0;
  for (size_t i = 0; is_status && brim_index_statuses[i]; i++) name[names++] = brim_index_statuses[i];
  for (size_t i = 0; i < runs->rows; i++) {
    const brim_index_cell *cell = runs->row[i].cell[key];
    numbers += cell && !isnan(cell->number);
    if (cell && cell->text && isnan(cell->number) && !is_free)
      add_names(runs, brim_index_string(runs->row[i].index, cell->text), column && column->is_list, name, &names);
  }
  if (brim_index_kind_of(called) != BRIM_WHERE_MIXED)
    return (brim_where_values){numbers > 0 && !is_status && brim_index_kind_of(called) == BRIM_WHERE_TEXTS
                                   ? BRIM_WHERE_MIXED
                                   : brim_index_kind_of(called),
                               name, names};
  if (are_flags(name, names) && numbers == 0) return (brim_where_values){BRIM_WHERE_NAMES, flags, 2};
  return (brim_where_values){numbers == 0 ? BRIM_WHERE_TEXTS
                             : names == 0 ? BRIM_WHERE_NUMBERS
                                          : BRIM_WHERE_MIXED,
                             name, names};
}

static const brim_runs *sorted; /* qsort passes no context */

/* Runs without the key come last; equal runs keep the order of their names. */
static int by_key(const void *left, const void *right)
{
  const brim_runs_row *a = left, *b = right;
  const brim_where_value x = brim_runs_value(sorted, a, sorted->sort), y = brim_runs_value(sorted, b, sorted->sort);
  int order = 0;
  if (!x.has || !y.has) return x.has ? -1 : y.has ? 1 : brim_find_order(a->path, b->path);
  if (!isnan(x.number) && !isnan(y.number))
    order = x.number < y.number ? -1 : x.number > y.number;
  else if (x.text && y.text)
    order = brim_find_order(x.text, y.text);
  else
    order = x.text ? 1 : -1; /* numbers before texts */
  if (order != 0) return sorted->descends ? -order : order;
  return brim_find_order(a->path, b->path);
}

/* ---- all of it ---- */

brim_status brim_runs_take_options(brim_runs *runs, const char *default_columns)
{
  const brim_runs_options *o = runs->options;
  int64_t limit;
  BRIM_TRY(brim_cli_whole_number("--limit", o->limit, 1, INT64_MAX, &limit));
  const char *sort = o->sort ? o->sort : "-started";
  BRIM_TRY(add_columns(runs, o->columns ? o->columns : default_columns));
  runs->descends = sort[0] == '-';
  if (!sort[runs->descends]) return brim_fail(BRIM_ECONFIG, "--sort needs a key, such as -test.accuracy");
  BRIM_TRY(add_key(runs, sort + runs->descends, &runs->sort));
  if (!o->where) return BRIM_OK;
  BRIM_TRY(brim_where_parse(runs->arena, o->where, &runs->filter));
  for (size_t i = 0; i < runs->filter.keys; i++) BRIM_TRY(add_key(runs, runs->filter.key[i], &runs->filter_key[i]));
  return BRIM_OK;
}

/* Keeps the rows for which the filter holds. */
static brim_status filter_rows(brim_runs *runs)
{
  size_t kept = 0;
  if (runs->total == 0) return BRIM_OK;
  for (size_t i = 0; i < runs->filter.keys; i++) runs->filter.values[i] = values_of(runs, runs->filter_key[i]);
  BRIM_TRY(brim_where_check(runs->arena, &runs->filter));
  for (size_t i = 0; i < runs->rows; i++)
    if (is_chosen(runs, &runs->row[i])) runs->row[kept++] = runs->row[i];
  runs->rows = kept;
  return BRIM_OK;
}

brim_status brim_runs_choose(brim_runs *runs)
{
  int64_t limit = INT64_MAX;
  BRIM_TRY(brim_cli_whole_number("--limit", runs->options->limit, 1, INT64_MAX, &limit));
  uint32_t key[BRIM_RUNS_KEYS_MAX];
  bool known[BRIM_RUNS_KEYS_MAX] = {false};
  size_t runs_total = 0;
  for (size_t i = 0; i < runs->indexes; i++) runs_total += runs->index[i].runs;
  runs->row = BRIM_ARENA_NEW(runs->arena, brim_runs_row, runs_total + 1);
  const brim_index_cell **cell = BRIM_ARENA_NEW(runs->arena, const brim_index_cell *, (runs_total + 1) * runs->keys);
  for (size_t i = 0; i <= runs_total; i++) runs->row[i].cell = cell + i * runs->keys;
  for (size_t i = 0; i < runs->indexes; i++) {
    BRIM_TRY(bind(runs, &runs->index[i], key, known));
    add_rows(runs, &runs->index[i], key);
  }
  runs->total = runs->rows;
  for (size_t k = 0; k < runs->keys && runs->total > 0; k++) {
    for (size_t i = 0; i < runs->rows && !known[k]; i++) known[k] = runs->row[i].cell[k];
    if (!known[k]) return fail_unknown(runs, k);
  }
  BRIM_TRY(filter_rows(runs));
  sorted = runs;
  if (runs->rows > 1) qsort(runs->row, runs->rows, sizeof *runs->row, by_key);
  if (runs->rows > (uint64_t)limit) runs->rows = (size_t)limit;
  return BRIM_OK;
}

brim_status brim_runs_select(brim_runs *runs, const char *const *operand, size_t operands, const char *default_columns)
{
  const char *folder[BRIM_RUNS_FOLDERS_MAX];
  /* checks the options before it reads folders, so that a mistake in them is reported at once */
  BRIM_TRY(brim_runs_take_options(runs, default_columns));
  if (operands == 0) {
    BRIM_TRY(brim_runs_default_folders(folder, &operands));
    operand = folder;
  }
  for (size_t i = 0; i < operands; i++) BRIM_TRY(open_operand(runs, operand[i]));
  return brim_runs_choose(runs);
}

brim_status brim_runs_list(brim_runs *runs, const char *const *operand, size_t operands, const char *verb,
                           const char ***path, size_t *count)
{
  *count = 0;
  if (!runs->options->where) {
    if (operands == 0)
      return brim_fail(BRIM_ECONFIG, "no run is named: brim runs %s RUN..., or --where 'EXPRESSION' [FOLDER...]", verb);
    *path = BRIM_ARENA_NEW(runs->arena, const char *, operands);
    for (size_t i = 0; i < operands; i++) (*path)[(*count)++] = brim_runs_path(runs->arena, operand[i]);
    return BRIM_OK;
  }
  BRIM_TRY(brim_runs_select(runs, operand, operands, "name,status,steps,started,tag,note"));
  brim_runs_warn(runs);
  if (runs->rows == 0) brim_say("no run matches --where '%s'", runs->options->where);
  *path = BRIM_ARENA_NEW(runs->arena, const char *, runs->rows + 1);
  for (size_t i = 0; i < runs->rows; i++) (*path)[(*count)++] = runs->row[i].path;
  return BRIM_OK;
}
