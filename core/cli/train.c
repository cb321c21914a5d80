/* brim train: a new run, the same again (--from), the rest of one (--resume), or many (-m). */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/run_folder.h"
#include "cli/sweep.h"
#include "config/later.h"
#include "train/run.h"
#include "train/rundir.h"

typedef struct train_options {
  const char *resume, *from;
  bool multirun, fail_fast, job;
} train_options;

static brim_status check_options(const train_options *o, const char *const *operand, size_t count)
{
  if (o->resume && o->from) return brim_fail(BRIM_ECONFIG, "--resume and --from exclude each other");
  if (o->resume && o->multirun)
    return brim_fail(BRIM_ECONFIG, "--resume goes on with one run, and --multirun starts several: leave one out");
  if (o->fail_fast && !o->multirun)
    return brim_fail(BRIM_ECONFIG, "--fail-fast ends a sweep at its first failure: add -m");
  if (o->resume && count > 0)
    return brim_fail(BRIM_ECONFIG,
                     "--resume goes on with the run's own configuration, so '%s' has no place\n"
                     "to train with another one, start a new run: brim train --from %s %s",
                     operand[0], o->resume, operand[0]);
  return BRIM_OK;
}

/* Keys of GPUs and of going on after out-of-memory may be written for other builds; one line says that they are. */
static void tell_unused(const brim_config *config)
{
  brim_text names = {0};
  const size_t count = brim_later_unused(config->root, &names);
  if (count > 0)
    brim_log(BRIM_LOG_INFO,
             "%s change%s nothing in this build: it has no GPU backend, and a plan that does not fit is refused before "
             "it starts",
             brim_text_str(&names), count == 1 ? "s" : "");
  brim_text_release(&names);
}

/* `operand` and `number` have room for one more in front. */
static brim_status train_once(const brim_cli *cli, const train_options *o, const char *file, const char **operand,
                              int *number, size_t count)
{
  brim_config *config = NULL;
  if (o->job) brim_job_follow_parent();
  if (o->resume && brim_run_is_finished(o->resume)) {
    brim_log(BRIM_LOG_INFO, "'%s' is finished; its results are in %s/summary.json", o->resume, o->resume);
    return BRIM_OK;
  }
  if (o->from) { /* the old run's folder is taken; one named on the command line comes later and wins */
    *--operand = "run.dir=";
    --number;
    count++;
  }
  BRIM_TRY(brim_cli_config(cli, file, operand, number, count, &config));
  tell_unused(config);
  const brim_run_options options = {config, o->resume, cli->quiet, cli->start};
  const brim_status status = brim_run(&options);
  brim_config_free(config);
  return status;
}

/* `exit_status` is set by a sweep, whose jobs have told what went wrong. */
static brim_status train(brim_cli *cli, int argc, char **argv, int *exit_status)
{
  train_options o = {0};
  const brim_option option[] = {{"--resume", BRIM_OPTION_STRING, &o.resume},
                                {"--from", BRIM_OPTION_STRING, &o.from},
                                {"--multirun", BRIM_OPTION_FLAG, &o.multirun},
                                {"-m", BRIM_OPTION_FLAG, &o.multirun},
                                {"--fail-fast", BRIM_OPTION_FLAG, &o.fail_fast},
                                {"--job", BRIM_OPTION_HIDDEN, &o.job}}; /* a sweep starts its jobs with it */
  const char **word = brim_xcalloc((size_t)argc + 1, sizeof *word), **operand = word + 1;
  int *word_number = brim_xcalloc((size_t)argc + 1, sizeof *word_number), *number = word_number + 1;
  size_t count = 0;
  char file[4096] = "";
  brim_status status = brim_cli_parse(argc, argv, option, sizeof option / sizeof option[0], operand, number, &count);
  if (status == BRIM_OK) status = check_options(&o, operand, count);
  if (status == BRIM_OK && (o.resume || o.from))
    status = brim_cli_run_config(o.resume ? o.resume : o.from, file, sizeof file);
  const char *run_file = file[0] ? file : NULL;
  if (status == BRIM_OK && o.multirun) {
    const brim_sweep_words_given given = {argc, argv, operand, number, count, run_file, o.fail_fast};
    *exit_status = brim_cli_sweep(cli, &given);
  } else if (status == BRIM_OK) {
    status = train_once(cli, &o, run_file, operand, number, count);
  }
  free(word);
  free(word_number);
  return status;
}

int brim_command_train(brim_cli *cli, int argc, char **argv)
{
  int exit_status = 0;
  const brim_status status = train(cli, argc, argv, &exit_status);
  return status == BRIM_OK ? exit_status : brim_cli_fail(status);
}
