/* Shared declarations of the cuda backend's host side; C and C++. */
#ifndef CUDA_CUDA_H
#define CUDA_CUDA_H
#include <stdbool.h>

#include <cuda_runtime_api.h>

#include "brim/brim.h"
#include "geometry.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_params {
  bool tf32;
  bool debug_launches;
  const char *profile; /* the path of the tuning profile, or "" for none; see libraries/profile.h */
  bool tune;
  bool gelu_epilogue;
} cuda_params;

/* The step's values for kernels, and the kernels' reports. It lies on the device at a fixed address, which recorded
 * programs contain. */
enum cuda_fault_kind { CUDA_FAULT_INDEX = 1, CUDA_FAULT_LABEL };
typedef struct cuda_fault {
  int32_t set; /* enum cuda_fault_kind of the first fault, or 0; the rest describes that fault */
  int32_t value;
  int64_t sample; /* in the micro-batch */
  int64_t limit;  /* indices lie in [0, limit) */
  uint64_t node;  /* the host's brim_node */
} cuda_fault;
typedef struct cuda_flags {
  int32_t refused; /* 1: a proof failed (see run_program); runs with a proof have no effect */
  cuda_fault fault;
} cuda_flags;
#define CUDA_PARTIALS 16384
#define CUDA_TICKETS 1024
typedef struct cuda_control {
  brim_step step;
  int32_t proved; /* 1: the running program has a proof, and its updates check flags.refused */
  cuda_flags flags;
  double partial[CUDA_PARTIALS]; /* partial sums, from one launch of an operation to its next */
  /* The number of blocks that have drawn each ticket (cuda_last_block); 0 between launches. */
  uint32_t ticket[CUDA_TICKETS];
} cuda_control;

/* The results of a fetch, in pinned memory. */
typedef struct cuda_fetch {
  uint8_t bytes[BRIM_FETCH_BYTES];
  cuda_flags flags;
} cuda_fetch;

#define CUDA_STAGES 2      /* stages for inputs in flight */
#define CUDA_FETCH_PARTS 4 /* most copies of a fetch */

struct cublasLtContext;
struct cudnnContext;
struct cuda_tuning;
struct cuda_dnn_plan;
struct cuda_sdpa_plan;
struct cuda_trace;
struct nvml_device;

/* An instance. Its functions are called by one thread at a time. Only cuda_device_usage may be called from another
 * thread at any time, except while a device is selected or left, and reads only members that are set by the
 * selection.
 *
 * A lane of a federation is an instance too: it has all streams, events, handles, plans of libraries, stages and
 * fetches of its own. Lanes share the device, its context, the code that is loaded into it, the first instance's arena,
 * and the count of memory that the process takes. That count changes only while one thread makes, warms up or drops
 * plans; a lane's thread only starts recorded programs. */
typedef struct cuda_backend {
  const cuda_params *params;
  struct cuda_backend *first;   /* for a lane: the instance that selected the device; else NULL */
  int device;                   /* the runtime's number of the device; -1 if none is selected */
  int processors;               /* multiprocessors */
  int capability;               /* 90: compute capability 9.0 */
  uint64_t total_bytes;         /* memory of the device */
  brim_device_takes takes;      /* the device memory that this process takes; for a lane: lanes_bytes, its own part */
  struct nvml_device *nvml;     /* the selected device, for nvml.h; NULL if NVML is not usable */
  cudaStream_t compute, copies; /* the latter of inputs */
  cuda_control *control;        /* on the device */
  struct cublasLtContext *blas;
  struct cudnnContext *dnn;
  struct cuda_tuning *tuning;      /* libraries/library.h; NULL for the libraries' first suggestions */
  struct cuda_dnn_plan *dnn_plans; /* all plans of convolutions and attention in use; equal layers share a plan */
  struct cuda_sdpa_plan *sdpa;
  /* Inputs in flight: stages at the start of the arena, each with a copy in pinned memory. */
  uint8_t *stage, *pinned;
  uint64_t stage_bytes, fed; /* the size of a stage; the number of feeds so far */
  cudaEvent_t copied[CUDA_STAGES], consumed[CUDA_STAGES];
  /* Results in flight; the last slot is for synchronize. */
  cuda_fetch *fetch;
  cudaEvent_t fetched[BRIM_FETCHES];
  brim_copy fetch_copy[BRIM_FETCHES][CUDA_FETCH_PARTS];
  size_t fetch_parts[BRIM_FETCHES];
  uint64_t fetches_started, fetches_collected;
  /* Copies of the optimizer's state between the arena and host memory. */
  cudaStream_t in, out;
  cudaStream_t comm; /* a communicator's */
  cudaEvent_t mark[BRIM_MARKS];
  struct cuda_trace *trace;     /* NULL: nothing is measured */
  int32_t is_first_micro_batch; /* step.is_first_micro_batch of the program that runs */
  uint32_t *counted; /* launches are counted here instead of made: see cuda_program_count; NULL: they are made */
} cuda_backend;

/* [plan, step] Called instead of everything that starts work of a node on the device: counts it and returns true if
 * launches are only counted. */
static inline bool cuda_counts(cuda_backend *b)
{
  if (b->counted) ++*b->counted;
  return b->counted != NULL;
}

/* Tensors and workspaces start at multiples of this, as cudaMalloc's memory does. */
#define CUDA_ALIGNMENT 256

/* error.c */
/* Returns OK, or an error for the runtime's: ENOMEM_DEVICE if memory ran out, else EDEVICE "<what>: <the runtime's
 * text>". The text says if the device is unusable after the error. */
brim_status cuda_check(cudaError_t error, const char *what);
/* Makes a call of the runtime, or returns its out-of-memory error if a test requests that (BRIM_FAULT=lib:NAME). */
#define CUDA_CALL(name, call) (brim_fault_hit(BRIM_FAULT_LIB, name) ? cudaErrorMemoryAllocation : (call))
/* Does the same after a wait for one operation. The message is "<op> '<name>': <the runtime's text>". */
brim_status cuda_check_node(cudaError_t error, const brim_node *node);
/* program.cu. [step] Returns the control block, for kernels. If the launch has a step, as when a node runs by itself,
 * copies that there first; a program's step is already there. Returns NULL with an error set if the copy failed. */
cuda_control *cuda_control_of(cuda_backend *b, const brim_launch *launch);

/* Returns the product of all dimensions but the last. */
static inline int64_t cuda_rows_of(const brim_tensor *t)
{
  return brim_shape_count(&t->shape) / t->shape.dim[t->shape.rank - 1];
}
static inline int64_t cuda_last(const brim_tensor *t)
{
  return t->shape.dim[t->shape.rank - 1];
}
/* Returns whether kernels add to this output instead of writing it. See brim/ops.h. */
static inline bool cuda_adds(const brim_tensor *t)
{
  return t->role == BRIM_ROLE_GRADIENT;
}

/* [step] Returns whether a kernel that sets need.overwrites adds to output i in this run. */
static inline bool cuda_adds_to(const cuda_backend *b, const brim_launch *launch, uint32_t i)
{
  return brim_adds(launch->node, i, launch->step ? launch->step->is_first_micro_batch : b->is_first_micro_batch);
}

/* Kernels: the names of `prepare`, `realize`, `run` and `release` in brim_kernel. */
#define CUDA_PREPARE(name)                                                                                             \
  brim_status name(void *self, const brim_program_info *program, const brim_node *node, brim_kernel_need *need,        \
                   void **state)
#define CUDA_RUN(name) brim_status name(void *self, const brim_launch *launch)

/* layout.cu: rank-4 activations are either plain (channel_block 1, NCHW) or channels-last (channel_block C, NHWC).
 * These prepare functions are for operations whose output has the order of in[0]; for operations whose other rank-4
 * inputs must have that order too, or are converted into scratch (see cuda_same_order); and for operations on plain
 * tensors. */
CUDA_PREPARE(cuda_follow_prepare);
CUDA_PREPARE(cuda_same_order_prepare);
CUDA_PREPARE(cuda_plain_prepare);
/* [plan] Sets a rank-4 output's order: plain or channels-last. */
void cuda_layout_set(brim_tensor *t, bool channels_last);
static inline bool cuda_channels_last(const brim_tensor *t)
{
  return t->shape.rank == 4 && t->channel_block > 1;
}
/* Whether the values in memory have that order. (With one channel or one pixel both orders are the same.) */
bool cuda_in_order(const brim_tensor *t, bool channels_last);
/* [step] Converts values of a rank-4 shape into the other order, channels-last or plain. from and to do not overlap. */
brim_status cuda_layout_convert(cuda_backend *b, const brim_shape *shape, uint32_t dtype, const void *from, void *to,
                                bool channels_last);
/* [plan] Returns the scratch for converting the tensor to that order, to be added to need.workspace_bytes; 0 if it has
 * the order. */
uint64_t cuda_ordered_bytes(const brim_tensor *t, bool channels_last);
/* [step] Returns the values of `t` in that order: `values` itself, or a copy in *scratch, which then points past the
 * copy. Returns NULL with an error set if the launch failed. */
const void *cuda_ordered(cuda_backend *b, const brim_tensor *t, const void *values, bool channels_last, void **scratch);
/* [step] For kernels with cuda_plain_prepare or cuda_same_order_prepare: returns input i in plain order or the order of
 * in[0], converted into scratch if necessary. The kernel's own scratch follows at cuda_scratch_end. Returns NULL with
 * an error set if the launch failed. */
const void *cuda_plain_input(cuda_backend *b, const brim_launch *launch, uint32_t i);
const void *cuda_same_order_input(cuda_backend *b, const brim_launch *launch, uint32_t i);
void *cuda_scratch_end(const brim_launch *launch, bool plain);

#ifdef __cplusplus
}
#endif
#endif
