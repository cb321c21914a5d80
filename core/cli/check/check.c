/* brim check: calls each function of a file's plugins with edge cases, in a child process, which may crash, loop or
 * exceed its memory. See check.h. */
#include "cli/check/check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/utf8.h"
#include "cli/child.h"

#define CHECK_SECONDS 20 /* limit for a check that waits; child.c limits the processor time of one that computes */
/* A check that uses more processor time than this in CHECK_SECONDS is computing, on a busy machine too. */
#define COMPUTED_SECONDS 0.05
#define FILE_SECONDS 600 /* for all of them */
#define LINE_BYTES 16384 /* limit for a line of the child; no valid line is longer */
#define LINES_MAX 20000  /* limit for the child's lines; no valid child prints more */
#define NUMBER_MAX 10000 /* limit for the number of a check; no valid number is greater */
#define SAID_BYTES 8192  /* bytes of its standard error, which is searched for the report of a crash */

typedef struct result {
  struct result *next;
  const char *plugin, *check, *text; /* "policy/mine", "on_oom" */
  enum brim_finding finding;
} result;

typedef struct checking {
  brim_cli *cli;
  const char *file;
  const brim_operands *operands; /* the file and the user's words */
  bool json, is_child;
  brim_arena arena;
  result *first, *last;
  long number;               /* number of the last check that began */
  long next;                 /* the check with which the next child continues */
  const char *plugin, *name; /* names of the running check; name NULL: none is running */
  bool ended, loaded;        /* ended: all checks are done; loaded: the table is valid */
  int lines;
  double deadline;
} checking;

typedef struct child {
  pid_t pid;
  int lines, said; /* descriptors from which the parent reads: the child's report, and its standard error */
  int end;         /* readable when the child has ended; -1: not available */
  char line[LINE_BYTES];
  size_t length;
} child;

/* ---- results ---- */

static void add_result(checking *c, enum brim_finding finding, const char *text)
{
  brim_text whole = {0};
  brim_text_add(&whole, text);
  if (finding == BRIM_FOUND_FAILED) brim_check_hint(c->file, c->name ? c->name : "", text, &whole);
  result *r = BRIM_ARENA_NEW(&c->arena, result, 1);
  *r = (result){.plugin = c->plugin ? c->plugin : "",
                .check = c->name ? c->name : "?",
                .text = brim_arena_string(&c->arena, brim_text_str(&whole)),
                .finding = finding};
  brim_text_release(&whole);
  if (c->last)
    c->last->next = r;
  else
    c->first = r;
  c->last = r;
  c->name = NULL;
}

/* Makes text safe to print, because it comes from a process that may have been corrupted. */
static char *clean(checking *c, const char *text)
{
  char *copy = brim_arena_string(&c->arena, text);
  const bool is_text = brim_utf8_is_valid(copy);
  for (char *s = copy; *s; s++) {
    const unsigned char byte = (unsigned char)*s;
    if (byte == BRIM_CHECK_BREAK)
      *s = '\n';
    else if ((byte < ' ' && byte != '\n') || byte == 0x7f || (byte > 0x7f && !is_text))
      *s = '?';
  }
  return copy;
}

/* Parses "N\tPLUGIN\tCHECK\tNEXT", which announces a check after the last one, or the loading of the file by a later
 * child. False: the line is not valid. */
static bool take_begin(checking *c, char *text)
{
  char *end;
  const long number = strtol(text, &end, 10);
  char *check = *end == '\t' ? strchr(end + 1, '\t') : NULL;
  char *after = check ? strchr(check + 1, '\t') : NULL;
  const long next = after ? strtol(after + 1, NULL, 10) : 0;
  c->name = NULL;
  if (number == 0 && c->loaded) return true;
  if ((c->loaded && number <= c->number) || next <= number || next > NUMBER_MAX || (number > 0 && !c->loaded))
    return false;
  *check = *after = '\0';
  c->number = number;
  c->next = next;
  c->plugin = clean(c, end + 1);
  c->name = clean(c, check + 1);
  return true;
}

/* Parses a line of the child's report; false if it is not valid. */
static bool take_line(checking *c, char *line)
{
  char *text = strchr(line, '\t');
  if (!text) return false;
  *text++ = '\0';
  if (strcmp(line, "begin") == 0) return take_begin(c, text);
  if (strcmp(line, "end") == 0) {
    c->ended = true;
    return true;
  }
  for (int i = 0; i <= BRIM_FOUND_WORDS; i++) {
    if (strcmp(line, brim_finding_names[i].sent) != 0) continue;
    if (!c->name) return true;
    add_result(c, (enum brim_finding)i, clean(c, text));
    c->loaded = c->loaded || i != BRIM_FOUND_FAILED;
    return true;
  }
  return false;
}

/* ---- the child ---- */

/* Whether a check of the last check's plugin has failed. */
static bool has_failed(const checking *c)
{
  for (const result *r = c->first; r; r = r->next)
    if (r->finding == BRIM_FOUND_FAILED && c->plugin && strcmp(r->plugin, c->plugin) == 0) return true;
  return false;
}

/* Lists the words with which this program starts as the child. */
static const char **list_words(checking *c, int fd)
{
  const char **out = BRIM_ARENA_NEW(&c->arena, const char *, BRIM_CLI_GLOBAL_WORDS + c->operands->count + 5);
  size_t n = 1 + brim_cli_global_words(c->cli, out + 1);
  out[0] = "brim";
  out[n++] = "check";
  out[n++] = "--child";
  out[n++] = brim_arena_printf(&c->arena, "%d:%ld:%d", fd, c->next, has_failed(c));
  for (size_t i = 0; i < c->operands->count; i++) out[n++] = c->operands->word[i];
  out[n] = NULL;
  return out;
}

/* Runs in the child: redirects output, because text that a plugin prints must not mix with the results. */
static void take_output(void *said)
{
  const int *fd = said;
  if (*fd < 0) return;
  dup2(*fd, STDOUT_FILENO);
  dup2(*fd, STDERR_FILENO);
}

static brim_status start_child(checking *c, child *out)
{
  int pipes[2];
  if (pipe(pipes) != 0) return brim_fail(BRIM_EIO, "cannot start a child process: %s", strerror(errno));
  fcntl(pipes[0], F_SETFD, FD_CLOEXEC);
  out->said = memfd_create("brim-check", MFD_CLOEXEC);
  out->lines = pipes[0];
  int said = c->cli->verbose ? -1 : out->said;
  out->pid = brim_child_start(list_words(c, pipes[1]), SIGKILL, take_output, &said);
  const int reason = errno;
  close(pipes[1]);
  out->end = out->pid > 0 ? pidfd_open(out->pid, 0) : -1;
  if (out->pid > 0) return BRIM_OK;
  close(pipes[0]);
  if (out->said >= 0) close(out->said);
  return brim_fail(BRIM_EIO, "cannot start a child process: %s", strerror(reason));
}

/* Reads all complete lines. False: too many lines, or an invalid one. */
static bool take_lines(checking *c, child *k)
{
  char *start = k->line, *end;
  while ((end = memchr(start, '\n', k->length - (size_t)(start - k->line)))) {
    *end = '\0';
    if (++c->lines > LINES_MAX || !take_line(c, start)) return false;
    start = end + 1;
  }
  k->length -= (size_t)(start - k->line);
  memmove(k->line, start, k->length);
  return k->length < sizeof k->line;
}

enum listening { CHILD_ENDED, CHILD_LATE, CHILD_CORRUPT };

/* Returns the processor time that the child has used, in seconds. */
static double child_seconds(const child *k)
{
  clockid_t clock;
  struct timespec used;
  if (clock_getcpuclockid(k->pid, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
  return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/* Reads the child's report until the child ends, or reports nothing for too long. A process that the plugin started may
 * keep the pipe open after the child's end, and a plugin may close the pipe early; so a second descriptor signals the
 * end, after which the rest of the report is read. */
static enum listening listen_to(checking *c, child *k)
{
  struct pollfd wait[] = {{.fd = k->lines, .events = POLLIN}, {.fd = k->end, .events = POLLIN}};
  double computed = child_seconds(k);
  for (bool over = false;;) {
    const double left = c->deadline - brim_now(), most = left < CHECK_SECONDS ? left : CHECK_SECONDS;
    const int ready = most > 0 ? poll(wait, 2, over ? 0 : (int)(1000 * most) + 1) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 && over) return CHILD_ENDED;
    const double before = computed;
    computed = child_seconds(k);
    if (ready == 0 && left > CHECK_SECONDS && computed > before + COMPUTED_SECONDS) continue;
    if (ready <= 0) return CHILD_LATE;
    if (wait[1].revents) {
      over = true;
      wait[1].fd = -1;
      continue;
    }
    const ssize_t n = read(k->lines, k->line + k->length, sizeof k->line - k->length);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 && wait[1].fd < 0) return CHILD_ENDED;
    if (n <= 0) wait[0].fd = -1;
    if (n <= 0) continue;
    k->length += (size_t)n;
    if (!take_lines(c, k)) return CHILD_CORRUPT;
    if (c->ended) return CHILD_ENDED;
  }
}

/* Finds the report of a crash that base/crash.h has printed, without the plugin's name: "segmentation fault (SIGSEGV)
 * at address 0x0". */
static void find_crash_report(const child *k, char *out, size_t room)
{
  static const char mark[] = " has crashed: ", place[] = "\n  at ";
  char said[SAID_BYTES + 1];
  const off_t end = k->said >= 0 ? lseek(k->said, 0, SEEK_END) : 0;
  const off_t from = end > SAID_BYTES ? end - SAID_BYTES : 0;
  const ssize_t n = k->said >= 0 ? pread(k->said, said, SAID_BYTES, from) : 0;
  said[n > 0 ? n : 0] = '\0';
  out[0] = '\0';
  for (const char *s = said; (s = strstr(s, mark)); s++) {
    const char *what = s + strlen(mark), *line = what + strcspn(what, "\n");
    const bool placed = strncmp(line, place, strlen(place)) == 0;
    snprintf(out, room, "%.*s%s%.*s", (int)(line - what), what, placed ? ", at " : "",
             placed ? (int)strcspn(line + strlen(place), ";\n") : 0, placed ? line + strlen(place) : "");
  }
}

/* Adds a result for a check that did not finish. */
static void explain(checking *c, const child *k, enum listening how, int status)
{
  char text[2048], said[1024];
  if (!c->name && how == CHILD_ENDED && c->first) return; /* the child failed, and reported the failure itself */
  if (!c->name) c->name = c->first ? "between two checks" : "beginning";
  find_crash_report(k, said, sizeof said);
  if (how == CHILD_LATE && brim_now() > c->deadline)
    snprintf(text, sizeof text, "was running when the limit of %d s for the whole file expired", FILE_SECONDS);
  else if (how == CHILD_LATE)
    snprintf(text, sizeof text, "did not return within %d s", CHECK_SECONDS);
  else if (how == CHILD_CORRUPT)
    snprintf(text, sizeof text, "overwrote brim's own memory: the child's report is damaged");
  else if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGXCPU))
    snprintf(text, sizeof text, "was killed: it exceeded its limit of processor time%s",
             WTERMSIG(status) == SIGKILL ? ", or the machine ran out of memory" : "");
  else if (WIFSIGNALED(status))
    snprintf(text, sizeof text, "crashed: %s", said[0] ? said : strsignal(WTERMSIG(status)));
  else
    snprintf(text, sizeof text, "ended the process, with exit status %d", WEXITSTATUS(status));
  add_result(c, BRIM_FOUND_FAILED, clean(c, text));
}

/* Runs one child, beginning with the first check that has not run. */
static brim_status run_child(checking *c)
{
  child *k = brim_arena_alloc(&c->arena, sizeof *k);
  int status = 0;
  BRIM_TRY(start_child(c, k));
  const enum listening how = listen_to(c, k);
  if (how != CHILD_ENDED || c->ended) kill(-k->pid, SIGKILL);
  close(k->lines);
  if (k->end >= 0) close(k->end);
  brim_child_wait(k->pid);
  kill(-k->pid, SIGKILL); /* processes that the plugin started */
  const brim_status reaped = brim_child_reap(k->pid, &status);
  if (reaped == BRIM_OK && !c->ended) explain(c, k, how, status);
  if (k->said >= 0) close(k->said);
  return reaped;
}

static brim_status run_all(checking *c)
{
  c->deadline = brim_now() + FILE_SECONDS;
  while (!c->ended) {
    const long before = c->next;
    BRIM_TRY(run_child(c));
    if (!c->loaded) return BRIM_OK; /* the file cannot be loaded, or loading it ended the process */
    if (!c->ended && (c->next == before || brim_now() > c->deadline)) {
      c->name = "the rest";
      add_result(c, BRIM_FOUND_FAILED,
                 c->next == before ? "was not tried: the child process ends before it"
                                   : "was not tried: the time limit for the whole file has expired");
      return BRIM_OK;
    }
  }
  return BRIM_OK;
}

/* ---- printing ---- */

static int count_of(const checking *c, enum brim_finding finding)
{
  int count = 0;
  for (const result *r = c->first; r; r = r->next)
    count += strcmp(brim_finding_names[r->finding].shown, brim_finding_names[finding].shown) == 0;
  return count;
}

/* Returns an error in the user's words; NULL if the words are valid for at least one of the file's plugins. */
static const char *wrong_words(const checking *c)
{
  const char *wrong = NULL;
  for (const result *r = c->first; r; r = r->next) {
    if (r->finding != BRIM_FOUND_WORDS && r->plugin[0]) return NULL;
    if (r->finding == BRIM_FOUND_WORDS && !wrong) wrong = r->text;
  }
  return wrong;
}

static void print_words(const checking *c)
{
  const int failed = count_of(c, BRIM_FOUND_FAILED), warnings = count_of(c, BRIM_FOUND_WARNING);
  const char *plugin = NULL;
  for (const result *r = c->first; r; r = r->next) {
    if (!plugin || strcmp(plugin, r->plugin) != 0) puts(r->plugin[0] ? r->plugin : c->file);
    plugin = r->plugin;
    printf("  %-8s %s: ", r->finding == BRIM_FOUND_FAILED ? "FAILED" : brim_finding_names[r->finding].shown, r->check);
    for (const char *s = r->text; *s; s++)
      if (*s == '\n')
        fputs("\n             ", stdout);
      else
        putchar(*s);
    putchar('\n');
  }
  if (!c->loaded)
    puts("brim would not load it");
  else if (failed > 0)
    printf("%d of its checks failed: it is not ready to be used\n", failed);
  else
    printf("brim would run it%s\n", warnings ? "; see the warnings" : "");
}

static brim_status print_json(const checking *c)
{
  json_t *checks = json_array();
  for (const result *r = c->first; r; r = r->next)
    json_array_append_new(checks,
                          json_pack("{s:s%, s:s, s:s, s:s}", "plugin", r->plugin, strlen(r->plugin), "check", r->check,
                                    "finding", brim_finding_names[r->finding].shown, "text", r->text));
  return brim_cli_print_json(json_pack("{s:s, s:b, s:i, s:i, s:o}", "file", c->file, "loaded", c->loaded, "failed",
                                       count_of(c, BRIM_FOUND_FAILED), "warnings", count_of(c, BRIM_FOUND_WARNING),
                                       "checks", checks));
}

/* ---- the command ---- */

/* Parses "FD:N:FAILED", which the parent adds, and then the parent's own words. */
static brim_status be_child(brim_cli *cli, const brim_operands *operands)
{
  char *end;
  const long fd = strtol(operands->word[0], &end, 10), first = *end == ':' ? strtol(end + 1, &end, 10) : -1;
  if (first < 0 || fd <= STDERR_FILENO || operands->count < 2)
    return brim_fail(BRIM_ECONFIG, "--child is reserved for brim itself");
  fcntl((int)fd, F_SETFD, FD_CLOEXEC); /* processes that a plugin starts must not write to the pipe */
  brim_check_child(cli, operands->word[1], (int)fd, first, strcmp(end, ":1") == 0, operands->word + 2,
                   operands->count - 2);
}

static brim_status check(checking *c, int *exit_status)
{
  if (brim_is_folder(c->file)) return brim_check_fail_folder(c->file);
  if (access(c->file, R_OK) != 0) return brim_fail(BRIM_ELOAD, "cannot read plugin '%s': %s", c->file, strerror(errno));
  BRIM_TRY(run_all(c));
  if (wrong_words(c)) return brim_fail(BRIM_ECONFIG, "%s", wrong_words(c));
  if (c->json)
    BRIM_TRY(print_json(c));
  else
    print_words(c);
  *exit_status = !c->loaded ? brim_status_exit(BRIM_ELOAD)
                            : brim_status_exit(count_of(c, BRIM_FOUND_FAILED) > 0 ? BRIM_EPLUGIN : BRIM_OK);
  return BRIM_OK;
}

static const brim_option options[] = {{"--json", BRIM_CLI_FLAG(checking, json), NULL, "print JSON"},
                                      {"--child", BRIM_OPTION_HIDDEN, offsetof(checking, is_child)},
                                      {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  int exit_status = 0;
  brim_operands operands;
  checking c = {.cli = cli, .operands = &operands};
  brim_status status = brim_cli_parse(argc, argv, options, &c, &operands);
  if (status == BRIM_OK && operands.count == 0)
    status = brim_fail(BRIM_ECONFIG, "brim check takes a plugin's file: brim check mine.so");
  if (status == BRIM_OK && c.is_child) status = be_child(cli, &operands);
  if (status == BRIM_OK && !c.is_child) {
    c.file = operands.word[0];
    status = check(&c, &exit_status);
  }
  brim_arena_release(&c.arena);
  const int ended = brim_cli_end(status, &operands);
  return ended ? ended : exit_status;
}

const brim_command brim_command_check = {
    "check", "test a plugin: every function, with edge cases", run_command,
    "usage: brim check FILE.so [key=value]... [--json]\n"
    "\n"
    "  brim check mine.so                             check its tables, then each function of its plugins\n"
    "  brim check mine.so policy.mine.reserve_mb=512  with parameters other than the defaults\n"
    "  brim check mine.so dataset.path=data --json    a dataset that needs files; as JSON\n"
    "\n"
    "Runs the plugin in a separate process with limits of time and memory, and prints a line per check (ok, warning\n"
    "or FAILED): functions that crash, hang or return invalid results fail. Policies get simulated devices, plans and\n"
    "memory; models are built for several kinds of samples and planned; all splits of datasets are opened and samples\n"
    "read, also by several threads; selectors choose clients of simulated federations. For backends and communicators\n"
    "only the tables are checked. Exit status 0: the plugin can be used; 3: it cannot be loaded; 5: a check failed.\n",
    options};
