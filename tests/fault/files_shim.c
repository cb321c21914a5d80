/* Preloaded into brim, this makes the file system fail, or the process die, at a chosen moment. It counts the calls
 * that change something below one folder (creating, writing, syncing, renaming, linking, deleting). The environment
 * sets:
 *
 *   BRIM_FILES_FOLDER      only paths that contain this text count
 *   BRIM_FILES_KILL_AT     n: SIGKILL at the n-th change (from 1); in the middle of it if it is a write
 *   BRIM_FILES_FULL_AFTER  n: the disk is full after n bytes: a write beyond that is short, then ENOSPC
 *   BRIM_FILES_REPORT      a file to which a normal exit writes the number of changes
 *
 * The calls go to the kernel directly, so nothing here depends on the order of libraries. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_BYTES 8192
#define SHIM __attribute__((visibility("default")))

static atomic_long changes, bytes_written;

static long number_of(const char *variable)
{
  const char *text = getenv(variable);
  return text ? strtol(text, NULL, 10) : -1;
}

static bool is_watched(const char *path)
{
  const char *folder = getenv("BRIM_FILES_FOLDER");
  return folder && strstr(path, folder);
}

/* Finds the path of an open descriptor; "" if it is unknown. */
static void path_of(int fd, char *out)
{
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, out, PATH_BYTES - 1);
  out[n > 0 ? n : 0] = '\0';
}

static bool is_watched_at(int folder, const char *name)
{
  char path[PATH_BYTES], whole[2 * PATH_BYTES];
  if (name[0] == '/') return is_watched(name);
  if (folder != AT_FDCWD)
    path_of(folder, path);
  else if (!getcwd(path, sizeof path))
    return false;
  snprintf(whole, sizeof whole, "%s/%s", path, name);
  return is_watched(whole);
}

static bool is_watched_fd(int fd)
{
  char path[PATH_BYTES];
  path_of(fd, path);
  return is_watched(path);
}

/* Counts a change; true if the process must die at it. */
static bool count_change(void)
{
  return atomic_fetch_add(&changes, 1) + 1 == number_of("BRIM_FILES_KILL_AT");
}

static void die(void)
{
  kill(getpid(), SIGKILL);
  for (;;) pause(); /* the signal may arrive a moment later */
}

static void change(bool watched)
{
  if (watched && count_change()) die();
}

__attribute__((destructor)) static void report(void)
{
  char text[32];
  const char *name = getenv("BRIM_FILES_REPORT");
  if (!name) return;
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  const int length = snprintf(text, sizeof text, "%ld\n", atomic_load(&changes));
  if (fd >= 0 && syscall(SYS_write, fd, text, (size_t)length) != length) abort();
}

/* ---- functions that brim calls ---- */

static int open_file(int folder, const char *path, int flags, mode_t mode)
{
  change((flags & O_CREAT) && is_watched_at(folder, path));
  return (int)syscall(SYS_openat, folder, path, flags, mode);
}

SHIM int open(const char *path, int flags, ...)
{
  va_list list;
  va_start(list, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
  va_end(list);
  return open_file(AT_FDCWD, path, flags, mode);
}

SHIM int openat(int folder, const char *path, int flags, ...)
{
  va_list list;
  va_start(list, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
  va_end(list);
  return open_file(folder, path, flags, mode);
}

/* Returns the part of `bytes` that still fits on the disk. */
static size_t room_for(size_t bytes)
{
  const long limit = number_of("BRIM_FILES_FULL_AFTER");
  const long before = atomic_fetch_add(&bytes_written, (long)bytes);
  if (limit < 0 || before + (long)bytes <= limit) return bytes;
  return before < limit ? (size_t)(limit - before) : 0;
}

SHIM ssize_t write(int fd, const void *data, size_t bytes)
{
  if (!is_watched_fd(fd)) return syscall(SYS_write, fd, data, bytes);
  if (count_change()) {
    syscall(SYS_write, fd, data, bytes / 2);
    die();
  }
  const size_t room = room_for(bytes);
  if (room == 0 && bytes > 0) {
    errno = ENOSPC;
    return -1;
  }
  return syscall(SYS_write, fd, data, room);
}

SHIM ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
  if (is_watched_fd(fd) && count_change()) {
    syscall(SYS_pwrite64, fd, data, bytes / 2, offset);
    die();
  }
  return syscall(SYS_pwrite64, fd, data, bytes, offset);
}

SHIM int fsync(int fd)
{
  change(is_watched_fd(fd));
  return (int)syscall(SYS_fsync, fd);
}

SHIM int ftruncate(int fd, off_t length)
{
  change(is_watched_fd(fd));
  return (int)syscall(SYS_ftruncate, fd, length);
}

SHIM int rename(const char *from, const char *to)
{
  change(is_watched_at(AT_FDCWD, from));
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

SHIM int symlink(const char *target, const char *path)
{
  change(is_watched_at(AT_FDCWD, path));
  return (int)syscall(SYS_symlinkat, target, AT_FDCWD, path);
}

SHIM int unlink(const char *path)
{
  change(is_watched_at(AT_FDCWD, path));
  return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

SHIM int unlinkat(int folder, const char *name, int flags)
{
  change(is_watched_at(folder, name));
  return (int)syscall(SYS_unlinkat, folder, name, flags);
}

SHIM int rmdir(const char *path)
{
  change(is_watched_at(AT_FDCWD, path));
  return (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

SHIM int mkdir(const char *path, mode_t mode)
{
  change(is_watched_at(AT_FDCWD, path));
  return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}
