/* See folder.h. JSON lines are read from the place where the last look ended. In a new file only lines at regular
 * distances are parsed for the curves, because parsing takes most of the time. So the first look is fast even with many
 * runs. */
#include "monitor/folder.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "brim/backend.h"
#include "observe/openmetrics.h"
#include "param/yaml.h"
#include "store/record.h"

#define CHUNK_BYTES ((size_t)1 << 16)   /* bytes read at a time; longer lines are skipped */
#define READ_BYTES_MAX ((off_t)4 << 20) /* limit for the bytes of a file in one look */
#define SKIMMED_BYTES ((off_t)1 << 20)  /* at first, only single lines of longer files are read */
#define SKIMMED_LINES 64
#define NEWEST_BYTES 1024 /* bytes at a file's end, of which every line is read */
#define LINE_BYTES 240    /* bytes of a usual record */
#define PLAN_BYTES_MAX ((off_t)4 << 20)
#define TRIED_MAX 64 /* most plans that the planner has computed */
#define TEXT_BYTES 256
#define TIME_MAX 1e11

typedef struct tail {
  off_t at; /* offset of the first byte that was not read yet */
  ino_t file;
  off_t thin_until;      /* before this byte, only some records are parsed */
  int64_t stride;        /* every stride-th record of training data is parsed; 0: the file has events */
  int64_t train, others; /* records met there */
} tail;

/* Points of the whole run. If there are too many, every second one is dropped, and from then on only every second new
 * one is kept. */
typedef struct curve {
  float step[BRIM_LOOK_POINTS_MAX], value[BRIM_LOOK_POINTS_MAX];
  size_t count;         /* the last point is always the newest */
  int64_t seen, stride; /* seen: number of points so far, of which every stride-th is kept */
  bool last_is_kept;
} curve;

/* The two splits, training and the one by which the run is judged, with loss and score. */
enum { TRAIN_LOSS, JUDGED_LOSS, TRAIN_SCORE, JUDGED_SCORE, CURVES };

typedef struct event {
  double time;
  int64_t step;
  char kind[32], text[TEXT_BYTES];
} event;

typedef struct tried {
  int64_t micro_batch;
  uint64_t peak_bytes;
  double step_seconds;
} tried;

struct brim_folder {
  char dir[BRIM_PATH_MAX];
  tail metrics, events;
  struct timespec config_time, plan_time;
  /* Contents of config.yaml: */
  char model[64], dataset[64];
  int64_t micro_batch, batch, workers;
  double epochs;
  bool is_elastic, is_federated;
  /* Contents of plan.json: */
  struct {
    char name[32];
    uint64_t bytes;
  } class[BRIM_LOOK_CLASSES_MAX];
  size_t classes;
  /* Contents of metrics.jsonl: */
  curve curve[CURVES];
  char judged[16];        /* "validation"; "" before the first evaluation */
  const char *score_name; /* a literal */
  double loss, score, epoch, rate, step_seconds, loader_share;
  int64_t step;
  bool counts_tokens;
  /* Contents of events.jsonl: */
  event event[BRIM_LOOK_EVENTS_MAX];
  size_t events_seen;          /* the newest is at (events_seen - 1) % BRIM_LOOK_EVENTS_MAX */
  enum brim_look_state ending; /* BRIM_LOOK_STATES: the last process has recorded no end */
  double started, ended;
  int64_t retries;
  brim_openmetrics_counts decisions;
  tried tried[TRIED_MAX];
  size_t tried_count;
  double queue_seconds;
};

/* ---- lines ---- */

typedef void (*line_fn)(brim_folder *f, const char *line, size_t length);

static bool says(const char *line, size_t length, const char *word)
{
  return memmem(line, length < 64 ? length : 64, word, strlen(word)) != NULL;
}

/* Whether a record represents its neighbours. Of events, all except old checkpoints do. Evaluations are rarer than
 * training records, and their number is not known in advance: after SKIMMED_LINES every second one does, after twice as
 * many every fourth, and so on. */
static bool is_taken(tail *t, off_t at, const char *line, size_t length)
{
  if (at >= t->thin_until) return true;
  if (t->stride == 0) return !says(line, length, "\"checkpoint\"");
  if (says(line, length, "\"train\"")) return t->train++ % t->stride == 0;
  const int64_t turn = t->others++;
  int64_t stride = 1;
  while (stride * SKIMMED_LINES <= turn) stride *= 2;
  return turn % stride == 0;
}

static void take_lines(brim_folder *f, int fd, tail *t, char *chunk, off_t end, line_fn take)
{
  while (t->at < end) {
    const ssize_t n = pread(fd, chunk, CHUNK_BYTES, t->at);
    if (n <= 0) return;
    size_t done = 0;
    for (char *stop; (stop = memchr(chunk + done, '\n', (size_t)n - done)) != NULL; done = (size_t)(stop - chunk) + 1)
      if (is_taken(t, t->at + (off_t)done, chunk + done, (size_t)(stop - chunk) - done))
        take(f, chunk + done, (size_t)(stop - chunk) - done);
    if (done == 0 && (size_t)n < CHUNK_BYTES) return; /* a line that is not complete yet */
    t->at += done > 0 ? (off_t)done : n;
  }
}

/* Reads single lines of a long file, and sets the tail to a place shortly before its end. */
static void skim(brim_folder *f, int fd, tail *t, char *chunk, off_t bytes, line_fn take)
{
  const off_t end = bytes - SKIMMED_BYTES / 4;
  for (int i = 0; i < SKIMMED_LINES; i++) {
    const ssize_t n = pread(fd, chunk, CHUNK_BYTES / 8, end / SKIMMED_LINES * i);
    const char *line = n > 0 ? memchr(chunk, '\n', (size_t)n) : NULL;
    if (!line) continue;
    line++;
    const char *stop = memchr(line, '\n', (size_t)(chunk + n - line));
    if (stop) take(f, line, (size_t)(stop - line));
  }
  t->at = end;
}

/* Begins a new file. Of records, about SKIMMED_LINES of the whole file are read, or of the part that skim() leaves. */
static void begin_thin(tail *t, off_t bytes, bool is_records)
{
  const off_t rest = bytes > SKIMMED_BYTES ? SKIMMED_BYTES / 4 : bytes;
  t->thin_until = bytes - NEWEST_BYTES;
  t->stride = is_records ? rest / (SKIMMED_LINES * LINE_BYTES) + 1 : 0;
  t->train = t->others = 0;
}

static void follow(brim_folder *f, const char *name, tail *t, bool skims, line_fn take)
{
  char path[BRIM_PATH_MAX];
  struct stat info;
  if (brim_path_join(path, f->dir, name) != BRIM_OK) return;
  const int fd = brim_open_to_read(path);
  if (fd < 0) return;
  char *chunk = malloc(CHUNK_BYTES);
  if (chunk && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    if (t->file != info.st_ino || info.st_size < t->at) *t = (tail){.file = info.st_ino};
    if (t->at == 0) begin_thin(t, info.st_size, skims);
    if (t->at == 0 && info.st_size > SKIMMED_BYTES && skims) skim(f, fd, t, chunk, info.st_size, take);
    if (t->at == 0 && info.st_size > READ_BYTES_MAX) t->at = info.st_size - READ_BYTES_MAX;
    const off_t end = info.st_size - t->at > READ_BYTES_MAX ? t->at + READ_BYTES_MAX : info.st_size;
    take_lines(f, fd, t, chunk, end, take);
  }
  free(chunk);
  close(fd);
}

static int64_t whole(const json_t *object, const char *key)
{
  return json_integer_value(json_object_get(object, key));
}

/* ---- metrics ---- */

/* Removes points of steps that a run repeats after going back to a checkpoint. */
static void forget_later(curve *c, float step)
{
  while (c->count > 0 && c->step[c->count - 1] >= step) {
    c->count--;
    c->last_is_kept = true;
  }
}

static void halve(curve *c)
{
  for (size_t i = 0; 2 * i < c->count; i++) {
    c->step[i] = c->step[2 * i];
    c->value[i] = c->value[2 * i];
  }
  c->count = (c->count + 1) / 2;
  c->stride *= 2;
}

static void add_point(curve *c, double step, double value)
{
  if (!isfinite(value) || !isfinite(step)) return;
  forget_later(c, (float)step);
  if (c->stride == 0) c->stride = 1;
  if (c->count > 0 && !c->last_is_kept) c->count--; /* the last point was only there as the newest one */
  if (c->count == BRIM_LOOK_POINTS_MAX) halve(c);
  c->step[c->count] = (float)step;
  c->value[c->count++] = (float)value;
  c->last_is_kept = c->seen++ % c->stride == 0;
}

static const char *score_of(const json_t *record)
{
  static const char *const names[] = {"perplexity", "mae", "accuracy"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (json_object_get(record, names[i])) return names[i];
  return NULL;
}

static void take_training(brim_folder *f, const json_t *record)
{
  const double seconds = brim_json_number(record, "seconds"), samples = brim_json_number(record, "samples");
  const double tokens = brim_json_number(record, "tokens_per_second");
  f->step = whole(record, "step");
  f->loss = brim_json_number(record, "loss");
  f->epoch = brim_json_number(record, "epoch");
  f->counts_tokens = isfinite(tokens);
  f->rate = f->counts_tokens ? tokens : brim_json_number(record, "samples_per_second");
  if (f->score_name) f->score = brim_json_number(record, f->score_name);
  f->step_seconds = samples > 0 && f->batch > 0 ? seconds * (double)f->batch / samples : NAN;
  f->loader_share = seconds > 0 ? brim_json_number(record, "loader_seconds") / seconds : NAN;
}

static void take_record(brim_folder *f, const char *line, size_t length)
{
  json_t *record = json_loadb(line, length, 0, NULL);
  const char *split = brim_json_string(record, "split"), *score = score_of(record);
  const double step = brim_json_number(record, "step");
  const bool is_train = strcmp(split, "train") == 0;
  if (score) f->score_name = score;
  if (is_train) take_training(f, record);
  if (!is_train && strcmp(split, "validation") == 0 && strcmp(f->judged, "test") == 0) {
    f->curve[JUDGED_LOSS] = f->curve[JUDGED_SCORE] = (curve){.count = 0};
    f->judged[0] = '\0';
  }
  if (!is_train && !f->judged[0]) snprintf(f->judged, sizeof f->judged, "%s", split);
  if (is_train || (split[0] && strcmp(split, f->judged) == 0)) {
    add_point(&f->curve[is_train ? TRAIN_LOSS : JUDGED_LOSS], step, brim_json_number(record, "loss"));
    if (score) add_point(&f->curve[is_train ? TRAIN_SCORE : JUDGED_SCORE], step, brim_json_number(record, score));
  }
  json_decref(record);
}

/* ---- events ---- */

/* Adds a plan that the planner has computed, from the record of a policy's input. */
static void take_tried(brim_folder *f, const json_t *seen)
{
  const int64_t micro_batch = whole(seen, "micro_batch"), peak = whole(seen, "peak_bytes");
  size_t i = 0;
  if (micro_batch < 1 || peak < 1) return;
  while (i < f->tried_count && f->tried[i].micro_batch != micro_batch) i++;
  if (i == TRIED_MAX) return;
  if (i == f->tried_count) f->tried[f->tried_count++] = (tried){.step_seconds = NAN};
  const double seconds = brim_json_number(seen, "step_seconds");
  f->tried[i].micro_batch = micro_batch;
  f->tried[i].peak_bytes = (uint64_t)peak;
  if (isfinite(seconds)) f->tried[i].step_seconds = seconds;
}

static void keep_event(brim_folder *f, const json_t *record, const char *kind)
{
  event *e = &f->event[f->events_seen++ % BRIM_LOOK_EVENTS_MAX];
  const char *by = brim_json_string(record, "by"), *reason = brim_json_string(record, "reason");
  const double time = brim_json_number(record, "time");
  *e = (event){.time = time >= 0 && time < TIME_MAX ? time : NAN, .step = whole(record, "step")};
  snprintf(e->kind, sizeof e->kind, "%s", kind);
  if (by[0])
    snprintf(e->text, sizeof e->text, "%s: %s%s%s", by, brim_json_string(record, "choice"), reason[0] ? ": " : "",
             reason);
  else
    snprintf(e->text, sizeof e->text, "%s", brim_json_string(record, "detail"));
}

/* A process begins with "started" or "resumed", and ends with one of the other events, unless it is killed. */
static void take_ending(brim_folder *f, const char *kind, double time)
{
  static const enum brim_look_state ends[] = {BRIM_LOOK_FINISHED, BRIM_LOOK_INTERRUPTED, BRIM_LOOK_FAILED};
  if (strcmp(kind, "started") == 0 || strcmp(kind, "resumed") == 0) {
    f->ending = BRIM_LOOK_STATES;
    f->started = time;
  }
  for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
    if (strcmp(kind, brim_look_state_names[ends[i]]) != 0) continue;
    f->ending = ends[i];
    f->ended = time;
  }
}

static void take_event(brim_folder *f, const char *line, size_t length)
{
  json_t *record = json_loadb(line, length, 0, NULL);
  const char *kind = brim_json_string(record, "event");
  const double queued = brim_json_number(record, "queue_seconds");
  if (strcmp(kind, "seen") == 0) take_tried(f, record);
  take_ending(f, kind, brim_json_number(record, "time"));
  if (strcmp(kind, "claimed") == 0 && queued > 0)
    f->queue_seconds = (f->queue_seconds > 0 ? f->queue_seconds : 0) + queued;
  if (strcmp(kind, "decision") == 0) {
    const char *action = brim_json_string(record, "action");
    brim_openmetrics_decided(&f->decisions, brim_json_string(record, "by"), action[0] ? action : NULL);
  }
  f->retries += strcmp(kind, "recovered") == 0;
  if (kind[0] && strcmp(kind, "seen") != 0 && strcmp(kind, "rank") != 0) keep_event(f, record, kind);
  json_decref(record);
}

/* ---- configuration and plan ---- */

/* Whether the file has changed since *seen, which is updated. */
static bool is_new(const char *path, struct timespec *seen)
{
  struct stat info;
  if (stat(path, &info) != 0) return false;
  if (info.st_mtim.tv_sec == seen->tv_sec && info.st_mtim.tv_nsec == seen->tv_nsec) return false;
  *seen = info.st_mtim;
  return true;
}

static const char *scalar(const brim_yaml *root, const char *key)
{
  const brim_yaml *node = brim_yaml_get_path(root, key);
  return node && node->kind == BRIM_YAML_SCALAR ? node->scalar : "";
}

static int64_t whole_at(const brim_yaml *root, const char *key)
{
  const int64_t value = strtoll(scalar(root, key), NULL, 10);
  return value > 0 && value < INT32_MAX ? value : 0;
}

static bool has_policy(const brim_yaml *root, const char *id)
{
  const brim_yaml *list = brim_yaml_get_path(root, "policy.id");
  for (size_t i = 0; list && list->kind == BRIM_YAML_LIST && i < list->count; i++)
    if (list->item[i]->kind == BRIM_YAML_SCALAR && strcmp(list->item[i]->scalar, id) == 0) return true;
  return false;
}

static void read_config(brim_folder *f)
{
  char path[BRIM_PATH_MAX];
  brim_arena arena = {0};
  brim_yaml *root = NULL;
  if (brim_path_join(path, f->dir, "config.yaml") != BRIM_OK || !is_new(path, &f->config_time)) return;
  if (brim_yaml_parse_file(&arena, path, &root) == BRIM_OK) {
    const char *option = scalar(root, "dataset.option");
    snprintf(f->model, sizeof f->model, "%s", scalar(root, "model.id"));
    snprintf(f->dataset, sizeof f->dataset, "%s", option[0] ? option : scalar(root, "dataset.id"));
    f->micro_batch = whole_at(root, "training.batch_size");
    const int64_t effective = whole_at(root, "training.effective_batch_size");
    f->batch = effective ? effective : f->micro_batch * whole_at(root, "training.gradient_accumulation_steps");
    f->workers = whole_at(root, "training.num_workers");
    f->is_federated = whole_at(root, "total_clients") > 0;
    f->epochs = f->is_federated || whole_at(root, "training.steps") ? NAN : (double)whole_at(root, "training.epochs");
    f->is_elastic = has_policy(root, "elastic");
  }
  brim_arena_release(&arena);
}

static void read_plan(brim_folder *f)
{
  char path[BRIM_PATH_MAX];
  struct stat info;
  const char *name;
  json_t *bytes;
  if (brim_path_join(path, f->dir, "plan.json") != BRIM_OK || !is_new(path, &f->plan_time)) return;
  if (stat(path, &info) != 0 || info.st_size > PLAN_BYTES_MAX) return;
  json_t *plan = brim_json_load(path, 0, NULL);
  f->classes = 0;
  json_object_foreach(json_object_get(plan, "classes"), name, bytes)
  {
    if (f->classes == BRIM_LOOK_CLASSES_MAX || json_integer_value(bytes) <= 0) continue;
    snprintf(f->class[f->classes].name, sizeof f->class[0].name, "%s", name);
    f->class[f->classes++].bytes = (uint64_t)json_integer_value(bytes);
  }
  json_decref(plan);
}

/* ---- the folder ---- */

brim_folder *brim_folder_follow(const char *dir)
{
  brim_folder *f = calloc(1, sizeof *f);
  if (!f) return NULL;
  snprintf(f->dir, sizeof f->dir, "%s", dir);
  f->loss = f->score = f->epoch = f->epochs = f->rate = f->step_seconds = f->loader_share = f->queue_seconds = NAN;
  f->started = f->ended = NAN;
  f->ending = BRIM_LOOK_STATES;
  f->step = -1;
  return f;
}

void brim_folder_drop(brim_folder *f)
{
  free(f);
}

const char *brim_folder_dir(const brim_folder *f)
{
  return f->dir;
}

void brim_folder_update(brim_folder *f)
{
  read_config(f);
  read_plan(f);
  follow(f, "metrics.jsonl", &f->metrics, true, take_record);
  follow(f, "events.jsonl", &f->events, false, take_event);
}

bool brim_folder_ending(const brim_folder *f, enum brim_look_state *state, double *time)
{
  *state = f->ending;
  *time = f->ended;
  return f->ending != BRIM_LOOK_STATES;
}

double brim_folder_started(const brim_folder *f)
{
  return f->started;
}

static void describe_curves(const brim_folder *f, brim_arena *arena, brim_look_run *run)
{
  run->curve = BRIM_ARENA_NEW(arena, brim_look_curve, CURVES);
  for (int i = 0; i < CURVES; i++) {
    const curve *c = &f->curve[i];
    const bool is_train = i == TRAIN_LOSS || i == TRAIN_SCORE, is_loss = i == TRAIN_LOSS || i == JUDGED_LOSS;
    if (c->count == 0) continue;
    run->curve[run->curves++] = (brim_look_curve){
        .name = brim_arena_printf(arena, "%s %s", is_train ? "train" : f->judged, is_loss ? "loss" : f->score_name),
        .step = brim_arena_copy(arena, c->step, c->count * sizeof c->step[0]),
        .value = brim_arena_copy(arena, c->value, c->count * sizeof c->value[0]),
        .count = c->count};
  }
}

static void describe_events(const brim_folder *f, brim_arena *arena, brim_look_run *run)
{
  const size_t count = f->events_seen < BRIM_LOOK_EVENTS_MAX ? f->events_seen : BRIM_LOOK_EVENTS_MAX;
  run->event = BRIM_ARENA_NEW(arena, brim_look_event, count);
  for (size_t i = 0; i < count; i++) {
    const event *e = &f->event[(f->events_seen - count + i) % BRIM_LOOK_EVENTS_MAX];
    run->event[i] =
        (brim_look_event){e->time, e->step, brim_arena_string(arena, e->kind), brim_arena_string(arena, e->text)};
  }
  run->events = count;
}

/* Describes the plan in use, and the largest one with a smaller micro-batch. */
static void describe_tried(const brim_folder *f, brim_look_run *run)
{
  for (size_t i = 0; i < f->tried_count; i++) {
    const tried *t = &f->tried[i];
    if (t->micro_batch == f->micro_batch) run->predicted_step_seconds = t->step_seconds;
    if (t->micro_batch >= f->micro_batch || t->micro_batch <= run->smaller_micro_batch) continue;
    run->smaller_micro_batch = t->micro_batch;
    run->smaller_bytes = t->peak_bytes;
  }
}

void brim_folder_describe(const brim_folder *f, brim_arena *arena, brim_look_run *run)
{
  run->folder = brim_arena_string(arena, f->dir);
  if (f->model[0]) run->model = brim_arena_string(arena, f->model);
  run->dataset = brim_arena_string(arena, f->dataset);
  if (isfinite(f->loss)) run->loss = f->loss;
  if (f->score_name) {
    run->score_name = f->score_name;
    run->score = f->score;
  }
  if (!isfinite(run->epoch)) run->epoch = f->epoch;
  if (!isfinite(run->epochs)) run->epochs = f->epochs;
  if (!isfinite(run->queue_seconds)) run->queue_seconds = f->queue_seconds;
  if (run->step < 0) run->step = f->step;
  if (!isfinite(run->rate)) {
    run->rate = f->rate;
    run->counts_tokens = f->counts_tokens;
  }
  run->is_federated = run->is_federated || f->is_federated;
  if (run->classes == 0) {
    run->memory = BRIM_ARENA_NEW(arena, brim_look_class, f->classes);
    for (size_t i = 0; i < f->classes; i++)
      run->memory[i] = (brim_look_class){brim_arena_string(arena, f->class[i].name), f->class[i].bytes};
    run->classes = f->classes;
  }
  describe_curves(f, arena, run);
  describe_events(f, arena, run);
  run->retries = f->retries;
  run->decided = BRIM_ARENA_NEW(arena, brim_look_decision, f->decisions.count);
  for (size_t i = 0; i < f->decisions.count; i++) {
    const brim_openmetrics_count *c = &f->decisions.of[i];
    run->decided[run->decided_count++] =
        (brim_look_decision){brim_arena_string(arena, c->policy), brim_arena_string(arena, c->kind), c->count};
    run->decisions += c->count;
  }
  run->micro_batch = f->micro_batch;
  run->batch = f->batch;
  run->step_seconds = f->step_seconds;
  run->loader_share = f->loader_share;
  run->workers = f->workers;
  run->is_elastic = f->is_elastic;
  describe_tried(f, run);
}
