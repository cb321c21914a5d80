/* Starts the ranks of a job on this machine, through mpirun or, between GPUs without MPI, directly, and supervises them
 * until all have ended: signals reach every rank once, the loss of one rank ends all with one message that names it,
 * and nothing is left running, however this process ends. This process does nothing else meanwhile. */
#ifndef BRIM_LAUNCH_LAUNCH_H
#define BRIM_LAUNCH_LAUNCH_H
#include <stdbool.h>

#include "config/config.h"
#include "launch/isolate.h"

typedef struct brim_rank_launch {
  int32_t ranks;           /* 1: nothing is started, this process trains */
  char mpirun[4096];       /* its path; empty: brim starts the ranks */
  char folder[4096];       /* of the run; empty: a new one, unknown until the ranks report it */
  brim_isolated *isolated; /* [ranks] of processes of clients; NULL: the ranks are alike. The caller frees it */
  double end_seconds;      /* limit for ranks to start, and to end once the first has ended */
} brim_rank_launch;

/* [init] Writes the path of a program on the PATH. False: there is none. */
bool brim_launch_find_program(const char *name, char *out, size_t room);
/* [init] Decides how many ranks this process starts, and how. ELOAD if it cannot start them. */
brim_status brim_launch_plan(const brim_config *config, const char *resume, brim_rank_launch *out);
/* [init] Starts the program launch->ranks times with these words (word[0] is its name; NULL-terminated) and waits. OK
 * if the ranks ended in good order: *exit_status is theirs, and they have reported the reason. ECOMM, EIO: they could
 * not be started, or one was lost; launch->folder then holds the run's folder if they have reported it. A second
 * signal, or one before the ranks have started, ends this process. */
brim_status brim_launch_run(brim_rank_launch *launch, const char *const *word, int *exit_status);
#endif
