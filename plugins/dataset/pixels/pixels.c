/* The common parts of all formats: reading, detection of the format, limits and EXIF. */
#include "pixels.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "pixels_parts.h"

/* ---- Reading ---- */

pixels_source pixels_source_file(int fd)
{
  return (pixels_source){.fd = fd};
}

pixels_source pixels_source_memory(const void *bytes, size_t count)
{
  return (pixels_source){.fd = -1, .memory = bytes, .memory_bytes = count};
}

/* Reads up to `room` bytes; returns 0 at the end or after an error. */
static size_t pixels_read(pixels_source *s, void *out, size_t room)
{
  if (s->fd < 0) {
    const size_t n = room < s->memory_bytes ? room : s->memory_bytes;
    if (n > 0) memcpy(out, s->memory, n);
    s->memory += n;
    s->memory_bytes -= n;
    return n;
  }
  ssize_t n;
  do n = read(s->fd, out, room);
  while (n < 0 && errno == EINTR);
  if (n >= 0) return (size_t)n;
  s->failed = true;
  s->reason = errno;
  return 0;
}

size_t pixels_input_read(pixels_input *in, void *out, size_t room)
{
  const size_t left = in->first_bytes - in->first_given, n = room < left ? room : left;
  if (left == 0) return pixels_read(in->source, out, room);
  memcpy(out, in->first + in->first_given, n);
  in->first_given += n;
  return n;
}

brim_status pixels_fail(const pixels_input *in, const char *what)
{
  if (in->source->failed) return brim_fail(BRIM_EIO, "cannot read '%s': %s", in->name, strerror(in->source->reason));
  return brim_fail(BRIM_ELOAD, "'%s' %s", in->name, what);
}

brim_status pixels_no_memory(const pixels_input *in)
{
  return brim_fail(BRIM_ENOMEM_HOST, "no memory to decode '%s'", in->name);
}

brim_status pixels_check_size(const pixels_input *in, int64_t rows, int64_t columns)
{
  if (rows < 1 || columns < 1) return pixels_fail(in, "has no pixels");
  if ((uint64_t)rows * (uint64_t)columns <= in->options->pixels_max) return BRIM_OK;
  return brim_fail(BRIM_ELOAD,
                   "'%s' has %" PRId64 "x%" PRId64 " pixels, more than dataset.max_pixels=%" PRIu64 " allows", in->name,
                   columns, rows, in->options->pixels_max);
}

/* ---- Orientation ---- */

pixels_turn pixels_turn_of(int orientation, int64_t rows, int64_t columns)
{
  /* for each orientation: transposes, then mirrors left to right, then top to bottom */
  static const struct {
    bool transposed, mirrored, upside_down;
  } turns[9] = {{0, 0, 0}, {0, 0, 0}, {0, 1, 0}, {0, 1, 1}, {0, 0, 1}, {1, 0, 0}, {1, 1, 0}, {1, 1, 1}, {1, 0, 1}};
  const bool transposed = turns[orientation].transposed;
  pixels_turn t = {.rows = transposed ? columns : rows, .columns = transposed ? rows : columns};
  const int64_t x = turns[orientation].mirrored ? -1 : 1, y = (turns[orientation].upside_down ? -1 : 1) * t.columns;
  if (x < 0) t.start += t.columns - 1;
  if (y < 0) t.start += (t.rows - 1) * t.columns;
  t.down = transposed ? x : y;
  t.right = transposed ? y : x;
  return t;
}

static uint32_t number(const uint8_t *p, int bytes, bool little)
{
  uint32_t x = 0;
  for (int i = 0; i < bytes; i++) x = x << 8 | p[little ? bytes - 1 - i : i];
  return x;
}

/* A segment has "Exif", a TIFF header, and the entries of the first directory. An entry has 12 bytes: tag, type, count,
 * value. */
int pixels_exif_orientation(const uint8_t *segment, size_t bytes)
{
  if (bytes < 14 || memcmp(segment, "Exif\0\0", 6) != 0) return 0;
  const uint8_t *tiff = segment + 6;
  const size_t size = bytes - 6;
  const bool little = tiff[0] == 'I';
  if ((tiff[0] != 'I' && tiff[0] != 'M') || tiff[1] != tiff[0] || number(tiff + 2, 2, little) != 42) return 0;
  const size_t at = number(tiff + 4, 4, little);
  if (at > size || size - at < 2) return 0;
  const size_t entries = number(tiff + at, 2, little);
  for (size_t i = 0; i < entries && (i + 1) * 12 <= size - at - 2; i++) {
    const uint8_t *entry = tiff + at + 2 + i * 12;
    if (number(entry, 2, little) != 0x0112 || number(entry + 2, 2, little) != 3) continue;
    const uint32_t value = number(entry + 8, 2, little);
    return value >= 1 && value <= 8 ? (int)value : 0;
  }
  return 0;
}

/* ---- Formats ---- */

static brim_status start(pixels_input *in)
{
  while (in->first_bytes < sizeof in->first) {
    const size_t n = pixels_read(in->source, in->first + in->first_bytes, sizeof in->first - in->first_bytes);
    if (n == 0) break;
    in->first_bytes += n;
  }
  return in->first_bytes > 0 ? BRIM_OK : pixels_fail(in, "is empty");
}

static brim_status read_any(pixels_source *source, const char *name, const pixels_options *options,
                            pixels_header *header, brim_picture *picture)
{
  pixels_input in = {.source = source, .name = name, .options = options};
  BRIM_TRY(start(&in));
  if (in.first_bytes >= 2 && in.first[0] == 0xFF && in.first[1] == 0xD8) return pixels_jpeg(&in, header, picture);
  if (in.first_bytes == 8 && memcmp(in.first, "\x89PNG\r\n\x1A\n", 8) == 0) return pixels_png(&in, header, picture);
  return pixels_fail(&in, "is neither a JPEG nor a PNG file");
}

brim_status pixels_header_read(pixels_source *source, const char *name, const pixels_options *options,
                               pixels_header *out)
{
  *out = (pixels_header){0};
  return read_any(source, name, options, out, NULL);
}

brim_status pixels_decode(pixels_source *source, const char *name, const pixels_options *options, brim_picture *picture)
{
  pixels_header header;
  return read_any(source, name, options, &header, picture);
}

bool pixels_is_name(const char *name)
{
  static const char *const ends[] = {".jpg", ".jpeg", ".png"};
  const char *dot = strrchr(name, '.');
  for (size_t i = 0; dot && i < sizeof ends / sizeof ends[0]; i++)
    if (strcasecmp(dot, ends[i]) == 0) return true;
  return false;
}
