/* Reading metrics.jsonl back: the curves of a run. */
#ifndef BRIM_OBSERVE_METRICS_H
#define BRIM_OBSERVE_METRICS_H
#include <stddef.h>

#include "base/arena.h"

enum brim_split { BRIM_SPLIT_TRAIN, BRIM_SPLIT_VALIDATION, BRIM_SPLIT_TEST, BRIM_SPLIT_COUNT };

typedef struct brim_series {
  double *step, *loss, *accuracy; /* `count` each, in the file's order; NAN where there is no number */
  size_t count, room;
} brim_series;

typedef struct brim_metrics {
  brim_series split[BRIM_SPLIT_COUNT];
} brim_metrics;

/* Everything lives in `arena`. Lines that are not records (the last one of a run that was killed) are left out. ELOAD
 * if the file cannot be read. */
brim_status brim_metrics_read(brim_arena *arena, const char *path, brim_metrics *out);
#endif
