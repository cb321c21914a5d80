/* Gives commands access to a run's folder. */
#ifndef BRIM_CLI_RUN_FOLDER_H
#define BRIM_CLI_RUN_FOLDER_H
#include <stddef.h>

#include "brim/status.h"
#include "cli/cli.h"

/* Writes the path of the resolved configuration. ELOAD if the folder is not a run's; ECONFIG if --config-name names
 * another configuration, which would have no effect. */
brim_status brim_cli_run_config(const brim_cli *cli, const char *run, char *path, size_t room);
/* Returns ECONFIG if one of `count` overrides is model.weights and the model does not wrap a frozen one: a checkpoint
 * then contains all parameters, so the word would have no effect. */
brim_status brim_cli_refuse_weights(const char *run, const brim_config *config, const char *const *word, size_t count);
/* Compares the configuration with its state at the start of the run. Returns ECONFIG if the user edited a value that
 * affects training; warns if sources.yaml, which records that state, cannot be read. */
brim_status brim_cli_check_edits(const brim_cli *cli, const char *run, const brim_config *now);
/* Writes the folder of the checkpoint that `which` names: "best", "last", the name of one of the run's checkpoints, or
 * a path; NULL: the best if the run has one, else the last. Resolves links. ELOAD if there is no such checkpoint. */
brim_status brim_cli_run_checkpoint(const char *run, const char *which, char *path, size_t room);
/* Prints the federations in `folder`, one per line: runs, and the runs of sweeps. ELOAD if the folder cannot be
 * listed. */
brim_status brim_cli_list_runs(const char *folder);
#endif
