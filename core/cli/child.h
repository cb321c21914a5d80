/* Starts this program again as a child process: a job of a sweep, or the child of `brim check`. */
#ifndef BRIM_CLI_CHILD_H
#define BRIM_CLI_CHILD_H
#include <sys/types.h>

#include "brim/status.h"

#define BRIM_CHILD_NOT_STARTED 127 /* exit status of a child whose program could not be started, as in shells */

/* Starts this program with these words (argv[0] first, ended by NULL) in its own process group, so that a terminal's
 * signals reach only the parent. If the parent ends first, the child gets the signal `orphaned`. Flushes all streams
 * before; the child first calls prepare(context). Resets SIGCHLD to its default. Returns -1 with errno if the child
 * could not be made. */
pid_t brim_child_start(const char *const *argv, int orphaned, void (*prepare)(void *), void *context);
/* Waits for the child's end without reaping it, so that its process and group number stay valid. */
void brim_child_wait(pid_t pid);
/* Reaps the child and returns its wait status (see waitpid). EIO on failure. */
brim_status brim_child_reap(pid_t pid, int *status);
#endif
