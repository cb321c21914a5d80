/* brim report: makes an HTML page of a run, or of several runs side by side. */
#include <stdio.h>

#include "base/log.h"
#include "cli/cli.h"
#include "report/page.h"
#include "store/rundir.h"

static brim_status report(brim_comparison *c, const char *const *dir, size_t count, const char *path)
{
  brim_text text = {0};
  if (count == 0) return brim_fail(BRIM_ECONFIG, "no run to report on: write brim report RUN...");
  for (size_t i = 0; i < count; i++) BRIM_TRY(brim_compare_add(c, dir[i]));
  if (c->count == 0) return brim_fail(BRIM_ELOAD, "'%s' has no run that started", dir[0]);
  brim_compare_finish(c);
  brim_page_print(c, &text);
  const brim_status status = brim_file_write_atomic(path, brim_text_str(&text), text.length);
  brim_text_release(&text);
  if (status == BRIM_OK) brim_say("report in %s", path);
  return status;
}

typedef struct wishes {
  const char *path;
  bool force;
} wishes;

static const brim_option options[] = {
    {"-o", BRIM_CLI_STRING(wishes, path), "FILE.html", "output file (default: report.html)"},
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
  if (status == BRIM_OK) status = report(&c, operands.word, operands.count, wish.path);
  brim_compare_release(&c);
  return brim_cli_end(status, &operands);
}

const brim_command brim_command_report = {
    "report", "write an HTML report of runs", run_command,
    "usage: brim report RUN... [-o FILE.html] [--force]\n"
    "\n"
    "  brim report runs/a                             report.html: results, curves, epochs, confusion matrix,\n"
    "                                                 memory, events, configuration\n"
    "  brim report runs/a runs/b -o both.html         several runs: results side by side, curves, differing keys\n"
    "  brim report multirun/20250101-120000           the runs of a sweep\n"
    "  brim report runs                               all runs below a folder\n"
    "\n"
    "The report is one self-contained HTML file. A run writes the same file to its folder when it ends\n"
    "(observe.report); this command also works for runs that are in progress or were killed.\n",
    options};
