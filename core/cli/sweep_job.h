/* Runs a job of a sweep as a child process of this program, so that no state of one run (memory, threads, a device)
 * affects the next. One job at a time. */
#ifndef BRIM_CLI_SWEEP_JOB_H
#define BRIM_CLI_SWEEP_JOB_H
#include "brim/status.h"

typedef struct brim_job_end {
  int exit_status; /* -1: killed by `signal` */
  int signal;
  double seconds;
} brim_job_end;

/* Passes SIGINT and SIGTERM to the running job, until brim_jobs_end: the first signal makes it write a checkpoint and
 * end, the second ends it at once. */
void brim_jobs_begin(void);
void brim_jobs_end(void);
/* The signal that requested the end of the sweep; 0: none. */
int brim_jobs_stop_signal(void);
/* Runs the program with these words (argv[0] first, ended by NULL) and waits for its end. EIO if it cannot be started,
 * EINTERRUPTED if a signal has already requested the end. */
brim_status brim_job_run(const char *const *argv, brim_job_end *out);
#endif
