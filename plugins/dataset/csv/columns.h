/* Which columns of a file are read, and how. The training file decides; in other files the columns of the same names
 * are read. */
#ifndef CSV_COLUMNS_H
#define CSV_COLUMNS_H
#include "brim/plugin.h"
#include "reader.h"

#define CSV_SHOWN_ROOM 24
#define CSV_LEFT_OUT_ROOM 512

enum csv_kind { CSV_EMPTY, CSV_NUMBER, CSV_TEXT }; /* the kind of a column's first value that is not missing */

/* The columns and size of a file. */
typedef struct csv_header {
  int32_t columns;
  char **name; /* owned; without a header line "1", "2", ... */
  enum csv_kind *kind;
  char (*first)[CSV_SHOWN_ROOM]; /* the beginning of a text column's first value */
  int64_t records;               /* without the header line */
} csv_header;

/* The requested columns, by the parameters' names; "" for none. */
typedef struct csv_wishes {
  bool has_header, with_targets; /* with_targets: targets are default features too */
  brim_names features, targets;
  const char *label, *group, *client;
} csv_wishes;

/* The names of the columns that are read, in order. */
typedef struct csv_chosen {
  char **feature, **target; /* owned */
  int32_t features, targets;
  const char *label, *group, *client; /* as requested; "" for none */
  char left_out[CSV_LEFT_OUT_ROOM];   /* for messages: unused columns, and why they are unused; "" if all are used */
} csv_chosen;

/* The uses of a column of a file; it may have several. */
typedef struct csv_use {
  int32_t feature, target; /* index; -1 for no */
  bool label, group, client;
} csv_use;

/* [init] Reads the whole file: every record must have as many fields as the first. Leaves the reader after the header
 * line. ELOAD, ENOMEM_HOST; *out is then empty. */
brim_status csv_header_read(csv_reader *reader, bool has_header, csv_header *out);
void csv_header_free(csv_header *header);

/* [init] Chooses the columns. ECONFIG, with a list of the file's columns, if a column is missing; ELOAD. *out is then
 * empty. */
brim_status csv_choose(const csv_header *header, const char *file, const csv_wishes *wishes, csv_chosen *out);
void csv_chosen_free(csv_chosen *chosen);

/* [init] Makes a list of the uses of a file's columns, to be freed. Without `answers`, targets and label are not read
 * and may be missing. ELOAD, ENOMEM_HOST. */
brim_status csv_use_of(const csv_header *header, const char *file, const csv_chosen *chosen, bool answers,
                       csv_use **out);

/* Returns whether a value is missing: an empty field, NA, NaN, null, None or ?. */
bool csv_is_missing(const csv_field *field);
/* Returns whether a field is a decimal number within a float's range; blanks around it are allowed. */
bool csv_is_number(const csv_field *field, double *out);
#endif
