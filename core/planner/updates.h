/* The storage in which a federation keeps all updates of a round for an aggregator with `merge` (brim/aggregator.h): a
 * file in which each selected client has a row, and host memory for the block of values that the aggregator gets. */
#ifndef BRIM_PLANNER_UPDATES_H
#define BRIM_PLANNER_UPDATES_H
#include "planner/planner.h"

typedef struct brim_updates_plan {
  int64_t rows;            /* 0: the aggregator needs only the weighted sum, and no updates are kept */
  int64_t values, largest; /* values of an update, and of its largest parameter */
  uint32_t dtype;          /* type of the file's values: that of the parameters */
  int64_t block;           /* most values of a block */
  uint64_t scratch_bytes;  /* scratch memory of the aggregator */
  uint64_t row_bytes, file_bytes, host_bytes;
} brim_updates_plan;

/* [plan] Computes the storage for a federation's plan. It does not depend on the number of lanes. */
brim_updates_plan brim_updates_plan_of(const brim_setup *setup, const brim_plan *plan);
#endif
