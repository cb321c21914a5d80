/* Running programs. The first run of a program records its launches as a CUDA graph; every run is then one launch of
 * that graph, behind a kernel that writes the step's values to where the graph's kernels read them. So a step costs the
 * host a few microseconds whatever the number of operations.
 *
 * With backend.debug_launches or CUDA_LAUNCH_BLOCKING=1 nodes are started one by one and waited for. */
#include <stdlib.h>
#include <string.h>

#include "kernel.cuh"
extern "C" {
#include "device.h"
}

/* One thread: the step is a kernel argument, so no host memory must outlive the call. */
static __global__ void begin_program(cuda_control *control, brim_step step, const double *proof)
{
  control->step = step;
  control->proved = proof != nullptr;
  if (proof && !isfinite(*proof)) control->flags.refused = 1;
}

static brim_status begin(cuda_backend *b, const brim_step *step, const double *proof)
{
  const cuda_geometry one = {{1, 1, 1}, 1, 0};
  return cuda_launch(b, begin_program, one, b->control, *step, proof);
}

static brim_status run_node(cuda_backend *b, const brim_program_run *run, size_t i)
{
  const brim_status status = run->kernel[i]->run(b, &run->launch[i]);
  if (status == BRIM_OK) return BRIM_OK;
  return brim_fail_add(status, "in %s '%s'", run->launch[i].node->op, run->launch[i].node->name);
}

static brim_status run_nodes(cuda_backend *b, const brim_program_run *run)
{
  for (size_t i = 0; i < run->count; i++) BRIM_TRY(run_node(b, run, i));
  return BRIM_OK;
}

static brim_status run_one_by_one(cuda_backend *b, const brim_program_run *run)
{
  for (size_t i = 0; i < run->count; i++) {
    BRIM_TRY(run_node(b, run, i));
    const brim_status status = cuda_check(cudaStreamSynchronize(b->compute), "waiting for an operation");
    if (status != BRIM_OK)
      return brim_fail_add(status, "in %s '%s'", run->launch[i].node->op, run->launch[i].node->name);
  }
  return BRIM_OK;
}

static brim_status record(cuda_backend *b, const brim_program_run *run)
{
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  BRIM_TRY(cuda_check(cudaStreamBeginCapture(b->compute, cudaStreamCaptureModeThreadLocal), "recording a program"));
  brim_status status = run_nodes(b, run);
  const cudaError_t e = cudaStreamEndCapture(b->compute, &graph);
  if (status == BRIM_OK) status = cuda_check(e, "recording a program");
  if (status == BRIM_OK) status = cuda_check(cudaGraphInstantiate(&exec, graph, 0), "making a graph of a program");
  if (graph) (void)cudaGraphDestroy(graph);
  if (status == BRIM_OK) *run->record = exec;
  return status;
}

extern "C" cuda_control *cuda_control_of(cuda_backend *b, const brim_launch *launch)
{
  if (launch->step && begin(b, launch->step, nullptr) != BRIM_OK) return nullptr;
  return b->control;
}

static bool is_debugged(const cuda_backend *b)
{
  const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
  return b->params->debug_launches || (blocking && strcmp(blocking, "1") == 0);
}

extern "C" brim_status cuda_program_run(void *self, const brim_program_run *run)
{
  cuda_backend *b = static_cast<cuda_backend *>(self);
  if (is_debugged(b)) {
    BRIM_TRY(begin(b, run->step, run->proof));
    return run_one_by_one(b, run);
  }
  if (!*run->record) BRIM_TRY(record(b, run));
  BRIM_TRY(begin(b, run->step, run->proof));
  return cuda_check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(*run->record), b->compute), "launching a program");
}

extern "C" void cuda_program_drop(void *self, void *record)
{
  (void)self;
  if (record) (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(record));
}

extern "C" brim_status cuda_program_warm_up(cuda_backend *b)
{
  const brim_step none = {};
  BRIM_TRY(begin(b, &none, nullptr));
  return cuda_check(cudaStreamSynchronize(b->compute), "starting the first kernel");
}
