/* Starting the ranks of a job on this machine, by mpirun or, between GPUs where there is no MPI, by brim itself; and
 * looking after them until all have ended: signals reach every rank once, one rank's death ends all with one message
 * that names it, and nothing is left running, however this process ends. Meanwhile it does nothing else. */
#ifndef BRIM_LAUNCH_LAUNCH_H
#define BRIM_LAUNCH_LAUNCH_H
#include <stdbool.h>

#include "config/config.h"

typedef struct brim_rank_launch {
  int32_t ranks;      /* 1: nothing is to be started, this process trains */
  char mpirun[4096];  /* its file; empty: brim starts the ranks */
  char folder[4096];  /* of the run; empty: a new one, of which nothing is known until the ranks tell */
  double end_seconds; /* that ranks may take to begin, and to end when the first has ended */
} brim_rank_launch;

/* [init] What dist.ranks comes to in this process. ELOAD if ranks are to be started, and there is nothing that can. */
brim_status brim_launch_plan(const brim_config *config, const char *resume, brim_rank_launch *out);
/* [init] Starts the program again, so many times, with these words (word[0] is its name; ending in NULL), and waits. OK
 * if the ranks ended in good order: *exit_status is theirs, of which they have said why. ECOMM, EIO: they could not be
 * started, or one was lost. The run's folder is in `launch` then, if they have told it. A second signal, or one before
 * they began, ends this process by itself. */
brim_status brim_launch_run(brim_rank_launch *launch, const char *const *word, int *exit_status);
#endif
