/* The traffic of a step: the bytes that its operations move, their arithmetic and their launches, with the least time
 * that they need at a device's rates. */
#ifndef BRIM_PLANNER_TRAFFIC_H
#define BRIM_PLANNER_TRAFFIC_H
#include "base/arena.h"
#include "planner/planner.h"

/* Kinds of traffic besides operations; their numbers follow those of enum brim_op_kind. */
enum { BRIM_TRAFFIC_COLLECTIVES = BRIM_OP_KINDS, BRIM_TRAFFIC_INPUT, BRIM_TRAFFICS };
extern const char *const brim_traffic_names[BRIM_TRAFFICS]; /* "matmul", ... */

/* Sums over a step. */
typedef struct brim_traffic_sum {
  double nodes, launches;
  double flops, bytes;
  /* Lower bounds for the time: all arithmetic alone, all bytes alone, the sum over nodes of the greater of the two, and
   * all launches. All but the last are NAN if the rates are not known. */
  double compute_seconds, memory_seconds, seconds, launch_seconds;
} brim_traffic_sum;

/* Nodes with the same signature. */
typedef struct brim_traffic_row {
  const char *op, *name;  /* names of the first node; `plan` owns them */
  const char *signature;  /* graph/signature.h */
  int kind;               /* enum brim_op_kind, or a kind from the enum above */
  uint32_t dtype;         /* the type in which products are computed: BRIM_DTYPE_F32, ... */
  uint64_t further_bytes; /* the part of `sum.bytes` that the backend adds: see brim_kernel_need */
  brim_traffic_sum sum;
} brim_traffic_row;

typedef struct brim_traffic {
  brim_device_rates rates; /* the device's rates, from a data sheet or measured; 0: unknown */
  bool is_measured;      /* the rates were measured: those of a large product and of a copy, from the device profile */
  brim_traffic_row *row; /* in the order of the programs */
  size_t count;
  brim_traffic_sum kind[BRIM_TRAFFICS], step;
  brim_plan *plan; /* the plan of one micro-batch and the update */
  brim_arena arena;
} brim_traffic;

/* [init] Finds the traffic of a choice's step on this rank. If the device's rates are not known, and timing is not
 * disabled, measures those that the device profile lacks. The caller must release *out in any case. Errors of planning
 * and of brim_planner_time_ceilings. */
brim_status brim_traffic_find(brim_planner *planner, const brim_choice *choice, brim_traffic *out);
void brim_traffic_release(brim_traffic *traffic);

enum brim_bound { BRIM_BOUND_UNKNOWN, BRIM_BOUND_COMPUTE, BRIM_BOUND_MEMORY, BRIM_BOUND_LAUNCHES };
/* Returns the bound that dominates the least time. */
enum brim_bound brim_traffic_bound(const brim_traffic_sum *sum);
extern const char *const brim_bound_names[]; /* "compute", ...; of the first "" */
#endif
