/* Finds the runs of this host: runs whose processes live, from their slots, and runs that have ended, from their
 * folders. See this_host_parts.h. */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "brim/backend.h"
#include "graph/plan.h"
#include "monitor/this_host_parts.h"
#include "store/rundir.h"

#define ENDED_SECONDS 600.0 /* time for which a run is shown after its end */
#define SEARCHED_MAX 4096   /* limit for names in a folder of runs */
#define SILENT_SECONDS 10.0 /* time without a step: a run that is silent for longer, and for ten steps, is reported */
#define SILENT_STEPS 10
#define SILENT_UNKNOWN 60.0 /* time without a step if the time of a step is not known */

/* ---- folders ---- */

static brim_folder *follow(brim_this_host *l, const char *dir)
{
  for (size_t i = 0; i < l->folders; i++)
    if (strcmp(brim_folder_dir(l->folder[i]), dir) == 0) {
      l->is_used[i] = true;
      return l->folder[i];
    }
  brim_folder *folder = brim_folder_follow(dir);
  if (!folder) return NULL;
  size_t room = l->folder_room;
  BRIM_ARENA_GROW(&l->arena, l->is_used, l->folders, room);
  BRIM_ARENA_GROW(&l->arena, l->folder, l->folders, l->folder_room);
  l->is_used[l->folders] = true;
  l->folder[l->folders++] = folder;
  return folder;
}

/* ---- runs that are remembered ---- */

static void forget(brim_this_host *l, size_t index)
{
  free(l->known[index].dir);
  memmove(&l->known[index], &l->known[index + 1], (--l->knowns - index) * sizeof l->known[0]);
}

void brim_looking_forget_runs(brim_this_host *l)
{
  while (l->knowns > 0) forget(l, l->knowns - 1);
}

/* Remembers a run in its current state; the oldest ended run makes room for it. */
static void know(brim_this_host *l, const brim_live_entry *entry, const char *dir)
{
  size_t i = 0;
  while (i < l->knowns && strcmp(l->known[i].dir, dir) != 0) i++;
  if (i == sizeof l->known / sizeof l->known[0]) {
    size_t oldest = 0;
    for (i = 1; i < l->knowns; i++)
      if (l->known[i].ended > 0 && !(l->known[oldest].ended > 0 && l->known[oldest].ended <= l->known[i].ended))
        oldest = i;
    forget(l, oldest);
    i = l->knowns;
  }
  if (i == l->knowns) {
    l->known[i] = (brim_known_run){.dir = brim_xstrdup(dir)};
    l->knowns++;
  }
  l->known[i].entry = *entry;
  l->known[i].ended = 0;
}

/* ---- runs whose processes live ---- */

/* The slot's classes are those of its placed plan; if all are 0, it has not placed one. */
static void add_classes(brim_looking *k, const brim_live_slot *s, brim_look_run *run)
{
  run->memory = BRIM_ARENA_NEW(&k->look->arena, brim_look_class, BRIM_LIVE_CLASSES);
  for (uint32_t i = 0; i < BRIM_LIVE_CLASSES && i < BRIM_ROLE_COUNT; i++)
    if (s->class_bytes[i] > 0) run->memory[run->classes++] = (brim_look_class){brim_role_name(i), s->class_bytes[i]};
}

static void add_details(brim_looking *k, const brim_live_entry *e, const char *dir, brim_look_run *run)
{
  const brim_live_slot *s = &e->of;
  if (s->flags & BRIM_LIVE_DETAILS) {
    run->model = brim_looking_text(k, s->model);
    run->loss = s->loss;
    run->score = s->accuracy;
    run->score_name = isfinite(s->accuracy) ? "accuracy" : "";
    run->folder = brim_looking_text(k, s->run);
  }
  brim_folder *folder = dir[0] ? follow(k->l, dir) : NULL;
  if (!folder) return;
  brim_folder_update(folder);
  brim_folder_describe(folder, &k->look->arena, run);
}

_Static_assert((int)BRIM_LIVE_WORKING == (int)BRIM_LOOK_WORKING, "the states of live slots come first, in their order");

/* `dir`: the run's folder, or "". */
static brim_look_run *add_run(brim_looking *k, const brim_live_entry *e, const char *dir)
{
  const brim_live_slot *s = &e->of;
  brim_look *look = k->look;
  BRIM_ARENA_GROW(&look->arena, look->run, look->runs, k->run_room);
  brim_look_run *run = &look->run[look->runs++];
  *run =
      (brim_look_run){.host = k->host,
                      .state = s->state < BRIM_LIVE_STATE_COUNT ? (enum brim_look_state)s->state : BRIM_LOOK_PLANNING,
                      .pid = s->pid,
                      .is_mine = e->is_mine,
                      .user = brim_looking_user(k, s->uid),
                      .rank = s->rank,
                      .ranks = s->ranks,
                      .device = brim_looking_device(k, s->key),
                      .device_text = "",
                      .command = brim_looking_text(k, s->command),
                      .started = s->started,
                      .since = s->since,
                      .changed = s->updated,
                      .silent_seconds = NAN,
                      .step = s->steps > 0 ? s->step : -1,
                      .steps = s->steps > 0 ? s->steps : -1,
                      .is_federated = s->flags & BRIM_LIVE_ROUNDS,
                      .rate = s->rate,
                      .counts_tokens = s->flags & BRIM_LIVE_TOKENS,
                      .seconds_left = s->left_seconds,
                      .device_bytes = s->peak_bytes ? s->peak_bytes : BRIM_BYTES_UNKNOWN,
                      .libraries_bytes = s->taken_bytes,
                      .folder = "",
                      .name = "",
                      .model = "",
                      .dataset = "",
                      .loss = NAN,
                      .score = NAN,
                      .epoch = s->epochs > 0 ? (double)s->epoch : NAN,
                      .epochs = s->epochs > 0 ? (double)s->epochs : NAN,
                      .score_name = "",
                      .queue_seconds = s->queue_seconds,
                      .step_seconds = NAN,
                      .predicted_step_seconds = NAN,
                      .loader_share = NAN,
                      .smaller_bytes = BRIM_BYTES_UNKNOWN};
  if (s->device >= 0) run->device_text = brim_arena_printf(&look->arena, "%s:%d", s->backend, s->device);
  add_classes(k, s, run);
  add_details(k, e, dir, run);
  return run;
}

/* Marks a run that makes no step for much longer than a step takes. Evaluations and checkpoints report nothing until
 * they end. */
static void look_for_silence(const brim_looking *k, const brim_live_entry *e, brim_look_run *run)
{
  const double silent = k->look->host[k->host].time - run->changed;
  const double known = isfinite(run->step_seconds) ? run->step_seconds : run->predicted_step_seconds;
  const double most = isfinite(known) ? SILENT_STEPS * known : SILENT_UNKNOWN;
  run->is_stopped = e->is_here && brim_process_is_stopped(run->pid);
  const bool steps = run->is_stopped || (run->state == BRIM_LOOK_TRAINING && !run->is_federated);
  if (steps && silent >= SILENT_SECONDS && (run->is_stopped || silent >= most)) run->silent_seconds = silent;
}

static void add_live(brim_looking *k, const brim_live_entry *e)
{
  char dir[BRIM_PATH_MAX];
  if (!brim_live_folder(e, dir, sizeof dir) || !brim_is_folder(dir)) dir[0] = '\0';
  k->entry_of_run[k->look->runs - k->first_run] = e;
  brim_look_run *run = add_run(k, e, dir);
  look_for_silence(k, e, run);
  if (dir[0] && run->rank == 0 && strcmp(run->command, "eval") != 0) know(k->l, e, dir);
}

static int by_start(const void *a, const void *b)
{
  const brim_live_slot *x = &((const brim_live_entry *)a)->of, *y = &((const brim_live_entry *)b)->of;
  if (x->started != y->started) return x->started < y->started ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

void brim_looking_list_live(brim_looking *k)
{
  char text[512];
  if (brim_live_list(k->l->live, &k->lives) != BRIM_OK) {
    k->lives = 0;
    brim_look_problem(k->look, "%s", brim_error_text());
  }
  for (size_t i = 0; i < k->lives; i++)
    if (k->l->live[i].trust != BRIM_LIVE_GOOD)
      brim_look_problem(k->look, "%s", brim_live_trouble(&k->l->live[i], text, sizeof text));
  qsort(k->l->live, k->lives, sizeof k->l->live[0], by_start);
}

/* ---- runs that have ended ---- */

static brim_live_entry *unknown_entry(brim_live_entry *e, const char *dir)
{
  struct stat info;
  *e = (brim_live_entry){.of = {.ranks = 1,
                                .device = -1,
                                .rate = NAN,
                                .left_seconds = NAN,
                                .loss = NAN,
                                .accuracy = NAN,
                                .queue_seconds = NAN}};
  if (stat(dir, &info) == 0) e->of.uid = info.st_uid;
  e->is_mine = e->of.uid == geteuid();
  return e;
}

/* Returns the time of the newest change of the files that each run writes; 0 if the folder has none of them. */
static double last_change(const char *dir)
{
  static const char *const files[] = {"events.jsonl", "metrics.jsonl"};
  char path[BRIM_PATH_MAX];
  struct stat info;
  double last = 0;
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
    if (brim_path_join(path, dir, files[i]) == BRIM_OK && stat(path, &info) == 0 && (double)info.st_mtim.tv_sec > last)
      last = (double)info.st_mtim.tv_sec;
  return last;
}

static bool is_known(const brim_this_host *l, const char *dir)
{
  for (size_t i = 0; i < l->knowns; i++)
    if (strcmp(l->known[i].dir, dir) == 0) return true;
  return false;
}

/* Finds runs in a folder that ended shortly before the first look. */
static void search(brim_looking *k, const char *folder)
{
  const char **name, *whole;
  char path[PATH_MAX], dir[BRIM_PATH_MAX];
  size_t count = 0;
  brim_live_entry entry;
  const double now = k->look->host[k->host].time;
  whole = realpath(folder, path);
  if (!whole || !brim_folder_names(&k->look->arena, whole, &name, &count)) return;
  for (size_t i = 0; i < count && i < SEARCHED_MAX; i++) {
    if (name[i][0] == '.' || brim_path_join(dir, whole, name[i]) != BRIM_OK) continue;
    if (is_known(k->l, dir) || last_change(dir) < now - ENDED_SECONDS || !brim_is_run(AT_FDCWD, dir, 0) ||
        brim_run_is_open(dir))
      continue;
    know(k->l, unknown_entry(&entry, dir), dir);
  }
}

/* Searches `runs`, the default folder of runs, and the parent folders of living runs. */
static void search_once(brim_looking *k)
{
  char parent[BRIM_PATH_MAX];
  if (k->l->has_searched) return;
  k->l->has_searched = true;
  search(k, "runs");
  for (size_t i = k->first_run, end = k->look->runs; i < end; i++) {
    const char *slash = strrchr(k->look->run[i].folder, '/');
    if (!slash || slash == k->look->run[i].folder) continue;
    snprintf(parent, sizeof parent, "%.*s", (int)(slash - k->look->run[i].folder), k->look->run[i].folder);
    search(k, parent);
  }
}

static bool lives(const brim_looking *k, const brim_known_run *known)
{
  for (size_t i = k->first_run; i < k->look->runs; i++) {
    const brim_look_run *run = &k->look->run[i];
    /* This run is alive, even if another process has resumed it. */
    if (strcmp(run->folder, known->dir) == 0) return true;
    if (run->pid == known->entry.of.pid && !(run->started < known->entry.of.started) &&
        !(run->started > known->entry.of.started))
      return true;
  }
  return false;
}

/* Sets how and when a run ended; false if it should no longer be shown. */
static bool find_end(const brim_looking *k, brim_known_run *known, brim_look_run *run)
{
  double time;
  const double now = k->look->host[k->host].time;
  const brim_folder *folder = follow(k->l, known->dir);
  if (!folder || !brim_is_folder(known->dir)) return false; /* the folder was deleted */
  const bool has_said = brim_folder_ending(folder, &run->state, &time);
  if (!has_said && brim_run_is_open(known->dir)) return false; /* a process that publishes nothing has resumed it */
  if (!has_said) run->state = BRIM_LOOK_KILLED;
  if (!(known->ended > 0)) known->ended = known->entry.of.pid > 0 ? now : has_said ? time : last_change(known->dir);
  if (known->ended > now) known->ended = now; /* a clock was set back */
  run->since = run->changed = known->ended;
  if (!(run->started > 0)) run->started = brim_folder_started(folder);
  return now - known->ended <= ENDED_SECONDS;
}

static int by_end(const void *a, const void *b)
{
  const brim_look_run *x = a, *y = b;
  return (x->changed < y->changed) - (x->changed > y->changed);
}

static void add_ended(brim_looking *k)
{
  brim_this_host *l = k->l;
  const size_t first = k->look->runs;
  for (size_t i = 0; i < l->knowns;) {
    brim_known_run *known = &l->known[i];
    if (k->look->runs < BRIM_LOOK_RUNS_MAX && !lives(k, known)) {
      brim_look_run *run = add_run(k, &known->entry, known->dir);
      const bool is_shown = find_end(k, known, run);
      run->pid = 0;
      run->device = BRIM_LOOK_NONE;
      run->seconds_left = NAN;
      if (run->steps < 0 && run->state == BRIM_LOOK_FINISHED) run->steps = run->step;
      if (!is_shown) {
        k->look->runs--;
        forget(l, i);
        continue;
      }
    }
    i++;
  }
  if (k->look->runs > first) qsort(&k->look->run[first], k->look->runs - first, sizeof(brim_look_run), by_end);
  while (k->look->runs > first + BRIM_ENDED_MAX) k->look->runs--;
}

void brim_looking_runs(brim_looking *k)
{
  for (size_t i = 0; i < k->lives && k->look->runs < BRIM_LOOK_RUNS_MAX; i++)
    if (k->l->live[i].trust == BRIM_LIVE_GOOD) add_live(k, &k->l->live[i]);
  search_once(k);
  add_ended(k);
  size_t kept = 0;
  for (size_t i = 0; i < k->l->folders; i++) {
    if (k->l->is_used[i])
      k->l->folder[kept++] = k->l->folder[i];
    else
      brim_folder_drop(k->l->folder[i]);
  }
  k->l->folders = kept;
  for (size_t i = 0; i < kept; i++) k->l->is_used[i] = false;
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

static bool is_unique(const brim_looking *k, const brim_look_run *run, const char *name, int parts)
{
  for (size_t i = k->first_run; i < k->look->runs; i++) {
    const brim_look_run *other = &k->look->run[i];
    if (!other->folder[0] || strcmp(other->folder, run->folder) == 0) continue; /* a rank of the same run */
    if (strcmp(end_of_path(other->folder, parts), name) == 0) return false;
  }
  return true;
}

void brim_looking_name_runs(brim_looking *k)
{
  enum { PARTS_MAX = 4 };
  for (size_t i = k->first_run; i < k->look->runs; i++) {
    brim_look_run *run = &k->look->run[i];
    int parts = 1;
    run->name =
        run->folder[0] ? end_of_path(run->folder, parts) : brim_arena_printf(&k->look->arena, "pid %" PRId64, run->pid);
    while (run->folder[0] && parts < PARTS_MAX && !is_unique(k, run, run->name, parts))
      run->name = end_of_path(run->folder, ++parts);
  }
}
