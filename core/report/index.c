/* Reads the folders of runs into an index. See index.h. */
#include "report/index.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "observe/metrics.h"
#include "param/yaml.h"
#include "report/find.h"
#include "report/runs.h"
#include "store/notes.h"
#include "store/record.h"
#include "store/rundir.h"
#include "store/summary.h"

#define CACHED_RUNS_MIN 100   /* reading fewer runs is as fast as reading a cache */
#define TAIL_BYTES (64 << 10) /* bytes of metrics.jsonl, read for a run without a summary */
#define EVENT_BYTES 4096      /* bytes of events.jsonl, whose first line has the run's start */
#define CONFIG_DEPTH_MAX 16   /* deeper maps are one value */
static const char *const files[BRIM_INDEX_FILES] = {"config.yaml", "summary.json", BRIM_NOTES_NAME, "metrics.jsonl"};

/* A run that is being read. */
typedef struct reader {
  brim_index *index;
  brim_arena arena;
  const char *dir;
  brim_text problem;
} reader;

/* ---- files ---- */

static brim_index_stamp stamp_of(int folder, const char *name, const char *file)
{
  char path[BRIM_PATH_MAX];
  struct stat info;
  if (snprintf(path, sizeof path, "%s/%s", name, file) >= (int)sizeof path) return (brim_index_stamp){0};
  if (fstatat(folder, path, &info, 0) != 0) return (brim_index_stamp){0};
  return (brim_index_stamp){info.st_size, info.st_ctim.tv_sec * 1000000000 + info.st_ctim.tv_nsec, info.st_ino};
}

static bool is_same(brim_index_stamp a, brim_index_stamp b)
{
  return a.bytes == b.bytes && a.changed == b.changed && a.inode == b.inode;
}

/* Whether the cached run agrees with its folder as it is now. */
static bool is_fresh(int folder, const char *name, const char *dir, const brim_index_run *run)
{
  const int last = run->state == BRIM_INDEX_FINISHED ? BRIM_INDEX_METRICS : BRIM_INDEX_FILES;
  for (int i = 0; i < last; i++)
    if (!is_same(run->stamp[i], stamp_of(folder, name, files[i]))) return false;
  return run->state == BRIM_INDEX_FINISHED || (run->state == BRIM_INDEX_ENDED && !brim_run_is_open(dir));
}

/* Reads up to `room` - 1 bytes: the last ones of a longer file. Returns their number, or -1; *before: number of bytes
 * left out. */
static ssize_t read_end(const char *dir, const char *name, char *out, size_t room, int64_t *before)
{
  char path[BRIM_PATH_MAX];
  struct stat info;
  const int fd = brim_path_join(path, dir, name) == BRIM_OK ? brim_open_to_read(path) : -1;
  if (fd < 0) return -1;
  *before = fstat(fd, &info) == 0 && info.st_size > (off_t)room - 1 ? info.st_size - ((off_t)room - 1) : 0;
  const ssize_t n = pread(fd, out, room - 1, *before);
  close(fd);
  if (n >= 0) out[n] = '\0';
  return n;
}

/* Appends an error; its lines are joined to one. */
static void add_problem(reader *r, const char *text)
{
  if (r->problem.length > 0) brim_text_add(&r->problem, "; ");
  for (const char *s = text; *s;) {
    const size_t length = strcspn(s, "\n");
    brim_text_add_n(&r->problem, s, length);
    s += length;
    if (*s) brim_text_add(&r->problem, ": ");
    s += strspn(s, "\n ");
  }
}

/* ---- the configuration ---- */

static void add_config(reader *r, const brim_yaml *node, const char *key, int depth)
{
  char below[512];
  if (node->kind == BRIM_YAML_SCALAR) {
    brim_index_add_text(r->index, key, node->scalar);
  } else if (node->kind == BRIM_YAML_MAP && node->count > 0 && depth < CONFIG_DEPTH_MAX) {
    for (size_t i = 0; i < node->count; i++)
      if (snprintf(below, sizeof below, "%s.%s", key, node->key[i]) < (int)sizeof below)
        add_config(r, node->item[i], below, depth + 1);
  } else {
    brim_text text = {0};
    brim_compare_add_value(node, &text);
    brim_index_add_text(r->index, key, brim_text_str(&text));
    brim_text_release(&text);
  }
}

static void add_choice(reader *r, const brim_yaml *config, const char *key, const char *first, const char *second)
{
  const brim_yaml *node = brim_yaml_get_path(config, first);
  if (!node && second) node = brim_yaml_get_path(config, second);
  if (node && node->kind == BRIM_YAML_SCALAR) brim_index_add_text(r->index, key, node->scalar);
}

static bool read_config(reader *r)
{
  char path[BRIM_PATH_MAX];
  brim_yaml *config;
  if (brim_path_join(path, r->dir, "config.yaml") != BRIM_OK ||
      brim_yaml_parse_file(&r->arena, path, &config) != BRIM_OK) {
    add_problem(r, brim_error_text());
    return false;
  }
  add_choice(r, config, "model", "model.id", NULL);
  add_choice(r, config, "dataset", "dataset.option", "dataset.id");
  if (config->kind == BRIM_YAML_MAP)
    add_config(r, config, "config", 0);
  else
    add_problem(r, brim_arena_printf(&r->arena, "'%s' is not a map of keys", path));
  return config->kind == BRIM_YAML_MAP;
}

/* ---- results ---- */

/* Adds the numbers and texts of a record; `prefix`: "result." or "result.train_". */
static void add_results(reader *r, const json_t *record, const char *prefix)
{
  const char *key;
  json_t *value;
  char name[160];
  json_object_foreach((json_t *)record, key, value)
  {
    if (snprintf(name, sizeof name, "%s%s", prefix, key) >= (int)sizeof name) continue;
    if (json_is_number(value)) brim_index_add_number(r->index, name, json_number_value(value));
    if (json_is_string(value)) brim_index_add_text(r->index, name, json_string_value(value));
  }
}

/* Returns NULL if there is no summary, or, with a problem added, if it is damaged. */
static json_t *load_summary(reader *r)
{
  char path[BRIM_PATH_MAX];
  struct stat info;
  json_error_t problem;
  if (brim_path_join(path, r->dir, "summary.json") != BRIM_OK || stat(path, &info) != 0) return NULL;
  if (info.st_size > BRIM_SUMMARY_BYTES_MAX) {
    add_problem(r, brim_arena_printf(&r->arena, "'%s' is too large to be a summary", path));
    return NULL;
  }
  json_t *root = brim_json_load(path, 0, &problem);
  if (root && json_string_value(json_object_get(root, "status"))) return root;
  if (root)
    add_problem(r, brim_arena_printf(&r->arena, "%s has no status: it is not a summary of brim", path));
  else if (problem.line < 0)
    add_problem(r, brim_arena_printf(&r->arena, "cannot read '%s': %s", path, problem.text));
  else
    add_problem(r, brim_arena_printf(&r->arena, "%s:%d:%d: %s", path, problem.line, problem.column, problem.text));
  json_decref(root);
  return NULL;
}

static int split_of(const json_t *record)
{
  const char *name = json_string_value(json_object_get(record, "split"));
  for (int i = 0; name && i < BRIM_PART_COUNT; i++)
    if (strcmp(name, brim_part_names[i]) == 0) return i;
  return -1;
}

/* Adds the newest record of each split, which shows how far a run without a summary got. Counts lines of other
 * programs. */
static void read_tail(reader *r)
{
  char *text = brim_arena_alloc(&r->arena, TAIL_BYTES + 1), prefix[40];
  int64_t before = 0;
  bool seen[BRIM_PART_COUNT] = {false};
  size_t foreign = 0;
  double step = NAN;
  ssize_t length = read_end(r->dir, "metrics.jsonl", text, TAIL_BYTES, &before);
  while (length > 0 && text[length - 1] != '\n') length--; /* a killed run may leave a part of a line */
  for (ssize_t end = length; end > 0;) {
    ssize_t start = --end;
    while (start > 0 && text[start - 1] != '\n') start--;
    if (start == 0 && before > 0) break; /* the line's start is before this part of the file */
    json_t *record = json_loadb(text + start, (size_t)(end - start), 0, NULL);
    const json_t *at = json_object_get(record, "step");
    const int split = json_is_number(at) ? split_of(record) : -1;
    if (split >= 0 && !seen[split]) {
      snprintf(prefix, sizeof prefix, "result.%s_", brim_part_names[split]);
      json_object_del(record, "split");
      if (isnan(step)) step = json_number_value(at);
      add_results(r, record, prefix);
    }
    if (split >= 0) seen[split] = true;
    foreign += split < 0 && !json_object_get(record, "lost");
    json_decref(record);
    end = start;
  }
  brim_index_add_number(r->index, "result.steps", isnan(step) ? 0 : step);
  if (foreign > 0)
    add_problem(r, brim_arena_printf(&r->arena,
                                     "%s/metrics.jsonl: %zu line%s not record%s of brim, ignored; brim runs "
                                     "show %s names them",
                                     r->dir, foreign, foreign == 1 ? " is" : "s are", foreign == 1 ? "" : "s",
                                     BRIM_QUOTED(r->dir)));
}

static void add_started(reader *r)
{
  char line[EVENT_BYTES + 1], path[BRIM_PATH_MAX], text[32];
  struct stat info;
  struct tm local;
  ssize_t n = -1;
  if (brim_path_join(path, r->dir, "events.jsonl") != BRIM_OK) return;
  const int fd = brim_open_to_read(path);
  if (fd >= 0) n = read(fd, line, EVENT_BYTES);
  if (fd >= 0) close(fd);
  if (n < 0) n = 0;
  line[n] = '\0';
  json_t *event = json_loadb(line, strcspn(line, "\n"), 0, NULL);
  double time = json_number_value(json_object_get(event, "time"));
  json_decref(event);
  if (!(time > 0) && brim_path_join(path, r->dir, "config.yaml") == BRIM_OK && stat(path, &info) == 0)
    time = (double)info.st_mtim.tv_sec;
  const time_t whole = time > 0 && time < 1e11 ? (time_t)time : 0;
  if (whole > 0 && localtime_r(&whole, &local) && strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local) > 0)
    brim_index_add_text(r->index, "started", text);
}

/* Adds the figure by which the run is judged: of validation data, else of test data, else, early in a run, of
 * training. */
static void add_judged(reader *r, const char *name)
{
  static const char *const judges[] = {"validation", "test", "train"};
  char key[64];
  const brim_index_run *run = &r->index->run[r->index->runs - 1];
  for (size_t i = 0; i < sizeof judges / sizeof judges[0]; i++) {
    snprintf(key, sizeof key, "result.%s_%s", judges[i], name);
    const brim_index_cell *cell = brim_index_cell_of(r->index, run, key);
    if (!cell || isnan(cell->number)) continue;
    brim_index_add_number(r->index, name, cell->number);
    return;
  }
}

static void add_notes(reader *r)
{
  brim_notes notes;
  brim_text tags = {0};
  if (brim_notes_read(&r->arena, r->dir, &notes) != BRIM_OK) {
    add_problem(r, brim_error_text());
    return;
  }
  for (size_t i = 0; i < notes.tags; i++) brim_text_printf(&tags, "%s%s", i ? "," : "", notes.tag[i]);
  if (tags.length > 0) brim_index_add_text(r->index, "tag", brim_text_str(&tags));
  if (notes.note[0]) brim_index_add_text(r->index, "note", notes.note);
  brim_text_release(&tags);
}

static void read_results(reader *r, bool open)
{
  json_t *summary = load_summary(r);
  const char *status = json_string_value(json_object_get(summary, "status"));
  brim_index_run *run = &r->index->run[r->index->runs - 1];
  if (open) {
    run->state = BRIM_INDEX_OPEN;
    brim_index_add_text(r->index, "status", "running");
  } else {
    run->state = status && strcmp(status, "finished") == 0 ? BRIM_INDEX_FINISHED : BRIM_INDEX_ENDED;
    brim_index_add_text(r->index, "status", status ? status : "unfinished");
  }
  if (summary && !open) {
    const json_t *seconds = json_object_get(summary, "wall_seconds");
    if (json_is_number(seconds)) brim_index_add_number(r->index, "seconds", json_number_value(seconds));
    add_results(r, summary, "result.");
  } else {
    read_tail(r);
  }
  json_decref(summary);
}

/* Reads a run and adds it to the index. */
static void read_run(brim_index *index, int folder, const char *name, const char *dir, int error)
{
  static const char *const judged[] = {"loss", "accuracy", "perplexity", "mae"};
  reader r = {.index = index, .dir = dir};
  brim_index_begin_run(index, name);
  /* Sizes and times are taken before reading, so that brim notices a later change. */
  for (int i = 0; i < BRIM_INDEX_FILES; i++) index->run[index->runs - 1].stamp[i] = stamp_of(folder, name, files[i]);
  brim_index_add_text(index, "name", name);
  if (error) add_problem(&r, brim_arena_printf(&r.arena, "cannot read '%s': %s", dir, strerror(error)));
  if (!error && read_config(&r)) {
    read_results(&r, brim_run_is_open(dir));
    add_started(&r);
    for (size_t i = 0; i < sizeof judged / sizeof judged[0]; i++) add_judged(&r, judged[i]);
    add_notes(&r);
  } else {
    brim_index_add_text(index, "status", "unreadable");
    index->run[index->runs - 1].state = BRIM_INDEX_OPEN; /* the run is not cached, because permissions may change */
  }
  if (r.problem.length > 0) {
    brim_index_add_text(index, "problem", brim_text_str(&r.problem));
    index->run[index->runs - 1].problem = brim_index_intern(index, brim_text_str(&r.problem));
  }
  brim_text_release(&r.problem);
  brim_arena_release(&r.arena);
}

/* ---- folders ---- */

/* Adds the runs found: from the cache's index, which has them in the same order, or from their folders. True if a run
 * was read that the cache should have. */
static bool merge(brim_index *index, int folder, const brim_found_list *found, brim_arena *arena)
{
  brim_index_run *cached = index->run;
  const size_t cached_runs = index->runs;
  size_t at = 0, reused = 0;
  bool changed = false;
  index->run = NULL;
  index->runs = index->run_room = 0;
  for (size_t i = 0; i < found->count; i++) {
    const brim_found *f = &found->item[i];
    while (at < cached_runs && brim_find_order(brim_index_string(index, cached[at].name), f->name) < 0) at++;
    const char *dir = index->folder[0] ? brim_arena_printf(arena, "%s/%s", index->folder, f->name) : f->name;
    if (!f->error && at < cached_runs && strcmp(brim_index_string(index, cached[at].name), f->name) == 0 &&
        is_fresh(folder, f->name, dir, &cached[at])) {
      brim_index_add_run(index, &cached[at]);
      reused++;
      continue;
    }
    read_run(index, folder, f->name, dir, f->error);
    changed = changed || index->run[index->runs - 1].state != BRIM_INDEX_OPEN;
  }
  free(cached);
  return changed || reused < cached_runs;
}

brim_status brim_index_open(brim_index *index, const char *folder, bool uses_cache)
{
  brim_found_list found;
  brim_arena arena = {0};
  *index = (brim_index){0};
  snprintf(index->folder, sizeof index->folder, "%s", folder);
  brim_status status = brim_find_runs(&arena, folder, &found);
  const int fd = status == BRIM_OK ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (status == BRIM_OK && fd < 0)
    status = brim_fail(BRIM_ELOAD, "cannot read the folder '%s': %s", folder, strerror(errno));
  if (status == BRIM_OK) {
    const bool caches = uses_cache && found.count >= CACHED_RUNS_MIN;
    if (caches) brim_index_load(index, folder);
    const bool changed = merge(index, fd, &found, &arena);
    if (caches && changed) brim_index_save(index, folder);
  }
  if (fd >= 0) close(fd);
  brim_arena_release(&arena);
  return status;
}

brim_status brim_index_open_run(brim_index *index, const char *dir)
{
  *index = (brim_index){0};
  size_t length = strlen(dir);
  while (length > 1 && dir[length - 1] == '/') length--;
  char path[BRIM_PATH_MAX];
  if (length >= sizeof path) return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", dir);
  snprintf(path, sizeof path, "%.*s", (int)length, dir);
  if (!brim_is_run(AT_FDCWD, path, 0) && errno == EACCES)
    return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", path, strerror(EACCES));
  if (!brim_is_run(AT_FDCWD, path, 0))
    return brim_fail(BRIM_ELOAD, access(path, F_OK) == 0 ? "'%s' is not the folder of a run" : "there is no run '%s'",
                     path);
  read_run(index, AT_FDCWD, path, path, 0);
  return BRIM_OK;
}

void brim_index_add_renamed(brim_index *index, const char *name, const char *dir)
{
  const int error = brim_is_run(AT_FDCWD, dir, 0) ? 0 : errno;
  read_run(index, AT_FDCWD, name, dir, error);
}
