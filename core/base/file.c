/* Files and folders, with every system call checked. See file.h. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* for states on the stack */
#include <xxhash.h>

#include "base/text.h"
#include "brim/host.h"

#define READ_BYTES (64 * 1024)
#define WRITE_CHUNK_BYTES ((size_t)1 << 30) /* Linux takes at most 2 GiB in one write */

brim_status brim_path_join(char *out, const char *folder, const char *name)
{
  const int length = snprintf(out, BRIM_PATH_MAX, "%s/%s", folder, name);
  if (length < 0 || length >= BRIM_PATH_MAX)
    return brim_fail(BRIM_EINVAL, "path '%.200s.../%s' is longer than %d bytes", folder, name, BRIM_PATH_MAX - 1);
  return BRIM_OK;
}

int brim_open_to_read(const char *path)
{
  struct stat info;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK has no effect on regular files */
  if (fd < 0 || (fstat(fd, &info) == 0 && (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)))) return fd;
  close(fd);
  errno = ESPIPE;
  return -1;
}

FILE *brim_fopen_to_read(const char *path)
{
  const int fd = brim_open_to_read(path);
  FILE *file = fd < 0 ? NULL : fdopen(fd, "re");
  if (fd >= 0 && !file) close(fd);
  return file;
}

size_t brim_file_start(const char *path, char *out, size_t room)
{
  size_t length = 0;
  ssize_t n = 1;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  while (fd >= 0 && length < room - 1 && (n > 0 || (n < 0 && errno == EINTR))) {
    n = read(fd, out + length, room - 1 - length);
    if (n > 0) length += (size_t)n;
  }
  if (fd >= 0) close(fd);
  out[length] = '\0';
  return length;
}

const char *brim_open_reason(int error)
{
  if (error == ESPIPE || error == ENXIO) return "it is not a file"; /* ENXIO: a pipe without a reader */
  return error == ELOOP ? "it is a symbolic link" : strerror(error);
}

brim_status brim_file_create(const char *path, int *fd)
{
  struct stat info;
  if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode)) unlink(path);
  *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (*fd < 0) return brim_fail(BRIM_EIO, "cannot create '%s': %s", path, brim_open_reason(errno));
  return BRIM_OK;
}

brim_status brim_file_write_all(int fd, const char *path, const void *data, size_t bytes)
{
  const char *from = data;
  while (bytes > 0) {
    const ssize_t n = write(fd, from, bytes < WRITE_CHUNK_BYTES ? bytes : WRITE_CHUNK_BYTES);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return brim_fail(BRIM_EIO, "cannot write '%s': %s", path, strerror(errno));
    if (n == 0) return brim_fail(BRIM_EIO, "cannot write '%s': the system accepted no more bytes", path);
    from += n;
    bytes -= (size_t)n;
  }
  return BRIM_OK;
}

brim_status brim_file_open_to_write(const char *path, int *fd)
{
  *fd = open(path, O_WRONLY | O_CLOEXEC);
  if (*fd < 0) return brim_fail(BRIM_EIO, "cannot open '%s' to write: %s", path, strerror(errno));
  return BRIM_OK;
}

brim_status brim_file_set_length(int fd, const char *path, uint64_t bytes)
{
  int result;
  do result = ftruncate(fd, (off_t)bytes);
  while (result != 0 && errno == EINTR);
  if (result == 0) return BRIM_OK;
  return brim_fail(BRIM_EIO, "cannot make '%s' %llu bytes long: %s", path, (unsigned long long)bytes, strerror(errno));
}

brim_status brim_file_create_unnamed(const char *path, uint64_t bytes, int *fd)
{
  (void)unlink(path); /* left by a process that was killed between the next two calls */
  *fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (*fd < 0) return brim_fail(BRIM_EIO, "cannot create '%s': %s", path, strerror(errno));
  (void)unlink(path);
  const brim_status status = brim_file_set_length(*fd, path, bytes);
  if (status == BRIM_OK) return BRIM_OK;
  close(*fd);
  *fd = -1;
  return status;
}

brim_status brim_file_write_at(int fd, const char *path, const void *data, size_t bytes, uint64_t offset)
{
  const char *from = data;
  while (bytes > 0) {
    const ssize_t n = pwrite(fd, from, bytes < WRITE_CHUNK_BYTES ? bytes : WRITE_CHUNK_BYTES, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return brim_fail(BRIM_EIO, "cannot write '%s': %s", path, strerror(errno));
    if (n == 0) return brim_fail(BRIM_EIO, "cannot write '%s': the system accepted no more bytes", path);
    from += n;
    offset += (uint64_t)n;
    bytes -= (size_t)n;
  }
  return BRIM_OK;
}

brim_status brim_file_read_at(int fd, const char *path, void *data, size_t bytes, uint64_t offset)
{
  char *to = data;
  while (bytes > 0) {
    const ssize_t n = pread(fd, to, bytes, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return brim_fail(BRIM_EIO, "cannot read '%s': %s", path,
                       n == 0 ? "it became shorter while brim read it" : strerror(errno));
    to += n;
    offset += (uint64_t)n;
    bytes -= (size_t)n;
  }
  return BRIM_OK;
}

/* Calls fsync again if a signal interrupts it, as may happen on network file systems. */
static int sync_fd(int fd)
{
  int result;
  do result = fsync(fd);
  while (result != 0 && errno == EINTR);
  return result;
}

brim_status brim_file_sync(int fd, const char *path)
{
  return sync_fd(fd) == 0 ? BRIM_OK : brim_fail(BRIM_EIO, "cannot sync '%s' to disk: %s", path, strerror(errno));
}

brim_status brim_file_finish(int fd, const char *path)
{
  brim_status status = brim_file_sync(fd, path);
  /* close() frees the descriptor even if a signal interrupts it, and the bytes are already on disk. */
  if (close(fd) != 0 && errno != EINTR && status == BRIM_OK)
    status = brim_fail(BRIM_EIO, "cannot close '%s': %s", path, strerror(errno));
  return status;
}

brim_status brim_file_end(int fd, const char *path, brim_status status)
{
  if (status == BRIM_OK)
    status = brim_file_finish(fd, path);
  else
    close(fd);
  if (status != BRIM_OK) brim_file_discard(path);
  return status;
}

brim_status brim_file_write(const char *path, const char *text, size_t bytes)
{
  int fd;
  BRIM_TRY(brim_file_create(path, &fd));
  return brim_file_end(fd, path, brim_file_write_all(fd, path, text, bytes));
}

static brim_status map_fd(int fd, const char *path, brim_file_map *out)
{
  struct stat info;
  *out = (brim_file_map){0};
  if (fstat(fd, &info) != 0) return brim_fail(BRIM_ELOAD, "cannot stat '%s': %s", path, strerror(errno));
  if (!S_ISREG(info.st_mode)) return brim_fail(BRIM_ELOAD, "'%s' is not a regular file", path);
  if (info.st_size == 0) return BRIM_OK;
  void *at = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (at == MAP_FAILED) return brim_fail(BRIM_ELOAD, "cannot map '%s': %s", path, strerror(errno));
  *out = (brim_file_map){at, (size_t)info.st_size};
  return BRIM_OK;
}

brim_status brim_file_map_open(const char *path, brim_file_map *out)
{
  const int fd = brim_open_to_read(path);
  if (fd < 0) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", path, brim_open_reason(errno));
  const brim_status status = map_fd(fd, path, out);
  close(fd);
  return status;
}

void brim_file_map_close(brim_file_map *map)
{
  if (map->data) munmap(map->data, map->bytes);
  *map = (brim_file_map){0};
}

void brim_file_map_forget(const brim_file_map *map, const void *data, size_t bytes)
{
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)data / page * page;
  const char *from = map->data, *at = data;
  if (!from || at < from || at >= from + map->bytes || bytes == 0) return;
  (void)madvise((void *)first, (uintptr_t)data + bytes - first, MADV_DONTNEED);
}

typedef struct file_hash {
  uint64_t bytes, fnv;
  XXH64_state_t *xxh64; /* NULL: brim_hash() */
} file_hash;

static brim_status hash_fd(int fd, const char *path, file_hash *h)
{
  char buffer[READ_BYTES];
  for (;;) {
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", path, strerror(errno));
    if (n == 0) return BRIM_OK;
    h->bytes += (uint64_t)n;
    if (h->xxh64)
      (void)XXH64_update(h->xxh64, buffer, (size_t)n);
    else
      h->fnv = brim_hash(h->fnv, buffer, (size_t)n);
  }
}

static brim_status hash_file(const char *path, file_hash *h)
{
  const int fd = brim_open_to_read(path);
  if (fd < 0) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", path, brim_open_reason(errno));
  const brim_status status = hash_fd(fd, path, h);
  close(fd);
  return status;
}

brim_status brim_file_hash(const char *path, uint64_t *bytes, uint64_t *hash)
{
  file_hash h = {.fnv = BRIM_HASH_START};
  const brim_status status = hash_file(path, &h);
  *bytes = h.bytes;
  *hash = h.fnv;
  return status;
}

brim_status brim_file_xxh64(const char *path, uint64_t *bytes, uint64_t *hash)
{
  XXH64_state_t state;
  file_hash h = {.xxh64 = &state};
  (void)XXH64_reset(&state, 0);
  const brim_status status = hash_file(path, &h);
  *bytes = h.bytes;
  *hash = XXH64_digest(&state);
  return status;
}

static brim_status copy_fd(int from, const char *from_path, int to, const char *to_path)
{
  char buffer[READ_BYTES];
  for (;;) {
    const ssize_t n = read(from, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", from_path, strerror(errno));
    if (n == 0) return BRIM_OK;
    BRIM_TRY(brim_file_write_all(to, to_path, buffer, (size_t)n));
  }
}

static brim_status copy_from(int from, const char *from_path, const char *to_path)
{
  int to;
  BRIM_TRY(brim_file_create(to_path, &to));
  return brim_file_end(to, to_path, copy_fd(from, from_path, to, to_path));
}

brim_status brim_file_copy(const char *from_path, const char *to_path)
{
  const int from = brim_open_to_read(from_path);
  if (from < 0) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", from_path, brim_open_reason(errno));
  const brim_status status = copy_from(from, from_path, to_path);
  close(from);
  return status;
}

void brim_file_discard(const char *path)
{
  struct stat info;
  if (lstat(path, &info) == 0 && S_ISREG(info.st_mode)) unlink(path);
}

void brim_file_drop_cached(const char *path)
{
  const int fd = brim_open_to_read(path);
  if (fd < 0) return;
  (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
}

brim_status brim_folder_sync(const char *path)
{
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return brim_fail(BRIM_EIO, "cannot open folder '%s': %s", path, strerror(errno));
  brim_status status = BRIM_OK;
  if (sync_fd(fd) != 0 && errno != EINVAL && errno != ENOTSUP)
    status = brim_fail(BRIM_EIO, "cannot sync folder '%s' to disk: %s", path, strerror(errno));
  close(fd); /* the result is ignored, because nothing was written through this descriptor */
  return status;
}

bool brim_folder_remove(const char *path)
{
  DIR *folder = opendir(path);
  if (!folder) return errno == ENOENT;
  int problem = 0;
  for (const struct dirent *entry; (entry = readdir(folder));) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (unlinkat(dirfd(folder), entry->d_name, 0) != 0 && errno != ENOENT) problem = errno;
  }
  closedir(folder);
  if (rmdir(path) == 0) return true;
  if (problem) errno = problem;
  return false;
}

bool brim_is_folder(const char *path)
{
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool brim_folder_names(brim_arena *arena, const char *path, const char ***out, size_t *count)
{
  size_t room = 16, n = 0;
  DIR *folder = opendir(path);
  if (!folder) return false;
  const char **name = BRIM_ARENA_NEW(arena, const char *, room);
  for (const struct dirent *entry; (entry = readdir(folder));) {
    if (entry->d_name[0] == '.') continue;
    if (n == room) {
      const char **more = BRIM_ARENA_NEW(arena, const char *, room *= 2);
      memcpy(more, name, n * sizeof *name);
      name = more;
    }
    name[n++] = brim_arena_string(arena, entry->d_name);
  }
  closedir(folder);
  qsort(name, n, sizeof *name, brim_compare_strings);
  *out = name;
  *count = n;
  return true;
}

/* Whether the reason is permanent, so that a later call will fail too. */
static bool is_for_good(int reason)
{
  static const int reasons[] = {EACCES, EPERM, EROFS, ENOENT, ENOTDIR, EEXIST, ELOOP, ENAMETOOLONG};
  for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
    if (reason == reasons[i]) return true;
  return false;
}

static brim_status make_folder(const char *path)
{
  if (mkdir(path, 0777) == 0) return BRIM_OK;
  const int reason = errno; /* on a read-only file system this is EROFS, even if the folder exists */
  if (brim_is_folder(path)) return BRIM_OK;
  return brim_fail(is_for_good(reason) ? BRIM_ECONFIG : BRIM_EIO, "cannot make folder '%s': %s", path,
                   reason == EEXIST ? "a file has this name" : strerror(reason));
}

brim_status brim_make_folders(const char *path)
{
  char part[BRIM_PATH_MAX];
  const size_t length = strlen(path);
  if (length == 0 || length >= sizeof part) return brim_fail(BRIM_EINVAL, "'%.200s' is not a path", path);
  for (size_t i = 1; i <= length; i++) {
    if (path[i] != '/' && path[i] != '\0') continue;
    snprintf(part, sizeof part, "%.*s", (int)i, path);
    BRIM_TRY(make_folder(part));
  }
  return BRIM_OK;
}

brim_status brim_make_folders_for(const char *file)
{
  char folder[BRIM_PATH_MAX];
  const char *slash = strrchr(file, '/');
  const size_t length = slash ? (size_t)(slash - file) : 0;
  if (length == 0) return BRIM_OK;
  if (length >= sizeof folder) return brim_fail(BRIM_EINVAL, "path '%.200s...' is too long", file);
  snprintf(folder, sizeof folder, "%.*s", (int)length, file);
  return brim_make_folders(folder);
}

bool brim_is_lfs_pointer(const void *bytes, size_t size)
{
  static const char start[] = "version https://git-lfs.github.com/spec/";
  return size >= sizeof start - 1 && memcmp(bytes, start, sizeof start - 1) == 0;
}
