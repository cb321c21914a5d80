/* See trace_files.h. */
#include "store/trace_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/rundir.h"

brim_status brim_trace_request_write(const char *run, int64_t steps)
{
  char path[BRIM_PATH_MAX], text[32];
  BRIM_TRY(brim_path_join(path, run, BRIM_TRACE_REQUEST_NAME));
  const int length = snprintf(text, sizeof text, "steps %" PRId64 "\n", steps);
  return brim_file_write_atomic(path, text, (size_t)length);
}

void brim_trace_request_drop(const char *run)
{
  char path[BRIM_PATH_MAX];
  const int length = snprintf(path, sizeof path, "%s/" BRIM_TRACE_REQUEST_NAME, run);
  if (length > 0 && (size_t)length < sizeof path) unlink(path);
}

static brim_status read_request(int fd, const char *path, int64_t *steps)
{
  char text[40] = "", *end;
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    return brim_fail(BRIM_EINVAL, "'%s' is not a file; it was ignored", path);
  if (info.st_uid != geteuid() && info.st_uid != 0)
    return brim_fail(BRIM_EINVAL, "'%s' is from another user (uid %ld); it was ignored", path, (long)info.st_uid);
  const ssize_t bytes = read(fd, text, sizeof text - 1);
  if (bytes < 0) return brim_fail(BRIM_EINVAL, "cannot read '%s': %s", path, strerror(errno));
  *steps = strncmp(text, "steps ", 6) == 0 ? strtoll(text + 6, &end, 10) : 0;
  if (*steps >= 1 && *steps <= BRIM_TRACE_STEPS_MAX && strcmp(end, "\n") == 0) return BRIM_OK;
  *steps = 0;
  return brim_fail(BRIM_EINVAL, "'%s' is not a request of brim trace; it was ignored", path);
}

brim_status brim_trace_request_take(const char *run, int64_t *steps)
{
  char path[BRIM_PATH_MAX];
  *steps = 0;
  BRIM_TRY(brim_path_join(path, run, BRIM_TRACE_REQUEST_NAME));
  const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return BRIM_OK;
  if (fd < 0) return brim_fail(BRIM_EINVAL, "cannot open '%s': %s", path, brim_open_reason(errno));
  const brim_status status = read_request(fd, path, steps);
  close(fd);
  if (status == BRIM_OK) unlink(path);
  return status;
}
