/* Run folders. They are made once and locked by one process, and their small files are replaced atomically. See
 * rundir.h. */
#include "store/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "store/checkpoint.h"

#define ATTEMPTS_MAX 1000 /* limit for runs with the same name that start in the same second */

/* Writes the folder part of a path, "." if it has none; returns the last part. */
static const char *split(const char *path, char *folder)
{
  const char *slash = strrchr(path, '/');
  if (!slash) {
    snprintf(folder, BRIM_PATH_MAX, ".");
    return path;
  }
  const int length = slash == path ? 1 : (int)(slash - path);
  snprintf(folder, BRIM_PATH_MAX, "%.*s", length, path);
  return slash + 1;
}

brim_status brim_path_aside(const char *path, char *folder, char *aside)
{
  const char *name = split(path, folder);
  const int length = snprintf(aside, BRIM_PATH_MAX, "%s/.%s.tmp", folder, name);
  if (length >= 0 && length < BRIM_PATH_MAX) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "path '%.200s...' is longer than %d bytes", path, BRIM_PATH_MAX - 8);
}

static brim_status rename_aside(const char *aside, const char *path)
{
  if (rename(aside, path) == 0) return BRIM_OK;
  const brim_status status = brim_fail(BRIM_EIO, "cannot replace '%s': %s", path, strerror(errno));
  unlink(aside);
  return status;
}

brim_status brim_file_publish(const char *aside, const char *path, const char *folder)
{
  BRIM_TRY(rename_aside(aside, path));
  return brim_folder_sync(folder);
}

brim_status brim_file_replace(const char *path, const char *text, size_t bytes)
{
  char folder[BRIM_PATH_MAX], aside[BRIM_PATH_MAX];
  BRIM_TRY(brim_path_aside(path, folder, aside));
  BRIM_TRY(brim_file_write(aside, text, bytes));
  return rename_aside(aside, path);
}

brim_status brim_file_write_atomic(const char *path, const char *text, size_t bytes)
{
  char folder[BRIM_PATH_MAX];
  BRIM_TRY(brim_file_replace(path, text, bytes));
  (void)split(path, folder);
  return brim_folder_sync(folder);
}

/* ---- is it a run? ---- */

static const char *const marks[] = {"config.yaml", BRIM_RUN_LOCK_NAME, "sources.yaml", "metrics.jsonl", "summary.json"};

bool brim_is_run_mark(const char *name)
{
  for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
    if (strcmp(name, marks[i]) == 0) return true;
  return false;
}

static bool is_file(int parent, const char *folder, const char *name, int flags)
{
  char path[BRIM_PATH_MAX];
  struct stat info;
  if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
  return fstatat(parent, path, &info, flags) == 0 && S_ISREG(info.st_mode);
}

bool brim_is_run(int parent, const char *folder, int flags)
{
  errno = 0;
  if (!is_file(parent, folder, marks[0], flags)) {
    if (errno != EACCES) errno = ENOENT;
    return false;
  }
  for (size_t i = 1; i < sizeof marks / sizeof marks[0]; i++)
    if (is_file(parent, folder, marks[i], flags)) return true;
  errno = ENOENT;
  return false;
}

/* ---- a new run's folder ---- */

/* Names that a run writes in its folder; from run_names[FIRST_OTHER] on, names that other programs use too. */
enum { FIRST_OTHER = 4 };
static const char *const run_names[] = {
    "config.yaml",        "metrics.jsonl", BRIM_CHECKPOINTS_NAME, "summary.json",      "sources.yaml", "overrides.yaml",
    "plugins.json",       "plan.json",     "events.jsonl",        "data.json",         "weights.json", "profile.jsonl",
    "participants.jsonl", "report.html",   "states.bin",          "environment.jsonl", "buffers.json"};

const char *brim_run_resume_words(const char *path)
{
  char file[BRIM_PATH_MAX];
  struct stat info;
  const bool is_federation = brim_path_join(file, path, BRIM_RUN_PARTITION_NAME) == BRIM_OK && stat(file, &info) == 0;
  return is_federation ? "brim federate --resume" : "brim train --resume";
}

static brim_status fail_taken(const char *dir, size_t mark)
{
  if (mark >= FIRST_OTHER)
    return brim_fail(BRIM_ECONFIG,
                     "'%s' already has a file %s, which the run would overwrite\nset another run.dir, or none", dir,
                     run_names[mark]);
  return brim_fail(
      BRIM_ECONFIG,
      "'%s' already holds a run (it has %s)\nto resume it: %s %s\nfor a new run, set another run.dir, or none", dir,
      run_names[mark], brim_run_resume_words(dir), BRIM_QUOTED(dir));
}

static brim_status create_given(const char *dir)
{
  char path[BRIM_PATH_MAX];
  struct stat info;
  BRIM_TRY(brim_path_join(path, dir, BRIM_RUN_LOCK_NAME));
  const bool was_begun = lstat(path, &info) == 0; /* a run that ended before it had a configuration leaves this file */
  const size_t count = was_begun ? FIRST_OTHER : sizeof run_names / sizeof run_names[0];
  for (size_t i = 0; i < count; i++) {
    BRIM_TRY(brim_path_join(path, dir, run_names[i]));
    if (lstat(path, &info) == 0 && (i < FIRST_OTHER || !S_ISDIR(info.st_mode))) return fail_taken(dir, i);
  }
  return brim_make_folders(dir);
}

brim_status brim_run_check_dir(const char *dir)
{
  char real[PATH_MAX], here[PATH_MAX];
  /* The folder does not exist yet, so it cannot be the working folder or a parent of it. */
  if (!dir[0] || !realpath(dir, real) || !getcwd(here, sizeof here)) return BRIM_OK;
  const size_t length = strcmp(real, "/") == 0 ? 0 : strlen(real);
  if (strncmp(here, real, length) != 0 || (here[length] != '/' && here[length] != '\0')) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG,
                   "run.dir=%s is %s: a run needs its own folder\nchoose a new one, such as run.dir=runs/first", dir,
                   length == 0    ? "the root folder"
                   : here[length] ? "a folder above the working folder"
                                  : "the working folder");
}

brim_status brim_format_stamp(char *out)
{
  struct tm local;
  const time_t now = time(NULL);
  if (localtime_r(&now, &local) && strftime(out, BRIM_STAMP_BYTES, "%Y%m%d-%H%M%S", &local) > 0) return BRIM_OK;
  return brim_fail(BRIM_EINTERNAL, "cannot convert the current time to a date: %s", strerror(errno));
}

brim_status brim_make_stamped_folder(const char *before, char *path, size_t room)
{
  char stamp[BRIM_STAMP_BYTES];
  BRIM_TRY(brim_format_stamp(stamp));
  for (int i = 1; i <= ATTEMPTS_MAX; i++) {
    char number[16] = "";
    if (i > 1) snprintf(number, sizeof number, "-%d", i);
    const int length = snprintf(path, room, "%s%s%s", before, stamp, number);
    if (length < 0 || (size_t)length >= room)
      return brim_fail(BRIM_ECONFIG, "'%.100s...' is too long for the name of a folder", before);
    if (mkdir(path, 0777) == 0) return BRIM_OK;
    if (errno != EEXIST) return brim_make_folders(path); /* reports the reason */
  }
  return brim_fail(BRIM_EIO, "cannot make folder '%s': %d with that name exist", path, ATTEMPTS_MAX);
}

static brim_status create_named(const char *name, char *path, size_t room)
{
  char before[BRIM_PATH_MAX];
  const int length = snprintf(before, sizeof before, "runs/%s-", name);
  if (length < 0 || (size_t)length >= sizeof before)
    return brim_fail(BRIM_ECONFIG, "run.name '%.100s...' is too long", name);
  BRIM_TRY(brim_make_folders("runs"));
  return brim_make_stamped_folder(before, path, room);
}

brim_status brim_run_create(const char *dir, const char *name, char *path, size_t room)
{
  if (dir && dir[0]) {
    BRIM_TRY(brim_run_check_dir(dir));
    const int length = snprintf(path, room, "%s", dir);
    if (length < 0 || (size_t)length >= room || length >= BRIM_PATH_MAX)
      return brim_fail(BRIM_ECONFIG, "run.dir '%.100s...' is too long", dir);
    return create_given(dir);
  }
  if (!name[0] || name[0] == '.' || strchr(name, '/'))
    return brim_fail(BRIM_ECONFIG,
                     "run.name '%s' cannot name a folder: it must not be empty, start with '.' or contain '/'\n"
                     "to put the run somewhere else, set run.dir",
                     name);
  return create_named(name, path, room);
}

/* ---- the lock ---- */

/* Removes files that a killed process was writing, but only with brim's own names, because the folder may have existed
 * before the run. */
static void remove_asides(const char *path)
{
  char file[BRIM_PATH_MAX], folder[BRIM_PATH_MAX], aside[BRIM_PATH_MAX];
  for (size_t i = 0; i < sizeof run_names / sizeof run_names[0]; i++)
    if (brim_path_join(file, path, run_names[i]) == BRIM_OK && brim_path_aside(file, folder, aside) == BRIM_OK)
      unlink(aside);
}

long brim_run_lock_holder(int fd)
{
  char text[32] = "";
  const ssize_t n = pread(fd, text, sizeof text - 1, 0);
  return n > 0 ? strtol(text, NULL, 10) : 0;
}

bool brim_run_lock_take(int fd)
{
  enum { TRIES = 10 };
  const struct timespec pause = {.tv_nsec = 10000000};
  for (int i = 0; i < TRIES; i++) {
    if (i > 0) nanosleep(&pause, NULL);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK) return false;
  }
  errno = EWOULDBLOCK;
  return false;
}

bool brim_run_is_open(const char *path)
{
  char name[BRIM_PATH_MAX];
  if (brim_path_join(name, path, BRIM_RUN_LOCK_NAME) != BRIM_OK) return false;
  const int lock = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (lock < 0) return false;
  const bool is_open = flock(lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(lock);
  return is_open;
}

brim_status brim_run_lock(const char *path, int *fd)
{
  char name[BRIM_PATH_MAX];
  BRIM_TRY(brim_path_join(name, path, BRIM_RUN_LOCK_NAME));
  const int lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (lock < 0 && (errno == ENOENT || errno == ENOTDIR)) return brim_fail(BRIM_EINVAL, "no run folder '%s'", path);
  if (lock < 0) return brim_fail(BRIM_EIO, "cannot open the run's lock '%s': %s", name, brim_open_reason(errno));
  if (brim_run_lock_take(lock)) {
    char text[32];
    const int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (pwrite(lock, text, (size_t)length, 0) != length || ftruncate(lock, length) != 0)
      brim_log(BRIM_LOG_DEBUG, "cannot write this process's id to the run's lock: %s", strerror(errno));
    remove_asides(path);
    *fd = lock;
    return BRIM_OK;
  }
  brim_status status;
  char holder[48] = "";
  if (errno == EWOULDBLOCK) {
    const long pid = brim_run_lock_holder(lock);
    if (pid > 0) snprintf(holder, sizeof holder, " (process %ld)", pid);
    status = brim_fail(BRIM_EINVAL, "run '%s' is in use by another brim%s: wait for it or stop it", path, holder);
  } else {
    status = brim_fail(BRIM_EIO, "cannot lock '%s': %s", name, strerror(errno));
  }
  close(lock);
  return status;
}
