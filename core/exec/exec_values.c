/* Reads and writes values on the device, and finds values that are not finite. See exec.h. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "base/tracing.h"
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
  static const char *const name = "wait for the device";
  BRIM_TRY(brim_reduction_finish_to(&exec->reduction, exec->fetch_ticket[exec->collected++ % BRIM_FETCHES]));
  const int64_t began = brim_tracing_begin(name);
  const brim_status status = exec->backend->collect(exec->self);
  brim_tracing_end(began, BRIM_TRACING_PHASE, name, 0);
  return status;
}

brim_status brim_exec_metrics(brim_exec *exec, const brim_program *program, double *out, size_t count)
{
  if (count * sizeof *out > program->graph->metrics->bytes)
    return brim_fail(BRIM_EINTERNAL, "%zu metrics requested, more than the program computes", count);
  BRIM_TRY(brim_exec_wait(exec)); /* waiting reports errors in the data, such as labels out of range */
  return exec->backend->download(exec->self, out, brim_exec_metrics_at(exec), count * sizeof *out);
}

brim_status brim_exec_take_metrics(brim_exec *exec, const brim_program *program, double *out, size_t count)
{
  BRIM_TRY(brim_exec_metrics(exec, program, out, count));
  return exec->backend->zero(exec->self, exec->base + exec->plan->metrics_offset, count * sizeof *out);
}

brim_status brim_exec_is_finite(brim_exec *exec, const brim_program *p, const brim_tensor *t, bool *finite)
{
  const size_t count = (size_t)brim_shape_count(&t->shape);
  *finite = true;
  if (!brim_dtype_is_real(t->dtype)) return BRIM_OK;
  void *host = brim_try_malloc(t->bytes);
  if (!host) return brim_fail(BRIM_ENOMEM_HOST, "no host memory to read '%s'", t->name);
  const brim_status status = exec->backend->download(exec->self, host, brim_exec_pointer(exec, p, t), t->bytes);
  *finite = status != BRIM_OK || brim_all_finite(t->dtype, host, count);
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

brim_status brim_exec_read_part(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, uint64_t first,
                                uint64_t bytes, void *host)
{
  const char *state = brim_offload_pointer(&exec->offload, program, tensor);
  BRIM_TRY(brim_exec_settle_gradients(exec));
  BRIM_TRY(brim_exec_wait(exec));
  if (!state)
    return exec->backend->download(exec->self, host, (char *)brim_exec_pointer(exec, program, tensor) + first, bytes);
  memcpy(host, state + first, bytes);
  return BRIM_OK;
}

brim_status brim_exec_write_part(brim_exec *exec, const brim_program *program, const brim_tensor *tensor,
                                 uint64_t first, uint64_t bytes, const void *host)
{
  char *state = brim_offload_pointer(&exec->offload, program, tensor);
  if (!state)
    return exec->backend->upload(exec->self, (char *)brim_exec_pointer(exec, program, tensor) + first, host, bytes);
  BRIM_TRY(brim_exec_wait(exec)); /* copies from this memory may be in progress */
  memcpy(state + first, host, bytes);
  return BRIM_OK;
}

void *brim_exec_host_values(const brim_exec *exec, const brim_program *program, const brim_tensor *tensor)
{
  const bool is_there = exec->on_host && !brim_offload_pointer(&exec->offload, program, tensor);
  return is_there ? brim_exec_pointer(exec, program, tensor) : NULL;
}

brim_status brim_exec_read(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, void *host)
{
  return brim_exec_read_part(exec, program, tensor, 0, tensor->bytes, host);
}

brim_status brim_exec_write(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, const void *host)
{
  return brim_exec_write_part(exec, program, tensor, 0, tensor->bytes, host);
}

brim_status brim_exec_read_range(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, int64_t first,
                                 int64_t count, void *host)
{
  const uint64_t each = brim_dtype_bytes(tensor->dtype);
  const uint8_t *at = brim_exec_pointer(exec, program, tensor);
  BRIM_TRY(brim_exec_wait(exec));
  return exec->backend->download(exec->self, host, at + (uint64_t)first * each, (uint64_t)count * each);
}

/* Allocates host memory for a tensor, or returns ENOMEM_HOST. */
static brim_status new_copy(const brim_tensor *tensor, void **out)
{
  *out = brim_try_malloc(tensor->bytes);
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no host memory for a copy of '%s'", tensor->name);
}

brim_status brim_exec_read_as(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, uint32_t dtype,
                              void *host)
{
  void *copy;
  if (tensor->dtype == dtype) return brim_exec_read(exec, program, tensor, host);
  BRIM_TRY(new_copy(tensor, &copy));
  const brim_status status = brim_exec_read(exec, program, tensor, copy);
  if (status == BRIM_OK) brim_convert(dtype, host, tensor->dtype, copy, (size_t)brim_shape_count(&tensor->shape));
  free(copy);
  return status;
}

brim_status brim_exec_write_as(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, uint32_t dtype,
                               const void *host)
{
  void *copy;
  if (tensor->dtype == dtype) return brim_exec_write(exec, program, tensor, host);
  BRIM_TRY(new_copy(tensor, &copy));
  brim_convert(tensor->dtype, copy, dtype, host, (size_t)brim_shape_count(&tensor->shape));
  const brim_status status = brim_exec_write(exec, program, tensor, copy);
  free(copy);
  return status;
}
