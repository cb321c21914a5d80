/* Sums over the ranks of a job, and broadcasts. See exec.h. */
#include <math.h>

#include "exec/exec_parts.h"

brim_status brim_exec_reduce(brim_exec *exec, bool failed)
{
  const double none = NAN;
  brim_status status = BRIM_OK;
  if (!exec->reduction.dist) return BRIM_OK;
  if (!failed) status = brim_exec_settle_gradients(exec); /* a rank without samples has not zeroed its gradients yet */
  if (failed) BRIM_TRY(brim_reduction_settle(&exec->reduction));
  if (failed) status = exec->backend->upload(exec->self, exec->base + exec->plan->metrics_offset, &none, sizeof none);
  /* Runs even after a failure, because the other ranks wait for these sums. */
  BRIM_TRY(brim_reduction_rest(&exec->reduction));
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
    return brim_fail(BRIM_EINTERNAL, "%zu metrics requested, more than the programs compute", count);
  BRIM_TRY(brim_exec_wait(exec));
  BRIM_TRY(brim_reduction_metrics(&exec->reduction, count));
  BRIM_TRY(brim_reduction_finish(&exec->reduction));
  return exec->backend->download(exec->self, out, brim_exec_metrics_at(exec), count * sizeof *out);
}

brim_status brim_exec_broadcast(brim_exec *exec)
{
  const brim_plan *plan = exec->plan;
  BRIM_TRY(brim_exec_wait(exec));
  BRIM_TRY(
      brim_reduction_broadcast(&exec->reduction, plan->frozen_offset, plan->gradient_offset - plan->frozen_offset));
  return brim_reduction_finish(&exec->reduction);
}
