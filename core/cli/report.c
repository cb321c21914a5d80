/* brim report: a run as a page to look at, or several runs side by side. */
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

int brim_command_report(brim_cli *cli, int argc, char **argv)
{
  (void)cli;
  const char *path = BRIM_REPORT_NAME;
  bool force = false;
  const brim_option option[] = {{"-o", BRIM_OPTION_STRING, &path, "FILE.html", "where to; without it report.html"},
                                {"--force", BRIM_OPTION_FLAG, &force, NULL, BRIM_CLI_FORCE_HELP}};
  brim_comparison c = {0};
  brim_operands operands;
  brim_status status = brim_cli_parse(argc, argv, option, sizeof option / sizeof option[0], &operands);
  if (status == BRIM_OK) status = brim_cli_check_output(path, ".html", "a report is HTML", force);
  if (status == BRIM_OK) status = report(&c, operands.word, operands.count, path);
  brim_compare_release(&c);
  return brim_cli_end(status, &operands);
}
