/* Reads files for plugins. See brim/host.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "brim/host.h"

brim_status brim_read_whole(const char *path, int fd, size_t bytes, void *out)
{
  size_t have = 0;
  while (have < bytes) {
    const ssize_t n = read(fd, (char *)out + have, bytes - have);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", path, n < 0 ? strerror(errno) : "it became shorter");
    have += (size_t)n;
  }
  return BRIM_OK;
}

static brim_status read_open(const char *path, int fd, size_t most, char **out, size_t *bytes)
{
  struct stat info;
  char limit[32];
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || (uint64_t)info.st_size > most)
    return brim_fail(BRIM_ELOAD, "'%s' is not a regular file of at most %s", path,
                     brim_format_bytes(limit, sizeof limit, most));
  *bytes = (size_t)info.st_size;
  *out = brim_try_calloc(*bytes + 1, 1);
  if (!*out) return brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s'", path);
  return brim_read_whole(path, fd, *bytes, *out);
}

brim_status brim_read_file(const char *path, size_t most, char **out, size_t *bytes)
{
  *out = NULL;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* never waits for a pipe's other end */
  if (fd < 0) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", path, strerror(errno));
  const brim_status status = read_open(path, fd, most, out, bytes);
  close(fd);
  if (status == BRIM_OK) return BRIM_OK;
  free(*out);
  *out = NULL;
  return status;
}
