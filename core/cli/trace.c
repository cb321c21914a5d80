/* brim trace: requests a trace of a running process's next steps, and shows operations by time. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/process.h"
#include "base/table.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/run_folder.h"
#include "memory/live.h"
#include "monitor/look.h"
#include "store/rundir.h"
#include "store/summary.h"
#include "store/trace_files.h"

#define TABLE_BYTES_MAX ((off_t)16 << 20) /* limit for operations.json */
#define ROWS 20                           /* operations that --top shows */
#define SILENCE_SECONDS 2.0               /* seconds after which a wait prints its reason */
/* Two reasons count as equal if this many characters at their start are equal; figures after them may differ. */
#define SAME_LENGTH 24

typedef struct wishes {
  const char *steps_text;
  bool top, json;
  const char *run;
  int64_t steps;
} wishes;

/* ---- the run ---- */

static const char *user_name(uid_t uid, char *out, size_t room)
{
  const struct passwd *user = getpwuid(uid);
  if (user)
    snprintf(out, room, "%s", user->pw_name);
  else
    snprintf(out, room, "uid %ld", (long)uid);
  return out;
}

/* Only the process's own user, or root, may make the process write. */
static brim_status check_owner(const char *run)
{
  char path[BRIM_PATH_MAX], own[64], other[64];
  struct stat info;
  BRIM_TRY(brim_path_join(path, run, BRIM_RUN_LOCK_NAME));
  if (stat(path, &info) != 0) return brim_fail(BRIM_ELOAD, "cannot look at '%s': %s", path, strerror(errno));
  if (geteuid() == 0 || geteuid() == info.st_uid) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "run '%s' belongs to %s, and only that user and root can trace it; you are %s\n"
                   "ask that user to run brim trace, or to set observe.trace=FIRST:END in the next run",
                   run, user_name(info.st_uid, other, sizeof other), user_name(geteuid(), own, sizeof own));
}

static brim_status fail_ended(const char *run)
{
  brim_summary s;
  const bool has_summary = brim_summary_read(run, &s);
  return brim_fail(BRIM_EINVAL,
                   "run '%s' %s%s: only a running process can be traced\n"
                   "brim trace %s --top shows its last trace, if it has one; to trace steps of a new run: "
                   "brim train observe.trace=100:103",
                   run, has_summary && s.status[0] ? "has ended: it " : "is not running",
                   !has_summary                           ? ""
                   : strcmp(s.status, "finished") == 0    ? "finished"
                   : strcmp(s.status, "interrupted") == 0 ? "was interrupted"
                   : s.status[0]                          ? "failed"
                                                          : "",
                   BRIM_QUOTED(run));
}

/* ---- asking ---- */

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
  stopped = number;
}

/* Reads the events that were added to the file. True: an event says how the trace ended; *detail: its text. */
static bool find_end(FILE *events, char **line, size_t *room, bool *failed, json_t **event)
{
  for (;;) {
    const long at = ftell(events);
    const ssize_t length = getline(line, room, events);
    if (length <= 0 || (*line)[length - 1] != '\n') { /* the line is not there yet, or not complete */
      clearerr(events);
      (void)fseek(events, at, SEEK_SET);
      return false;
    }
    *event = json_loadb(*line, (size_t)length, 0, NULL);
    const char *what = json_string_value(json_object_get(*event, "event"));
    *failed = what && strcmp(what, "trace_failed") == 0;
    if (*failed || (what && strcmp(what, "traced") == 0)) return true;
    json_decref(*event);
  }
}

/* Finds the slot of the process that trains in the folder; false if it publishes none. */
static bool find_process(const char *run, brim_live_entry *out)
{
  char dir[BRIM_PATH_MAX];
  struct stat own, other;
  size_t count = 0;
  bool found = false;
  brim_live_entry *entry = brim_xcalloc(BRIM_BOARD_SLOTS, sizeof *entry);
  if (stat(run, &own) != 0 || brim_live_list(entry, &count) != BRIM_OK) count = 0;
  for (size_t i = 0; i < count && !found; i++) {
    found = entry[i].of.rank == 0 && brim_live_folder(&entry[i], dir, sizeof dir) && stat(dir, &other) == 0 &&
            own.st_dev == other.st_dev && own.st_ino == other.st_ino;
    if (found) *out = entry[i];
  }
  free(entry);
  return found;
}

/* Writes the reason why the run makes no steps; "" if it makes steps. */
static void describe_wait(const char *run, char *out, size_t room)
{
  brim_live_entry e;
  char time[32];
  const bool found = find_process(run, &e);
  const double since = found ? brim_wall_now() - e.of.updated : 0;
  brim_format_seconds(time, sizeof time, since);
  snprintf(out, room, "the run has not begun its next step");
  if (found && e.is_here && brim_process_is_stopped(e.of.pid))
    snprintf(out, room,
             "its process %" PRId64 " is stopped, as by Ctrl-Z, after step %" PRId64 "; kill -CONT %" PRId64
             " lets it continue",
             e.of.pid, e.of.step, e.of.pid);
  else if (found && e.of.state != BRIM_LIVE_TRAINING && e.of.state < BRIM_LIVE_STATE_COUNT)
    snprintf(out, room, "the run is in state '%s', and makes its next step after that",
             brim_look_state_names[e.of.state]);
  else if (found && since >= SILENCE_SECONDS)
    snprintf(out, room, "the run has made no step for %s, since step %" PRId64 " (process %" PRId64 ")", time,
             e.of.step, e.of.pid);
  else if (found)
    out[0] = '\0';
}

/* Prints the reason for a long wait, and prints again when the reason has changed. */
static void say_wait(const char *run, double *next, char said[256])
{
  char text[256];
  if (brim_now() < *next) return;
  *next = brim_now() + SILENCE_SECONDS;
  describe_wait(run, text, sizeof text);
  const bool is_other = strncmp(text, said, SAME_LENGTH) != 0;
  if (text[0] && is_other) brim_log(BRIM_LOG_INFO, "waiting: %s", text);
  snprintf(said, 256, "%s", text);
}

static brim_status wait_for(const char *run, FILE *events, json_t **event)
{
  char *line = NULL, said[256] = "";
  size_t room = 0;
  bool failed = false;
  brim_status status = BRIM_OK;
  double next = brim_now() + SILENCE_SECONDS;
  for (;;) {
    const bool runs = brim_run_is_open(run); /* read before the events, so that no event is missed */
    if (find_end(events, &line, &room, &failed, event)) break;
    if (stopped)
      status = brim_fail(BRIM_EINTERRUPTED, "interrupted: the run will not trace its next steps");
    else if (!runs)
      status = brim_fail(BRIM_EINVAL, "run '%s' ended before its next steps were traced", run);
    if (status != BRIM_OK) break;
    say_wait(run, &next, said);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  }
  free(line);
  return status == BRIM_OK && failed ? brim_fail(BRIM_EIO, "the run could not write the trace; see its messages")
                                     : status;
}

static brim_status ask(const wishes *w)
{
  char path[BRIM_PATH_MAX];
  json_t *event = NULL;
  if (!brim_run_is_open(w->run)) return fail_ended(w->run);
  BRIM_TRY(check_owner(w->run));
  BRIM_TRY(brim_path_join(path, w->run, "events.jsonl"));
  FILE *events = brim_fopen_to_read(path);
  if (!events)
    return brim_fail(BRIM_EINVAL, "run '%s' has not begun to train: cannot read its events.jsonl: %s", w->run,
                     brim_open_reason(errno));
  (void)fseek(events, 0, SEEK_END);
  (void)signal(SIGINT, on_signal);
  (void)signal(SIGTERM, on_signal);
  brim_status status = brim_trace_request_write(w->run, w->steps);
  if (status == BRIM_OK) {
    brim_log(BRIM_LOG_INFO, "waiting for the next %" PRId64 " step%s of %s; Ctrl-C withdraws the request", w->steps,
             brim_plural(w->steps), w->run);
    status = wait_for(w->run, events, &event);
    if (status != BRIM_OK) brim_trace_request_drop(w->run);
  }
  fclose(events);
  const char *name = json_string_value(json_object_get(event, "detail"));
  if (status == BRIM_OK && name && !w->top && !w->json) {
    brim_text text = {0};
    brim_text_printf(&text, "%s/%s\n", w->run, name);
    brim_cli_print(brim_text_str(&text));
    brim_text_release(&text);
    brim_log(
        BRIM_LOG_INFO,
        "open it in https://ui.perfetto.dev (the file stays on your machine); brim trace %s --top lists operations",
        w->run);
  }
  json_decref(event);
  return status;
}

/* ---- operations by time ---- */

static brim_status read_table(const char *run, json_t **out)
{
  char path[BRIM_PATH_MAX];
  struct stat info;
  json_error_t error;
  BRIM_TRY(brim_path_join(path, run, BRIM_OPERATIONS_NAME));
  FILE *file = brim_fopen_to_read(path);
  *out = NULL;
  if (!file && errno == ENOENT)
    return brim_fail(BRIM_ELOAD,
                     "run '%s' has no trace\n"
                     "trace it while it runs: brim trace %s; or from the beginning: brim train observe.trace=100:103",
                     run, BRIM_QUOTED(run));
  if (!file) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", path, brim_open_reason(errno));
  const bool is_large = fstat(fileno(file), &info) == 0 && info.st_size > TABLE_BYTES_MAX;
  *out = is_large ? NULL : json_loadf(file, 0, &error);
  fclose(file);
  if (is_large) return brim_fail(BRIM_ELOAD, "'%s' is larger than 16 MiB, so brim did not write it", path);
  if (!*out) return brim_fail(BRIM_ELOAD, "%s:%d:%d: %s", path, error.line, error.column, error.text);
  if (json_integer_value(json_object_get(*out, "brim_operations")) == 1 &&
      json_is_array(json_object_get(*out, "operations")))
    return BRIM_OK;
  json_decref(*out);
  *out = NULL;
  return brim_fail(BRIM_ELOAD, "'%s' is not a table of operations that this version of brim can read", path);
}

static double number_of(const json_t *row, const char *key)
{
  const json_t *n = json_object_get(row, key);
  return json_is_number(n) && isfinite(json_number_value(n)) ? json_number_value(n) : 0;
}

/* Adds milliseconds, and the fraction of the step, for measured and predicted seconds. `guessed`: marks the
 * prediction. */
static void add_times(brim_table *t, double seconds, double predicted, bool guessed, double step)
{
  brim_table_number(t, seconds * 1e3, 3);
  brim_table_number(t, step > 0 ? 100 * seconds / step : NAN, 1);
  if (guessed && predicted > 0)
    brim_table_add(t, brim_arena_printf(t->arena, "?%.3f", predicted * 1e3));
  else
    brim_table_number(t, predicted > 0 ? predicted * 1e3 : NAN, 3);
  brim_table_number(t, predicted > 0 ? seconds / predicted : NAN, 2);
}

/* Sums of rows. */
typedef struct sums {
  double seconds, predicted, runs;
  bool guessed;
} sums;

static void add_sum(sums *to, const json_t *row)
{
  to->seconds += number_of(row, "seconds");
  to->predicted += number_of(row, "predicted_seconds");
  to->runs += number_of(row, "runs");
  to->guessed = to->guessed || json_is_true(json_object_get(row, "guessed"));
}

static void add_row(brim_table *t, const char *op, const char *name, const char *phase, const sums *s, double step)
{
  brim_table_add(t, op);
  brim_table_add(t, name);
  brim_table_add(t, phase);
  brim_table_number(t, s->runs, 0);
  add_times(t, s->seconds, s->predicted, s->guessed, step);
}

/* Adds the other parts of the step, so that the sum of the rows is the step. */
static void add_host(brim_table *t, const json_t *phases, sums *all, double step)
{
  size_t i;
  const json_t *phase;
  json_array_foreach(phases, i, phase)
  {
    sums one = {0};
    add_sum(&one, phase);
    add_sum(all, phase);
    add_row(t, brim_json_string(phase, "name"), "", "host", &one, step);
  }
}

static void print_table(const json_t *table, brim_arena *arena, brim_text *out)
{
  static const char *const heads[] = {"operation", "name", "phase", "runs", "ms a step", "%", "predicted", "ratio"};
  const size_t columns = sizeof heads / sizeof heads[0];
  brim_table t = {.arena = arena, .columns = columns};
  const json_t *rows = json_object_get(table, "operations"), *steps = json_object_get(table, "steps");
  const double step = number_of(table, "step_seconds");
  const size_t count = json_array_size(rows);
  sums others = {0}, all = {0};
  for (size_t i = 0; i < columns; i++) brim_table_add(&t, heads[i]);
  for (size_t i = 0; i < count; i++) {
    const json_t *row = json_array_get(rows, i);
    sums one = {0};
    add_sum(&one, row);
    if (strcmp(brim_json_string(row, "phase"), "evaluation") != 0)
      add_sum(&all, row); /* evaluations are between steps */
    if (i < ROWS)
      add_row(&t, brim_json_string(row, "op"), brim_json_string(row, "name"), brim_json_string(row, "phase"), &one,
              step);
    else
      add_sum(&others, row);
  }
  if (count > ROWS) add_row(&t, brim_arena_printf(arena, "%zu others", count - ROWS), "", "", &others, step);
  add_host(&t, json_object_get(table, "host"), &all, step);
  add_row(&t, "all", "", "", &all, step);
  brim_text_printf(out, "steps %lld to %lld on ", (long long)json_integer_value(json_array_get(steps, 0)),
                   (long long)json_integer_value(json_array_get(steps, 1)));
  brim_text_add_shown(out, brim_json_string(table, "device"), "");
  brim_text_printf(out, ": %.3f ms a step; measured by ", step * 1e3);
  brim_text_add_shown(out, brim_json_string(table, "measured_by"), "");
  brim_text_add(out, "\n");
  brim_table_print(&t, out);
  if (all.guessed)
    brim_text_add(out, "? guessed from the operation's work: it was not timed in this shape; brim plan times it\n");
}

static brim_status show(const wishes *w, brim_arena *arena)
{
  json_t *table = NULL;
  BRIM_TRY(read_table(w->run, &table));
  if (w->json) return brim_cli_print_json(table);
  brim_text out = {0};
  print_table(table, arena, &out);
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
  json_decref(table);
  return BRIM_OK;
}

/* ---- the command ---- */

static brim_status trace(brim_cli *cli, wishes *w, brim_operands *operands)
{
  char config[BRIM_PATH_MAX], path[BRIM_PATH_MAX];
  if (operands->count != 1) return brim_fail(BRIM_ECONFIG, "brim trace needs the folder of a run: brim trace RUN");
  w->run = operands->word[0];
  w->steps = BRIM_TRACE_STEPS;
  BRIM_TRY(brim_cli_whole_number("--steps", w->steps_text, 1, BRIM_TRACE_STEPS_MAX, &w->steps));
  BRIM_TRY(brim_cli_run_config(cli, w->run, config, sizeof config));
  const bool shows = w->top || w->json;
  BRIM_TRY(brim_path_join(path, w->run, BRIM_OPERATIONS_NAME));
  const bool has_table = access(path, F_OK) == 0;
  if (!shows || w->steps_text || (!has_table && brim_run_is_open(w->run))) BRIM_TRY(ask(w));
  return shows ? show(w, &operands->arena) : BRIM_OK;
}

static const brim_option options[] = {
    {"--steps", BRIM_CLI_STRING(wishes, steps_text), "N", "trace N steps (default: 3)"},
    {"--top", BRIM_CLI_FLAG(wishes, top), NULL, "list operations by time, measured and predicted"},
    {"--json", BRIM_CLI_FLAG(wishes, json), NULL, "print the whole list as JSON"},
    {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  wishes w = {0};
  brim_operands operands;
  brim_status status = brim_cli_parse(argc, argv, options, &w, &operands);
  if (status == BRIM_OK) status = trace(cli, &w, &operands);
  return brim_cli_end(status, &operands);
}

const brim_command brim_command_trace = {
    "trace", "record the next steps of a running process, for Perfetto", run_command,
    "usage: brim trace RUN [--steps N] [--top] [--json]\n"
    "\n"
    "  brim trace runs/a              trace the next three steps of the process that trains in runs/a, and print the\n"
    "                                 name of the file, for https://ui.perfetto.dev\n"
    "  brim trace runs/a --steps 10   ten steps\n"
    "  brim trace runs/a --top        list the operations of the run's last trace by time, measured and predicted; if\n"
    "                                 there is no trace, make one first\n"
    "\n"
    "A trace has operations, copies, collectives, loader threads, phases of the host, votes and decisions of all\n"
    "ranks on one clock, and the bytes of the plan that are in use. It does not change the training. Only the\n"
    "run's own user and root can trace it. brim train observe.trace=100:103 traces given steps of a new run.\n",
    options};
