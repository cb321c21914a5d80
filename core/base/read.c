/* Reads files for plugins. See brim/host.h. */
#include <errno.h>
#include <string.h>
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
