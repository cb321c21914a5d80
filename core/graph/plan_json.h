/* A plan as JSON, for `brim plan --json` and a run's plan.json. */
#ifndef BRIM_GRAPH_PLAN_JSON_H
#define BRIM_GRAPH_PLAN_JSON_H
#include <jansson.h>

#include "base/text.h"
#include "graph/plan.h"

/* A new reference: batch_size, peak_bytes, lower_bound_bytes, persistent_bytes, classes (bytes of each at the peak),
 * peak_operation, recompute (its kind, the operations and FLOPs made again, and these as a share of the FLOPs without),
 * and the programs with their batch, nodes, transient bytes, FLOPs and bytes moved. */
json_t *brim_plan_json(const brim_plan *plan, int64_t batch_size);
/* A new reference: how many operations of all programs each library computes, and kernels of the backend's own
 * ("own"); "refused": of which a library that would be faster computes none, by operation and reason. */
json_t *brim_plan_kernels_json(const brim_plan *plan);
/* A line for each operation and reason of those: "24 x 'attention' by the backend's own kernel, which is slower: cuDNN
 * does not offer it". */
void brim_plan_tell_refused(const brim_plan *plan, brim_text *out);
#endif
