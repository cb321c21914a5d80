/* Fuzzes the IDX reader, including gzip: every input is read as its header says or refused with an error, and the
 * reader never allocates memory that the input could not fill. Inputs become a file in memory. The first byte says
 * whether the rest is used unchanged or compressed first: random bytes are hardly ever valid gzip files, so the code
 * after inflating would not be reached. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "../../plugins/dataset/idx/idx_file.h"

#define INPUT_BYTES_MAX ((size_t)1 << 20)
#define RATIO_MAX 1032 /* deflate's */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_idx: %s\n", what);
  abort();
}

/* Makes a file in memory with these bytes, unchanged or compressed. */
static int make_file(const uint8_t *data, size_t size, int compress, size_t *file_bytes)
{
  static unsigned char out[INPUT_BYTES_MAX + 4096];
  const int fd = memfd_create("fuzz_idx", MFD_CLOEXEC);
  check(fd >= 0, "memfd_create failed");
  *file_bytes = size;
  if (compress) {
    z_stream z = {.next_in = (unsigned char *)data, .avail_in = (uInt)size, .next_out = out, .avail_out = sizeof out};
    check(deflateInit2(&z, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK, "deflateInit2 failed");
    check(deflate(&z, Z_FINISH) == Z_STREAM_END, "deflate failed");
    *file_bytes = sizeof out - z.avail_out;
    deflateEnd(&z);
    data = out;
  }
  check(write(fd, data, *file_bytes) == (ssize_t)*file_bytes, "write failed");
  return fd;
}

static void check_result(brim_status status, const idx_file *f, size_t file_bytes, int whole)
{
  if (status != BRIM_OK) {
    check(brim_error_text()[0] != '\0', "refused without a text");
    check(!f->values && f->rank == 0, "refused, but something is left");
    return;
  }
  check(f->rank >= 1 && f->rank <= IDX_RANK_MAX, "impossible rank");
  uint64_t bytes = 1;
  for (int32_t i = 0; i < f->rank; i++) bytes *= (uint64_t)f->dim[i];
  check(bytes == f->bytes, "bytes are not the product of the dimensions");
  check(bytes <= (uint64_t)file_bytes * RATIO_MAX + RATIO_MAX, "more bytes than the file can hold");
  if (!whole) return;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < bytes; i++) sum += f->values[i]; /* every value exists */
  check(sum <= 255 * bytes, "impossible sum");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size < 1 || size > INPUT_BYTES_MAX) return 0;
  size_t file_bytes = 0;
  const int fd = make_file(data + 1, size - 1, data[0] & 1, &file_bytes);
  idx_file header, whole;
  const brim_status status = idx_file_header(fd, "input", &header);
  check_result(status, &header, file_bytes, 0);
  const brim_status status_whole = idx_file_read(fd, "input", &whole);
  check_result(status_whole, &whole, file_bytes, 1);
  check(status == BRIM_OK || status_whole != BRIM_OK, "a file with a bad header was read");
  idx_file_free(&header);
  idx_file_free(&whole);
  close(fd);
  return 0;
}
