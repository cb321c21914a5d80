/* See interrupt.h.
 *
 * A pid alone names whatever process has it now, and the board is open to all users. So the process is held by a
 * descriptor (pidfd) first, and checked while it is held:
 *   - a slot of this user says that it is a run, with the time at which the process started (brim_live_list);
 *   - it has the board open, as every process with a slot has; another user can forge a slot, but cannot open the board
 *     in this user's processes, whose descriptors the kernel shows to this user.
 * The signal then goes to the descriptor: if the process has ended meanwhile, nobody gets it. */
#include "monitor/interrupt.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "memory/live.h"

#define BOARD_NAME "runs" /* see memory/live.h */

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

/* Whether the process has the board of runs open. */
static bool has_board(int64_t pid)
{
  char path[PATH_MAX], folder[64];
  struct stat board, file;
  bool found = false;
  snprintf(path, sizeof path, "%s/%s", brim_shared_folder(), BOARD_NAME);
  snprintf(folder, sizeof folder, "/proc/%lld/fd", (long long)pid);
  DIR *files = stat(path, &board) == 0 ? opendir(folder) : NULL;
  if (!files) return false;
  for (const struct dirent *one = readdir(files); one && !found; one = readdir(files))
    found =
        fstatat(dirfd(files), one->d_name, &file, 0) == 0 && file.st_dev == board.st_dev && file.st_ino == board.st_ino;
  closedir(files);
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
  if (!is_published(pid, started) || !has_board(pid))
    status = brim_fail(BRIM_EINVAL, "process %lld is not a run of yours on this host", (long long)pid);
  else if (syscall(SYS_pidfd_send_signal, held, SIGINT, NULL, 0) != 0)
    status =
        brim_fail(BRIM_EINVAL, errno == ESRCH ? "the run has ended" : "cannot interrupt the run: %s", strerror(errno));
  close(held);
  return status;
}
