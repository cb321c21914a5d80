#include "memory/board.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"

#define DEFAULT_FOLDER "/dev/shm/brim"
#define LOOK_SECONDS_MIN 0.0002 /* time between two attempts to lock the table */
#define LOOK_SECONDS_MAX 0.01
#define OPENS_MAX 100 /* limit for attempts to open a file that others keep removing */

/* The start of the file. The slots follow, each preceded by a byte that is 1 if the slot is in use. */
typedef struct header {
  uint64_t magic, slot_bytes, slots;
} header;

/* The locked bytes lie far beyond the end of the file, which is allowed. One is shared by all users of the file, one is
 * for the table, and the others are for the slots. */
#define LOCK_USERS (LOCK_TABLE - 1)
#define LOCK_TABLE ((off_t)1 << 40)
#define LOCK_SLOTS (LOCK_TABLE + 1)

static char chosen_folder[PATH_MAX];

const char *brim_shared_folder(void)
{
  const char *named = getenv("BRIM_CLAIMS_DIR");
  if (chosen_folder[0]) return chosen_folder;
  return named && named[0] ? named : DEFAULT_FOLDER;
}

void brim_shared_folder_set(const char *dir)
{
  snprintf(chosen_folder, sizeof chosen_folder, "%s", dir);
}

void brim_process_name(char *out, size_t room)
{
  (void)brim_file_start("/proc/self/comm", out, room);
  out[strcspn(out, "\n")] = '\0';
}

/* Makes a folder with the permissions of /tmp: everyone may add files, but only a file's owner may remove it. In an
 * existing folder other users must not be able to replace files; if this user owns the folder, it is made sticky. */
static brim_status make_folder(const char *folder)
{
  struct stat link, info;
  if (mkdir(folder, 0777) == 0) {
    if (chmod(folder, 01777) != 0)
      return brim_fail(BRIM_EIO, "cannot open '%s' to all users: %s", folder, strerror(errno));
    return BRIM_OK;
  }
  if (errno != EEXIST)
    return brim_fail(
        BRIM_EIO,
        "cannot make '%s', where processes share their claims: %s\nset claims.dir or BRIM_CLAIMS_DIR to another folder",
        folder, strerror(errno));
  if (lstat(folder, &link) != 0 || stat(folder, &info) != 0)
    return brim_fail(BRIM_EIO, "cannot stat '%s': %s", folder, strerror(errno));
  const bool links_away = S_ISLNK(link.st_mode) && link.st_uid != geteuid() && link.st_uid != 0;
  const bool is_open = S_ISDIR(info.st_mode) && (info.st_mode & S_IWOTH) && !(info.st_mode & S_ISVTX);
  const char *why = !S_ISDIR(info.st_mode) ? "it is not a folder"
                    : links_away           ? "it is a symbolic link of another user"
                    : is_open && chmod(folder, (info.st_mode & 07777) | S_ISVTX) != 0
                        ? "its sticky bit is not set, so every user may replace its files"
                        : NULL;
  if (!why) return BRIM_OK;
  return brim_fail(BRIM_EIO,
                   "'%s' cannot hold the claims of processes: %s\nset claims.dir or BRIM_CLAIMS_DIR to another folder",
                   folder, why);
}

static off_t place_of(const brim_board *b, size_t slot)
{
  return (off_t)(sizeof(header) + slot * (b->slot_bytes + 1));
}

static bool lock_bytes(int fd, short type, off_t at)
{
  struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
  int result;
  do {
    result = fcntl(fd, F_OFD_SETLK, &lock);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

/* Whether other processes have locked a byte of a range; `bytes` 0: up to the end of the file. */
static bool is_locked_by_others(int fd, off_t at, off_t bytes)
{
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = bytes};
  return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static brim_status read_at(const brim_board *b, off_t at, void *data, size_t bytes)
{
  const ssize_t n = pread(b->fd, data, bytes, at);
  if (n == (ssize_t)bytes) return BRIM_OK;
  return brim_fail(BRIM_EIO, "cannot read the claims of processes in '%s': %s", b->path,
                   n < 0 ? strerror(errno) : "the file is too short");
}

static brim_status write_at(const brim_board *b, off_t at, const void *data, size_t bytes)
{
  const ssize_t n = pwrite(b->fd, data, bytes, at);
  if (n == (ssize_t)bytes) return BRIM_OK;
  return brim_fail(BRIM_EIO, "cannot write claims to '%s': %s", b->path, n < 0 ? strerror(errno) : "no space left");
}

static brim_status write_slot(const brim_board *b, size_t slot, const void *data)
{
  const char used = 1;
  BRIM_TRY(write_at(b, place_of(b, slot) + 1, data, b->slot_bytes));
  return write_at(b, place_of(b, slot), &used, 1);
}

/* ---- the table ---- */

/* Writes this process's slots again if they are missing. */
static brim_status write_own(const brim_board *b)
{
  for (size_t i = 0; i < BRIM_BOARD_SLOTS; i++) {
    char used = 0;
    if (!b->own[i]) continue;
    BRIM_TRY(read_at(b, place_of(b, i), &used, 1));
    if (!used) BRIM_TRY(write_slot(b, i, b->own[i]));
  }
  return BRIM_OK;
}

/* The first process fills an empty file with free slots. It does the same with a file of another version of brim that
 * no process uses any more. If a table was valid before and is not any more, it was damaged. */
static brim_status check_table(brim_board *b)
{
  const header own = {b->magic, b->slot_bytes, BRIM_BOARD_SLOTS};
  struct stat info;
  header found = {0};
  if (fstat(b->fd, &info) != 0) return brim_fail(BRIM_EIO, "cannot stat '%s': %s", b->path, strerror(errno));
  if (info.st_size >= (off_t)sizeof found) BRIM_TRY(read_at(b, 0, &found, sizeof found));
  const bool is_good = memcmp(&found, &own, sizeof own) == 0;
  if (is_good && info.st_size >= place_of(b, BRIM_BOARD_SLOTS)) {
    b->is_known = true;
    return write_own(b); /* writes this process's slots again, because another process may have repaired the table */
  }
  if (!is_good && !b->is_known && info.st_size >= (off_t)sizeof found && is_locked_by_others(b->fd, LOCK_SLOTS, 0))
    return brim_fail(BRIM_ELOAD,
                     "'%s' is in use by another version of brim, or damaged\nwait until its runs have ended, or choose "
                     "another claims.dir",
                     b->path);
  /* Everything after the kept bytes becomes free slots, except those of this process. */
  const off_t keep = is_good || b->is_known ? info.st_size : 0;
  b->is_known = true;
  if (ftruncate(b->fd, keep) != 0 || ftruncate(b->fd, place_of(b, BRIM_BOARD_SLOTS)) != 0)
    return brim_fail(BRIM_EIO, "cannot make '%s': %s", b->path, strerror(errno));
  BRIM_TRY(write_at(b, 0, &own, sizeof own));
  return write_own(b);
}

/* ---- the holder of the lock ---- */

/* Whether a file of /proc/PID/fdinfo lists the lock of a byte, in a line such as "lock:     1: OFDLCK ADVISORY WRITE -1
 * 00:1a:42 1099511627776 1099511627776". */
static bool has_lock(const char *path, ino_t file, off_t byte)
{
  char line[256], inode[32], at[32];
  bool has = false;
  FILE *info = fopen(path, "re");
  if (!info) return false;
  snprintf(inode, sizeof inode, ":%llu ", (unsigned long long)file);
  snprintf(at, sizeof at, " %lld ", (long long)byte);
  while (!has && fgets(line, sizeof line, info))
    has = brim_starts_with(line, "lock:") && strstr(line, " WRITE ") && strstr(line, inode) && strstr(line, at);
  fclose(info);
  return has;
}

static bool is_holder(const char *pid, ino_t file)
{
  char path[320];
  bool has = false;
  snprintf(path, sizeof path, "/proc/%s/fdinfo", pid);
  DIR *folder = opendir(path);
  for (struct dirent *entry; folder && !has && (entry = readdir(folder));) {
    if (entry->d_name[0] == '.') continue;
    char name[600];
    snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
    has = has_lock(name, file, LOCK_TABLE);
  }
  if (folder) closedir(folder);
  return has;
}

/* Returns the holder's process id, or 0 if it belongs to another user or container. */
static int64_t find_holder(int fd)
{
  struct stat info;
  int64_t pid = 0;
  DIR *folder = fstat(fd, &info) == 0 ? opendir("/proc") : NULL;
  for (struct dirent *entry; folder && pid == 0 && (entry = readdir(folder));)
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && is_holder(entry->d_name, info.st_ino))
      pid = strtoll(entry->d_name, NULL, 10);
  if (folder) closedir(folder);
  return pid;
}

/* ---- opening ---- */

/* Uses O_CREAT only if the file is missing, because systems may refuse it for another user's file in a sticky
 * folder. */
static int open_file(const char *path)
{
  const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  int fd = open(path, flags);
  if (fd < 0 && errno == ENOENT) fd = open(path, flags | O_CREAT | O_EXCL, 0666);
  return fd < 0 && errno == EEXIST ? open(path, flags) : fd;
}

/* Tries to open the file. *removed: another process removed it in the meantime. */
static brim_status open_once(brim_board *b, bool *removed)
{
  struct stat info;
  *removed = false;
  b->fd = open_file(b->path);
  if (b->fd < 0) return brim_fail(BRIM_EIO, "cannot open '%s': %s", b->path, strerror(errno));
  if (fstat(b->fd, &info) != 0) return brim_fail(BRIM_EIO, "cannot stat '%s': %s", b->path, strerror(errno));
  if (!S_ISREG(info.st_mode) || info.st_nlink > 1)
    return brim_fail(BRIM_EIO, "'%s' %s\nremove it, or choose another claims.dir", b->path,
                     S_ISREG(info.st_mode) ? "has other hard links" : "is not a regular file");
  (void)fchmod(b->fd, 0666); /* independent of the umask; another user's file already has this mode */
  BRIM_TRY(brim_board_lock(b));
  *removed = fstat(b->fd, &info) == 0 && info.st_nlink == 0;
  lock_bytes(b->fd, F_RDLCK, LOCK_USERS);
  brim_board_unlock(b);
  return BRIM_OK;
}

brim_status brim_board_open(brim_board *b, const char *name, uint64_t magic, size_t slot_bytes, double seconds)
{
  bool removed = true;
  *b = (brim_board){.fd = -1, .magic = magic, .slot_bytes = slot_bytes, .seconds = seconds};
  pthread_mutex_init(&b->threads, NULL);
  BRIM_TRY(make_folder(brim_shared_folder()));
  if (snprintf(b->path, sizeof b->path, "%s/%s", brim_shared_folder(), name) >= (int)sizeof b->path)
    return brim_fail(BRIM_EIO, "the path of '%s' is too long", brim_shared_folder());
  brim_status status = BRIM_OK;
  for (int i = 0; i < OPENS_MAX && removed && status == BRIM_OK; i++) {
    if (b->fd >= 0) close(b->fd);
    status = open_once(b, &removed);
  }
  if (status != BRIM_OK && b->fd >= 0) {
    close(b->fd);
    b->fd = -1;
  }
  return status;
}

/* Removes a board that no process has open. */
static void tidy_file(const char *path, uint64_t magic)
{
  header found;
  struct stat info;
  const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return;
  const bool is_board = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                        pread(fd, &found, sizeof found, 0) == (ssize_t)sizeof found && found.magic == magic;
  if (is_board && lock_bytes(fd, F_WRLCK, LOCK_TABLE) && !is_locked_by_others(fd, LOCK_USERS, 1) &&
      !is_locked_by_others(fd, LOCK_SLOTS, 0))
    unlink(path);
  close(fd);
}

/* Closing the descriptor releases the locks, and so also the slots that could not be cleared without the table's
 * lock. */
void brim_board_close(brim_board *b)
{
  if (b->fd < 0) return;
  const bool is_locked = brim_board_lock(b) == BRIM_OK;
  for (size_t i = 0; i < BRIM_BOARD_SLOTS; i++) {
    if (b->own[i] && is_locked) (void)brim_board_clear(b, i);
    free(b->own[i]);
    b->own[i] = NULL;
  }
  if (is_locked) brim_board_unlock(b);
  close(b->fd);
  b->fd = -1;
  pthread_mutex_destroy(&b->threads);
}

void brim_board_close_and_tidy(brim_board *b, const char *ending)
{
  const uint64_t magic = b->magic;
  if (b->fd < 0) return;
  brim_board_close(b);
  DIR *folder = opendir(brim_shared_folder());
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    char path[PATH_MAX];
    if (!brim_ends_with(entry->d_name, ending)) continue;
    if (snprintf(path, sizeof path, "%s/%s", brim_shared_folder(), entry->d_name) < (int)sizeof path)
      tidy_file(path, magic);
  }
  if (folder) closedir(folder);
}

/* ---- the lock ---- */

static bool wait_for_table(brim_board *b)
{
  const double patience = b->is_lost && b->seconds > BRIM_BOARD_GLANCE ? BRIM_BOARD_GLANCE : b->seconds;
  const double end = brim_now() + patience;
  for (double pause = LOOK_SECONDS_MIN; !lock_bytes(b->fd, F_WRLCK, LOCK_TABLE); pause *= 2) {
    if (errno != EAGAIN && errno != EACCES) return false;
    if (brim_now() >= end) {
      errno = ETIMEDOUT;
      return false;
    }
    if (pause > LOOK_SECONDS_MAX) pause = LOOK_SECONDS_MAX;
    nanosleep(&(struct timespec){0, (long)(1e9 * pause)}, NULL);
  }
  return true;
}

brim_status brim_board_lock(brim_board *b)
{
  sigset_t before, stops; /* blocked, so that a process cannot be suspended from its terminal while it holds the lock */
  sigemptyset(&stops);
  sigaddset(&stops, SIGTSTP);
  sigaddset(&stops, SIGTTIN);
  sigaddset(&stops, SIGTTOU);
  pthread_mutex_lock(&b->threads);
  pthread_sigmask(SIG_BLOCK, &stops, &before);
  b->is_lost = !wait_for_table(b);
  const int reason = errno;
  if (!b->is_lost) {
    b->signals = before;
    const brim_status status = check_table(b);
    if (status != BRIM_OK) brim_board_unlock(b);
    return status;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_mutex_unlock(&b->threads);
  if (reason != ETIMEDOUT) return brim_fail(BRIM_EIO, "cannot lock '%s': %s", b->path, strerror(reason));
  const int64_t pid = find_holder(b->fd);
  if (pid == 0)
    return brim_fail(BRIM_EIO, "'%s' has been locked for more than %g s by a process of another user or container",
                     b->path, b->seconds);
  const bool stopped = brim_process_is_stopped(pid);
  brim_fail(BRIM_EIO, "'%s' has been locked for more than %g s by process %" PRId64 "%s", b->path, b->seconds, pid,
            stopped ? ", which is stopped" : "");
  return stopped ? brim_fail_add(BRIM_EIO, "`kill -CONT %" PRId64 "` continues it", pid) : BRIM_EIO;
}

void brim_board_unlock(brim_board *b)
{
  const sigset_t before = b->signals;
  lock_bytes(b->fd, F_UNLCK, LOCK_TABLE);
  pthread_mutex_unlock(&b->threads);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- slots ---- */

bool brim_board_is_free(const brim_board *b, size_t slot)
{
  return !b->own[slot] && !is_locked_by_others(b->fd, LOCK_SLOTS + (off_t)slot, 1);
}

brim_status brim_board_read(brim_board *b, size_t slot, void *data, bool *alive)
{
  char used = 0;
  *alive = b->own[slot] != NULL;
  if (*alive) { /* this process's own slot: its copy is right even if other processes have overwritten the slot */
    memcpy(data, b->own[slot], b->slot_bytes);
    return BRIM_OK;
  }
  BRIM_TRY(read_at(b, place_of(b, slot), &used, 1));
  if (!used) return BRIM_OK;
  if (brim_board_is_free(b, slot)) {
    used = 0;
    return write_at(b, place_of(b, slot), &used, 1);
  }
  *alive = true;
  return read_at(b, place_of(b, slot) + 1, data, b->slot_bytes);
}

brim_status brim_board_write(brim_board *b, size_t slot, const void *data)
{
  if (!b->own[slot]) {
    void *copy = brim_try_malloc(b->slot_bytes);
    if (!copy) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a slot of '%s'", b->path);
    if (!lock_bytes(b->fd, F_WRLCK, LOCK_SLOTS + (off_t)slot)) {
      free(copy);
      return brim_fail(BRIM_EINTERNAL, "attempt to write a slot of '%s' that another process owns", b->path);
    }
    b->own[slot] = copy;
  }
  memcpy(b->own[slot], data, b->slot_bytes);
  return write_slot(b, slot, data);
}

brim_status brim_board_clear(brim_board *b, size_t slot)
{
  const char used = 0;
  const brim_status status = write_at(b, place_of(b, slot), &used, 1);
  free(b->own[slot]);
  b->own[slot] = NULL;
  lock_bytes(b->fd, F_UNLCK, LOCK_SLOTS + (off_t)slot);
  return status;
}

/* ---- without the lock ---- */

brim_status brim_board_rewrite(brim_board *b, size_t slot, const void *data)
{
  char used = 1;
  memcpy(b->own[slot], data, b->slot_bytes);
  const struct iovec part[] = {{&used, 1}, {b->own[slot], b->slot_bytes}};
  const ssize_t n = pwritev(b->fd, part, 2, place_of(b, slot));
  if (n == (ssize_t)b->slot_bytes + 1) return BRIM_OK;
  return brim_fail(BRIM_EIO, "cannot write to '%s': %s", b->path, n < 0 ? strerror(errno) : "no space left");
}

bool brim_board_is_whole(const brim_board *b)
{
  const header own = {b->magic, b->slot_bytes, BRIM_BOARD_SLOTS};
  struct stat info;
  header found;
  return fstat(b->fd, &info) == 0 && info.st_nlink > 0 && info.st_size >= place_of(b, BRIM_BOARD_SLOTS) &&
         pread(b->fd, &found, sizeof found, 0) == (ssize_t)sizeof found && memcmp(&found, &own, sizeof own) == 0;
}

bool brim_board_is_owner(const brim_board *b, size_t slot, int64_t pid, int fd)
{
  char path[64];
  struct stat info;
  if (b->own[slot]) return pid == getpid();
  snprintf(path, sizeof path, "/proc/%" PRId64 "/fdinfo/%d", pid, fd);
  return fstat(b->fd, &info) == 0 && has_lock(path, info.st_ino, LOCK_SLOTS + (off_t)slot);
}
