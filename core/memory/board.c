#include "memory/board.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_FOLDER "/dev/shm/brim"

/* At the start of the file; then the slots, each with a byte in front that is 1 if it is in use. */
typedef struct header {
  uint64_t magic, slot_bytes, slots;
} header;

/* What is locked are bytes far behind the file's end, as locks know no end: the table's, then each slot's. */
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
  FILE *file = fopen("/proc/self/comm", "r");
  out[0] = '\0';
  if (!file) return;
  if (fgets(out, (int)room, file)) out[strcspn(out, "\n")] = '\0';
  fclose(file);
}

/* Like /tmp: everybody's, and nobody removes what is another's. */
static brim_status make_folder(const char *folder)
{
  if (mkdir(folder, 0777) == 0) {
    if (chmod(folder, 01777) != 0) return brim_fail(BRIM_EIO, "cannot open up '%s': %s", folder, strerror(errno));
    return BRIM_OK;
  }
  if (errno == EEXIST) return BRIM_OK;
  return brim_fail(BRIM_EIO,
                   "cannot make '%s', where processes share what they have claimed: %s\nclaims.dir, or "
                   "BRIM_CLAIMS_DIR, names another folder",
                   folder, strerror(errno));
}

static off_t place_of(const brim_board *b, size_t slot)
{
  return (off_t)(sizeof(header) + slot * (b->slot_bytes + 1));
}

static bool lock_bytes(int fd, short type, off_t at, bool wait)
{
  struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
  int result;
  do {
    result = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

static bool is_locked_by_others(int fd, off_t at)
{
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static brim_status read_at(const brim_board *b, off_t at, void *data, size_t bytes)
{
  const ssize_t n = pread(b->fd, data, bytes, at);
  if (n == (ssize_t)bytes) return BRIM_OK;
  return brim_fail(BRIM_EIO, "cannot read what processes have claimed in '%s': %s", brim_shared_folder(),
                   n < 0 ? strerror(errno) : "the file is too short");
}

static brim_status write_at(const brim_board *b, off_t at, const void *data, size_t bytes)
{
  const ssize_t n = pwrite(b->fd, data, bytes, at);
  if (n == (ssize_t)bytes) return BRIM_OK;
  return brim_fail(BRIM_EIO, "cannot write to '%s' what is claimed: %s", brim_shared_folder(),
                   n < 0 ? strerror(errno) : "there is no room");
}

static brim_status make_table(brim_board *b, const char *path, const header *own)
{
  if (ftruncate(b->fd, 0) != 0 || ftruncate(b->fd, place_of(b, BRIM_BOARD_SLOTS)) != 0)
    return brim_fail(BRIM_EIO, "cannot make '%s': %s", path, strerror(errno));
  return write_at(b, 0, own, sizeof *own);
}

/* Does anybody own a slot, of whichever layout? */
static bool is_used(const brim_board *b)
{
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_SLOTS, .l_len = 0};
  return fcntl(b->fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* Of an empty file the first process makes a table of free slots; so it does of one that another version of brim has
 * left, when nobody uses it any more. */
static brim_status check_header(brim_board *b, const char *path, uint64_t magic)
{
  const header own = {magic, b->slot_bytes, BRIM_BOARD_SLOTS};
  struct stat info;
  header found;
  if (fstat(b->fd, &info) != 0) return brim_fail(BRIM_EIO, "cannot look at '%s': %s", path, strerror(errno));
  if (info.st_size < (off_t)sizeof found) return make_table(b, path, &own);
  BRIM_TRY(read_at(b, 0, &found, sizeof found));
  if (memcmp(&found, &own, sizeof own) == 0) return BRIM_OK;
  if (!is_used(b)) return make_table(b, path, &own);
  return brim_fail(
      BRIM_ELOAD,
      "'%s' is in use by another version of brim\nwait until its runs have ended, or choose another claims.dir", path);
}

/* Made only where it is not there: systems forbid to open another user's file in such a folder as if to make it. */
static int open_file(const char *path)
{
  const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  int fd = open(path, flags);
  if (fd < 0 && errno == ENOENT) fd = open(path, flags | O_CREAT | O_EXCL, 0666);
  return fd < 0 && errno == EEXIST ? open(path, flags) : fd;
}

brim_status brim_board_open(brim_board *b, const char *name, uint64_t magic, size_t slot_bytes)
{
  char path[PATH_MAX];
  *b = (brim_board){.fd = -1, .slot_bytes = slot_bytes};
  pthread_mutex_init(&b->threads, NULL);
  BRIM_TRY(make_folder(brim_shared_folder()));
  if (snprintf(path, sizeof path, "%s/%s", brim_shared_folder(), name) >= (int)sizeof path)
    return brim_fail(BRIM_EIO, "the path of '%s' is too long", brim_shared_folder());
  b->fd = open_file(path);
  if (b->fd < 0) return brim_fail(BRIM_EIO, "cannot open '%s': %s", path, strerror(errno));
  (void)fchmod(b->fd, 0666); /* whatever the mask of whoever made it; another's file is as it should be already */
  brim_status status = brim_board_lock(b);
  if (status == BRIM_OK) {
    status = check_header(b, path, magic);
    brim_board_unlock(b);
  }
  if (status != BRIM_OK) brim_board_close(b);
  return status;
}

void brim_board_close(brim_board *b)
{
  if (b->fd < 0) return;
  if (brim_board_lock(b) == BRIM_OK) {
    for (size_t i = 0; i < BRIM_BOARD_SLOTS; i++)
      if (b->own[i]) (void)brim_board_clear(b, i);
    brim_board_unlock(b);
  }
  close(b->fd);
  b->fd = -1;
  pthread_mutex_destroy(&b->threads);
}

brim_status brim_board_lock(brim_board *b)
{
  pthread_mutex_lock(&b->threads);
  if (lock_bytes(b->fd, F_WRLCK, LOCK_TABLE, true)) return BRIM_OK;
  const int reason = errno;
  pthread_mutex_unlock(&b->threads);
  return brim_fail(BRIM_EIO, "cannot lock what processes have claimed in '%s': %s", brim_shared_folder(),
                   strerror(reason));
}

void brim_board_unlock(brim_board *b)
{
  lock_bytes(b->fd, F_UNLCK, LOCK_TABLE, false);
  pthread_mutex_unlock(&b->threads);
}

brim_status brim_board_read(brim_board *b, size_t slot, void *data, bool *alive)
{
  char used = 0;
  *alive = false;
  BRIM_TRY(read_at(b, place_of(b, slot), &used, 1));
  if (!used) return BRIM_OK;
  if (!b->own[slot] && !is_locked_by_others(b->fd, LOCK_SLOTS + (off_t)slot)) {
    used = 0;
    return write_at(b, place_of(b, slot), &used, 1);
  }
  *alive = true;
  return read_at(b, place_of(b, slot) + 1, data, b->slot_bytes);
}

brim_status brim_board_write(brim_board *b, size_t slot, const void *data)
{
  const char used = 1;
  if (!b->own[slot] && !lock_bytes(b->fd, F_WRLCK, LOCK_SLOTS + (off_t)slot, false))
    return brim_fail(BRIM_EINTERNAL, "a slot of '%s' that is not free was written", brim_shared_folder());
  b->own[slot] = true;
  BRIM_TRY(write_at(b, place_of(b, slot) + 1, data, b->slot_bytes));
  return write_at(b, place_of(b, slot), &used, 1);
}

brim_status brim_board_clear(brim_board *b, size_t slot)
{
  const char used = 0;
  const brim_status status = write_at(b, place_of(b, slot), &used, 1);
  b->own[slot] = false;
  lock_bytes(b->fd, F_UNLCK, LOCK_SLOTS + (off_t)slot, false);
  return status;
}
