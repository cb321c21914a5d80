/* brim monitor: shows devices, queue and runs of this host or of others, once or repeatedly. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "monitor/draw.h"
#include "monitor/metrics.h"
#include "monitor/screen.h"
#include "monitor/source.h"
#include "observe/openmetrics.h"

#define HOSTS_WAIT_SECONDS 12.0 /* wait for the first answer of other hosts: longer than ssh tries to connect */
#define SCREEN_SECONDS 1.0      /* time between two looks of the interactive view */
#define PIPE_COLUMNS 132        /* columns of the picture as text if there is no terminal */
#define EVERY_MIN 0.1
#define EVERY_MAX 86400.0

typedef struct monitor {
  bool once, json;
  const char *from, *metrics, *every;
  double seconds;   /* between two looks; 0: one look */
  bool has_metrics; /* the file has been written */
  bool has_failed;  /* the last look failed */
} monitor;

static volatile sig_atomic_t is_stopped;

static void stop(int signal)
{
  (void)signal;
  is_stopped = 1;
}

/* Ends the loop between two looks, so that the last one is written completely. */
static void heed_signals(void)
{
  const struct sigaction action = {.sa_handler = stop};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

/* ---- output ---- */

/* A single look is printed for people to read; of several, each is one line. */
static brim_status print_json(const monitor *m, const brim_look *look)
{
  json_t *root = brim_look_json(look);
  const size_t form = m->seconds > 0 ? JSON_COMPACT : JSON_INDENT(2);
  const size_t escaped = isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0; /* escaped, without control characters */
  char *text = json_dumps(root, form | escaped | JSON_REAL_PRECISION(15));
  json_decref(root);
  if (!text) return brim_fail(BRIM_EINTERNAL, "cannot format the snapshot as JSON");
  puts(text);
  free(text);
  return BRIM_OK;
}

static int text_columns(void)
{
  struct winsize size = {0};
  const bool is_known = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : PIPE_COLUMNS;
}

/* Prints the picture without colours. It is the same on a terminal and in a pipe, except for its width. */
static void print_text(const monitor *m, const brim_look *look)
{
  brim_text out = {0};
  brim_picture_text(look, text_columns(), brim_utf8_is_locale(), false, &out);
  if (m->seconds > 0) brim_text_add(&out, "\n");
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
}

/* If the first write succeeded, later failures are only warnings, and the next look tries again. */
static brim_status write_metrics(monitor *m, brim_look *look)
{
  brim_text out = {0};
  brim_look_metrics(look, &out);
  const brim_status status = brim_openmetrics_write(m->metrics, &out);
  brim_text_release(&out);
  if (status != BRIM_OK && m->has_metrics && !m->has_failed)
    brim_log(BRIM_LOG_WARN, "%s; the next snapshot tries again", brim_error_text());
  m->has_failed = status != BRIM_OK;
  if (m->has_metrics) return BRIM_OK;
  m->has_metrics = status == BRIM_OK;
  return status;
}

static brim_status show(monitor *m, brim_look *look)
{
  if (m->metrics) return write_metrics(m, look);
  if (m->json)
    BRIM_TRY(print_json(m, look));
  else
    print_text(m, look);
  if (fflush(stdout) == 0) return BRIM_OK;
  if (errno == EPIPE) is_stopped = 1; /* the reader has seen enough */
  return errno == EPIPE ? BRIM_OK : brim_fail(BRIM_EIO, "cannot write to standard output: %s", strerror(errno));
}

/* If some of several hosts fail, the look contains the reasons; a look without any host is an error. */
static brim_status check_hosts(const brim_look *look)
{
  for (size_t i = 0; i < look->hosts; i++)
    if (!look->host[i].failure[0]) return BRIM_OK;
  return look->hosts ? brim_fail(BRIM_EIO, "no host answered: %s: %s", look->host[0].name, look->host[0].failure)
                     : BRIM_OK;
}

static brim_status look_on(monitor *m, brim_source *source)
{
  brim_look look = {0};
  brim_status status;
  double next = brim_now();
  do {
    status = brim_source_look(source, &look);
    if (status == BRIM_OK) status = show(m, &look);
    if (status == BRIM_OK && m->seconds == 0 && !m->from) status = check_hosts(&look);
    next += m->seconds;
    if (next < brim_now()) next = brim_now();
    if (status == BRIM_OK && m->seconds > 0 && !brim_source_is_over(source)) {
      for (double left; !is_stopped && (left = next - brim_now()) > 0;) {
        const double slice = left < 1 ? left : 1;
        nanosleep(&(struct timespec){(time_t)slice, (long)(1e9 * (slice - floor(slice)))}, NULL);
      }
    }
  } while (status == BRIM_OK && m->seconds > 0 && !is_stopped && !brim_source_is_over(source));
  brim_look_release(&look);
  return status;
}

/* ---- the command ---- */

static brim_status read_every(monitor *m)
{
  char *end;
  if (!m->every) return BRIM_OK;
  m->seconds = strtod(m->every, &end);
  if (end == m->every || *end != '\0' || !(m->seconds >= EVERY_MIN && m->seconds <= EVERY_MAX))
    return brim_fail(BRIM_ECONFIG, "--every %s: expected seconds between two snapshots, from %g to %g", m->every,
                     EVERY_MIN, EVERY_MAX);
  if (m->once) return brim_fail(BRIM_ECONFIG, "--once and --every exclude each other");
  return BRIM_OK;
}

static brim_status check_metrics_folder(const char *path)
{
  char folder[BRIM_PATH_MAX] = ".";
  const char *slash = strrchr(path, '/');
  if (slash) snprintf(folder, sizeof folder, "%.*s", slash > path ? (int)(slash - path) : 1, path);
  if (brim_is_folder(folder)) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "--metrics %s: there is no folder '%s'\nmake it first, or name another", path, folder);
}

static brim_status check(monitor *m, const brim_operands *operands)
{
  BRIM_TRY(read_every(m));
  if (m->metrics && (m->json || m->once))
    return brim_fail(BRIM_ECONFIG, "--metrics %s and --%s exclude each other", m->metrics, m->json ? "json" : "once");
  if (m->metrics) BRIM_TRY(check_metrics_folder(m->metrics));
  if (m->from && operands->count > 0)
    return brim_fail(BRIM_ECONFIG, "--from %s and the host %s exclude each other", m->from, operands->word[0]);
  return BRIM_OK;
}

static brim_status monitor_hosts(const brim_cli *cli, monitor *m, const brim_operands *operands)
{
  brim_source *source = NULL;
  const bool is_interactive = !m->once && !m->json && isatty(STDOUT_FILENO);
  if (is_interactive && m->seconds <= 0) m->seconds = SCREEN_SECONDS;
  const brim_source_options options = {.from = m->from,
                                       .host = operands->word,
                                       .hosts = operands->count,
                                       .every = m->seconds,
                                       .wait_seconds = HOSTS_WAIT_SECONDS};
  brim_registry_narrow(cli->registry, BRIM_BACKEND); /* a look needs only backends */
  BRIM_TRY(brim_source_open(&options, cli->registry, &source));
  if (!is_interactive) heed_signals();
  const brim_status status = is_interactive ? brim_screen_run(source, m->seconds, m->from != NULL) : look_on(m, source);
  brim_source_close(source);
  return status;
}

static const brim_option options[] = {
    {"--once", BRIM_CLI_FLAG(monitor, once), NULL, "take one snapshot and print the picture as text"},
    {"--json", BRIM_CLI_FLAG(monitor, json), NULL, "print JSON; with --every a line for each snapshot"},
    {"--every", BRIM_CLI_STRING(monitor, every), "SECONDS", "take a snapshot at this interval"},
    {"--metrics", BRIM_CLI_STRING(monitor, metrics), "FILE",
     "write OpenMetrics to a file, for example for node_exporter's textfile collector"},
    {"--from", BRIM_CLI_STRING(monitor, from), "FILE", "show snapshots that --json has written, instead of a host"},
    {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  monitor m = {0};
  brim_operands operands;
  brim_status status = brim_cli_parse(argc, argv, options, &m, &operands);
  if (status == BRIM_OK) status = check(&m, &operands);
  if (status == BRIM_OK) status = monitor_hosts(cli, &m, &operands);
  return brim_cli_end(status, &operands);
}

const brim_command brim_command_monitor = {
    "monitor", "show devices, queue and runs", run_command,
    "usage: brim monitor [HOST...] [--once | --every SECONDS] [--json | --metrics FILE] [--from FILE]\n"
    "\n"
    "  brim monitor                         devices with their memory by owner, the queue with the expected start,\n"
    "                                       the runs of all users, and advice\n"
    "  brim monitor lab7 ann@lab8           the same for other hosts, through ssh; localhost is this host\n"
    "  brim monitor --json --every 5        a line of JSON every five seconds\n"
    "  brim monitor --metrics /var/lib/prometheus/node-exporter/brim.prom --every 15\n"
    "                                       a file for Prometheus; brim opens no port\n"
    "  brim monitor --from looks.json       snapshots that --json has written, instead of a host\n"
    "\n"
    "For other users' runs brim shows memory, device and progress; also name, model and loss if you may read the\n"
    "run's folder, or if the run publishes them (observe.live=all). brim monitor changes nothing on any host.\n",
    options};
