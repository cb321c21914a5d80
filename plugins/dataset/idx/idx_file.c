/* Reads IDX files. A reader returns the file's bytes in order. It inflates them if the file is gzip, which it detects
 * by the first two bytes, not by the name. The values are inflated in one pass directly into their final memory. */
#include "idx_file.h"
#include "brim/host.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define INPUT_BYTES ((size_t)256 * 1024)
#define INFLATE_BYTES_MAX ((size_t)1 << 30) /* maximum bytes of one call, because zlib counts in 32 bits */
#define DEFLATE_RATIO_MAX 1032u             /* the maximum compression ratio (zlib.net/zlib_tech.html) */
#define HEADER_BYTES_MAX (4 + 4 * IDX_RANK_MAX)

typedef struct reader {
  const char *name;
  int fd;
  /* ready: inflateInit has succeeded. ended: no bytes are left, and the checksums are correct. */
  bool gzip, ready, ended;
  uint64_t file_bytes, taken; /* taken: bytes of the file that were read */
  z_stream stream;
  unsigned char input[INPUT_BYTES];
} reader;

static brim_status read_some(reader *r, void *to, size_t room, size_t *got)
{
  ssize_t n;
  do n = read(r->fd, to, room);
  while (n < 0 && errno == EINTR);
  if (n < 0) return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", r->name, strerror(errno));
  *got = (size_t)n;
  r->taken += (uint64_t)n;
  return BRIM_OK;
}

static brim_status reader_open(reader *r, int fd, const char *name)
{
  r->name = name;
  r->fd = fd;
  r->taken = 0;
  struct stat st;
  if (fstat(fd, &st) != 0) return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", name, strerror(errno));
  if (!S_ISREG(st.st_mode)) return brim_fail(BRIM_ELOAD, "'%s' is not a regular file", name);
  r->file_bytes = (uint64_t)st.st_size;
  unsigned char magic[2] = {0, 0};
  if (pread(fd, magic, sizeof magic, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0)
    return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", name, strerror(errno));
  r->gzip = magic[0] == 0x1f && magic[1] == 0x8b;
  if (!r->gzip) return BRIM_OK;
  memset(&r->stream, 0, sizeof r->stream);
  if (inflateInit2(&r->stream, 16 + MAX_WBITS) != Z_OK)
    return brim_fail(BRIM_ENOMEM_HOST, "no memory to inflate '%s'", name);
  r->ready = true;
  return BRIM_OK;
}

/* Ensures that there is input. Sets *more to false at the end of the file. */
static brim_status fill_input(reader *r, bool *more)
{
  if (r->stream.avail_in == 0) {
    size_t got = 0;
    BRIM_TRY(read_some(r, r->input, sizeof r->input, &got));
    r->stream.next_in = r->input;
    r->stream.avail_in = (uInt)got;
  }
  *more = r->stream.avail_in > 0;
  return BRIM_OK;
}

/* Handles the end of a gzip member. The file ends, or another member follows, as in the output of `cat a.gz b.gz`. */
static brim_status end_member(reader *r)
{
  bool more = false;
  BRIM_TRY(fill_input(r, &more));
  if (!more) {
    r->ended = true;
    return BRIM_OK;
  }
  const uint64_t at = r->taken - r->stream.avail_in;
  if (r->stream.next_in[0] != 0x1f)
    return brim_fail(BRIM_ELOAD, "'%s': the gzip data ends at byte %" PRIu64 " but the file has %" PRIu64 " bytes",
                     r->name, at, r->file_bytes);
  inflateReset(&r->stream);
  return BRIM_OK;
}

static brim_status get_gzip(reader *r, unsigned char *to, size_t want, size_t *got)
{
  while (*got < want && !r->ended) {
    bool more = false;
    BRIM_TRY(fill_input(r, &more));
    if (!more)
      return brim_fail(BRIM_ELOAD,
                       "'%s' is truncated: the gzip data is incomplete at the file's end, byte %" PRIu64
                       "\ncopy or download the file again",
                       r->name, r->taken);
    const size_t room = want - *got < INFLATE_BYTES_MAX ? want - *got : INFLATE_BYTES_MAX;
    r->stream.next_out = to + *got;
    r->stream.avail_out = (uInt)room;
    const int z = inflate(&r->stream, Z_NO_FLUSH);
    *got += room - r->stream.avail_out;
    if (z == Z_STREAM_END) {
      BRIM_TRY(end_member(r));
    } else if (z == Z_MEM_ERROR) {
      return brim_fail(BRIM_ENOMEM_HOST, "no memory to inflate '%s'", r->name);
    } else if (z != Z_OK && z != Z_BUF_ERROR) {
      return brim_fail(BRIM_ELOAD,
                       "'%s' is damaged: %s in the gzip data before byte %" PRIu64 " of the file"
                       "\ncopy or download the file again",
                       r->name, r->stream.msg ? r->stream.msg : "an error", r->taken - r->stream.avail_in);
    }
  }
  return BRIM_OK;
}

/* Reads the next `want` bytes. *got is smaller only at the end. */
static brim_status reader_get(reader *r, unsigned char *to, size_t want, size_t *got)
{
  *got = 0;
  if (r->gzip) return get_gzip(r, to, want, got);
  while (*got < want && !r->ended) {
    size_t n = 0;
    BRIM_TRY(read_some(r, to + *got, want - *got, &n));
    if (n == 0) r->ended = true;
    *got += n;
  }
  return BRIM_OK;
}

static const char *type_name(unsigned type)
{
  static const char *const names[] = {[0x09] = "signed bytes",
                                      [0x0B] = "16-bit integers",
                                      [0x0C] = "32-bit integers",
                                      [0x0D] = "32-bit floats",
                                      [0x0E] = "64-bit floats"};
  return type < sizeof names / sizeof names[0] && names[type] ? names[type] : "an unknown type";
}

static brim_status check_magic(const reader *r, const unsigned char *m)
{
  if (m[0] != 0 || m[1] != 0)
    return brim_fail(BRIM_ELOAD,
                     "'%s' is not an IDX file: it starts with bytes %02x %02x %02x %02x, expected 00 00 08 and the "
                     "number of dimensions",
                     r->name, m[0], m[1], m[2], m[3]);
  if (m[2] != 0x08)
    return brim_fail(BRIM_ELOAD, "'%s' holds %s (IDX type 0x%02x); only unsigned bytes (0x08) can be read", r->name,
                     type_name(m[2]), m[2]);
  if (m[3] < 1 || m[3] > IDX_RANK_MAX)
    return brim_fail(BRIM_ELOAD, "'%s': the IDX header says %d dimensions, expected 1 to %d", r->name, m[3],
                     IDX_RANK_MAX);
  return BRIM_OK;
}

static brim_status fail_header_short(const reader *r, size_t got, size_t want)
{
  return brim_fail(BRIM_ELOAD, "'%s' is too short for an IDX header: %zu bytes%s, expected at least %zu", r->name, got,
                   r->gzip ? " after inflating" : "", want);
}

/* "60000x28x28" */
static const char *format_dims(char *out, size_t room, const idx_file *f)
{
  size_t used = 0;
  out[0] = '\0';
  for (int32_t i = 0; i < f->rank && used < room; i++)
    used += (size_t)snprintf(out + used, room - used, i ? "x%" PRId64 : "%" PRId64, f->dim[i]);
  return out;
}

/* Reads the header and checks whether the values can fit into the file. Sets *header_bytes. */
static brim_status read_header(reader *r, idx_file *f, uint64_t *header_bytes)
{
  unsigned char head[HEADER_BYTES_MAX];
  size_t got = 0;
  BRIM_TRY(reader_get(r, head, 4, &got));
  if (got < 4) return fail_header_short(r, got, 4);
  BRIM_TRY(check_magic(r, head));
  f->rank = head[3];
  const size_t dims_bytes = 4 * (size_t)f->rank;
  BRIM_TRY(reader_get(r, head + 4, dims_bytes, &got));
  if (got < dims_bytes) return fail_header_short(r, 4 + got, 4 + dims_bytes);
  *header_bytes = 4 + dims_bytes;

  bool overflow = false;
  f->bytes = 1;
  for (int32_t i = 0; i < f->rank; i++) {
    const unsigned char *d = head + 4 + 4 * i;
    f->dim[i] = (int64_t)d[0] << 24 | (int64_t)d[1] << 16 | (int64_t)d[2] << 8 | (int64_t)d[3];
    overflow |= __builtin_mul_overflow(f->bytes, (uint64_t)f->dim[i], &f->bytes);
  }
  char dims[64];
  format_dims(dims, sizeof dims, f);
  if (overflow || f->bytes > (uint64_t)1 << 48)
    return brim_fail(BRIM_ELOAD, "'%s': the IDX header declares %s values, and brim reads at most 2^48", r->name, dims);
  if (r->gzip && f->bytes / DEFLATE_RATIO_MAX > r->file_bytes)
    return brim_fail(BRIM_ELOAD,
                     "'%s': the IDX header says %s values, which %" PRIu64 " bytes of gzip data cannot hold", r->name,
                     dims, r->file_bytes);
  if (!r->gzip && r->file_bytes != *header_bytes + f->bytes)
    return brim_fail(
        BRIM_ELOAD, "'%s' is %s than its header says: %s values make %" PRIu64 " bytes, the file has %" PRIu64, r->name,
        r->file_bytes < *header_bytes + f->bytes ? "shorter" : "longer", dims, *header_bytes + f->bytes, r->file_bytes);
  return BRIM_OK;
}

static brim_status read_values(reader *r, idx_file *f)
{
  char dims[64];
  format_dims(dims, sizeof dims, f);
  if (f->bytes > 0) {
    /* Reserves only address space. Pages are allocated as values are written. */
    void *p = brim_fault_hit(BRIM_FAULT_ALLOC, NULL)
                  ? MAP_FAILED
                  : mmap(NULL, f->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
      return brim_fail(BRIM_ENOMEM_HOST, "no memory for the %" PRIu64 " bytes of '%s'", f->bytes, r->name);
    madvise(p, f->bytes, MADV_HUGEPAGE); /* samples are read in random order; large pages save TLB entries */
    f->values = p;
    size_t got = 0;
    BRIM_TRY(reader_get(r, f->values, f->bytes, &got));
    if (got < f->bytes)
      return brim_fail(BRIM_ELOAD,
                       "'%s' is shorter than its header says: %s values make %" PRIu64 " bytes, there are %zu", r->name,
                       dims, f->bytes, got);
  }
  unsigned char extra;
  size_t got = 0;
  BRIM_TRY(reader_get(r, &extra, 1, &got)); /* this read also checks gzip's checksum */
  if (got > 0)
    return brim_fail(BRIM_ELOAD,
                     "'%s' is longer than its header says: %s values make %" PRIu64 " bytes, there are more", r->name,
                     dims, f->bytes);
  return BRIM_OK;
}

static brim_status load(int fd, const char *name, bool whole, idx_file *out)
{
  *out = (idx_file){0};
  reader *r = brim_try_calloc(1, sizeof *r);
  if (!r) return brim_fail(BRIM_ENOMEM_HOST, "no memory to read '%s'", name);
  r->ready = r->ended = false;
  uint64_t header_bytes = 0;
  brim_status status = reader_open(r, fd, name);
  if (status == BRIM_OK) status = read_header(r, out, &header_bytes);
  if (status == BRIM_OK && whole) status = read_values(r, out);
  if (status != BRIM_OK) idx_file_free(out);
  if (r->ready) inflateEnd(&r->stream);
  free(r);
  return status;
}

brim_status idx_file_header(int fd, const char *name, idx_file *out)
{
  return load(fd, name, false, out);
}

brim_status idx_file_read(int fd, const char *name, idx_file *out)
{
  return load(fd, name, true, out);
}

void idx_file_free(idx_file *file)
{
  if (file->values) munmap(file->values, file->bytes);
  *file = (idx_file){0};
}
