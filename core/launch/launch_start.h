/* Starts the processes of a launch, and ends their orphaned child processes. */
#ifndef BRIM_LAUNCH_LAUNCH_START_H
#define BRIM_LAUNCH_LAUNCH_START_H
#include <signal.h>

#include "launch/launch.h"
#include "launch/seats.h"

/* [init] Opens a socket to which mpirun's ranks connect, and sets its name in the environment. Returns -1 with an error
 * text on failure. */
int brim_launch_listen(void);
/* [init] Starts mpirun with these words; `mask`: its signal mask. Its output goes into the pipe *output, because the
 * ranks use the launcher's own streams. It gets SIGTERM if this process ends. EIO. */
brim_status brim_launch_mpirun(const brim_rank_launch *launch, const char *const *word, const sigset_t *mask,
                               pid_t *pid, int *output);
/* [init] Starts every rank, each with a connection to its seat; the system kills them if this process ends. EIO: some
 * ranks may be running. */
brim_status brim_launch_ranks(const brim_rank_launch *launch, const char *const *word, const sigset_t *mask,
                              brim_seats *seats);
/* Kills all children of this process, including adopted ones. */
void brim_launch_kill_children(void);
#endif
