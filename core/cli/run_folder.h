/* Access to a run's folder for commands. */
#ifndef BRIM_CLI_RUN_FOLDER_H
#define BRIM_CLI_RUN_FOLDER_H
#include <stddef.h>

#include "brim/status.h"
#include "cli/cli.h"

/* The path of the resolved configuration. ELOAD if the folder is not a run's; ECONFIG if --config-name names another
 * configuration, which would have no effect. */
brim_status brim_cli_run_config(const brim_cli *cli, const char *run, char *path, size_t room);
/* ECONFIG if one of `count` overrides is model.weights and the model wraps no frozen one: a run's checkpoint has all of
 * its parameters, so the word would have no effect. */
brim_status brim_cli_refuse_weights(const char *run, const brim_config *config, const char *const *word, size_t count);
/* Compares the configuration with its state at the start of the run. ECONFIG if a value was edited that affects
 * training; a warning if sources.yaml, which records that state, cannot be read. */
brim_status brim_cli_check_edits(const brim_cli *cli, const char *run, const brim_config *now);
/* The folder of a checkpoint that `which` names: "best", "last", the name of one of the run's checkpoints, or a path;
 * NULL: the best if the run has one, else the last. Links are resolved. ELOAD if there is no such checkpoint. */
brim_status brim_cli_run_checkpoint(const char *run, const char *which, char *path, size_t room);
/* Prints the federations in `folder`, one per line: runs, and the runs of sweeps. ELOAD if it cannot be listed. */
brim_status brim_cli_list_runs(const char *folder);
#endif
