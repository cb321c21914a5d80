/* See trash.h. Uses descriptors of folders that are opened without following links, so that a link in
 * place of a folder cannot redirect a move or a deletion. */
#include "store/trash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "store/rundir.h"

#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define DEPTH_MAX 64       /* folders inside each other */
#define ATTEMPTS_MAX 10000 /* limit for runs deleted in the same second */

/* ---- moving a run away ---- */

/* Splits "runs/a/" into the folder, "." if there is none, and the last part. ECONFIG for ".", ".." and "/". */
static brim_status split(const char *dir, char *folder, char *name)
{
  size_t end = strlen(dir);
  while (end > 1 && dir[end - 1] == '/') end--;
  size_t start = end;
  while (start > 0 && dir[start - 1] != '/') start--;
  if (end - start > NAME_MAX || start >= BRIM_PATH_MAX) return brim_fail(BRIM_EINVAL, "'%.100s...' is too long", dir);
  snprintf(name, NAME_MAX + 1, "%.*s", (int)(end - start), dir + start);
  if (start == 0)
    snprintf(folder, BRIM_PATH_MAX, ".");
  else
    snprintf(folder, BRIM_PATH_MAX, "%.*s", start == 1 ? 1 : (int)start - 1, dir);
  if (!name[0] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
    return brim_fail(BRIM_ECONFIG, "'%s' does not name a run: write its folder's name, such as runs/first", dir);
  return BRIM_OK;
}

/* Locks the run without writing to its lock file, whose bytes must not change. *lock is -1 if there is no such file, so
 * that no process has the run. */
static brim_status lock_run(int run, const char *dir, int *lock)
{
  *lock = openat(run, BRIM_RUN_LOCK_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (*lock < 0 && errno == ENOENT) return BRIM_OK;
  if (*lock < 0) return brim_fail(BRIM_EIO, "cannot open the lock of '%s': %s", dir, brim_open_reason(errno));
  if (brim_run_lock_take(*lock)) return BRIM_OK;
  const long pid = brim_run_lock_holder(*lock);
  close(*lock);
  *lock = -1;
  return brim_fail(BRIM_EINVAL, "'%s' is running (process %ld)\nstop it first: kill %ld", dir, pid, pid);
}

/* Opens <folder>/.trash, and creates it if needed. */
static brim_status open_trash(int folder, const char *path, bool makes, int *out)
{
  if (makes && mkdirat(folder, BRIM_TRASH_NAME, 0777) != 0 && errno != EEXIST)
    return brim_fail(BRIM_EIO, "cannot make '%s/%s': %s", path, BRIM_TRASH_NAME, strerror(errno));
  *out = openat(folder, BRIM_TRASH_NAME, FOLDER_FLAGS);
  if (*out >= 0) return BRIM_OK;
  return brim_fail(BRIM_EIO, "cannot open '%s/%s': %s", path, BRIM_TRASH_NAME,
                   errno == ELOOP || errno == ENOTDIR ? "it is a link or a file, not a folder" : strerror(errno));
}

/* Makes a separate folder for the run that is being deleted. */
static brim_status make_stamped(int trash, char *when, size_t room, int *out)
{
  char stamp[BRIM_STAMP_BYTES];
  BRIM_TRY(brim_format_stamp(stamp));
  for (int i = 1; i <= ATTEMPTS_MAX; i++) {
    snprintf(when, room, i > 1 ? "%s-%05d" : "%s", stamp, i);
    if (mkdirat(trash, when, 0777) == 0) {
      *out = openat(trash, when, FOLDER_FLAGS);
      if (*out >= 0) return BRIM_OK;
    }
    if (errno != EEXIST) break;
  }
  return brim_fail(BRIM_EIO, "cannot make a folder in the trash: %s", strerror(errno));
}

static brim_status move_away(int folder, const char *path, const char *name, const char *dir)
{
  char when[64] = "";
  int trash = -1, own = -1;
  brim_status status = open_trash(folder, path, true, &trash);
  if (status == BRIM_OK) status = make_stamped(trash, when, sizeof when, &own);
  if (status == BRIM_OK && renameat(folder, name, own, name) != 0) {
    status =
        brim_fail(BRIM_EIO, "cannot move '%s' to the trash '%s/%s': %s", dir, path, BRIM_TRASH_NAME, strerror(errno));
    unlinkat(trash, when, AT_REMOVEDIR);
  }
  if (own >= 0) close(own);
  if (trash >= 0) close(trash);
  return status;
}

/* `run`: the open folder. */
static brim_status trash_open_run(int folder, int run, const char *path, const char *name, const char *dir)
{
  int lock = -1;
  if (!brim_is_run(run, ".", AT_SYMLINK_NOFOLLOW))
    return brim_fail(BRIM_ECONFIG,
                     "'%s' is not the folder of a run: it needs a config.yaml and a file such as sources.yaml or "
                     "summary.json\nbrim deletes nothing but runs; remove other folders yourself",
                     dir);
  BRIM_TRY(lock_run(run, dir, &lock));
  const brim_status status = move_away(folder, path, name, dir);
  if (lock >= 0) close(lock);
  return status;
}

brim_status brim_trash_run(const char *dir)
{
  char path[BRIM_PATH_MAX], name[NAME_MAX + 1], whole[BRIM_PATH_MAX];
  struct stat info;
  BRIM_TRY(split(dir, path, name));
  BRIM_TRY(brim_path_join(whole, path, name)); /* without trailing slashes, which would follow a link */
  if (lstat(whole, &info) != 0) return brim_fail(BRIM_ELOAD, "there is no run '%s': %s", dir, strerror(errno));
  if (S_ISLNK(info.st_mode))
    return brim_fail(BRIM_ECONFIG, "'%s' is a link\nname the run's own folder, or remove the link with rm", dir);
  if (!S_ISDIR(info.st_mode)) return brim_fail(BRIM_ECONFIG, "'%s' is a file, not the folder of a run", dir);
  if (brim_run_check_dir(whole) != BRIM_OK)
    return brim_fail(BRIM_ECONFIG, "'%s' is the working folder, or a folder above it\ngo to another folder first", dir);
  const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return brim_fail(BRIM_ELOAD, "cannot read the folder '%s': %s", path, strerror(errno));
  const int run = openat(folder, name, FOLDER_FLAGS);
  brim_status status = BRIM_OK;
  if (run < 0)
    status = brim_fail(BRIM_ELOAD, "cannot read '%s': %s", dir, strerror(errno));
  else
    status = trash_open_run(folder, run, path, name, dir);
  if (run >= 0) close(run);
  close(folder);
  return status;
}

/* ---- the trash ---- */

/* Whether make_stamped can have given this name, because other programs may use a folder .trash too. */
static bool is_stamp(const char *name)
{
  static const char form[] = "dddddddd-dddddd-ddddd";
  size_t i = 0;
  for (; name[i] && form[i]; i++)
    if (form[i] == 'd' ? name[i] < '0' || name[i] > '9' : name[i] != form[i]) return false;
  return !name[i] && (i == 15 || !form[i]);
}

/* Returns the run in an entry of the trash, in the arena; NULL if the entry contains no run. */
static const char *run_in(brim_arena *arena, int trash, const char *when)
{
  const int fd = is_stamp(when) ? openat(trash, when, FOLDER_FLAGS) : -1;
  DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
  const char *name = NULL;
  if (!folder && fd >= 0) close(fd);
  for (const struct dirent *entry; !name && folder && (entry = readdir(folder));) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    const int run = openat(fd, entry->d_name, FOLDER_FLAGS);
    if (run >= 0 && brim_is_run(run, ".", AT_SYMLINK_NOFOLLOW)) name = brim_arena_string(arena, entry->d_name);
    if (run >= 0) close(run);
  }
  if (folder) closedir(folder);
  return name;
}

brim_status brim_trash_list(brim_arena *arena, const char *folder, brim_trashed **out, size_t *count)
{
  char path[BRIM_PATH_MAX];
  const char **when;
  size_t names;
  *out = NULL;
  *count = 0;
  BRIM_TRY(brim_path_join(path, folder, BRIM_TRASH_NAME));
  const int trash = open(path, FOLDER_FLAGS);
  if (trash < 0 && errno == ENOENT) return BRIM_OK;
  if (trash < 0) return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", path, strerror(errno));
  if (!brim_folder_names(arena, path, &when, &names)) {
    close(trash);
    return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", path, strerror(errno));
  }
  *out = BRIM_ARENA_NEW(arena, brim_trashed, names + 1);
  for (size_t i = 0; i < names; i++) {
    const char *name = run_in(arena, trash, when[i]);
    if (name) (*out)[(*count)++] = (brim_trashed){name, when[i]};
  }
  close(trash);
  return BRIM_OK;
}

brim_status brim_trash_restore(const char *folder, const brim_trashed *run)
{
  int trash = -1;
  const int to = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (to < 0) return brim_fail(BRIM_ELOAD, "cannot read the folder '%s': %s", folder, strerror(errno));
  brim_status status = open_trash(to, folder, false, &trash);
  const int own = status == BRIM_OK ? openat(trash, run->when, FOLDER_FLAGS) : -1;
  if (status == BRIM_OK && (own < 0 || renameat2(own, run->name, to, run->name, RENAME_NOREPLACE) != 0))
    status = errno == EEXIST
                 ? brim_fail(BRIM_ECONFIG, "cannot restore '%s/%s': the name is taken\nrename or delete that one first",
                             folder, run->name)
                 : brim_fail(BRIM_EIO, "cannot restore '%s/%s': %s", folder, run->name, strerror(errno));
  if (status == BRIM_OK) unlinkat(trash, run->when, AT_REMOVEDIR);
  if (own >= 0) close(own);
  if (trash >= 0) close(trash);
  close(to);
  return status;
}

/* Empties an open folder and closes it; returns 0 or the first errno. `keeps`: keeps the files that mark the folder as
 * a run, so that an incomplete deletion can be repeated. */
static int empty_folder(int fd, int depth, bool keeps)
{
  DIR *folder = fdopendir(fd);
  int problem = 0;
  if (!folder) {
    close(fd);
    return errno;
  }
  for (const struct dirent *entry; (entry = readdir(folder));) {
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || (keeps && brim_is_run_mark(name))) continue;
    const int below = openat(fd, name, FOLDER_FLAGS); /* fails for files and links */
    int reason = below < 0 ? 0 : depth < DEPTH_MAX ? empty_folder(below, depth + 1, false) : ELOOP;
    if (below >= 0 && depth >= DEPTH_MAX) close(below);
    if (unlinkat(fd, name, below >= 0 ? AT_REMOVEDIR : 0) != 0 && errno != ENOENT && !reason) reason = errno;
    if (reason && !problem) problem = reason;
  }
  closedir(folder);
  return problem;
}

brim_status brim_trash_delete(const char *folder, const brim_trashed *run)
{
  char path[BRIM_PATH_MAX];
  BRIM_TRY(brim_path_join(path, folder, BRIM_TRASH_NAME));
  const int trash = open(path, FOLDER_FLAGS), own = trash >= 0 ? openat(trash, run->when, FOLDER_FLAGS) : -1;
  int problem = own < 0 ? errno : 0;
  for (int i = 0; i < 2 && !problem; i++) {
    const int fd = openat(own, run->name, FOLDER_FLAGS);
    problem = fd < 0 ? errno : empty_folder(fd, 0, i == 0);
  }
  if (!problem && unlinkat(own, run->name, AT_REMOVEDIR) != 0) problem = errno;
  if (!problem) unlinkat(trash, run->when, AT_REMOVEDIR); /* fails if the folder contains anything else */
  if (own >= 0) close(own);
  if (trash >= 0) close(trash);
  return problem ? brim_fail(BRIM_EIO, "cannot delete all of '%s/%s': %s", path, run->when, strerror(problem))
                 : BRIM_OK;
}

static uint64_t bytes_below(int parent, const char *name, int depth)
{
  struct stat info;
  if (fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  uint64_t bytes = (uint64_t)info.st_blocks * 512;
  const int fd = S_ISDIR(info.st_mode) && depth < DEPTH_MAX ? openat(parent, name, FOLDER_FLAGS) : -1;
  DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
  if (!folder && fd >= 0) close(fd);
  for (const struct dirent *entry; folder && (entry = readdir(folder));)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      bytes += bytes_below(fd, entry->d_name, depth + 1);
  if (folder) closedir(folder);
  return bytes;
}

uint64_t brim_disk_bytes(const char *path)
{
  return bytes_below(AT_FDCWD, path, 0);
}
