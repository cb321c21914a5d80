/* See table.h. */
#include "table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)

/* Reads a number at *at. A space or the end of the line must follow it. */
static int take_number(char **at, double *out)
{
  char *end;
  while (**at == ' ' || **at == '\t') (*at)++;
  if (**at == '\0') return 0;
  *out = strtod(*at, &end);
  const int whole = end > *at && (*end == ' ' || *end == '\t' || *end == '\0') && isfinite(*out);
  *at = end;
  return whole;
}

static int take_line(char *line, size_t number, int numbers, cub200_row *row)
{
  double own;
  if (!take_number(&line, &own) || own != (double)number) return 0;
  for (int i = 0; i < numbers; i++)
    if (!take_number(&line, &row->number[i])) return 0;
  while (*line == ' ' || *line == '\t') line++;
  row->text = numbers == 0 ? line : NULL;
  return numbers == 0 ? *line != '\0' : *line == '\0';
}

/* Ends a line with a 0 byte and returns the start of the next line. */
static char *end_line(char *line, char *end)
{
  char *stop = memchr(line, '\n', (size_t)(end - line));
  char *next = stop ? stop + 1 : end;
  if (!stop) stop = end;
  while (stop > line && (stop[-1] == '\r' || stop[-1] == ' ')) stop--;
  *stop = '\0';
  return next;
}

static brim_status take_lines(const char *path, int numbers, size_t bytes, cub200_table *t)
{
  size_t lines = 1;
  for (size_t i = 0; i < bytes; i++) lines += t->bytes[i] == '\n';
  t->row = brim_try_calloc(lines, sizeof *t->row);
  if (!t->row) return brim_fail(BRIM_ENOMEM_HOST, "no memory for '%s'", path);
  char *end = t->bytes + bytes;
  for (char *line = t->bytes, *next; line < end; line = next) {
    next = end_line(line, end);
    if (line[0] == '\0' && next == end) break;
    if (!take_line(line, t->count + 1, numbers, &t->row[t->count]))
      return brim_fail(BRIM_ELOAD, "'%s', line %zu: '%zu' and %s expected, got '%.100s'", path, t->count + 1,
                       t->count + 1,
                       numbers == 0   ? "a name are"
                       : numbers == 1 ? "a number are"
                                      : "numbers are",
                       line);
    t->count++;
  }
  return t->count > 0 ? BRIM_OK : brim_fail(BRIM_ELOAD, "'%s' is empty", path);
}

brim_status cub200_table_read(const char *path, int numbers, cub200_table *out)
{
  size_t bytes = 0;
  *out = (cub200_table){0};
  brim_status status = brim_read_file(path, FILE_BYTES_MAX, &out->bytes, &bytes);
  if (status == BRIM_OK) status = take_lines(path, numbers, bytes, out);
  if (status != BRIM_OK) cub200_table_free(out);
  return status;
}

void cub200_table_free(cub200_table *t)
{
  free(t->bytes);
  free(t->row);
  *t = (cub200_table){0};
}
