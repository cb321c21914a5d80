/* Starts a child by fork and exec of /proc/self/exe. */
#include "cli/child.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs in the child. The words are in the parent's memory; exec copies them. The parent-death signal stays set across
 * exec. */
_Noreturn static void become(const char *const *argv, int orphaned, pid_t parent)
{
  prctl(PR_SET_PDEATHSIG, orphaned);
  if (getppid() != parent) _exit(BRIM_CHILD_NOT_STARTED); /* the parent ended before the signal was requested */
  setpgid(0, 0);
  execv("/proc/self/exe", (char *const *)argv);
  _exit(BRIM_CHILD_NOT_STARTED);
}

pid_t brim_child_start(const char *const *argv, int orphaned, void (*prepare)(void *), void *context)
{
  signal(SIGCHLD, SIG_DFL); /* if the signal is ignored, the child's exit status is lost */
  fflush(NULL);             /* without this, both processes would write the buffered output */
  const pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    prepare(context);
    become(argv, orphaned, parent);
  }
  const int reason = errno;
  if (pid > 0) setpgid(pid, pid); /* in both processes, so that it is set by the one that runs first */
  errno = reason;
  return pid;
}

void brim_child_wait(pid_t pid)
{
  siginfo_t info;
  while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) continue;
}

brim_status brim_child_reap(pid_t pid, int *status)
{
  while (waitpid(pid, status, 0) != pid)
    if (errno != EINTR)
      return brim_fail(BRIM_EIO, "cannot get the exit status of a child process: %s", strerror(errno));
  return BRIM_OK;
}
