/* A job of a sweep: this program again, as a child process, so that nothing of one run (memory, threads, a device's
 * state) is left for the next. One at a time. */
#ifndef BRIM_CLI_SWEEP_JOB_H
#define BRIM_CLI_SWEEP_JOB_H
#include "brim/status.h"

typedef struct brim_job_end {
  int exit_status; /* -1: killed by `signal` */
  int signal;
  double seconds;
} brim_job_end;

/* From here to brim_jobs_end, SIGINT and SIGTERM go to the job that runs: the first lets it write a checkpoint, the
 * second ends it. */
void brim_jobs_begin(void);
void brim_jobs_end(void);
/* The signal that asked for the end; 0: none. */
int brim_jobs_stop_signal(void);
/* Runs the program with these words (argv[0] first, ending in NULL) and waits for its end. EIO if it cannot be
 * started, EINTERRUPTED if a signal asked for the end before. */
brim_status brim_job_run(const char *const *argv, brim_job_end *out);
#endif
