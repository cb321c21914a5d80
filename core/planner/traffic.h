/* The traffic of a step: the bytes that its operations move, their arithmetic and their launches, with the least time
 * that these take at a device's rates. */
#ifndef BRIM_PLANNER_TRAFFIC_H
#define BRIM_PLANNER_TRAFFIC_H
#include "base/arena.h"
#include "planner/planner.h"

/* The traffic of a step besides its operations, after the kinds of enum brim_op_kind. */
enum { BRIM_TRAFFIC_COLLECTIVES = BRIM_OP_KINDS, BRIM_TRAFFIC_INPUT, BRIM_TRAFFICS };
extern const char *const brim_traffic_names[BRIM_TRAFFICS]; /* "matmul", ... */

/* Sums over a step. */
typedef struct brim_traffic_sum {
  double nodes, launches;
  double flops, bytes;
  /* The least seconds: of each node's arithmetic and bytes alone, the greater of the two for each node, and of
   * launches. All but the last are NAN if the rates are not known. */
  double compute_seconds, memory_seconds, seconds, launch_seconds;
} brim_traffic_sum;

/* Nodes with the same signature. */
typedef struct brim_traffic_row {
  const char *op, *name;  /* of the first; belong to `plan` */
  const char *signature;  /* graph/signature.h */
  int kind;               /* enum brim_op_kind, or one of those above */
  uint32_t dtype;         /* in which products are computed: BRIM_DTYPE_F32, ... */
  uint64_t further_bytes; /* of `sum.bytes`, those that the backend adds: see brim_kernel_need */
  brim_traffic_sum sum;
} brim_traffic_row;

typedef struct brim_traffic {
  brim_device_rates rates; /* of the device, or measured; 0: unknown */
  bool is_measured;        /* rates are those of a large product and a copy, from the device profile */
  brim_traffic_row *row;   /* in the order of the programs */
  size_t count;
  brim_traffic_sum kind[BRIM_TRAFFICS], step;
  brim_plan *plan; /* of one micro-batch and the update */
  brim_arena arena;
} brim_traffic;

/* [init] Finds the traffic of a choice's step on this rank. If the device's rates are not known, and timing is not
 * disabled, measures those that the device profile lacks. The caller must release *out in any case. Errors of planning
 * and of brim_planner_time_ceilings. */
brim_status brim_traffic_find(brim_planner *planner, const brim_choice *choice, brim_traffic *out);
void brim_traffic_release(brim_traffic *traffic);

enum brim_bound { BRIM_BOUND_UNKNOWN, BRIM_BOUND_COMPUTE, BRIM_BOUND_MEMORY, BRIM_BOUND_LAUNCHES };
/* The largest part of the least time. */
enum brim_bound brim_traffic_bound(const brim_traffic_sum *sum);
extern const char *const brim_bound_names[]; /* "compute", ...; of the first "" */
#endif
