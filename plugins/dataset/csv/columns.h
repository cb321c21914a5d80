/* Which columns of a file are read, and as what. Chosen by the training file; others are read by the same names. */
#ifndef CSV_COLUMNS_H
#define CSV_COLUMNS_H
#include "brim/plugin.h"
#include "reader.h"

#define CSV_SHOWN_ROOM 24
#define CSV_LEFT_OUT_ROOM 512

enum csv_kind { CSV_EMPTY, CSV_NUMBER, CSV_TEXT }; /* what a column's first value is that is not missing */

/* What a first look at a file finds. */
typedef struct csv_header {
  int32_t columns;
  char **name; /* owned; without a header line "1", "2", ... */
  enum csv_kind *kind;
  char (*first)[CSV_SHOWN_ROOM]; /* the beginning of that value, where it is text */
  int64_t records;               /* without the header line */
} csv_header;

/* What somebody asked for. Names are the parameters', one that is not wanted is "". */
typedef struct csv_wishes {
  bool has_header, with_targets; /* with_targets: where no features are named, targets are among them */
  brim_names features, targets;
  const char *label, *group, *client;
} csv_wishes;

/* The names of what is read, in order. */
typedef struct csv_chosen {
  char **feature, **target; /* owned */
  int32_t features, targets;
  const char *label, *group, *client; /* the wishes'; "": none */
  char left_out[CSV_LEFT_OUT_ROOM];   /* columns that are none of these, and why, for people; "": there are none */
} csv_chosen;

/* What a column of a file is. A column may be several. */
typedef struct csv_use {
  int32_t feature, target; /* which one; -1: none */
  bool label, group, client;
} csv_use;

/* [init] Reads a file whole: every record must have as many fields as the first. Leaves the reader behind the header
 * line. ELOAD, ENOMEM_HOST; *out is then empty. */
brim_status csv_header_read(csv_reader *reader, bool has_header, csv_header *out);
void csv_header_free(csv_header *header);

/* [init] ECONFIG: no such column, with those that there are; ELOAD. *out is then empty. */
brim_status csv_choose(const csv_header *header, const char *file, const csv_wishes *wishes, csv_chosen *out);
void csv_chosen_free(csv_chosen *chosen);

/* [init] What each of a file's columns is, a list to be freed. Without `answers`, targets and label are not
 * read, and need not be there. ELOAD, ENOMEM_HOST. */
brim_status csv_use_of(const csv_header *header, const char *file, const csv_chosen *chosen, bool answers,
                       csv_use **out);

/* A value that is not there: an empty field, NA, NaN, null, None or ?. */
bool csv_is_missing(const csv_field *field);
/* A decimal number, with blanks around it or without, not larger than a float can be. */
bool csv_is_number(const csv_field *field, double *out);
#endif
