/* Chooses the columns of a file and their uses. The training file decides; in other files, columns with the same names
 * are read. */
#ifndef CSV_COLUMNS_H
#define CSV_COLUMNS_H
#include "brim/plugin.h"
#include "reader.h"

#define CSV_SHOWN_ROOM 24
#define CSV_LEFT_OUT_ROOM 512

enum csv_kind { CSV_EMPTY, CSV_NUMBER, CSV_TEXT }; /* the kind of a column, after its first value that is not missing */

/* The columns and size of a file. */
typedef struct csv_header {
  int32_t columns;
  char **name; /* owned; "1", "2" and so on if there is no header line */
  enum csv_kind *kind;
  char (*first)[CSV_SHOWN_ROOM]; /* the start of a text column's first value */
  int64_t records;               /* without the header line */
} csv_header;

/* The requested columns, under the names of the parameters; "" if there is no such column. */
typedef struct csv_wishes {
  bool has_header, with_targets; /* with_targets: targets are also features by default */
  brim_names features, targets;
  const char *label, *group, *client;
} csv_wishes;

/* The names of the chosen columns, in order. */
typedef struct csv_chosen {
  char **feature, **target; /* owned */
  int32_t features, targets;
  const char *label, *group, *client; /* as requested; "" if there is no such column */
  char left_out[CSV_LEFT_OUT_ROOM];   /* for messages: the unused columns and why they are unused; "" if all are used */
} csv_chosen;

/* The uses of a column in a file. A column may have several. */
typedef struct csv_use {
  int32_t feature, target; /* the index of the feature or target, or -1 */
  bool label, group, client;
} csv_use;

/* [init] Reads the whole file. Every record must have as many fields as the first one. Leaves the reader after the
 * header line. Returns ELOAD or ENOMEM_HOST; *out is then empty. */
brim_status csv_header_read(csv_reader *reader, bool has_header, csv_header *out);
void csv_header_free(csv_header *header);

/* [init] Chooses the columns. Returns ECONFIG, with a list of the file's columns, if a column is missing, or ELOAD;
 * *out is then empty. */
brim_status csv_choose(const csv_header *header, const char *file, const csv_wishes *wishes, csv_chosen *out);
void csv_chosen_free(csv_chosen *chosen);

/* [init] Makes a list of the uses of a file's columns; the caller frees it. Without `answers`, targets and label are
 * not read and may be missing. Returns ELOAD or ENOMEM_HOST. */
brim_status csv_use_of(const csv_header *header, const char *file, const csv_chosen *chosen, bool answers,
                       csv_use **out);

/* Returns whether a value is missing: an empty field, NA, NaN, null, None or ?. */
bool csv_is_missing(const csv_field *field);
/* Returns whether a field is a decimal number within a float's range; blanks around it are allowed. */
bool csv_is_number(const csv_field *field, double *out);
#endif
