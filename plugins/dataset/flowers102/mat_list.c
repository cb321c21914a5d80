/* See mat_list.h. The format is documented in MathWorks, MAT-File Format, "Level 5". A file has a header of 128 bytes,
 * and then elements, each with a type, a number of bytes, and the bytes. A variable is an element that contains
 * elements (flags, dimensions, name, values), or a compressed element that inflates to such an element.
 *
 * brim does not use matio, because on damaged files version 1.5.23 allocates any size that a header gives, and may
 * hang. */
#include "mat_list.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "brim/host.h"

#define HEADER_BYTES 128
#define FILE_BYTES_MAX ((size_t)64 << 20)
#define INFLATED_BYTES_MAX ((size_t)64 << 20) /* maximum inflated bytes of one variable */

enum { TYPE_INT8 = 1, TYPE_INT32 = 5, TYPE_UINT32 = 6, TYPE_MATRIX = 14, TYPE_PACKED = 15 };
enum { CLASS_DOUBLE = 6, CLASS_LAST = 15 }; /* the range of classes that are arrays of numbers */
#define FLAG_COMPLEX 0x0800u

typedef struct reader {
  const uint8_t *at;
  size_t left;
  bool big; /* big-endian */
} reader;

typedef struct element {
  uint32_t type;
  const uint8_t *data;
  size_t bytes;
} element;

static uint64_t number(const uint8_t *p, size_t bytes, bool big)
{
  uint64_t x = 0;
  for (size_t i = 0; i < bytes; i++) x = x << 8 | p[big ? i : bytes - 1 - i];
  return x;
}

/* Reads the next element. Returns false at the end, or if the element is incomplete. */
static bool next(reader *r, element *out)
{
  if (r->left < 8) return false;
  const uint32_t first = (uint32_t)number(r->at, 4, r->big);
  const bool small = first >> 16 != 0; /* up to 4 bytes of data lie in the tag itself */
  *out = (element){small ? first & 0xFFFF : first, r->at + (small ? 4 : 8),
                   small ? first >> 16 : (size_t)number(r->at + 4, 4, r->big)};
  const size_t room = small ? 4 : r->left - 8;
  if (out->bytes > room) return false;
  size_t used = small ? 8 : 8 + out->bytes;
  if (!small && out->type != TYPE_PACKED) used = (used + 7) & ~(size_t)7;
  if (used > r->left) used = r->left; /* the last element may lack its padding */
  r->at += used;
  r->left -= used;
  return true;
}

/* ---- Values ---- */

/* Returns the bytes of a number of this type, or 0 for other types. */
static size_t width_of(uint32_t type)
{
  static const uint8_t widths[] = {0, 1, 1, 2, 2, 4, 4, 4, 0, 8};
  return type < sizeof widths ? widths[type] : 0;
}

static double value_of(const uint8_t *p, uint32_t type, bool big)
{
  const size_t width = width_of(type);
  const uint64_t bits = number(p, width, big);
  const uint32_t half = (uint32_t)bits;
  float narrow;
  double wide;
  if (type == 7) {
    memcpy(&narrow, &half, sizeof narrow);
    return (double)narrow;
  }
  if (type == 9) {
    memcpy(&wide, &bits, sizeof wide);
    return wide;
  }
  const bool is_signed = type % 2 == 1, negative = is_signed && bits >> (8 * width - 1) != 0;
  return negative ? (double)bits - ldexp(1, 8 * (int)width) : (double)bits;
}

typedef struct wanted {
  const char *path, *name;
  int32_t most;
  bool found;
  mat_list *out;
} wanted;

static brim_status take_values(wanted *w, const element *e, size_t count, bool big)
{
  const size_t width = width_of(e->type);
  if (width == 0 || count == 0 || e->bytes / width < count)
    return brim_fail(BRIM_ELOAD, "'%s': '%s' is not a list of numbers", w->path, w->name);
  w->out->item = brim_try_calloc(count, sizeof *w->out->item);
  if (!w->out->item) return brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s' of '%s'", w->name, w->path);
  for (size_t i = 0; i < count; i++) {
    const double x = value_of(e->data + i * width, e->type, big);
    if (!(x >= 1 && x <= w->most) || x != floor(x))
      return brim_fail(BRIM_ELOAD, "'%s': number %zu of '%s' is %g; whole numbers from 1 to %d are expected", w->path,
                       i + 1, w->name, x, w->most);
    w->out->item[i] = (int32_t)x;
  }
  w->out->count = count;
  return BRIM_OK;
}

/* Returns the length of a row or a column, or 0 for other shapes. */
static size_t count_of(const element *dims, bool big)
{
  if (dims->type != TYPE_INT32 || dims->bytes != 8) return 0;
  const uint64_t rows = number(dims->data, 4, big), columns = number(dims->data + 4, 4, big);
  if (rows != 1 && columns != 1) return 0;
  return (size_t)(rows * columns);
}

static brim_status take_matrix(wanted *w, const element *matrix, bool big)
{
  reader r = {matrix->data, matrix->bytes, big};
  element flags, dims, name, values;
  if (!next(&r, &flags) || !next(&r, &dims) || !next(&r, &name) || flags.type != TYPE_UINT32 || flags.bytes != 8 ||
      name.type != TYPE_INT8)
    return brim_fail(BRIM_ELOAD, "'%s' is damaged: a variable without flags, dimensions and name", w->path);
  if (name.bytes != strlen(w->name) || memcmp(name.data, w->name, name.bytes) != 0) return BRIM_OK;
  w->found = true;
  const uint32_t bits = (uint32_t)number(flags.data, 4, big), class = bits & 0xFF;
  const size_t count = count_of(&dims, big);
  if (class < CLASS_DOUBLE || class > CLASS_LAST || bits & FLAG_COMPLEX || count == 0 || !next(&r, &values))
    return brim_fail(BRIM_ELOAD, "'%s': '%s' is not a list of numbers", w->path, w->name);
  return take_values(w, &values, count, big);
}

/* ---- Inflating ---- */

/* Inflates a whole stream into memory that grows as needed. The caller frees it. */
static brim_status inflate_all(const wanted *w, const element *packed, uint8_t **out, size_t *bytes)
{
  z_stream z = {.next_in = (uint8_t *)packed->data, .avail_in = (uInt)packed->bytes};
  size_t room = 0;
  int result = inflateInit(&z);
  if (result != Z_OK) return brim_fail(BRIM_ENOMEM_HOST, "no memory to inflate '%s'", w->path);
  while (result == Z_OK && room < INFLATED_BYTES_MAX) {
    const size_t wanted_room = room > 0 ? 2 * room : 65536;
    uint8_t *grown = brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : realloc(*out, wanted_room);
    if (!grown) break;
    *out = grown;
    z.next_out = grown + room;
    z.avail_out = (uInt)(wanted_room - room);
    room = wanted_room;
    result = inflate(&z, Z_NO_FLUSH);
  }
  *bytes = room - z.avail_out;
  inflateEnd(&z);
  if (result == Z_STREAM_END) return BRIM_OK;
  if (result == Z_OK && room < INFLATED_BYTES_MAX)
    return brim_fail(BRIM_ENOMEM_HOST, "no memory to inflate '%s'", w->path);
  return brim_fail(BRIM_ELOAD, "'%s' is damaged: a variable cannot be decompressed", w->path);
}

static brim_status take_packed(wanted *w, const element *packed, bool big)
{
  uint8_t *bytes = NULL;
  size_t count = 0;
  element matrix;
  brim_status status = inflate_all(w, packed, &bytes, &count);
  reader r = {bytes, count, big};
  if (status == BRIM_OK && next(&r, &matrix) && matrix.type == TYPE_MATRIX) status = take_matrix(w, &matrix, big);
  free(bytes);
  return status;
}

/* ---- Files ---- */

static brim_status take_file(wanted *w, const uint8_t *bytes, size_t count)
{
  /* The end of the header: a version, and letters that show the byte order. */
  const uint8_t *end = bytes + HEADER_BYTES - 4;
  const bool big = count >= HEADER_BYTES && memcmp(end, "\x01\x00MI", 4) == 0;
  if (!big && (count < HEADER_BYTES || memcmp(end, "\x00\x01IM", 4) != 0))
    return brim_fail(BRIM_ELOAD, "'%s' is not a file of MATLAB 5 to 7.2 (.mat)", w->path);
  reader r = {bytes + HEADER_BYTES, count - HEADER_BYTES, big};
  element e;
  while (!w->found && next(&r, &e)) {
    if (e.type == TYPE_PACKED) BRIM_TRY(take_packed(w, &e, big));
    if (e.type == TYPE_MATRIX) BRIM_TRY(take_matrix(w, &e, big));
  }
  if (w->found) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s' %s no variable '%s'", w->path,
                   r.left > 0 ? "is damaged: before the damage there is" : "has", w->name);
}

brim_status mat_list_read(const char *path, const char *name, int32_t most, mat_list *out)
{
  wanted w = {path, name, most, false, out};
  char *text;
  size_t bytes;
  *out = (mat_list){0};
  BRIM_TRY(brim_read_file(path, FILE_BYTES_MAX, &text, &bytes));
  const brim_status status = take_file(&w, (const uint8_t *)text, bytes);
  free(text);
  if (status != BRIM_OK) mat_list_free(out);
  return status;
}

void mat_list_free(mat_list *list)
{
  free(list->item);
  *list = (mat_list){0};
}
