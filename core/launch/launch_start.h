/* The processes of a launch: how they are started, and how what they leave behind is ended. */
#ifndef BRIM_LAUNCH_LAUNCH_START_H
#define BRIM_LAUNCH_LAUNCH_START_H
#include <signal.h>

#include "launch/launch.h"
#include "launch/seats.h"

/* [init] A socket that mpirun's ranks connect to, named in the environment from here on; -1 with an error text. */
int brim_launch_listen(void);
/* [init] mpirun with these words; `mask`: its signals. Its output goes into the pipe *output, since the ranks have the
 * launcher's own. It asks to end by SIGTERM if this process ends. EIO. */
brim_status brim_launch_mpirun(const brim_rank_launch *launch, const char *const *word, const sigset_t *mask,
                               pid_t *pid, int *output);
/* [init] Every rank, each with a line to its seat; killed if this process ends. EIO: some may be running. */
brim_status brim_launch_ranks(const char *const *word, const sigset_t *mask, brim_seats *seats);
/* All children of this process, whosever they were. */
void brim_launch_kill_children(void);
#endif
