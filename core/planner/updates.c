#include "planner/updates.h"

#include "brim/aggregator.h"
#include "graph/federate.h"

#define BLOCK_BYTES (16 << 20) /* bytes of the updates in a block; results do not depend on these three numbers */
#define BLOCK_LEAST 64         /* values */
#define BLOCK_MOST 8192

static int64_t block_of(int64_t rows)
{
  const int64_t values = BLOCK_BYTES / (rows * (int64_t)sizeof(double));
  return values < BLOCK_LEAST ? BLOCK_LEAST : values > BLOCK_MOST ? BLOCK_MOST : values;
}

brim_updates_plan brim_updates_plan_of(const brim_setup *s, const brim_plan *plan)
{
  const brim_aggregator_ops *ops = brim_setup_aggregator(s);
  brim_updates_plan u = {.dtype = s->backend_ops->real};
  if (!ops->merge || !s->settings->federate.train || plan->lane_count == 0) return u;
  const brim_graph *g = brim_plan_program(plan->lane[0], BRIM_PROGRAM_ADOPT, 0)->graph;
  const brim_config_choice *choice = brim_config_aggregator(s->config);
  u.rows = brim_setup_round_clients(s);
  u.block = block_of(u.rows);
  u.values = brim_graph_sent(g, true);
  u.largest = brim_graph_largest(g, true);
  if (ops->scratch) u.scratch_bytes = ops->scratch(choice->params, u.rows);
  u.row_bytes = (uint64_t)u.values * brim_dtype_bytes(u.dtype);
  u.file_bytes = (uint64_t)u.rows * u.row_bytes;
  u.host_bytes = u.scratch_bytes + (uint64_t)(u.rows * u.block) * sizeof(double) +
                 (uint64_t)u.block * brim_dtype_bytes(u.dtype) + (uint64_t)u.largest * sizeof(double);
  return u;
}
