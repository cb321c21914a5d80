/* Reads the fields of a CSV file. One buffer holds input bytes, another the current field; neither grows with the
 * file. */
#include "reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "brim/host.h"

#define INPUT_BYTES ((size_t)256 * 1024)
#define END (-1)
#define COLUMNS_MAX 1000000

struct csv_reader {
  const char *name;
  int fd;
  char separator;
  size_t at, filled;  /* positions in `input` */
  int64_t line;       /* line of the next byte */
  int32_t column;     /* column of the next field */
  bool in_record;     /* a separator was read, so another field follows, which may be empty */
  brim_status status; /* error while reading the file */
  size_t bytes;       /* used bytes of `text` */
  unsigned char input[INPUT_BYTES];
  char text[CSV_FIELD_BYTES_MAX + 1];
};

/* ---- bytes ---- */

static void fill_input(csv_reader *r)
{
  ssize_t n;
  do n = read(r->fd, r->input, sizeof r->input);
  while (n < 0 && errno == EINTR);
  if (n < 0) r->status = brim_fail(BRIM_ELOAD, "cannot read '%s': %s", r->name, strerror(errno));
  r->at = 0;
  r->filled = n > 0 ? (size_t)n : 0;
}

/* Returns the next byte without consuming it. Returns END at the end of the file or after a read error. */
static int peek(csv_reader *r)
{
  if (r->at == r->filled && r->status == BRIM_OK) fill_input(r);
  return r->at < r->filled ? r->input[r->at] : END;
}

static void skip(csv_reader *r)
{
  r->at++;
}

/* Consumes a line end: LF, CR LF or CR. */
static void skip_line_end(csv_reader *r)
{
  const int first = peek(r);
  skip(r);
  if (first == '\r' && peek(r) == '\n') skip(r);
  r->line++;
}

static bool is_line_end(int c)
{
  return c == '\n' || c == '\r';
}

static brim_status gather(csv_reader *r, int c)
{
  if (c == '\0')
    return brim_fail(BRIM_ELOAD,
                     "'%s', line %" PRId64
                     ": a byte of 0, which text must not contain\nif the file is UTF-16, save it as UTF-8",
                     r->name, r->line);
  if (r->bytes == CSV_FIELD_BYTES_MAX)
    return brim_fail(BRIM_ELOAD, "'%s', line %" PRId64 ": a field of more than %zu bytes", r->name, r->line,
                     CSV_FIELD_BYTES_MAX);
  r->text[r->bytes++] = (char)c;
  return BRIM_OK;
}

/* ---- opening ---- */

/* Skips UTF-8's byte order mark. Refuses the mark of another encoding. */
static brim_status skip_mark(csv_reader *r)
{
  peek(r);
  BRIM_TRY(r->status);
  const unsigned char *b = r->input;
  if (r->filled >= 2 && ((b[0] == 0xff && b[1] == 0xfe) || (b[0] == 0xfe && b[1] == 0xff)))
    return brim_fail(BRIM_ELOAD, "'%s' is UTF-16; save it as UTF-8", r->name);
  if (r->filled >= 2 && b[0] == 0x1f && b[1] == 0x8b)
    return brim_fail(BRIM_ELOAD, "'%s' is compressed; decompress it with `gzip -d`", r->name);
  if (r->filled >= 3 && memcmp(b, "\xef\xbb\xbf", 3) == 0) r->at = 3;
  return BRIM_OK;
}

brim_status csv_reader_rewind(csv_reader *r)
{
  if (lseek(r->fd, 0, SEEK_SET) < 0) return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", r->name, strerror(errno));
  r->at = r->filled = r->bytes = 0;
  r->line = 1;
  r->column = 0;
  r->in_record = false;
  r->status = BRIM_OK;
  return skip_mark(r);
}

brim_status csv_reader_open(int fd, const char *name, char separator, csv_reader **out)
{
  struct stat st;
  *out = NULL;
  if (fstat(fd, &st) != 0) return brim_fail(BRIM_ELOAD, "cannot read '%s': %s", name, strerror(errno));
  if (!S_ISREG(st.st_mode)) return brim_fail(BRIM_ELOAD, "'%s' is not a regular file", name);
  csv_reader *r = brim_try_calloc(1, sizeof *r);
  if (!r) return brim_fail(BRIM_ENOMEM_HOST, "no memory to read '%s'", name);
  r->name = name;
  r->fd = fd;
  r->separator = separator;
  const brim_status status = csv_reader_rewind(r);
  if (status == BRIM_OK)
    *out = r;
  else
    csv_reader_close(r);
  return status;
}

void csv_reader_close(csv_reader *reader)
{
  free(reader);
}

const char *csv_reader_name(const csv_reader *reader)
{
  return reader->name;
}

/* ---- fields ---- */

/* Returns the number of bytes of the UTF-8 character (RFC 3629) at s, or 0 if it is invalid. */
static size_t character_bytes(const unsigned char *s, size_t room)
{
  const size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3 : 4;
  if (n > room || (s[0] >= 0x80 && s[0] < 0xc2) || s[0] > 0xf4) return 0;
  for (size_t i = 1; i < n; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  const bool is_long = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90); /* overlong */
  /* Excludes surrogates and values that are too large. */
  const bool is_none = (s[0] == 0xed && s[1] >= 0xa0) || (s[0] == 0xf4 && s[1] >= 0x90);
  return is_long || is_none ? 0 : n;
}

static brim_status check_text(const csv_reader *r, int64_t line)
{
  for (size_t i = 0; i < r->bytes;) {
    const size_t n = character_bytes((const unsigned char *)r->text + i, r->bytes - i);
    if (n == 0)
      return brim_fail(BRIM_ELOAD, "'%s', line %" PRId64 ", column %d: byte %02x is not UTF-8\nsave the file as UTF-8",
                       r->name, line, r->column + 1, (unsigned char)r->text[i]);
    i += n;
  }
  return BRIM_OK;
}

static brim_status read_quoted(csv_reader *r)
{
  const int64_t line = r->line;
  skip(r);
  for (;;) {
    const int c = peek(r);
    if (c == END)
      return r->status != BRIM_OK
                 ? r->status
                 : brim_fail(BRIM_ELOAD, "'%s', line %" PRId64 ", column %d: the quote is never closed", r->name, line,
                             r->column + 1);
    if (is_line_end(c)) {
      BRIM_TRY(gather(r, '\n'));
      skip_line_end(r);
      continue;
    }
    skip(r);
    if (c == '"') {
      if (peek(r) != '"') break;
      skip(r);
    }
    BRIM_TRY(gather(r, c));
  }
  const int c = peek(r);
  if (c == END || is_line_end(c) || c == (unsigned char)r->separator) return r->status;
  return brim_fail(BRIM_ELOAD,
                   "'%s', line %" PRId64 ", column %d: text after the closing quote\n"
                   "write a quote inside a quoted field twice",
                   r->name, r->line, r->column + 1);
}

/* Reads an unquoted field, in runs of as many bytes as the buffer has. */
static brim_status read_plain(csv_reader *r)
{
  while (peek(r) != END) {
    const unsigned char *s = r->input + r->at;
    const size_t room = r->filled - r->at, left = CSV_FIELD_BYTES_MAX - r->bytes;
    size_t n = 0;
    while (n < room && n < left && s[n] && !is_line_end(s[n]) && s[n] != (unsigned char)r->separator) n++;
    memcpy(r->text + r->bytes, s, n);
    r->bytes += n;
    r->at += n;
    if (n == room) continue;
    if (is_line_end(s[n]) || s[n] == (unsigned char)r->separator) break;
    BRIM_TRY(gather(r, s[n])); /* fails, because of a zero byte or of one byte too many */
  }
  return r->status;
}

brim_status csv_reader_next(csv_reader *r, csv_field *out, bool *more)
{
  while (!r->in_record && is_line_end(peek(r))) skip_line_end(r);
  *more = r->in_record || peek(r) != END;
  BRIM_TRY(r->status);
  if (!*more) return BRIM_OK;
  *out = (csv_field){.line = r->line, .column = r->column, .quoted = peek(r) == '"'};
  r->bytes = 0;
  BRIM_TRY(out->quoted ? read_quoted(r) : read_plain(r));
  BRIM_TRY(check_text(r, out->line));
  r->text[r->bytes] = '\0';
  out->text = r->text;
  out->bytes = r->bytes;
  const int c = peek(r);
  BRIM_TRY(r->status);
  out->last = c == END || is_line_end(c);
  r->in_record = !out->last;
  r->column = out->last ? 0 : r->column + 1;
  if (r->column == COLUMNS_MAX)
    return brim_fail(BRIM_ELOAD, "'%s', line %" PRId64 ": more than %d fields", r->name, r->line, COLUMNS_MAX);
  if (is_line_end(c)) skip_line_end(r);
  if (c != END && !is_line_end(c)) skip(r);
  return BRIM_OK;
}
