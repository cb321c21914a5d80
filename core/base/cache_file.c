/* Cache files: see brim_cache_begin (brim/host.h). A process locks the file that it is writing, so an unlocked one was
 * left by a killed process. Names contain no process numbers: containers that share a cache may all use the same
 * ones. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "brim/host.h"

#define ASIDE ".brim-part"

int brim_cache_folder(char *out, size_t room)
{
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (cache && cache[0] == '/') return snprintf(out, room, "%s/brim", cache);
  if (home && home[0] == '/') return snprintf(out, room, "%s/.cache/brim", home);
  return -1;
}

/* Whether the file is still at `path`: another process may have renamed or removed it between opening and locking. */
static bool is_there(int fd, const char *path)
{
  struct stat own, there;
  return fstat(fd, &own) == 0 && stat(path, &there) == 0 && own.st_ino == there.st_ino && own.st_dev == there.st_dev;
}

/* Opens and locks the file. -1 with errno; EWOULDBLOCK: another process has locked it. */
static int open_locked(const char *aside, int flags)
{
  for (;;) {
    const int fd = open(aside, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0666);
    if (fd < 0) return -1;
    const bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
    const int reason = errno;
    if (locked && is_there(fd, aside)) return fd;
    close(fd);
    errno = reason;
    if (!locked && reason != EINTR) return -1;
  }
}

/* Removes files that killed processes left in the folder of `path`; `own` is this process's temporary file. */
static void remove_left(const char *path, const char *own)
{
  char folder[BRIM_PATH_MAX], aside[BRIM_PATH_MAX];
  const char *slash = strrchr(path, '/');
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 2, slash ? path : "./");
  DIR *names = opendir(folder);
  for (const struct dirent *entry; names && (entry = readdir(names));) {
    if (!brim_ends_with(entry->d_name, ASIDE) || strcmp(entry->d_name, own) == 0) continue;
    if (snprintf(aside, sizeof aside, "%s%s", folder, entry->d_name) >= BRIM_PATH_MAX) continue;
    const int fd = open_locked(aside, 0);
    if (fd < 0) continue;
    unlink(aside);
    close(fd);
  }
  if (names) closedir(names);
}

static bool aside_of(const char *path, char out[BRIM_PATH_MAX])
{
  const int length = snprintf(out, BRIM_PATH_MAX, "%s" ASIDE, path);
  return length > 0 && length < BRIM_PATH_MAX;
}

brim_status brim_cache_begin(const char *path, int *fd)
{
  char aside[BRIM_PATH_MAX];
  *fd = -1;
  if (!aside_of(path, aside)) return brim_fail(BRIM_EIO, "the path '%.200s...' is too long", path);
  BRIM_TRY(brim_make_folders_for(path));
  *fd = open_locked(aside, O_CREAT);
  if (*fd < 0 && errno == EWOULDBLOCK) return BRIM_OK;
  if (*fd < 0) return brim_fail(BRIM_EIO, "cannot make '%s': %s", aside, strerror(errno));
  const char *slash = strrchr(aside, '/');
  remove_left(path, slash ? slash + 1 : aside);
  const brim_status status = brim_file_set_length(*fd, aside, 0);
  if (status != BRIM_OK) (void)brim_cache_end(path, fd, false);
  return status;
}

/* Closes the file last, because that releases the lock, and without the lock another process may use the same name. */
brim_status brim_cache_end(const char *path, int *fd, bool keep)
{
  char aside[BRIM_PATH_MAX];
  brim_status status = BRIM_OK;
  if (*fd < 0) return BRIM_OK;
  (void)aside_of(path, aside); /* fits, as it did in brim_cache_begin */
  if (keep) status = brim_file_sync(*fd, aside);
  if (keep && status == BRIM_OK && rename(aside, path) != 0)
    status = brim_fail(BRIM_EIO, "cannot rename '%s': %s", aside, strerror(errno));
  if (!keep || status != BRIM_OK) unlink(aside);
  close(*fd);
  *fd = -1;
  return status;
}
