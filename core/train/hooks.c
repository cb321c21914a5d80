/* See hooks.h. The training thread writes facts into a slot for each hook; the hooks' thread takes them in their order.
 *
 * A command has its own process group. brim reads the command's output from a pipe without blocking, and drops output
 * beyond a limit. When the command has ended, brim does not wait for child processes of the command that still have the
 * pipe open. */
#include "train/hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "base/thread.h"
#include "store/checkpoint.h"
#include "store/summary.h"

#define SECONDS_MAX 60.0               /* limit for a command */
#define GRACE_SECONDS 2.0              /* between SIGTERM and SIGKILL */
#define LINGER_SECONDS 0.2             /* time to read output that arrives after the command has ended */
#define OUTPUT_BYTES_MAX (64 << 10)    /* limit for the output of one command in the log */
#define LOG_BYTES_MAX ((off_t)4 << 20) /* limit for the log; beyond it, only results are written */
#define POLL_MS 50
#define VARIABLES_MAX 16

static const char *const names[BRIM_HOOK_COUNT] = {"on_start", "on_evaluation", "on_checkpoint", "on_oom", "on_end"};

typedef struct slot {
  char *command; /* NULL: not set */
  bool waits;
  uint64_t order; /* number of the post that filled the slot */
  brim_hook_facts facts;
  bool has_hung, has_warned; /* used by the thread only */
  bool has_failed;           /* the hook failed, and the failure was not taken yet */
  brim_hook_failure failure;
} slot;

struct brim_hooks {
  pthread_t thread;
  pthread_mutex_t mutex; /* held only while the facts are copied */
  pthread_cond_t changed;
  slot slot[BRIM_HOOK_COUNT];
  uint64_t posts;
  bool closes;
  const volatile sig_atomic_t *stop; /* set when closing */
  int stopped;                       /* value of `stop` when closing */
  char run[PATH_MAX], model[64], dataset[64];
  int log;
  brim_hook_facts taken; /* facts of the hook that runs */
};

/* A command that runs. */
typedef struct command {
  pid_t pid;
  int output; /* the pipe's read end */
  size_t kept, dropped;
  bool keeps_output;
  double started;
} command;

/* ---- input and variables of a command ---- */

/* Makes the figures, with the keys of summary.json; at the end of the run, that file's contents. */
static char *make_summary(const brim_hooks *h, enum brim_run_hook hook, const brim_hook_facts *f)
{
  char path[PATH_MAX + 16];
  json_t *out = NULL;
  snprintf(path, sizeof path, "%s/summary.json", h->run);
  if (hook == BRIM_HOOK_END) out = brim_json_load(path, 0, NULL);
  if (!out) {
    out = json_object();
    json_object_set_new(out, "status", json_string(f->status));
    json_object_set_new(out, "steps", json_integer(f->step));
    for (enum brim_part i = 0; i < BRIM_PART_COUNT; i++) {
      const double values[] = {f->loss[i], f->accuracy[i], f->mae[i]};
      static const char *const kinds[] = {"loss", "accuracy", "mae"};
      for (int k = 0; k < 3; k++) {
        if (k == 0 || isfinite(values[k])) brim_summary_set(out, i, kinds[k], values[k]);
      }
    }
  }
  json_object_set_new(out, "run", json_string(h->run));
  json_object_set_new(out, "hook", json_string(names[hook]));
  char *text = json_dumps(out, JSON_REAL_PRECISION(17));
  json_decref(out);
  return text;
}

/* Makes an unlinked file with the text, positioned at its beginning. A command that does not read its input cannot
 * block brim. */
static int make_input(const char *text)
{
  const int fd = memfd_create("brim-hook", MFD_CLOEXEC);
  if (fd < 0) return open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (text && brim_file_write_all(fd, "a hook's input", text, strlen(text)) != BRIM_OK)
    brim_log(BRIM_LOG_DEBUG, "%s", brim_error_text());
  lseek(fd, 0, SEEK_SET);
  return fd;
}

static void add_variable(char **list, size_t *count, const char *name, const char *value)
{
  brim_text text = {0};
  brim_text_printf(&text, "%s=%s", name, value);
  if (*count < VARIABLES_MAX)
    list[(*count)++] = text.s;
  else
    brim_text_release(&text);
}

static void add_figure(char **list, size_t *count, const char *name, double value)
{
  char text[32] = "";
  if (isfinite(value)) snprintf(text, sizeof text, "%.17g", value);
  add_variable(list, count, name, text);
}

/* Makes the environment of a command: the process's, without variables of an outer hook, plus BRIM_*. *own: number of
 * texts at the list's beginning that belong to the list. */
static char **make_environment(const brim_hooks *h, enum brim_run_hook hook, const brim_hook_facts *f, size_t *own)
{
  char number[32], path[BRIM_PATH_MAX] = "";
  size_t there = 0, count = 0;
  while (environ[there]) there++;
  char **list = brim_xcalloc(there + VARIABLES_MAX + 1, sizeof *list);
  int part = 0; /* the split of an evaluation; in training, the training split */
  for (int i = 0; i < BRIM_PART_COUNT; i++)
    if (strcmp(f->split, brim_part_names[i]) == 0) part = i;
  add_variable(list, &count, "BRIM_HOOK", names[hook]);
  add_variable(list, &count, "BRIM_RUN", h->run);
  add_variable(list, &count, "BRIM_MODEL", h->model);
  add_variable(list, &count, "BRIM_DATASET", h->dataset);
  add_variable(list, &count, "BRIM_STATUS", f->status);
  snprintf(number, sizeof number, "%lld", (long long)f->step);
  add_variable(list, &count, "BRIM_STEP", number);
  snprintf(number, sizeof number, "%lld", (long long)f->steps);
  add_variable(list, &count, "BRIM_STEPS", number);
  add_figure(list, &count, "BRIM_EPOCH", f->epoch);
  add_variable(list, &count, "BRIM_SPLIT", f->split);
  add_figure(list, &count, "BRIM_LOSS", f->loss[part]);
  add_figure(list, &count, "BRIM_ACCURACY", f->accuracy[part]);
  add_variable(list, &count, "BRIM_DETAIL", f->detail);
  if (hook == BRIM_HOOK_CHECKPOINT && brim_checkpoint_path(h->run, f->step, path) != BRIM_OK) path[0] = '\0';
  add_variable(list, &count, "BRIM_CHECKPOINT", path);
  *own = count;
  for (size_t i = 0; i < there; i++) {
    bool is_new = true;
    for (size_t k = 0; k < *own && is_new; k++) is_new = strncmp(environ[i], list[k], strcspn(list[k], "=") + 1) != 0;
    if (is_new) list[count++] = environ[i];
  }
  return list;
}

/* ---- the log ---- */

static void write_log(const brim_hooks *h, const char *text, size_t bytes)
{
  while (bytes > 0) {
    const ssize_t n = write(h->log, text, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return; /* the disk is full: the hook still runs */
    text += n;
    bytes -= (size_t)n;
  }
}

static void log_line(const brim_hooks *h, const char *format, ...) BRIM_PRINTF(2, 3);
static void log_line(const brim_hooks *h, const char *format, ...)
{
  char text[512], stamp[32] = "";
  struct tm local;
  const time_t now = time(NULL);
  va_list list;
  if (localtime_r(&now, &local)) strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &local);
  int length = snprintf(text, sizeof text, "== %s ", stamp);
  va_start(list, format);
  length += vsnprintf(text + length, sizeof text - (size_t)length - 1, format, list);
  va_end(list);
  if (length > (int)sizeof text - 2) length = (int)sizeof text - 2;
  text[length++] = '\n';
  write_log(h, text, (size_t)length);
}

/* ---- a command's life ---- */

/* Reads available output, waiting up to `ms` for it. False at the end of the output. */
static bool read_output(const brim_hooks *h, command *c, int ms)
{
  char buffer[16384];
  struct pollfd wait = {.fd = c->output, .events = POLLIN};
  if (poll(&wait, 1, ms) <= 0) return true;
  const ssize_t n = read(c->output, buffer, sizeof buffer);
  if (n == 0) return false;
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  const size_t room = c->keeps_output ? OUTPUT_BYTES_MAX - c->kept : 0, keep = (size_t)n < room ? (size_t)n : room;
  write_log(h, buffer, keep);
  c->kept += keep;
  c->dropped += (size_t)n - keep;
  return true;
}

/* Whether a signal requests that the run, which has ended, does not wait for hooks. */
static bool is_stopped(brim_hooks *h)
{
  pthread_mutex_lock(&h->mutex);
  const bool stopped = h->closes && h->stop && *h->stop != h->stopped;
  pthread_mutex_unlock(&h->mutex);
  return stopped;
}

/* Waits for the command's end, and ends the command when its time is over. Returns the wait status; *hung: brim ended
 * it. */
static int watch(brim_hooks *h, command *c, bool *hung)
{
  int status = 0;
  double limit = c->started + SECONDS_MAX;
  bool open = true;
  *hung = false;
  for (;;) {
    if (open)
      open = read_output(h, c, POLL_MS);
    else
      poll(NULL, 0, POLL_MS);
    const pid_t ended = waitpid(c->pid, &status, WNOHANG);
    if (ended == c->pid || (ended < 0 && errno != EINTR)) break;
    if (brim_now() < limit && (*hung || !is_stopped(h))) continue;
    kill(-c->pid, *hung ? SIGKILL : SIGTERM);
    *hung = true;
    limit = brim_now() + GRACE_SECONDS;
  }
  const double linger = brim_now() + LINGER_SECONDS;
  while (open && brim_now() < linger) open = read_output(h, c, (int)(1e3 * LINGER_SECONDS / 4));
  if (*hung) kill(-c->pid, SIGKILL); /* kills the processes that the command started */
  return status;
}

/* Warns once for each hook; all results are in the log. */
static void report(brim_hooks *h, slot *s, enum brim_run_hook hook, const char *result, bool failed)
{
  log_line(h, "%s: %s", names[hook], result);
  if (!failed || s->has_warned) return;
  s->has_warned = true;
  const bool is_last = hook == BRIM_HOOK_END;
  brim_log(BRIM_LOG_WARN, "hooks.%s: %s; the run %s\n%s/%s has its output%s", names[hook], result,
           is_last ? "had ended" : "continues", h->run, BRIM_HOOKS_LOG_NAME,
           is_last ? "" : ", and later failures of this hook");
  pthread_mutex_lock(&h->mutex);
  s->has_failed = true;
  s->failure.step = h->taken.step;
  snprintf(s->failure.detail, sizeof s->failure.detail, "hooks.%s: %s; its output is in %s%s", names[hook], result,
           BRIM_HOOKS_LOG_NAME, is_last ? "" : ", as are later failures of it");
  pthread_mutex_unlock(&h->mutex);
}

static void judge(brim_hooks *h, slot *s, enum brim_run_hook hook, const command *c, int status, bool hung)
{
  char result[128];
  const double seconds = brim_now() - c->started;
  if (c->dropped > 0) log_line(h, "%zu more bytes of output are not in this file", c->dropped);
  if (hung)
    snprintf(result, sizeof result, "ended after %.0f s, the limit for a hook", seconds);
  else if (WIFSIGNALED(status))
    snprintf(result, sizeof result, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  else
    snprintf(result, sizeof result, "exit status %d after %.2f s", WEXITSTATUS(status), seconds);
  s->has_hung = s->has_hung || hung;
  report(h, s, hook, result, hung || status != 0);
}

static void run_hook(brim_hooks *h, enum brim_run_hook hook)
{
  slot *s = &h->slot[hook];
  const brim_hook_facts *f = &h->taken;
  struct stat info;
  char problem[160];
  int ends[2];
  size_t own;
  bool hung;
  if (pipe2(ends, O_CLOEXEC) != 0) {
    snprintf(problem, sizeof problem, "not started: %s", strerror(errno));
    report(h, s, hook, problem, true);
    return;
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  char *summary = make_summary(h, hook, f), **environment = make_environment(h, hook, f, &own);
  const int input = make_input(summary);
  command c = {.output = ends[0], .started = brim_now()};
  c.keeps_output = fstat(h->log, &info) == 0 && info.st_size < LOG_BYTES_MAX;
  log_line(h, "%s, step %lld", names[hook], (long long)f->step);
  const char *const words[] = {"/bin/sh", "-c", s->command, NULL};
  const int streams[] = {input, ends[1], ends[1]};
  const int error = brim_process_start(words[0], words, environment, streams, &c.pid);
  close(ends[1]);
  if (input >= 0) close(input);
  for (size_t i = 0; i < own; i++) free(environment[i]);
  free(environment);
  free(summary);
  if (error == 0) {
    const int status = watch(h, &c, &hung);
    judge(h, s, hook, &c, status, hung);
  } else {
    snprintf(problem, sizeof problem, "not started: %s", strerror(error));
    report(h, s, hook, problem, true);
  }
  close(ends[0]);
}

/* ---- the thread ---- */

/* Returns the hook that was posted first; BRIM_HOOK_COUNT: none is queued. */
static enum brim_run_hook next_hook(const brim_hooks *h)
{
  int out = BRIM_HOOK_COUNT;
  for (int i = 0; i < BRIM_HOOK_COUNT; i++)
    if (h->slot[i].waits && (out == BRIM_HOOK_COUNT || h->slot[i].order < h->slot[out].order)) out = i;
  return (enum brim_run_hook)out;
}

static void *work(void *context)
{
  brim_hooks *h = context;
  pthread_mutex_lock(&h->mutex);
  for (;;) {
    const enum brim_run_hook hook = next_hook(h);
    if (hook == BRIM_HOOK_COUNT && h->closes) break;
    if (hook == BRIM_HOOK_COUNT) {
      pthread_cond_wait(&h->changed, &h->mutex);
      continue;
    }
    const bool skips = h->closes && h->slot[hook].has_hung && hook != BRIM_HOOK_END;
    h->slot[hook].waits = false;
    h->taken = h->slot[hook].facts;
    pthread_mutex_unlock(&h->mutex);
    if (skips)
      log_line(h, "%s, step %lld: not started, because it hung before and the run has ended", names[hook],
               (long long)h->taken.step);
    else
      run_hook(h, hook);
    pthread_mutex_lock(&h->mutex);
  }
  pthread_mutex_unlock(&h->mutex);
  return NULL;
}

static void free_hooks(brim_hooks *h)
{
  for (int i = 0; i < BRIM_HOOK_COUNT; i++) free(h->slot[i].command);
  if (h->log >= 0) close(h->log);
  pthread_mutex_destroy(&h->mutex);
  pthread_cond_destroy(&h->changed);
  free(h);
}

static char *copy_command(const char *text)
{
  if (!text || !text[0]) return NULL;
  char *out = brim_xmalloc(strlen(text) + 1);
  return memcpy(out, text, strlen(text) + 1);
}

brim_hooks *brim_hooks_open(const brim_hooks_settings *settings, const char *run, const char *model,
                            const char *dataset)
{
  const char *const wanted[BRIM_HOOK_COUNT] = {settings->on_start, settings->on_evaluation, settings->on_checkpoint,
                                               settings->on_oom, settings->on_end};
  char path[PATH_MAX + 16];
  bool any = false;
  for (int i = 0; i < BRIM_HOOK_COUNT; i++) any = any || (wanted[i] && wanted[i][0]);
  if (!any) return NULL;
  brim_hooks *h = brim_xcalloc(1, sizeof *h);
  if (!realpath(run, h->run)) snprintf(h->run, sizeof h->run, "%s", run);
  snprintf(h->model, sizeof h->model, "%s", model);
  snprintf(h->dataset, sizeof h->dataset, "%s", dataset);
  for (int i = 0; i < BRIM_HOOK_COUNT; i++) h->slot[i].command = copy_command(wanted[i]);
  pthread_mutex_init(&h->mutex, NULL);
  pthread_cond_init(&h->changed, NULL);
  struct sigaction child;
  if (sigaction(SIGCHLD, NULL, &child) == 0 && child.sa_handler == SIG_IGN)
    signal(SIGCHLD, SIG_DFL); /* otherwise exit statuses are lost */
  snprintf(path, sizeof path, "%s/%s", h->run, BRIM_HOOKS_LOG_NAME);
  h->log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  const int log_error = h->log < 0 ? errno : 0;
  const int error = log_error ? log_error : brim_thread_start(&h->thread, "brim-hooks", work, h);
  if (error == 0) return h;
  brim_log(BRIM_LOG_WARN, "the run's hooks are off: %s%s%s", log_error ? path : "no thread", ": ",
           log_error ? brim_open_reason(error) : strerror(error));
  free_hooks(h);
  return NULL;
}

void brim_hooks_post(brim_hooks *h, enum brim_run_hook hook, const brim_hook_facts *facts)
{
  if (!h || !h->slot[hook].command) return;
  pthread_mutex_lock(&h->mutex);
  slot *s = &h->slot[hook];
  s->facts = *facts;
  if (!s->waits) s->order = h->posts++;
  s->waits = true;
  pthread_cond_signal(&h->changed);
  pthread_mutex_unlock(&h->mutex);
}

bool brim_hooks_take_failure(brim_hooks *h, brim_hook_failure *out)
{
  int i = 0;
  if (!h) return false;
  pthread_mutex_lock(&h->mutex);
  while (i < BRIM_HOOK_COUNT && !h->slot[i].has_failed) i++;
  if (i < BRIM_HOOK_COUNT) {
    h->slot[i].has_failed = false;
    *out = h->slot[i].failure;
  }
  pthread_mutex_unlock(&h->mutex);
  return i < BRIM_HOOK_COUNT;
}

size_t brim_hooks_close(brim_hooks *h, const volatile sig_atomic_t *stop, brim_hook_failure *out)
{
  size_t count = 0;
  if (!h) return 0;
  pthread_mutex_lock(&h->mutex);
  h->stop = stop;
  h->stopped = stop ? *stop : 0;
  h->closes = true;
  pthread_cond_signal(&h->changed);
  pthread_mutex_unlock(&h->mutex);
  pthread_join(h->thread, NULL);
  while (count < BRIM_HOOK_COUNT && brim_hooks_take_failure(h, &out[count])) count++;
  free_hooks(h);
  return count;
}
