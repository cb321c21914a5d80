/* brim train: a new run, the same again (--from), or the rest of one (--resume). */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "train/run.h"
#include "train/rundir.h"

/* The resolved configuration in a run's folder. */
static brim_status config_of_run(const char *run, char *path, size_t room)
{
  const int length = snprintf(path, room, "%s/config.yaml", run);
  if (length < 0 || (size_t)length >= room) return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", run);
  if (access(path, R_OK) == 0) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s' is not the folder of a run: it has no readable config.yaml", run);
}

static brim_status train(brim_cli *cli, int argc, char **argv)
{
  const char *resume = NULL, *from = NULL;
  const brim_option option[] = {{"--resume", BRIM_OPTION_STRING, &resume}, {"--from", BRIM_OPTION_STRING, &from}};
  const char **word = brim_xcalloc((size_t)argc + 1, sizeof *word), **operand = word + 1;
  int *word_number = brim_xcalloc((size_t)argc + 1, sizeof *word_number), *number = word_number + 1;
  size_t count = 0;
  char file[4096] = "";
  brim_config *config = NULL;
  brim_status status = brim_cli_parse(argc, argv, option, sizeof option / sizeof option[0], operand, number, &count);
  if (status == BRIM_OK && resume && from) status = brim_fail(BRIM_ECONFIG, "--resume and --from exclude each other");
  if (status == BRIM_OK && resume && count > 0)
    status = brim_fail(BRIM_ECONFIG,
                       "--resume goes on with the run's own configuration, so '%s' has no place\n"
                       "to train with another one, start a new run: brim train --from %s %s",
                       operand[0], resume, operand[0]);
  if (status == BRIM_OK && (resume || from)) status = config_of_run(resume ? resume : from, file, sizeof file);
  if (from) { /* the old run's folder is taken; one named on the command line comes later and wins */
    *--operand = "run.dir=";
    --number;
    count++;
  }
  if (status == BRIM_OK && resume && brim_run_is_finished(resume))
    brim_log(BRIM_LOG_INFO, "'%s' is finished; its results are in %s/summary.json", resume, resume);
  else if (status == BRIM_OK)
    status = brim_cli_config(cli, file[0] ? file : NULL, operand, number, count, &config);
  if (config) {
    const brim_run_options options = {config, resume, cli->quiet, cli->start};
    status = brim_run(&options);
    brim_config_free(config);
  }
  free(word);
  free(word_number);
  return status;
}

int brim_command_train(brim_cli *cli, int argc, char **argv)
{
  const brim_status status = train(cli, argc, argv);
  return status == BRIM_OK ? 0 : brim_cli_fail(status);
}
