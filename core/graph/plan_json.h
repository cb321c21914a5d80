/* A plan as JSON, for `brim plan --json` and a run's plan.json. */
#ifndef BRIM_GRAPH_PLAN_JSON_H
#define BRIM_GRAPH_PLAN_JSON_H
#include <jansson.h>

#include "base/text.h"
#include "graph/plan.h"

/* Returns a new reference: batch_size, peak_bytes, lower_bound_bytes, persistent_bytes, classes (bytes at the peak by
 * role), peak_operation, recompute (its kind, the recomputed operations and FLOPs, and the FLOPs as a share of those
 * without recompute), and the programs with their batch, nodes, transient bytes, FLOPs and bytes moved. */
json_t *brim_plan_json(const brim_plan *plan, int64_t batch_size);
/* Returns a new reference: the number of operations of all programs that each library computes, and that the backend's
 * own kernels compute ("own"); a federation also counts those of one lane. "refused" lists the operations that a faster
 * library does not support, by operation and reason; "slower" estimates how many times as long they take. */
json_t *brim_plan_kernels_json(const brim_plan *plan);
/* Adds a line for each entry of "refused" to an empty text: "24 x 'attention' with the backend's own, slower kernel
 * (about 12 times the time): cuDNN does not offer it". */
void brim_plan_print_refused(const brim_plan *plan, brim_text *out);
#endif
