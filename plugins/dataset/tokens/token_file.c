/* Maps files of tokens. See token_file.h. */
#include "token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCANNED 65536 /* tokens between two checks of the maximum */

/* Known headers. */
static const struct {
  uint32_t magic, version;
  int32_t width;
} headers[] = {{20240520, 1, 2}, {20240801, 7, 4}};
#define HEADERS (sizeof headers / sizeof headers[0])

static uint32_t word_at(const unsigned char *bytes, size_t i)
{
  const unsigned char *b = bytes + 4 * i;
  return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static void put_word(unsigned char *bytes, size_t i, uint32_t word)
{
  for (int b = 0; b < 4; b++) bytes[4 * i + (size_t)b] = (unsigned char)(word >> 8 * b);
}

void token_file_header(unsigned char out[TOKEN_HEADER_BYTES], int64_t count, int32_t width)
{
  size_t h = 0;
  while (h + 1 < HEADERS && headers[h].width != width) h++;
  memset(out, 0, TOKEN_HEADER_BYTES);
  put_word(out, 0, headers[h].magic);
  put_word(out, 1, headers[h].version);
  put_word(out, 2, (uint32_t)count);
}

/* Returns the kind of header at the start of a file, or HEADERS if it has no header. */
static size_t header_of(const unsigned char *bytes, size_t count)
{
  size_t h = 0;
  while (h < HEADERS && (count < 4 || word_at(bytes, 0) != headers[h].magic)) h++;
  return h;
}

static brim_status read_header(const char *name, const unsigned char *bytes, size_t size, size_t h, token_file *out)
{
  if (size < TOKEN_HEADER_BYTES)
    return brim_fail(BRIM_ELOAD, "'%s' begins like a file of llm.c, but has %zu bytes, less than the header's %d", name,
                     size, TOKEN_HEADER_BYTES);
  const uint32_t version = word_at(bytes, 1), count = word_at(bytes, 2);
  if (version != headers[h].version)
    return brim_fail(BRIM_ELOAD, "'%s' is a token file of version %" PRIu32 "; only version %" PRIu32 " can be read",
                     name, version, headers[h].version);
  const uint64_t need = TOKEN_HEADER_BYTES + (uint64_t)count * (uint64_t)headers[h].width;
  if (need != size)
    return brim_fail(BRIM_ELOAD,
                     "'%s' is %s than its header says: %" PRIu32 " tokens make %" PRIu64 " bytes, the file has %zu",
                     name, size < need ? "shorter" : "longer", count, need, size);
  *out = (token_file){.tokens = bytes + TOKEN_HEADER_BYTES, .count = count, .width = headers[h].width};
  return BRIM_OK;
}

/* Determines the format and the tokens from a file's bytes. */
static brim_status understand(const char *name, const unsigned char *bytes, size_t size, enum token_format format,
                              token_file *out)
{
  static const int32_t widths[] = {2, 2, 4, 1};
  const int32_t width = widths[format];
  const size_t h = format == TOKEN_FORMAT_BYTES ? HEADERS : header_of(bytes, size);
  if (h < HEADERS) {
    BRIM_TRY(read_header(name, bytes, size, h, out));
    if (format == TOKEN_FORMAT_AUTO || out->width == width) return BRIM_OK;
    return brim_fail(BRIM_ELOAD, "the header of '%s' states uint%d, but dataset.format is uint%d", name,
                     8 * (int)out->width, 8 * (int)width);
  }
  if (size % (size_t)width)
    return brim_fail(BRIM_ELOAD, "'%s' has %zu bytes, not a whole number of tokens of %d bytes each", name, size,
                     (int)width);
  *out = (token_file){.tokens = bytes, .count = (int64_t)(size / (size_t)width), .width = width};
  return BRIM_OK;
}

brim_status token_file_map(int fd, const char *name, enum token_format format, token_file *out)
{
  static const unsigned char nothing[1];
  struct stat st;
  *out = (token_file){0};
  if (fstat(fd, &st) != 0) return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", name, strerror(errno));
  if (!S_ISREG(st.st_mode)) return brim_fail(BRIM_ELOAD, "'%s' is not a regular file", name);
  const size_t size = (size_t)st.st_size;
  if (size == 0) return understand(name, nothing, 0, format, out); /* an empty file cannot be mapped */
  void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (map == MAP_FAILED) return brim_fail(BRIM_ELOAD, "cannot map '%s': %s", name, strerror(errno));
  const brim_status status = understand(name, map, size, format, out);
  if (status != BRIM_OK) {
    munmap(map, size);
    *out = (token_file){0};
    return status;
  }
  out->map = map;
  out->map_bytes = size;
  return BRIM_OK;
}

brim_status token_file_open(const char *path, enum token_format format, token_file *out)
{
  *out = (token_file){0};
  /* O_NONBLOCK: if the file is a pipe, open() does not wait for its other end. */
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return brim_fail(BRIM_ELOAD, "cannot open '%s': %s", path, strerror(errno));
  const brim_status status = token_file_map(fd, path, format, out);
  close(fd);
  return status;
}

void token_file_close(token_file *file)
{
  if (file->map) munmap((void *)file->map, file->map_bytes);
  *file = (token_file){0};
}

/* Returns the greatest of `n` tokens from `from` on. The loop has no branch, so that compilers vectorise it. */
static uint32_t greatest(const token_file *f, int64_t from, int64_t n)
{
  uint32_t most = 0;
  for (int64_t i = from; i < from + n; i++) {
    const uint32_t t = token_file_at(f, i);
    most = t > most ? t : most;
  }
  return most;
}

int64_t token_file_find_beyond(const token_file *file, int64_t vocabulary)
{
  for (int64_t from = 0; from < file->count; from += SCANNED) {
    const int64_t rest = file->count - from, n = rest < SCANNED ? rest : SCANNED;
    if (greatest(file, from, n) < vocabulary) continue;
    int64_t i = from;
    while (token_file_at(file, i) < vocabulary) i++;
    return i;
  }
  return -1;
}
