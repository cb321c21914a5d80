/* The numbers of a CSV file. Features are doubles until they are standardised, because a float cannot distinguish close
 * dates, written as seconds since 1970 or as numbers such as 20240101. The standardised values stay in memory as
 * floats. */
#ifndef CSV_TABLE_H
#define CSV_TABLE_H
#include "columns.h"
#include "names.h"

typedef struct csv_table {
  char *file; /* the file's name, owned */
  int64_t rows;
  int32_t features, targets;
  double *value;   /* [rows, features]: as in the file, NaN for missing values; NULL after csv_table_fill */
  float *feature;  /* [rows, features]: set by csv_table_fill */
  float *target;   /* [rows, targets] or NULL */
  int32_t *label;  /* [rows]: numbers of class names; or NULL */
  int32_t *client; /* [rows]: numbers of clients in the order of their names; or NULL */
  int64_t *order;  /* [rows]: rows sorted by group, in each group as in the file; NULL without groups */
  int64_t *begin;  /* [groups + 1]: where each group begins in `order` */
  int32_t groups;
  uint64_t bytes; /* bytes of all memory that stays */
} csv_table;

/* The treatment of a missing feature: an error that names the place, NaN (see csv_table_fill), or 0. */
enum csv_fill { CSV_FILL_NO, CSV_FILL_MEAN, CSV_FILL_ZERO };

typedef struct csv_reading {
  char separator;
  bool answers; /* reads targets and labels */
  enum csv_fill fill;
  const csv_wishes *wishes;
} csv_reading;

/* [init] Reads a file. `chosen`: the columns; if empty, this file determines them. `classes`: names of classes; if
 * empty, they become the sorted names of this file, otherwise an unknown name is an error. Returns ELOAD with line and
 * column, ECONFIG or ENOMEM_HOST. *out is then empty, and the caller frees chosen and classes. */
brim_status csv_table_read(const char *file, const csv_reading *how, csv_chosen *chosen, csv_names *classes,
                           csv_table *out);
void csv_table_free(csv_table *table);

/* [init] Computes mean and deviation of each feature, without missing values, over the rows row[0], row[1], ... or, if
 * row is NULL, 0 .. count - 1. The deviation is that of the population (divided by the number of values), or 1 if that
 * is 0. Returns ELOAD if a feature has no value. */
brim_status csv_table_measure(const csv_table *table, const csv_chosen *chosen, const int64_t *row, int64_t count,
                              double *mean, double *deviation);
/* [init] Makes the features from the values, in the same memory: replaces missing values by the mean and then, if
 * requested, standardises: (x - mean) / deviation. */
void csv_table_fill(csv_table *table, const double *mean, const double *deviation, bool standardise);
#endif
