/* The numbers of a CSV file. Features are doubles until they are standardised, because a float cannot distinguish days
 * in seconds since 1970 or in dates such as 20240101. The values stay in memory as floats. */
#ifndef CSV_TABLE_H
#define CSV_TABLE_H
#include "columns.h"
#include "names.h"

typedef struct csv_table {
  char *file; /* its name, owned */
  int64_t rows;
  int32_t features, targets;
  double *value;   /* [rows, features] as in the file, NaN for missing values; NULL after csv_table_fill */
  float *feature;  /* [rows, features], after csv_table_fill */
  float *target;   /* [rows, targets], or NULL */
  int32_t *label;  /* [rows], numbers of class names, or NULL */
  int32_t *client; /* [rows], numbers of clients in the order of their names, or NULL */
  int64_t *order;  /* [rows], rows by group, within a group as in the file; NULL without groups */
  int64_t *begin;  /* [groups + 1]: where each group begins in `order` */
  int32_t groups;
  uint64_t bytes; /* of all memory that stays */
} csv_table;

/* The treatment of a missing feature: an error that names the place, NaN (see csv_table_fill), or 0. */
enum csv_fill { CSV_FILL_NO, CSV_FILL_MEAN, CSV_FILL_ZERO };

typedef struct csv_reading {
  char separator;
  bool answers; /* targets and labels are read */
  enum csv_fill fill;
  const csv_wishes *wishes;
} csv_reading;

/* [init] Reads a file. `chosen`: the columns; if empty, this file decides. `classes`: names of classes; if empty, they
 * become this file's, sorted; otherwise an unknown name is an error. ELOAD names the line and the column; ECONFIG,
 * ENOMEM_HOST. On failure *out is empty, and the caller frees chosen and classes. */
brim_status csv_table_read(const char *file, const csv_reading *how, csv_chosen *chosen, csv_names *classes,
                           csv_table *out);
void csv_table_free(csv_table *table);

/* [init] Computes mean and deviation of each feature over rows row[0], row[1], ... or, if row is NULL, 0 .. count - 1,
 * without missing values. The deviation is the population's (divided by the number of values), or 1 instead of 0. ELOAD
 * if a feature has no value. */
brim_status csv_table_measure(const csv_table *table, const csv_chosen *chosen, const int64_t *row, int64_t count,
                              double *mean, double *deviation);
/* [init] Makes the features from the values, in the same memory: replaces missing values by the mean, then standardises
 * if requested: (x - mean) / deviation. */
void csv_table_fill(csv_table *table, const double *mean, const double *deviation, bool standardise);
#endif
