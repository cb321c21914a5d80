/* brim report: makes an HTML page of a run, or of several runs; with --every, repeatedly while a run is in progress. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "report/page.h"
#include "report/page_follow.h"
#include "store/rundir.h"

typedef struct wishes {
  const char *path, *every;
  bool force, run; /* run: a run started this process, and the standard input is its pipe */
} wishes;

static brim_status report(brim_comparison *c, const brim_operands *operands, const char *path)
{
  brim_text text = {0};
  for (size_t i = 0; i < operands->count; i++) BRIM_TRY(brim_compare_add(c, operands->word[i]));
  if (c->count == 0) return brim_fail(BRIM_ELOAD, "'%s' has no run that started", operands->word[0]);
  brim_compare_finish(c);
  brim_page_print(c, NULL, &text);
  const brim_status status = brim_file_write_atomic(path, brim_text_str(&text), text.length);
  brim_text_release(&text);
  if (status == BRIM_OK) brim_say("report in %s", path);
  return status;
}

static brim_status follow(const brim_operands *operands, const wishes *wish)
{
  char *end;
  const double seconds = strtod(wish->every, &end);
  if (end == wish->every || *end || !(seconds >= BRIM_PAGE_SECONDS_MIN && seconds <= BRIM_PAGE_SECONDS_MAX))
    return brim_fail(BRIM_ECONFIG, "--every takes seconds from %g to %d, not '%s'", BRIM_PAGE_SECONDS_MIN,
                     BRIM_PAGE_SECONDS_MAX, wish->every);
  if (operands->count != 1)
    return brim_fail(BRIM_ECONFIG, "--every follows one run: write brim report RUN --every %s", wish->every);
  if (wish->run && nice(19) < 0) brim_log(BRIM_LOG_DEBUG, "the page is made at normal priority, not in the background");
  BRIM_TRY(brim_page_follow(operands->word[0], wish->path, seconds, wish->run ? STDIN_FILENO : -1));
  brim_say("report in %s", wish->path);
  return BRIM_OK;
}

static const brim_option options[] = {
    {"-o", BRIM_CLI_STRING(wishes, path), "FILE.html", "output file (default: report.html)"},
    {"--every", BRIM_CLI_STRING(wishes, every), "SECONDS",
     "rewrite the page at this interval until the run has ended; a browser that shows it reloads it"},
    {"--run", BRIM_OPTION_HIDDEN, offsetof(wishes, run), NULL, NULL},
    {"--force", BRIM_CLI_FLAG(wishes, force), NULL, BRIM_CLI_FORCE_HELP},
    {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  (void)cli;
  wishes wish = {.path = BRIM_REPORT_NAME};
  brim_comparison c = {0};
  brim_operands operands;
  brim_status status = brim_cli_parse(argc, argv, options, &wish, &operands);
  if (status == BRIM_OK) status = brim_cli_check_output(wish.path, ".html", "a report is HTML", wish.force);
  if (status == BRIM_OK && operands.count == 0)
    status = brim_fail(BRIM_ECONFIG, "no run to report on: write brim report RUN...");
  if (status == BRIM_OK) status = wish.every ? follow(&operands, &wish) : report(&c, &operands, wish.path);
  brim_compare_release(&c);
  return brim_cli_end(status, &operands);
}

const brim_command brim_command_report = {
    "report", "write an HTML report of runs", run_command,
    "usage: brim report RUN... [-o FILE.html] [--every SECONDS] [--force]\n"
    "\n"
    "  brim report runs/a                             report.html: results, curves, what happened, classes,\n"
    "                                                 memory, times, environment, configuration\n"
    "  brim report runs/a --every 10                  rewrite it every 10 s, until the run has ended\n"
    "  brim report runs/a runs/b -o both.html         several runs: results side by side, curves, differing keys\n"
    "  brim report multirun/20250101-120000           the runs of a sweep\n"
    "  brim report runs                               all runs below a folder\n"
    "\n"
    "The report is one self-contained HTML file. A run writes the same file to its folder while it trains\n"
    "(observe.report_seconds) and when it ends (observe.report); this command also works for runs that were\n"
    "killed.\n",
    options};
