/* Reads metrics.jsonl back: the curves of a run. */
#ifndef BRIM_OBSERVE_METRICS_H
#define BRIM_OBSERVE_METRICS_H
#include <stddef.h>

#include "base/arena.h"
#include "base/part.h"

#define BRIM_SERIES_COLUMNS_MAX 64 /* most different numbers in a series; others in a file are ignored */

/* A number of the records, such as "loss". */
typedef struct brim_column {
  const char *name;
  double *value; /* one per record; NAN where the record lacks the number */
} brim_column;

/* The records of a split, in the file's order. */
typedef struct brim_series {
  double *step;                                /* [count] */
  brim_column column[BRIM_SERIES_COLUMNS_MAX]; /* all numbers except the step, in order of first appearance */
  size_t columns, count, room;
} brim_series;

typedef struct brim_metrics {
  brim_series split[BRIM_PART_COUNT];
} brim_metrics;

/* `arena` owns the result. Ignores lines that are not records, such as the last line of a killed run. ELOAD if the file
 * cannot be read. */
brim_status brim_metrics_read(brim_arena *arena, const char *path, brim_metrics *out);
/* The values of a column; NULL if no record has such a number. */
const double *brim_series_values(const brim_series *series, const char *name);
/* The newest record's value; NAN if it has none. */
double brim_series_last(const brim_series *series, const char *name);
#endif
