/* Reading what lies on the device, writing to it, and finding what is not finite. See exec.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "exec/exec_parts.h"

brim_status brim_exec_fetch(brim_exec *exec, double *metrics, size_t count, double *proof, const brim_program *program,
                            const brim_tensor *tensor, double *values)
{
  brim_copy copy[3] = {{metrics, brim_exec_metrics_at(exec), count * sizeof *metrics},
                       {proof, brim_exec_proof_at(exec), sizeof *proof}};
  if (tensor) copy[2] = (brim_copy){values, brim_exec_pointer(exec, program, tensor), tensor->bytes};
  exec->fetch_ticket[exec->fetched++ % BRIM_FETCHES] = exec->reduction.ticket;
  return exec->backend->fetch(exec->self, copy, tensor ? 3 : 2);
}

brim_status brim_exec_collect(brim_exec *exec)
{
  BRIM_TRY(brim_reduction_finish_to(&exec->reduction, exec->fetch_ticket[exec->collected++ % BRIM_FETCHES]));
  return exec->backend->collect(exec->self);
}

brim_status brim_exec_metrics(brim_exec *exec, const brim_program *program, double *out, size_t count)
{
  if (count * sizeof *out > program->graph->metrics->bytes)
    return brim_fail(BRIM_EINTERNAL, "%zu metrics asked for, more than the program makes", count);
  BRIM_TRY(brim_exec_wait(exec)); /* which has errors of the data, such as labels out of range */
  return exec->backend->download(exec->self, out, brim_exec_metrics_at(exec), count * sizeof *out);
}

static bool all_finite(const void *values, uint32_t dtype, uint64_t count)
{
  const float *f = values;
  const double *d = values;
  const uint16_t *b = values;
  for (uint64_t i = 0; i < count; i++) {
    if (dtype == BRIM_DTYPE_F32 && !isfinite(f[i])) return false;
    if (dtype == BRIM_DTYPE_F64 && !isfinite(d[i])) return false;
    if (dtype == BRIM_DTYPE_BF16 && (b[i] & 0x7F80) == 0x7F80) return false; /* all ones in the exponent */
    if (dtype == BRIM_DTYPE_F16 && (b[i] & 0x7C00) == 0x7C00) return false;
  }
  return true;
}

brim_status brim_exec_is_finite(brim_exec *exec, const brim_program *p, const brim_tensor *t, bool *finite)
{
  const uint32_t element = brim_dtype_bytes(t->dtype);
  void *host = brim_try_malloc(t->bytes);
  if (!host) return brim_fail(BRIM_ENOMEM_HOST, "no host memory to look at '%s'", t->name);
  const brim_status status = exec->backend->download(exec->self, host, brim_exec_pointer(exec, p, t), t->bytes);
  *finite = status != BRIM_OK || all_finite(host, t->dtype, t->bytes / element);
  free(host);
  return status;
}

brim_status brim_exec_find_nonfinite(brim_exec *exec, const brim_program *program, const brim_step *step,
                                     const brim_node **out)
{
  size_t from, to;
  *out = NULL;
  brim_exec_range(program, 0, &from, &to);
  for (size_t i = from; i < to; i++) {
    const brim_node *n = program->graph->node[i];
    BRIM_TRY(brim_exec_run_node(exec, program, i, step));
    for (uint32_t k = 0; k < n->out_count; k++) {
      bool finite = true;
      BRIM_TRY(brim_exec_is_finite(exec, program, n->out[k], &finite));
      if (finite) continue;
      *out = n;
      return BRIM_OK;
    }
  }
  return BRIM_OK;
}

brim_status brim_exec_proof(brim_exec *exec, double *out)
{
  BRIM_TRY(brim_exec_wait(exec));
  return exec->backend->download(exec->self, out, brim_exec_proof_at(exec), sizeof *out);
}

brim_status brim_exec_read(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, void *host)
{
  const void *state = brim_offload_pointer(&exec->offload, program, tensor);
  BRIM_TRY(brim_exec_wait(exec));
  if (!state) return exec->backend->download(exec->self, host, brim_exec_pointer(exec, program, tensor), tensor->bytes);
  memcpy(host, state, tensor->bytes);
  return BRIM_OK;
}

brim_status brim_exec_write(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, const void *host)
{
  void *state = brim_offload_pointer(&exec->offload, program, tensor);
  if (!state) return exec->backend->upload(exec->self, brim_exec_pointer(exec, program, tensor), host, tensor->bytes);
  BRIM_TRY(brim_exec_wait(exec)); /* copies of it may be under way */
  memcpy(state, host, tensor->bytes);
  return BRIM_OK;
}

brim_status brim_exec_write_numbers(brim_exec *exec, const brim_program *program, const brim_tensor *tensor,
                                    const double *number, size_t count)
{
  void *host = brim_try_malloc(tensor->bytes);
  if (!host) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the values of '%s'", tensor->name);
  for (size_t i = 0; i < count; i++)
    if (tensor->dtype == BRIM_DTYPE_F64)
      ((double *)host)[i] = number[i];
    else
      ((float *)host)[i] = (float)number[i];
  const brim_status status = brim_exec_write(exec, program, tensor, host);
  free(host);
  return status;
}
