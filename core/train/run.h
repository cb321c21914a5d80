/* A whole run: from a configuration to a finished run folder. */
#ifndef BRIM_TRAIN_RUN_H
#define BRIM_TRAIN_RUN_H
#include "config/config.h"
#include "dist/dist.h"

typedef struct brim_run_options {
  brim_config *config;                 /* files of the backend are copied to the run, and named there */
  const char *resume;                  /* folder of the run to go on with; NULL: a new run */
  bool quiet;                          /* no progress */
  double start;                        /* brim_now() when the process began */
  brim_dist *dist;                     /* the job that this process is a rank of; NULL: it is alone */
  void (*write_page)(const char *run); /* about the run, into its folder, when it has ended; NULL: none */
} brim_run_options;

/* Trains to the end, evaluates, and writes the summary. EINTERRUPTED after SIGINT or SIGTERM, when a checkpoint of the
 * last commit has been written; a second signal ends the process at once (train/stop.h). All ranks of a job end alike:
 * with the status of the first that has failed, which is the one whose message is shown. ECOMM: ranks are missing; what
 * is left of the job is to be given up. */
brim_status brim_run(const brim_run_options *options);
/* Does the summary of a run's folder say that it went to its end? A folder without a summary has not. */
bool brim_run_is_finished(const char *dir);
#endif
