/* A job of a sweep: this program as a child process, so that no state of one run (memory, threads, a device) affects
 * the next. One at a time. */
#ifndef BRIM_CLI_SWEEP_JOB_H
#define BRIM_CLI_SWEEP_JOB_H
#include "brim/status.h"

typedef struct brim_job_end {
  int exit_status; /* -1: killed by `signal` */
  int signal;
  double seconds;
} brim_job_end;

/* Passes SIGINT and SIGTERM to the running job from here to brim_jobs_end: the first makes it write a checkpoint and
 * end, the second ends it at once. */
void brim_jobs_begin(void);
void brim_jobs_end(void);
/* The signal that requested the end; 0: none. */
int brim_jobs_stop_signal(void);
/* Runs the program with these words (argv[0] first, ending in NULL) and waits for its end. EIO if it cannot be started,
 * EINTERRUPTED if a signal requested the end before. */
brim_status brim_job_run(const char *const *argv, brim_job_end *out);
#endif
