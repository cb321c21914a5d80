/* What the ranks of a job add up and share, and what a rank does that has nothing of its own to add. See exec.h. */
#include <math.h>

#include "exec/exec_parts.h"
#include "graph/collectives.h"

/* What it would add is zero, and what others add to this rank's parts arrives. */
static brim_status run_needed(brim_exec *exec, const brim_step *step, brim_reduction_walk *walk)
{
  const brim_graph *g = walk->program->graph;
  for (size_t i = 0; i < g->node_count; i++) {
    BRIM_TRY(brim_reduction_before(&exec->reduction, walk, i));
    if (brim_collectives_need(g, g->node[i])) BRIM_TRY(brim_exec_run_node(exec, walk->program, i, step));
  }
  return brim_exec_is_asynchronous(exec) ? BRIM_OK : exec->backend->synchronize(exec->self);
}

brim_status brim_exec_run_empty(brim_exec *exec, const brim_program *program, const brim_step *step)
{
  brim_reduction_walk walk = {.program = program};
  return exec->reduction.dist ? brim_exec_end_walk(exec, &walk, run_needed(exec, step, &walk)) : BRIM_OK;
}

brim_status brim_exec_run_collectives(brim_exec *exec, const brim_program *program)
{
  brim_reduction_walk walk = {.program = program};
  return brim_reduction_before(&exec->reduction, &walk, program->graph->node_count);
}

brim_status brim_exec_reduce(brim_exec *exec, bool failed)
{
  const double none = NAN;
  brim_status status = BRIM_OK;
  if (!exec->reduction.dist) return BRIM_OK;
  if (failed) BRIM_TRY(brim_reduction_settle(&exec->reduction));
  if (failed) status = exec->backend->upload(exec->self, exec->base + exec->plan->metrics_offset, &none, sizeof none);
  BRIM_TRY(brim_reduction_rest(&exec->reduction)); /* whatever came of it, as the others wait for these */
  BRIM_TRY(brim_reduction_metrics(&exec->reduction, 2));
  BRIM_TRY(brim_reduction_order(&exec->reduction));
  return status;
}

brim_status brim_exec_finish_sums(brim_exec *exec)
{
  return brim_reduction_finish(&exec->reduction);
}

brim_status brim_exec_sum_metrics(brim_exec *exec, double *out, size_t count)
{
  if (count * sizeof *out > exec->plan->metrics_bytes)
    return brim_fail(BRIM_EINTERNAL, "%zu metrics asked for, more than the programs make", count);
  BRIM_TRY(brim_exec_wait(exec));
  BRIM_TRY(brim_reduction_metrics(&exec->reduction, count));
  BRIM_TRY(brim_reduction_finish(&exec->reduction));
  return exec->backend->download(exec->self, out, brim_exec_metrics_at(exec), count * sizeof *out);
}

brim_status brim_exec_broadcast(brim_exec *exec)
{
  const brim_plan *plan = exec->plan;
  BRIM_TRY(brim_exec_wait(exec));
  BRIM_TRY(brim_reduction_broadcast(&exec->reduction, plan->frozen_offset, plan->class_bytes[BRIM_ROLE_PARAMETER]));
  return brim_reduction_finish(&exec->reduction);
}
