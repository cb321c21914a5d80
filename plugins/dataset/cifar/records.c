/* See records.h. */
#include "records.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "brim/host.h"

#define RECORDS_MAX ((int64_t)1 << 32)

static brim_status open_file(const char *path, int labels, int *fd, int64_t *count)
{
  const int64_t each = labels + CIFAR_PIXEL_BYTES;
  struct stat s;
  *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (*fd < 0) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", path, strerror(errno));
  if (fstat(*fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size % each == 0 && s.st_size / each <= RECORDS_MAX) {
    *count = s.st_size / each;
    return BRIM_OK;
  }
  close(*fd);
  return brim_fail(BRIM_ELOAD,
                   "'%s' does not consist of records of %" PRId64 " bytes: it has %" PRId64
                   "\nit is damaged, or not from the binary version",
                   path, each, (int64_t)s.st_size);
}

brim_status cifar_records_count(const char *path, int labels, int64_t *out)
{
  int fd;
  BRIM_TRY(open_file(path, labels, &fd, out));
  close(fd);
  return BRIM_OK;
}

static brim_status check_labels(const char *path, int labels, const int *classes, const uint8_t *record, int64_t count)
{
  for (int64_t i = 0; i < count; i++, record += labels + CIFAR_PIXEL_BYTES)
    for (int k = 0; k < labels; k++)
      if (record[k] >= classes[k])
        return brim_fail(BRIM_ELOAD, "'%s', record %" PRId64 ": label %d is out of range, 0 to %d", path, i, record[k],
                         classes[k] - 1);
  return BRIM_OK;
}

brim_status cifar_records_add(const char *path, int labels, const int *classes, cifar_records *records)
{
  const size_t each = (size_t)labels + CIFAR_PIXEL_BYTES, have = (size_t)records->count * each;
  int64_t count;
  int fd;
  BRIM_TRY(open_file(path, labels, &fd, &count));
  uint8_t *grown =
      brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(records->bytes, have + (size_t)count * each + 1);
  if (grown) records->bytes = grown;
  brim_status status = grown ? brim_read_whole(path, fd, (size_t)count * each, grown + have)
                             : brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s'", path);
  close(fd);
  if (status == BRIM_OK) status = check_labels(path, labels, classes, grown + have, count);
  if (status == BRIM_OK) records->count += count;
  return status;
}

void cifar_records_free(cifar_records *records)
{
  free(records->bytes);
  *records = (cifar_records){0};
}
