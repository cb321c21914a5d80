/* This program again, as a child process: a job of a sweep, or what tries a plugin. */
#ifndef BRIM_CLI_CHILD_H
#define BRIM_CLI_CHILD_H
#include <sys/types.h>

#include "brim/status.h"

#define BRIM_CHILD_NOT_STARTED 127 /* its exit status if the program could not be started: the shell's */

/* Starts the program with these words (argv[0] first, ending in NULL), in a process group of its own, so that a
 * terminal's signals reach only the parent. If the parent ends before it, the child gets the signal `orphaned`. First
 * the child calls prepare(context); what is buffered for writing is written before. -1 with errno: there is no child.
 * SIGCHLD is as it is by default from then on. */
pid_t brim_child_start(const char *const *argv, int orphaned, void (*prepare)(void *), void *context);
/* Waits for the child's end, and leaves it its number, which is its group's too, until it is reaped. */
void brim_child_wait(pid_t pid);
/* Takes how it has ended, as waitpid says that. EIO if that cannot be told. */
brim_status brim_child_reap(pid_t pid, int *status);
#endif
