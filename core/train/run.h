/* A whole run, from a configuration to a finished run folder. */
#ifndef BRIM_TRAIN_RUN_H
#define BRIM_TRAIN_RUN_H
#include "config/config.h"
#include "dist/dist.h"

typedef struct brim_run_options {
  brim_config *config; /* the run copies the backend's files, and replaces their paths here by those of the copies */
  const char *resume;  /* folder of the run to resume; NULL: a new run */
  bool quiet;          /* no progress */
  double start;        /* brim_now() when the process began */
  brim_dist *dist;     /* the job of which this process is a rank; NULL: a single process */
  void (*write_page)(const char *run); /* writes the report page into the run's folder after the run; may be NULL */
  /* Rewrites the page every `seconds`, in the background, until write_page; may be NULL. */
  void (*follow_page)(const char *run, double seconds);
} brim_run_options;

/* Trains to the end, evaluates, and writes the summary. EINTERRUPTED after SIGINT or SIGTERM, when a checkpoint of the
 * last commit is written; a second signal ends the process at once (train/stop.h). All ranks of a job return the status
 * of the first rank that failed, and only that rank prints its message. ECOMM: ranks are missing; the caller must end
 * the rest of the job (brim_dist_give_up). */
brim_status brim_run(const brim_run_options *options);
/* Whether the summary in a run's folder says that the run finished; false without a summary. */
bool brim_run_is_finished(const char *dir);
#endif
