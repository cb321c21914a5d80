/* brim train -m, and repeats=N: runs the jobs of a sweep, one after another. */
#ifndef BRIM_CLI_SWEEP_H
#define BRIM_CLI_SWEEP_H
#include "cli/cli.h"
#include "cli/sweep_job.h"
#include "config/sweep.h"
#include "store/summary.h"

enum brim_job_state { BRIM_JOB_WAITING, BRIM_JOB_FINISHED, BRIM_JOB_FAILED, BRIM_JOB_KILLED, BRIM_JOB_INTERRUPTED };

typedef struct brim_sweep_job {
  enum brim_job_state state;
  bool refused; /* the job's configuration is invalid, so the job was not started */
  brim_job_end end;
  brim_summary summary;
} brim_sweep_job;

typedef struct brim_sweep_run {
  brim_arena arena;
  brim_sweep sweep;
  int64_t repeats;     /* consecutive jobs that differ only in their seed */
  brim_sweep_job *job; /* [sweep.jobs]; a job's number is its index */
  char folder[4096];   /* the sweep's folder; a job's is <folder>/<number> */
  double start;        /* brim_now() */
} brim_sweep_run;

typedef struct brim_sweep_words_given {
  int argc; /* the number of all words of the command */
  char **argv;
  const char *const *operand; /* the overrides among them, and the position of each */
  const int *number;
  size_t count;
  const char *from_file; /* the resolved configuration of --from; NULL: none */
  bool fail_fast;
} brim_sweep_words_given;

/* Runs the sweep; returns the exit status. */
int brim_cli_sweep(brim_cli *cli, const brim_sweep_words_given *given);

/* A job's swept overrides, separated by spaces, without overrides that all jobs share. */
const char *brim_sweep_label(brim_sweep_run *run, size_t job);
const char *brim_sweep_state_name(enum brim_job_state state); /* "finished" */
const char *brim_sweep_signal_name(brim_sweep_run *run,
                                   int number); /* The name of a signal: "SIGKILL", or "signal 34" if it has none. */
/* Writes sweep.json, with all results so far, to the sweep's folder. */
brim_status brim_sweep_write(brim_sweep_run *run);
/* Prints the table of jobs on standard output. */
void brim_sweep_print(brim_sweep_run *run);
/* Returns 0 if all jobs finished; 6 if the sweep was stopped; if all failed jobs have the same status, that status;
 * otherwise 5. */
int brim_sweep_exit_status(const brim_sweep_run *run);
#endif
