/* The numbers of a CSV file. Features are doubles until they are standardised: of the seconds since 1970, or of dates
 * as 20240101, a float keeps too little to tell days apart. What stays in memory are floats. */
#ifndef CSV_TABLE_H
#define CSV_TABLE_H
#include "columns.h"
#include "names.h"

typedef struct csv_table {
  char *file; /* its name, owned */
  int64_t rows;
  int32_t features, targets;
  double *value;   /* [rows, features] as in the file, NaN where one is missing; NULL from csv_table_fill on */
  float *feature;  /* [rows, features], from csv_table_fill on */
  float *target;   /* [rows, targets]; NULL: none */
  int32_t *label;  /* [rows], numbers of class names; NULL: none */
  int32_t *client; /* [rows], the numbers of clients in the order of their names; NULL: none */
  int64_t *order;  /* [rows]: rows by group, in a group as in the file; NULL: no groups */
  int64_t *begin;  /* [groups + 1]: the first of each group's in `order` */
  int32_t groups;
  uint64_t bytes; /* of all that stays */
} csv_table;

/* What stands for a feature that is missing: an error that names the place, NaN (see csv_table_fill), or 0. */
enum csv_fill { CSV_FILL_NO, CSV_FILL_MEAN, CSV_FILL_ZERO };

typedef struct csv_reading {
  char separator;
  bool answers; /* targets and labels are read */
  enum csv_fill fill;
  const csv_wishes *wishes;
} csv_reading;

/* [init] Reads a file. `chosen`: which columns; empty ones are chosen by this file. `classes`: names of classes; where
 * there are none they are this file's, sorted, else another name is an error. ELOAD says the line and the column;
 * ECONFIG, ENOMEM_HOST. On failure *out is empty, and chosen and classes are for the caller to free. */
brim_status csv_table_read(const char *file, const csv_reading *how, csv_chosen *chosen, csv_names *classes,
                           csv_table *out);
void csv_table_free(csv_table *table);

/* [init] Mean and deviation of each feature's values in rows row[0], row[1], ... or, if it is NULL, 0 .. count - 1;
 * what is missing is left out. The deviation is that of the values themselves (divided by their number), 1 where it is
 * 0. ELOAD: a feature without a value. */
brim_status csv_table_measure(const csv_table *table, const csv_chosen *chosen, const int64_t *row, int64_t count,
                              double *mean, double *deviation);
/* [init] Makes the features of the values, in the same memory: missing values are replaced by the mean; then, if asked,
 * (x - mean) / deviation. */
void csv_table_fill(csv_table *table, const double *mean, const double *deviation, bool standardise);
#endif
