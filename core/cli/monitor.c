/* brim monitor: devices, queue and runs of this host or of others, once or again and again. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/monitor_print.h"
#include "monitor/screen.h"
#include "monitor/source.h"

#define HOSTS_WAIT_SECONDS 12.0 /* for the first answer of other hosts: longer than ssh tries to connect */
#define SCREEN_SECONDS 1.0      /* between two looks of the interactive view */
#define EVERY_MIN 0.1
#define EVERY_MAX 86400.0

typedef struct monitor {
  bool once, json;
  const char *from, *metrics, *every;
  double seconds; /* between two looks; 0: one look */
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

static void sleep_until(double end)
{
  for (double left; !is_stopped && (left = end - brim_now()) > 0;) {
    const double slice = left < 1 ? left : 1;
    nanosleep(&(struct timespec){(time_t)slice, (long)(1e9 * (slice - floor(slice)))}, NULL);
  }
}

/* ---- output ---- */

/* One look is for readers; of several, each is a line. */
static brim_status print_json(const monitor *m, const brim_look *look)
{
  json_t *root = brim_look_json(look);
  const size_t form = m->seconds > 0 ? JSON_COMPACT : JSON_INDENT(2);
  const size_t escaped = isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0; /* escaped, without control characters */
  char *text = json_dumps(root, form | escaped | JSON_REAL_PRECISION(15));
  json_decref(root);
  if (!text) return brim_fail(BRIM_EINTERNAL, "cannot format the look as JSON");
  puts(text);
  free(text);
  return BRIM_OK;
}

static void print_text(const monitor *m, brim_look *look)
{
  brim_text out = {0};
  brim_monitor_print(look, &out);
  if (m->seconds > 0) brim_text_add(&out, "\n");
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
}

static brim_status show(const monitor *m, brim_look *look)
{
  if (m->json)
    BRIM_TRY(print_json(m, look));
  else
    print_text(m, look);
  if (fflush(stdout) == 0) return BRIM_OK;
  if (errno == EPIPE) is_stopped = 1; /* the reader has seen enough */
  return errno == EPIPE ? BRIM_OK : brim_fail(BRIM_EIO, "cannot write to standard output: %s", strerror(errno));
}

static brim_status look_on(const monitor *m, brim_source *source)
{
  brim_look look = {0};
  brim_status status;
  double next = brim_now();
  do {
    status = brim_source_look(source, &look);
    if (status == BRIM_OK) status = show(m, &look);
    next += m->seconds;
    if (next < brim_now()) next = brim_now();
    if (status == BRIM_OK && m->seconds > 0 && !brim_source_is_over(source)) sleep_until(next);
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
    return brim_fail(BRIM_ECONFIG, "--every %s: seconds between two looks are expected, from %g to %g", m->every,
                     EVERY_MIN, EVERY_MAX);
  if (m->once) return brim_fail(BRIM_ECONFIG, "--once and --every exclude each other");
  return BRIM_OK;
}

static brim_status check(monitor *m, const brim_operands *operands)
{
  BRIM_TRY(read_every(m));
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
  BRIM_TRY(brim_source_open(&options, cli->registry, &source));
  if (!is_interactive) heed_signals();
  const brim_status status = is_interactive ? brim_screen_run(source, m->seconds, m->from != NULL) : look_on(m, source);
  brim_source_close(source);
  return status;
}

static const brim_option options[] = {
    {"--once", BRIM_CLI_FLAG(monitor, once), NULL, "look once and print it as text"},
    {"--json", BRIM_CLI_FLAG(monitor, json), NULL, "print JSON; with --every a line for each look"},
    {"--every", BRIM_CLI_STRING(monitor, every), "SECONDS", "look again and again"},
    {"--from", BRIM_CLI_STRING(monitor, from), "FILE", "show looks that --json has written, instead of a host"},
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
    "usage: brim monitor [HOST...] [--once | --every SECONDS] [--json] [--from FILE]\n"
    "\n"
    "  brim monitor                         devices with their memory by owner, the queue with the expected start,\n"
    "                                       the runs of all users, and what could be done next\n"
    "  brim monitor lab7 ann@lab8           the same of other hosts, through ssh; localhost is this host\n"
    "  brim monitor --json --every 5        a line of JSON every five seconds\n"
    "  brim monitor --from looks.json       what --json has written, instead of a host\n"
    "\n"
    "Other users' runs show what they use and how far they are; name, model and loss appear if you may read the run's\n"
    "folder, or if the run publishes them (observe.live=all). Nothing is changed on any host.\n",
    options};
