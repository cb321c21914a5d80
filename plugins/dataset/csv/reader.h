/* Reads the fields of a CSV file in order (RFC 4180), one buffer after another:
 *
 *     a field is plain or "quoted"; if quoted, it may contain separators, line ends, and quotes written as ""
 *     a record ends with LF, CR LF or CR, or at the end of the file
 *     an empty line is not a record
 *
 * Text is UTF-8, with a byte order mark or without. */
#ifndef CSV_READER_H
#define CSV_READER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#define CSV_FIELD_BYTES_MAX ((size_t)1 << 20)

typedef struct csv_field {
  const char *text; /* NUL-terminated, without the quotes around it; valid until the next call */
  size_t bytes;
  int64_t line;   /* the line on which the field begins, from 1 */
  int32_t column; /* from 0 */
  bool quoted;
  bool last; /* the field is the last of its record */
} csv_field;

typedef struct csv_reader csv_reader;
/* [init] Reads from the start of `fd`, an open regular file that the caller closes. `name` is used in messages and must
 * outlive the reader. Returns ELOAD or ENOMEM_HOST. */
brim_status csv_reader_open(int fd, const char *name, char separator, csv_reader **out);
/* [init] Reads the next field, or sets *more to false at the end. Returns ELOAD with the place and the error. */
brim_status csv_reader_next(csv_reader *reader, csv_field *out, bool *more);
/* [init] Starts again at the beginning of the file. Returns ELOAD if that fails. */
brim_status csv_reader_rewind(csv_reader *reader);
const char *csv_reader_name(const csv_reader *reader);
void csv_reader_close(csv_reader *reader); /* no-op for NULL */
#endif
