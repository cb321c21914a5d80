/* Starts the ranks of a job on this machine, through mpirun or, between GPUs without MPI, directly, and supervises them
 * until all have ended: signals reach every rank once; if one rank is lost, all end, with one message that names it;
 * and no process is left running, however this process ends. The launcher does nothing else meanwhile. */
#ifndef BRIM_LAUNCH_LAUNCH_H
#define BRIM_LAUNCH_LAUNCH_H
#include <stdbool.h>

#include "config/config.h"
#include "launch/isolate.h"

typedef struct brim_rank_launch {
  int32_t ranks;     /* 1: no ranks are started, and this process trains */
  char mpirun[4096]; /* path of mpirun; empty: brim starts the ranks itself */
  char folder[4096]; /* the run's folder; empty: a new one, unknown until the ranks report it */
  brim_isolated
      *isolated; /* [ranks] names and devices of clients' processes; NULL: all ranks are alike. The caller frees it */
  double end_seconds; /* limit for the ranks to start, and for the others to end after the first has ended */
} brim_rank_launch;

/* [init] Writes the path of a program that is on the PATH. False: there is none. */
bool brim_launch_find_program(const char *name, char *out, size_t room);
/* [init] Decides how many ranks this process starts, and how. ELOAD if it cannot start them. */
brim_status brim_launch_plan(const brim_config *config, const char *resume, brim_rank_launch *out);
/* [init] Starts the program launch->ranks times with these words (word[0] is its name; NULL-terminated) and waits. OK
 * if all ranks ended on their own: *exit_status is theirs, and they have printed the reason. ECOMM, EIO: the ranks
 * could not be started, or one was lost; launch->folder is then the run's folder, if they have reported it. A second
 * signal, or one before the ranks have started, ends this process. */
brim_status brim_launch_run(brim_rank_launch *launch, const char *const *word, int *exit_status);
#endif
