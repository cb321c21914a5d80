/* See remote.h. */
#include "monitor/remote.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define AGAIN_SECONDS 10.0  /* wait before brim starts ssh again */
#define SILENT_SECONDS 15.0 /* seconds beyond the interval after which a silent host counts as not answering */
#define ERRORS_BYTES_MAX 4096

brim_status brim_remote_check(const char *host)
{
  bool is_plain = host[0] != '\0';
  for (const char *s = host; *s; s++) is_plain = is_plain && !isspace((unsigned char)*s) && isprint((unsigned char)*s);
  if (is_plain && host[0] != '-') return BRIM_OK;
  return brim_fail(BRIM_ECONFIG,
                   "'%s' is not the name of a host\nwrite a name that ssh knows, such as lab7 or ann@lab7", host);
}

static void fail(brim_remote *r, const char *format, const char *detail)
{
  snprintf(r->failure, sizeof r->failure, format, detail);
  json_decref(r->newest);
  r->newest = NULL;
}

static void close_end(int *fd)
{
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

/* ---- ssh ---- */

static void spawn(brim_remote *r, int out, int err)
{
  char every[32], wait[48];
  posix_spawn_file_actions_t actions;
  snprintf(every, sizeof every, "%g", r->every);
  snprintf(wait, sizeof wait, "ConnectTimeout=%d", BRIM_REMOTE_CONNECT_SECONDS);
  const char *argv[] = {"ssh", "-T",    "-o",   "BatchMode=yes", "-o",     wait,
                        "--",  r->host, "brim", "monitor",       "--json", r->every > 0 ? "--every" : NULL,
                        every, NULL};
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  const int error = posix_spawnp(&r->pid, "ssh", &actions, NULL, (char *const *)argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return;
  r->pid = 0;
  fail(r, "cannot start ssh: %s", strerror(error));
}

static void start(brim_remote *r)
{
  int out[2] = {-1, -1}, err[2] = {-1, -1};
  r->started = r->answered = brim_now();
  brim_text_clear(&r->text);
  brim_text_clear(&r->errors);
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) {
    fail(r, "cannot start ssh: %s", strerror(errno));
    close_end(&out[0]);
    close_end(&out[1]);
    return;
  }
  spawn(r, out[1], err[1]);
  close(out[1]);
  close(err[1]);
  r->out = out[0];
  r->err = err[0];
  fcntl(r->out, F_SETFL, O_NONBLOCK);
  fcntl(r->err, F_SETFL, O_NONBLOCK);
  if (r->pid != 0) return;
  close_end(&r->out);
  close_end(&r->err);
}

void brim_remote_open(brim_remote *r, const char *host, double every)
{
  *r = (brim_remote){.host = host, .every = every, .out = -1, .err = -1};
  start(r);
}

static int reap(brim_remote *r, bool now)
{
  int status = 0;
  if (r->pid == 0) return 0;
  if (now) kill(r->pid, SIGTERM);
  while (waitpid(r->pid, &status, 0) < 0 && errno == EINTR) continue;
  r->pid = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

void brim_remote_close(brim_remote *r)
{
  close_end(&r->out);
  close_end(&r->err);
  (void)reap(r, true);
  json_decref(r->newest);
  brim_text_release(&r->text);
  brim_text_release(&r->errors);
  *r = (brim_remote){.out = -1, .err = -1};
}

/* ---- its answers ---- */

static void take_look(brim_remote *r, const char *text, size_t length)
{
  json_error_t error;
  json_t *root = json_loadb(text, length, 0, &error);
  if (!root) {
    fail(r, "its answer is not the JSON of brim monitor: %s", error.text);
    return;
  }
  json_decref(r->newest);
  r->newest = root;
  r->failure[0] = '\0';
}

/* Takes the last complete line: a remote monitor with --every writes one look on each line. */
static void take_newest_line(brim_remote *r)
{
  const char *text = brim_text_str(&r->text);
  const char *end = r->text.length > 0 ? memrchr(text, '\n', r->text.length) : NULL;
  if (!end) return;
  const char *before = end > text ? memrchr(text, '\n', (size_t)(end - text)) : NULL;
  const char *begin = before ? before + 1 : text;
  take_look(r, begin, (size_t)(end - begin));
  brim_text rest = {0};
  brim_text_add_n(&rest, end + 1, r->text.length - (size_t)(end + 1 - text));
  brim_text_release(&r->text);
  r->text = rest;
}

/* False: the stream has ended. */
static bool drain(brim_remote *r, int fd, brim_text *to, size_t most)
{
  char chunk[16384];
  for (;;) {
    const ssize_t n = read(fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    if (fd == r->out) r->answered = brim_now();
    if (to->length + (size_t)n <= most) brim_text_add_n(to, chunk, (size_t)n);
  }
}

/* Reports the last line that ssh wrote, which says why it failed; earlier lines may be banners. */
static void say_failure(brim_remote *r, int status)
{
  char text[400];
  const char *errors = brim_text_str(&r->errors);
  size_t length = r->errors.length;
  while (length > 0 && isspace((unsigned char)errors[length - 1])) length--;
  const char *line = length > 0 ? memrchr(errors, '\n', length) : NULL;
  line = line ? line + 1 : errors;
  snprintf(text, sizeof text, "%.*s", (int)(errors + length - line), line);
  if (status == 127)
    fail(r, "%s\na non-interactive shell on that host must find brim", text[0] ? text : "there is no brim");
  else if (text[0])
    fail(r, "%s", text);
  else
    fail(r, "%s", "ssh ended without an answer");
}

static void finish(brim_remote *r)
{
  close_end(&r->out);
  close_end(&r->err);
  const int status = reap(r, false);
  if (r->every == 0 && r->text.length > 0 && status == 0)
    take_look(r, brim_text_str(&r->text), r->text.length);
  else
    say_failure(r, status);
  r->started = brim_now();
}

void brim_remote_update(brim_remote *r)
{
  const double now = brim_now();
  if (r->out < 0) {
    if (r->every > 0 && now - r->started > AGAIN_SECONDS) start(r);
    return;
  }
  const bool goes_on = drain(r, r->out, &r->text, BRIM_REMOTE_BYTES_MAX);
  (void)drain(r, r->err, &r->errors, ERRORS_BYTES_MAX);
  if (r->every > 0) take_newest_line(r);
  if (r->text.length >= BRIM_REMOTE_BYTES_MAX - 16384) fail(r, "%s", "its answer is too long");
  if (!goes_on) {
    finish(r);
    return;
  }
  if (now - r->answered <= r->every + SILENT_SECONDS) return;
  fail(r, "%s", "no answer");
  (void)reap(r, true);
  close_end(&r->out);
  close_end(&r->err);
  r->started = now;
}

bool brim_remote_is_settled(const brim_remote *r)
{
  return r->newest || r->failure[0];
}

void brim_remote_add(const brim_remote *r, brim_look *look)
{
  char failure[600];
  if (r->newest && brim_look_add_json(r->newest, look) == BRIM_OK) return;
  if (r->newest)
    snprintf(failure, sizeof failure, "its answer cannot be read: %s", brim_error_text());
  else
    snprintf(failure, sizeof failure, "%s", r->failure[0] ? r->failure : "connecting");
  if (look->hosts == BRIM_LOOK_HOSTS_MAX) return;
  size_t room = look->hosts;
  brim_look_host *host = BRIM_ARENA_GROW(&look->arena, look->host, look->hosts, room);
  host[look->hosts++] = (brim_look_host){.name = brim_arena_string(&look->arena, r->host),
                                         .time = NAN,
                                         .load = NAN,
                                         .processors = NAN,
                                         .failure = brim_arena_string(&look->arena, failure)};
}
