/* Samples of one or more CSV files: rows, windows over consecutive rows, or the rows of a group. */
#ifndef CSV_SET_H
#define CSV_SET_H
#include "table.h"

enum csv_side { CSV_FRONT, CSV_BEHIND };

typedef struct csv_params {
  const char *path, *train, *test;
  double test_fraction;
  int32_t separator;
  bool header;
  brim_names features, targets;
  const char *label, *group, *client;
  int64_t sequence, stride, horizon; /* horizon -1: auto */
  int32_t pad, cut, fill;            /* values of enum csv_side, csv_side and csv_fill */
  bool standardise;
} csv_params;

/* The samples of a table. */
typedef struct csv_part {
  const csv_table *table; /* NULL if there is no such part */
  int64_t first;          /* the first row or, with groups, the first group */
  int64_t rows;           /* the number of rows or groups from which samples are made */
  int64_t count;          /* number of samples */
} csv_part;

typedef struct csv_set {
  const csv_params *params;
  csv_wishes wishes;
  csv_chosen chosen;
  csv_names classes;
  csv_table table[2]; /* the training file, and the test file if there is one */
  csv_part train, test;
  int64_t length;           /* rows in a sample; 0 if a sample is a row */
  double *mean, *deviation; /* [features] */
  char summary[1280];       /* a line for the log about the columns in use */
} csv_set;

/* [init] Begins a set, and reads no files yet. Returns ECONFIG if parameters contradict each other. */
brim_status csv_set_begin(const csv_params *params, csv_set *out);

/* [init] Reads the files. Returns ELOAD, ECONFIG or ENOMEM_HOST; *out is then empty. */
brim_status csv_set_open(const csv_params *params, csv_set *out);
void csv_set_free(csv_set *set);
/* [init] Reads samples of another file, without labels and targets. The table must outlive the part. Returns ELOAD or
 * ENOMEM_HOST; *table is then empty. */
brim_status csv_set_read_file(const csv_set *set, const char *path, csv_table *table, csv_part *part);
/* Returns whether there is a test part, without reading files. */
bool csv_set_has_test(const csv_params *params);
/* [any thread] Reads sample `index` of a part: its features, [length, features] or [features], and its class or
 * targets. Without answers, the class is -1 and targets are 0. */
void csv_set_sample(const csv_set *set, const csv_part *part, int64_t index, float *values, void *label);
/* Returns the client of a sample, taken from the row with its answer; -1 if there is no column of clients. */
int64_t csv_set_client(const csv_set *set, const csv_part *part, int64_t index);
#endif
