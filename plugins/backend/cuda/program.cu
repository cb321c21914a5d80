/* Running programs. The first run of a program starts its launches one after the other: at a kernel's first launch the
 * libraries and the runtime may load it and allocate its local memory, which is not allowed while a stream is captured.
 * Then the same launches are recorded as a CUDA graph. Every later run launches two things: a kernel that writes the
 * step's values to cuda_control, and the graph. So a step takes a few microseconds of the host's time, for any number
 * of operations.
 *
 * An update has hundreds of nodes, one for each parameter, that do the same to different memory. When the update is
 * recorded, the nodes of one operation are gathered into one launch (update_table.h), which gives the same bits. A
 * parameter's node may move before nodes of other operations, such as the moving averages of a batch norm between its
 * weights, if neither writes memory that the other uses.
 *
 * While a trace is recorded (trace.h), every run starts the launches one after the other, with an event after each.
 *
 * With backend.debug_launches or CUDA_LAUNCH_BLOCKING=1 the program starts each node by itself and waits for it, so
 * that an error names its node. */
#include <stdlib.h>
#include <string.h>

#include "kernel.cuh"
extern "C" {
#include "device.h"
#include "trace.h"
#include "update.h"
}

/* Runs as one thread. The step is an argument of the kernel, so no host memory must outlive the call. */
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

/* ---- results that are read later ---- */

typedef struct fetch_parts {
  const uint8_t *from[CUDA_FETCH_PARTS];
  uint64_t bytes[CUDA_FETCH_PARTS]; /* 0 if the part is absent */
} fetch_parts;

/* Writes the results directly into pinned memory. One launch takes less of the stream's time than a copy, and much less
 * than a copy of each part. */
static __global__ void fetch_results(cuda_fetch *to, const fetch_parts part, const cuda_flags *flags)
{
  uint64_t at = 0;
  for (int p = 0; p < CUDA_FETCH_PARTS; at += part.bytes[p++])
    if (threadIdx.x < part.bytes[p]) to->bytes[at + threadIdx.x] = part.from[p][threadIdx.x];
  if (threadIdx.x == 0) to->flags = *flags;
}

extern "C" brim_status cuda_program_fetch(cuda_backend *b, const brim_copy *copy, size_t count, cuda_fetch *to)
{
  const cuda_geometry g = {{1, 1, 1}, BRIM_FETCH_BYTES, 0};
  fetch_parts part = {};
  for (size_t i = 0; i < count; i++) {
    part.from[i] = static_cast<const uint8_t *>(copy[i].from);
    part.bytes[i] = copy[i].bytes;
  }
  return cuda_launch(b, fetch_results, g, to, part, &b->control->flags);
}

/* ---- nodes ---- */

static brim_status run_node(cuda_backend *b, const brim_program_run *run, size_t i)
{
  const brim_status status = run->kernel[i]->run(b, &run->launch[i]);
  if (status == BRIM_OK) return BRIM_OK;
  return brim_fail_add(status, "in %s '%s'", run->launch[i].node->op, run->launch[i].node->name);
}

/* ---- nodes of one kernel in one launch ---- */

extern "C" const cuda_gathering *const __start_cuda_gatherings[] __attribute__((visibility("hidden")));
extern "C" const cuda_gathering *const __stop_cuda_gatherings[] __attribute__((visibility("hidden")));

/* Returns whether inputs must be converted into another order. Kernels that may move need no other scratch. */
static bool has_scratch(const brim_launch *l)
{
  return cuda_scratch_end(l, false) != l->workspace;
}

/* Returns NULL if the node runs alone. */
static const cuda_gathering *gathering_of(const brim_program_run *run, size_t i)
{
  for (const cuda_gathering *const *g = __start_cuda_gatherings; g < __stop_cuda_gatherings; g++)
    if ((*g)->kernel == run->kernel[i]) return (*g)->moves && has_scratch(&run->launch[i]) ? nullptr : *g;
  return nullptr;
}

static bool overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
  const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
  return x < y + b_bytes && y < x + a_bytes;
}

/* Returns whether `a` writes memory that `b` reads or writes. */
static bool writes_into(const brim_launch *a, const brim_launch *b)
{
  for (uint32_t i = 0; i < a->node->out_count; i++) {
    const uint64_t bytes = a->node->out[i]->bytes;
    for (uint32_t k = 0; k < b->node->in_count; k++)
      if (overlap(a->out[i], bytes, b->in[k], b->node->in[k]->bytes)) return true;
    for (uint32_t k = 0; k < b->node->out_count; k++)
      if (overlap(a->out[i], bytes, b->out[k], b->node->out[k]->bytes)) return true;
  }
  return false;
}

/* Returns whether node i may run before the nodes `first` .. i - 1. */
static bool may_move(const brim_program_run *run, size_t first, size_t i)
{
  for (size_t k = first; k < i; k++)
    if (writes_into(&run->launch[k], &run->launch[i]) || writes_into(&run->launch[i], &run->launch[k])) return false;
  return true;
}

/* Collects node `first` and the later nodes that can share its launch, and marks them as done. Returns their number. */
static size_t gather(const brim_program_run *run, const cuda_gathering *g, size_t first, const brim_launch **member,
                     bool *done)
{
  size_t count = 0;
  for (size_t i = first; i < run->count; i++) {
    const cuda_gathering *other = gathering_of(run, i);
    if (!other || (other != g && (!g->moves || !other->moves))) break;
    if (other != g || done[i] || (g->moves && !may_move(run, first, i))) continue;
    member[count++] = &run->launch[i];
    done[i] = true;
  }
  return count;
}

/* Records the time of the launch that has just started. It does the work of `count` nodes, of which `node` is the
 * first. */
static brim_status measure(cuda_backend *b, const brim_node *node, size_t count)
{
  brim_device_work work = {};
  work.node = node;
  work.nodes = (uint32_t)count;
  work.queue = BRIM_QUEUE_COMPUTE;
  return cuda_trace_mark(b, b->compute, &work);
}

/* What happens at each launch. */
typedef struct watching {
  bool measures;
  uint32_t *counts; /* NULL, or an array by node: launches are then counted there, and not started */
} watching;

static brim_status run_gathered(cuda_backend *b, const brim_program_run *run, const brim_launch **member, bool *done,
                                const watching *w)
{
  for (size_t i = 0; i < run->count; i++) {
    const cuda_gathering *g = gathering_of(run, i);
    size_t count = 1;
    if (done[i]) continue;
    if (w->counts) b->counted = &w->counts[i];
    if (!g) {
      BRIM_TRY(run_node(b, run, i));
    } else {
      count = gather(run, g, i, member, done);
      const brim_status status = g->run(b, member, count);
      if (status != BRIM_OK) return brim_fail_add(status, "in %s", g->kernel->op);
    }
    if (w->measures) BRIM_TRY(measure(b, run->launch[i].node, count));
  }
  return BRIM_OK;
}

static brim_status run_nodes(cuda_backend *b, const brim_program_run *run, const watching *w)
{
  const brim_launch **member = static_cast<const brim_launch **>(brim_try_calloc(run->count + 1, sizeof *member));
  bool *done = static_cast<bool *>(brim_try_calloc(run->count + 1, sizeof *done));
  const brim_status status = member && done ? run_gathered(b, run, member, done, w)
                                            : brim_fail(BRIM_ENOMEM_HOST, "no memory to record a program");
  free(member);
  free(done);
  return status;
}

/* ---- running ---- */

static brim_status run_one_by_one(cuda_backend *b, const brim_program_run *run)
{
  for (size_t i = 0; i < run->count; i++) {
    BRIM_TRY(run_node(b, run, i));
    BRIM_TRY(cuda_check_node(cudaStreamSynchronize(b->compute), run->launch[i].node));
  }
  return BRIM_OK;
}

/* A recorded program. */
typedef struct recorded {
  cudaGraphExec_t graph;
  uint64_t bytes, nodes; /* device memory of the graph; nodes of the program */
} recorded;

static brim_status capture(cuda_backend *b, const brim_program_run *run, recorded *to)
{
  cudaGraph_t graph = nullptr;
  BRIM_TRY(cuda_check(cudaStreamBeginCapture(b->compute, cudaStreamCaptureModeThreadLocal), "recording a program"));
  const watching none = {};
  brim_status status = run_nodes(b, run, &none);
  const cudaError_t e = cudaStreamEndCapture(b->compute, &graph);
  if (status == BRIM_OK) status = cuda_check(e, "recording a program");
  if (status == BRIM_OK)
    status = cuda_check(CUDA_CALL("program", cudaGraphInstantiate(&to->graph, graph, 0)), "creating a program's graph");
  if (graph) (void)cudaGraphDestroy(graph);
  if (status != BRIM_OK) return status;
  /* The upload takes device memory now. */
  return cuda_check(cudaGraphUpload(to->graph, b->compute), "uploading a graph");
}

static brim_status record(cuda_backend *b, const brim_program_run *run)
{
  const uint64_t before = cuda_device_free_bytes();
  recorded *to = static_cast<recorded *>(brim_try_calloc(1, sizeof *to));
  if (!to) return brim_fail(BRIM_ENOMEM_HOST, "no memory to record a program");
  const brim_status status = capture(b, run, to);
  if (status != BRIM_OK) {
    if (to->graph) (void)cudaGraphExecDestroy(to->graph);
    free(to);
    return status;
  }
  *run->record = to;
  to->bytes = cuda_device_taken_since(before);
  to->nodes = run->count;
  cuda_device_count_program(b, to->bytes, to->nodes, false);
  return BRIM_OK;
}

/* Runs the program once, which loads kernels and libraries and counts their memory, then records it. */
static brim_status run_first(cuda_backend *b, const brim_program_run *run)
{
  const uint64_t before = cuda_device_free_bytes();
  const watching none = {};
  BRIM_TRY(run_nodes(b, run, &none));
  cuda_device_count_library(b, before);
  return record(b, run);
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
  BRIM_TRY(cuda_device_enter(b));
  b->is_first_micro_batch = run->step->is_first_micro_batch;
  if (is_debugged(b)) {
    BRIM_TRY(begin(b, run->step, run->proof));
    return run_one_by_one(b, run);
  }
  BRIM_TRY(begin(b, run->step, run->proof));
  if (!*run->record) return run_first(b, run);
  if (b->trace) {
    BRIM_TRY(cuda_trace_start(b, b->compute));
    const watching measured = {true, nullptr};
    return run_nodes(b, run, &measured);
  }
  const recorded *of = static_cast<const recorded *>(*run->record);
  return cuda_check(CUDA_CALL("program", cudaGraphLaunch(of->graph, b->compute)), "launching a program");
}

/* Goes through the program in the same way as recording does, so the count is that of the graph. */
extern "C" brim_status cuda_program_count(void *self, const brim_program_run *run, uint32_t *launches)
{
  cuda_backend *b = static_cast<cuda_backend *>(self);
  cuda_control *const control = b->control;
  const watching counting = {false, launches};
  b->is_first_micro_batch = 1;
  memset(launches, 0, (run->count + 1) * sizeof *launches);
  /* A GPU that is only described has no control block, so any address stands for it. */
  if (!control) b->control = reinterpret_cast<cuda_control *>(CUDA_ALIGNMENT);
  const brim_status status = run_nodes(b, run, &counting);
  b->control = control;
  b->counted = nullptr;
  launches[run->count] = 1; /* one launch for begin_program */
  return status;
}

extern "C" void cuda_program_drop(void *self, void *record)
{
  cuda_backend *b = static_cast<cuda_backend *>(self);
  recorded *of = static_cast<recorded *>(record);
  if (!of) return;
  if (of->graph) (void)cudaGraphExecDestroy(of->graph);
  cuda_device_count_program(b, of->bytes, of->nodes, true);
  free(of);
}

extern "C" brim_status cuda_program_warm_up(cuda_backend *b)
{
  const brim_step none = {};
  BRIM_TRY(begin(b, &none, nullptr));
  return cuda_check(cudaStreamSynchronize(b->compute), "starting the first kernel");
}
