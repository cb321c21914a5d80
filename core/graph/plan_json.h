/* A plan as JSON, for `brim plan --json` and a run's plan.json. */
#ifndef BRIM_GRAPH_PLAN_JSON_H
#define BRIM_GRAPH_PLAN_JSON_H
#include <jansson.h>

#include "graph/plan.h"

/* A new reference: batch_size, peak_bytes, lower_bound_bytes, persistent_bytes, classes (bytes of each at the peak),
 * peak_operation, recompute (its kind, the operations and FLOPs made again, and these as a share of the FLOPs without),
 * and the programs with their batch, nodes, transient bytes, FLOPs and bytes moved. */
json_t *brim_plan_json(const brim_plan *plan, int64_t batch_size);
#endif
