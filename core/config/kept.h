/* The configuration that a run's folder keeps. It is read again from any working directory, and it is a text file that
 * anyone can edit: what was trained so far must not be gone on with as if it had been edited from the first step. */
#ifndef BRIM_CONFIG_KEPT_H
#define BRIM_CONFIG_KEPT_H
#include "config/config.h"

/* Makes the relative paths of the tree (not of the parameters) absolute, but for run.dir, which a run that is made from
 * this one does not take over. */
brim_status brim_config_anchor_paths(brim_config *config);
/* Compares the configuration of run folder `run` as it is with what it was when the run began. ECONFIG naming every key
 * whose value was changed and changes what is trained. Others (dataset.path, threads, how often a checkpoint is
 * written, ...) may be, and so may the cut of a step into micro-batches. */
brim_status brim_config_check_edits(const brim_config *was, const brim_config *now, const char *run);
#endif
