/* An IDX file (yann.lecun.com/exdb/mnist), plain or gzip:
 *
 *     byte 0, 1   zero
 *     byte 2      type of the values; only 0x08, unsigned bytes, is supported
 *     byte 3      rank, 1 .. 4
 *     4 * rank    the dimensions, big-endian unsigned 32 bit
 *     the rest    the values, row-major
 *
 * The header is not trusted: memory is requested only if the values can exist in a file of this size, and its pages are
 * used only as values arrive. */
#ifndef IDX_FILE_H
#define IDX_FILE_H
#include <stdint.h>

#include "brim/status.h"

#define IDX_RANK_MAX 4

typedef struct idx_file {
  int32_t rank;
  int64_t dim[IDX_RANK_MAX];
  uint64_t bytes;        /* product of the dimensions, because a value has one byte */
  unsigned char *values; /* `bytes` values, owned; NULL after idx_file_header, or if bytes is 0 */
} idx_file;

/* Both functions read from the start of `fd`, an open regular file. `name` is used in messages. They return ELOAD with
 * the error in the file (expected and found values), or ENOMEM_HOST; *out is then empty.
 *
 * idx_file_header reads and checks only rank and dimensions. */
brim_status idx_file_header(int fd, const char *name, idx_file *out);
/* Reads and checks the whole file, including gzip's checksum. */
brim_status idx_file_read(int fd, const char *name, idx_file *out);
void idx_file_free(idx_file *file); /* no-op if empty or all zero */
#endif
