/* See interrupt.h.
 *
 * A pid alone names the process that has it now, which may be another one, and every user can write to the board. So a
 * descriptor (pidfd) holds the process while brim_live_list compares its slot with the kernel: who started it, when,
 * and that it holds the lock of the slot. The signal goes to the descriptor: if the process has ended meanwhile, no
 * process gets it. */
#include "monitor/interrupt.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "memory/live.h"

static bool is_published(int64_t pid, double started)
{
  brim_live_entry *entry = brim_xcalloc(BRIM_BOARD_SLOTS, sizeof *entry);
  size_t count = 0;
  bool found = false;
  if (brim_live_list(entry, &count) != BRIM_OK) count = 0;
  for (size_t i = 0; i < count && !found; i++)
    found = entry[i].trust == BRIM_LIVE_GOOD && entry[i].is_mine && entry[i].of.pid == pid &&
            entry[i].of.started >= started && entry[i].of.started <= started;
  free(entry);
  return found;
}

brim_status brim_interrupt(int64_t pid, double started)
{
  if (pid <= 1 || pid > INT_MAX || pid == getpid()) return brim_fail(BRIM_EINVAL, "pid %lld is no run", (long long)pid);
  const int held = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
  if (held < 0)
    return brim_fail(BRIM_EINVAL, errno == ESRCH ? "the run has ended" : "cannot hold the run's process: %s",
                     strerror(errno));
  brim_status status = BRIM_OK;
  if (!is_published(pid, started))
    status = brim_fail(BRIM_EINVAL, "process %lld is not a run of yours on this host", (long long)pid);
  else if (syscall(SYS_pidfd_send_signal, held, SIGINT, NULL, 0) != 0)
    status =
        brim_fail(BRIM_EINVAL, errno == ESRCH ? "the run has ended" : "cannot interrupt the run: %s", strerror(errno));
  close(held);
  return status;
}
