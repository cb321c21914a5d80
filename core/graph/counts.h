/* Counts the costly parts of planning in this process: a measure that does not depend on the machine, for tests. */
#ifndef BRIM_GRAPH_COUNTS_H
#define BRIM_GRAPH_COUNTS_H
#include <stdint.h>

enum brim_counted {
  BRIM_COUNTED_PLANS,    /* made: see brim_plan_create */
  BRIM_COUNTED_GRAPHS,   /* built from a model */
  BRIM_COUNTED_PLACED,   /* programs whose buffers were placed */
  BRIM_COUNTED_SEARCHES, /* searches for the tensors to recompute */
  BRIM_COUNTED
};
void brim_count(enum brim_counted what);
uint64_t brim_count_of(enum brim_counted what);
#endif
