/* See checkpoint_choose.h. */
#include "store/checkpoint_choose.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "store/checkpoint.h"

#define WAIT_NANOSECONDS 1000000 /* time between checks of a checkpoint that is being deleted */
#define WAITS_MAX 2000           /* maximum number of checks: the deleting process may have been stopped */

/* Resolves <folder>/<name> if it is a checkpoint. A name that is too long does not exist. */
static bool resolve(const char *folder, const char *name, char *path, size_t room)
{
  char joined[PATH_MAX], state[PATH_MAX + 16], real[PATH_MAX];
  const int length = snprintf(joined, sizeof joined, "%s%s%s", folder, folder[0] ? "/" : "", name);
  if (length < 0 || (size_t)length >= sizeof joined || !realpath(joined, real)) return false;
  snprintf(state, sizeof state, "%s/" BRIM_CHECKPOINT_STATE_NAME, real);
  if (access(state, F_OK) != 0 || strlen(real) >= room) return false;
  snprintf(path, room, "%s", real);
  return true;
}

/* Takes a lock that brim_checkpoint_lock_to_delete detects. False: the training run is deleting the checkpoint. On file
 * systems without locks this takes none. */
static bool take_hold(const char *path, int *hold)
{
  char state[PATH_MAX + 16];
  snprintf(state, sizeof state, "%s/" BRIM_CHECKPOINT_STATE_NAME, path);
  *hold = brim_open_to_read(state);
  if (*hold < 0) return errno != ENOENT;
  const bool refused = flock(*hold, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!refused && access(state, F_OK) == 0) return true;
  close(*hold);
  *hold = -1;
  return false;
}

/* Reads the target of a link; empty if it is not a link. */
static void read_link(const char *folder, const char *name, char target[PATH_MAX])
{
  char joined[PATH_MAX];
  const int length = snprintf(joined, sizeof joined, "%s/%s", folder, name);
  const ssize_t n = length < PATH_MAX ? readlink(joined, target, PATH_MAX - 1) : -1;
  target[n > 0 ? n : 0] = '\0';
}

/* The run changes the link before it deletes the link's old target, so a dangling link is an error only if it does
 * not change. */
static bool choose(const char *folder, const char *name, char *path, size_t room, int *hold)
{
  char before[PATH_MAX], after[PATH_MAX];
  for (int i = 0; i < WAITS_MAX; i++) {
    read_link(folder, name, before);
    const bool found = resolve(folder, name, path, room);
    if (found && take_hold(path, hold)) return true;
    read_link(folder, name, after);
    if (!found && strcmp(before, after) == 0) return false;
    if (found) nanosleep(&(struct timespec){.tv_nsec = WAIT_NANOSECONDS}, NULL);
  }
  return resolve(folder, name, path, room);
}

int brim_checkpoint_lock_to_delete(const char *path)
{
  char state[PATH_MAX + 16];
  snprintf(state, sizeof state, "%s/" BRIM_CHECKPOINT_STATE_NAME, path);
  const int lock = brim_open_to_read(state);
  if (lock < 0) return BRIM_CHECKPOINT_FREE;
  if (flock(lock, LOCK_EX | LOCK_NB) == 0) return lock;
  const bool held = errno == EWOULDBLOCK;
  close(lock);
  return held ? BRIM_CHECKPOINT_HELD : BRIM_CHECKPOINT_FREE;
}

brim_status brim_checkpoint_choose(const char *run, const char *which, char *path, size_t room, int *hold)
{
  char folder[PATH_MAX];
  *hold = -1;
  const int length = snprintf(folder, sizeof folder, "%s/" BRIM_CHECKPOINTS_NAME, run);
  if (length < 0 || (size_t)length >= sizeof folder) return brim_fail(BRIM_EINVAL, "path '%.100s...' is too long", run);
  if (!which && (choose(folder, "best", path, room, hold) || choose(folder, "last", path, room, hold))) return BRIM_OK;
  if (!which) return brim_fail(BRIM_ELOAD, "'%s' has no checkpoint yet", run);
  if (choose(folder, which, path, room, hold)) return BRIM_OK;
  if (strcmp(which, "best") == 0)
    return brim_fail(BRIM_ELOAD, "'%s' has no best checkpoint\na run has one if it holds out validation data: %s", run,
                     "dataset.validation_fraction");
  if (strcmp(which, "last") == 0) return brim_fail(BRIM_ELOAD, "'%s' has no checkpoint yet", run);
  if (choose("", which, path, room, hold)) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "no checkpoint '%s'\nlooked for '%s/%s' and '%s'", which, folder, which, which);
}
