/* For authors of backends: a backend provides devices, one allocation on each, and a kernel per operation.
 *
 * The life cycle of a program (a list of nodes for one batch shape):
 *   prepare   per node, in order: chooses the layout of the outputs and returns how much scratch is needed.
 *             Must be fast (brim plan calls it for many batch sizes). It must not allocate device memory itself, but a
 *             library that it calls may load code there, which `takes` counts.
 *   realize   per node, once, before the program's first run: compiles, creates primitives.
 *   place     once per run: allocates the arena, of exactly the planned size.
 *   run       per node, each step: gets pointers into the arena; must not allocate device memory, nor 64 KiB or
 *             more of host memory.
 *   release   per node: frees the node's state.
 * An asynchronous device also has run_program and the functions grouped with it: brim then starts whole programs, and
 * the host waits only in collect, download and synchronize. */
#ifndef BRIM_BACKEND_H
#define BRIM_BACKEND_H
#include <stddef.h>

#include "brim/ops.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The peak rates of a device, from its data sheet; 0: unknown. Since ABI 1.13 */
typedef struct brim_device_rates {
  double products_f32; /* FLOP/s of products, convolutions and attention of fp32 values, as the backend computes them */
  double products_16;  /* FLOP/s of the same operations on bf16 and fp16 values, with sums in fp32 */
  double flops;        /* FLOP/s of all other arithmetic, in fp32 */
  double bytes;        /* bytes per second between the device's processors and its memory */
  double launch_seconds; /* shortest time of a launch in a recorded program */
} brim_device_rates;

typedef struct brim_device_info {
  char name[128];       /* "AMD EPYC 9654" */
  uint64_t total_bytes; /* memory of the device */
  uint64_t free_bytes;  /* bytes that place() can allocate now; on a host, within the cgroup's limit */
  int32_t threads;      /* host threads that kernels use; 0: not applicable */
  int32_t on_host;      /* 1: the core can dereference arena pointers */
  int32_t limited;      /* 1: a share of a host, managed by a ledger (brim/ledger.h) */
  /* Device memory that this process uses besides arenas: a GPU's context, and its libraries' memory. 0: none, or not
   * known */
  uint64_t taken_bytes;
  /* only for GPUs, otherwise 0 and empty */
  int32_t capability_major, capability_minor; /* compute capability 9.0 */
  char uuid[64];                              /* "GPU-8a5f2b1c-..." */
  brim_device_rates rates;                    /* since ABI 1.13 */
  /* The 16-bit types whose values the device's own instructions multiply (tensor cores, AMX), one bit each:
   * BRIM_STORES(BRIM_DTYPE_BF16). Products of other stored types take the time of fp32. precision=auto depends on it.
   * Since ABI 1.13 */
  uint32_t multiplies;
} brim_device_info;

/* A process that uses memory of a device. */
typedef struct brim_device_user {
  int64_t pid;
  uint64_t bytes; /* BRIM_BYTES_UNKNOWN: the driver does not say */
  char name[64];  /* the process's name; empty: unknown */
} brim_device_user;
#define BRIM_BYTES_UNKNOWN UINT64_MAX

/* Device memory that this process uses besides arenas, by class. A class that the backend cannot measure is
 * BRIM_BYTES_UNKNOWN. Since ABI 1.8. */
typedef struct brim_device_takes {
  uint64_t context_bytes;   /* the driver's context of this process */
  uint64_t libraries_bytes; /* code and tables of the kernels and libraries loaded so far */
  uint64_t programs_bytes;  /* recorded programs */
  uint64_t program_nodes;   /* nodes in these recorded programs */
  uint64_t grown_bytes;     /* the part of libraries_bytes and programs_bytes that was allocated after select() */
  /* The instances that lane() has made, and the bytes of their handles and recorded programs together. Not part of the
   * figures above. Since ABI 1.12 */
  uint64_t lanes, lanes_bytes;
} brim_device_takes;

/* Properties of a whole program. */
typedef struct brim_program_info {
  int64_t batch; /* samples in the micro-batch, N */
  int64_t grain; /* samples. Products and weight gradients are computed per grain and summed in sample order, so that
                    results do not depend on `batch`. 0: the backend chooses */
  int32_t training;
} brim_program_info;

/* The values of a step, the same for all its nodes. */
typedef struct brim_step {
  uint64_t seed;
  uint64_t step; /* number of the step, from 0; in an update, the number of updates made before it (skipped steps do not
                    count) */
  int64_t first_sample; /* index of the micro-batch's first sample in the effective batch */
  /* 1 / samples of the effective batch. With F16 activations it is multiplied by a power of two that keeps their
   * gradients in range (dynamic loss scaling); gradient_scale reverses that in the update */
  double loss_scale;
  int64_t norm_groups; /* norm groups in the effective batch; see moving_average in brim/ops.h */
  /* for updates */
  double lr, weight_decay, beta1, beta2, eps, momentum;
  double bias_correction1, bias_correction2; /* 1 - beta^t with t = step + 1; 1 without bias correction */
  double gradient_scale;                     /* factor for the gradients; see gradient_scale in brim/ops.h */
  /* For operations of federations (brim/ops.h). steer: the factor for a client's distance from the global model,
   * FedProx's mu divided by gradient_scale. fold: the weight of the client's update, its samples times a power of two
   * such that the weights of a round add up to at most 1. serve: 1 / the sum of these weights. Since ABI 1.8 */
  double federated;
  /* yogi, adagrad: the update adds it to the second moment or sum of squares that it reads. In step 0 it is the initial
   * value of that state, which is 0 in memory; in later steps it is 0. Since ABI 1.8. */
  double initial_accumulator;
  /* For formulas: the scalars that the optimizer's step() wrote. Since ABI 1.10. */
  double scalar[BRIM_SCALARS_MAX];
  /* steer: the factor for its input `control`, 1 / gradient_scale. Since ABI 1.11 */
  double control;
  /* 1: the first micro-batch of the step. The gradients that a kernel has announced to overwrite
   * (brim_kernel_need.overwrites) are then undefined: see brim_adds. Since ABI 1.13 */
  int32_t is_first_micro_batch;
} brim_step;

typedef struct brim_kernel_need {
  uint64_t workspace_bytes; /* scratch memory while the node runs; any size */
  /* 1: the node's outputs must not reuse the memory of its inputs. 0: if the operation allows it (core/graph/ops), an
   * output may reuse the memory of an input that no later node needs; the kernel must then read each element before it
   * writes that place. */
  int32_t no_inplace;
  uint64_t host_bytes; /* host memory that realize() will allocate; 0: a negligible amount */
  /* For reports that explain why a run is slow. The strings must stay valid as long as the plugin. Since ABI 1.8. */
  const char *library; /* the library that computes the node: "cuDNN"; NULL: the backend's own kernel */
  /* Why the node does not use a faster library; NULL: no faster library exists. See backend.strict. */
  const char *refused;
  /* Bytes that the node moves besides reading its inputs and writing its outputs once: to and from scratch, and when it
   * reads or writes a tensor again. 0: few, or unknown. Since ABI 1.13 */
  uint64_t further_bytes;
  double slower; /* if refused: about how many times as long the kernel takes as the faster library would; 0: unknown.
                    Since ABI 1.13 */
  /* 1: if step.is_first_micro_batch is 1, the kernel overwrites gradients instead of adding to them (see brim_adds),
   * with the bits that adding to zeros gives. 0: the kernel always adds, and brim zeroes the gradients before each
   * step. Since ABI 1.13 */
  int32_t overwrites;
} brim_kernel_need;

typedef struct brim_launch {
  const brim_node *node;
  void *state;     /* the state that prepare returned */
  void *const *in; /* in node order */
  void *const *out;
  void *workspace;       /* 64-byte aligned; contents undefined */
  const brim_step *step; /* NULL within run_program, which has its own */
} brim_launch;

/* Returns 1 if a kernel that sets need.overwrites must add to output i, and 0 if it must overwrite it. In the first
 * micro-batch of a step, the first node that makes a gradient overwrites it, and later nodes add to it; if that first
 * node is `zero`, all others add. is_first_micro_batch: step.is_first_micro_batch. Since ABI 1.13 */
static inline int brim_adds(const brim_node *node, uint32_t i, int32_t is_first_micro_batch)
{
  const brim_tensor *t = node->out[i];
  return t->role == BRIM_ROLE_GRADIENT && !(is_first_micro_batch && t->producer == (int32_t)node->index);
}

typedef struct brim_kernel {
  const char *op; /* "conv2d" */
  /* [plan] Prepares a node for a batch shape; NULL: plain layout, no scratch, no state. May set channel_block and bytes
   * of the outputs; those of the inputs are final. A reshape between layouts that differ in memory must copy. */
  brim_status (*prepare)(void *self, const brim_program_info *program, const brim_node *node, brim_kernel_need *need,
                         void **state);
  brim_status (*realize)(void *self, const brim_node *node,
                         void *state);                       /* [init] compiles the node; NULL: not needed */
  brim_status (*run)(void *self, const brim_launch *launch); /* [step] computes the node */
  void (*release)(void *self, void *state);                  /* [init] frees `state`; NULL: not needed */
} brim_kernel;

/* Adds a kernel to its plugin's table; write it next to the kernel's functions:
 *
 *     BRIM_KERNEL(relu) = {.op = "relu", .run = relu_run};
 *
 * The linker collects the entries; a backend's ops have .kernels = BRIM_KERNELS, .kernels_end = BRIM_KERNELS_END. */
#ifdef __cplusplus /* C++ has no tentative definitions */
#define BRIM_KERNEL(id)                                                                                                \
  extern const brim_kernel brim_kernel_##id __attribute__((visibility("hidden")));                                     \
  static const brim_kernel *const kernel_entry_##id __attribute__((section("brim_kernels"), used)) =                   \
      &brim_kernel_##id;                                                                                               \
  const brim_kernel brim_kernel_##id
#else
#define BRIM_KERNEL(id)                                                                                                \
  static const brim_kernel kernel_##id;                                                                                \
  static const brim_kernel *const kernel_entry_##id __attribute__((section("brim_kernels"), used)) = &kernel_##id;     \
  static const brim_kernel kernel_##id
#endif
#define BRIM_KERNELS __start_brim_kernels
#define BRIM_KERNELS_END __stop_brim_kernels
extern const brim_kernel *const __start_brim_kernels[] __attribute__((visibility("hidden")));
extern const brim_kernel *const __stop_brim_kernels[] __attribute__((visibility("hidden")));

/* Queues of a device. They run concurrently; each runs its work in the order in which it was started. */
enum brim_queue {
  BRIM_QUEUE_COMPUTE, /* all other work */
  BRIM_QUEUE_IN,      /* copies of states to the device */
  BRIM_QUEUE_OUT,     /* copies of states from the device */
  BRIM_QUEUE_COMM,    /* work of communicators on device memory. Since ABI 1.4 */
  BRIM_QUEUES
};

/* A copy of `bytes` bytes. */
typedef struct brim_copy {
  void *to;
  const void *from;
  uint64_t bytes;
} brim_copy;

/* A whole program to run. All calls with the same record have equal values in all fields but `step` and `proof`, and an
 * equal step->is_first_micro_batch. */
typedef struct brim_program_run {
  const brim_launch *launch; /* one per node, in order; their `step` is NULL */
  const brim_kernel *const *kernel;
  size_t count;
  const brim_step *step; /* read before the call returns */
  const double *proof;   /* on the device; NULL: the run has no proof. See run_program */
  void **record;         /* where the backend stores its recording of the program; NULL at first */
} brim_program_run;

/* A piece of work of an asynchronous device, for a trace. Since ABI 1.12 */
typedef struct brim_device_work {
  const brim_node *node; /* the first of `nodes` nodes of a program; NULL: a copy */
  uint32_t nodes;        /* number of nodes that this launch computed */
  uint32_t queue;        /* enum brim_queue */
  uint64_t bytes;        /* bytes of a copy */
  double begin, end;     /* seconds of CLOCK_MONOTONIC */
} brim_device_work;

typedef struct brim_backend_ops {
  uint32_t size;
  uint32_t real; /* dtype of activations, parameters and gradients: BRIM_DTYPE_F32 or _F64 */
  const brim_kernel *const *kernels, *const *kernels_end; /* one per supported operation */
  uint64_t alignment; /* in bytes; every tensor and workspace starts at a multiple of it */
  /* [init] device_count returns the number of devices, which may be 0; describe returns the properties of one device.
   */
  int (*device_count)(void *self);
  brim_status (*describe)(void *self, int device, brim_device_info *out);
  /* [init] Allocates the arena: exactly `bytes`, populated and aligned. ENOMEM_DEVICE if it does not fit. */
  brim_status (*place)(void *self, int device, uint64_t bytes, void **base);
  /* [init] Frees an arena. */
  void (*unplace)(void *self, void *base, uint64_t bytes);
  /* [step] Copies from host to device and back, in plain layout. Complete when they return. */
  brim_status (*upload)(void *self, void *device_to, const void *host_from, uint64_t bytes);
  brim_status (*download)(void *self, void *host_to, const void *device_from, uint64_t bytes);
  brim_status (*zero)(void *self, void *device_to, uint64_t bytes);
  /* [step] Waits until all launched work is done. */
  brim_status (*synchronize)(void *self);

  /* ---- For asynchronous devices. A backend has all of these or none. ---- */
  /* [plan] Selects the device for prepare and all later calls; called before them. */
  brim_status (*select)(void *self, int device);
  /* [plan] Returns the bytes that feed() needs at the start of the arena, a multiple of the alignment. feed_bytes: the
   * most that one feed() copies, with each copy rounded up to the alignment. open_feed [init] passes these bytes to the
   * backend after place(). */
  uint64_t (*reserve_bytes)(void *self, uint64_t feed_bytes);
  brim_status (*open_feed)(void *self, void *base, uint64_t feed_bytes);
  /* [step] Starts all nodes of a program, after all work that was started before, except by copy() (below). If *proof
   * is not finite when the program runs, the program has no effect, and neither has any later program with a proof
   * until the next synchronize(). */
  brim_status (*run_program)(void *self, const brim_program_run *run);
  void (*drop_record)(void *self, void *record); /* [init] Frees a recording. */
  /* [step] Copies to the device, before the work that run_program starts next. The host memory may be reused when it
   * returns. */
  brim_status (*feed)(void *self, const brim_copy *copy, size_t count);
  /* [step] Starts copies from the device, after all work started before, of at most BRIM_FETCH_BYTES in total.
   * collect() waits for the copies of the oldest fetch() and then writes them to the host. At most BRIM_FETCHES fetches
   * may be pending. */
  brim_status (*fetch)(void *self, const brim_copy *copy, size_t count);
  brim_status (*collect)(void *self);

  /* Types that activations can be stored in besides `real`, one bit each: BRIM_STORES(BRIM_DTYPE_BF16). Conversions to
   * BRIM_DTYPE_F16 must follow IEEE 754: values above its range become infinite, not the largest number, and small
   * values subnormal (for conv2d see brim/ops.h). With F16 the core scales the loss, and skips the update if a gradient
   * is not finite. On an asynchronous device, a program before the update adds up the squares of all gradients, and its
   * result is the update's proof (see run_program). So every operation of an update that changes parameters, optimizer
   * states or moving averages must obey the proof. */
  uint32_t stores;

  /* [init] Lists the processes that use a device: writes the first `room` of *count entries. ENOTSUP, with the reason,
   * if that cannot be known. NULL: the devices use the host's memory. */
  brim_status (*users)(void *self, int device, brim_device_user *out, size_t room, size_t *count);

  /* ---- For asynchronous devices: memory.offload. A backend has all of these or none. ---- */
  /* [init] Allocates host memory for `copy`, populated. ENOMEM_HOST if there is no room. It is freed after the
   * arena. */
  brim_status (*place_host)(void *self, uint64_t bytes, void **at);
  void (*unplace_host)(void *self, void *at, uint64_t bytes);
  /* [step] Starts copies between that memory and the arena: to the device in BRIM_QUEUE_IN, from it in BRIM_QUEUE_OUT.
   * They run in the order of their queue, whether or not a proof is finite. Only mark() and wait() order the queues
   * among each other. synchronize() waits for all three queues and returns the errors of copies. */
  brim_status (*copy)(void *self, uint32_t queue, const brim_copy *copy, size_t count);
  /* [step] mark() sets mark number `mark`, below BRIM_MARKS, after all work started so far in a queue; an earlier
   * position of the mark is forgotten. wait() delays work that is started in a queue later until all work before the
   * mark's current position is done; it has no effect if the mark was never set. Neither blocks the host. */
  brim_status (*mark)(void *self, uint32_t queue, uint32_t mark);
  brim_status (*wait)(void *self, uint32_t queue, uint32_t mark);

  /* [any thread] Returns the memory that all processes use on a device, and its total. Must be cheap and not allocate.
   * ENOTSUP if it is the host's memory, or unknown. NULL: always ENOTSUP. */
  brim_status (*usage)(void *self, int device, uint64_t *used, uint64_t *total);
  /* [step] Frees caches of libraries that can be rebuilt. NULL: there are none. */
  void (*trim)(void *self);

  /* [init] Returns the native handle of a queue of the selected device, for example a cudaStream_t. A communicator for
   * device memory (brim/comm.h) starts its work in BRIM_QUEUE_COMM, ordered with the other queues by mark() and wait(),
   * which the backend must have too. synchronize() does not wait for that queue, as its work may depend on other
   * processes. NULL: communicators cannot use the device's memory. Since ABI 1.4. */
  void *(*native_queue)(void *self, uint32_t queue);

  /* [init] Returns the memory that this process uses on the selected device besides arenas. When brim places an arena,
   * it leaves room for this memory, and for the growth measured in earlier processes of the same kind
   * (memory.headroom_mb). NULL: a negligible amount. Since ABI 1.8. */
  void (*takes)(void *self, brim_device_takes *out);
  /* [any time] Writes a line of text: the backend's requirements for the driver and the device, and the version of the
   * installed driver; empty or NULL: no requirements. Since ABI 1.8. */
  void (*needs)(void *self, char *out, size_t room);
  /* [plan] For federations that train several clients at a time: creates another instance for the same devices, with
   * 1/`lanes` of the host threads that kernels use, at least one. It runs concurrently with the others, each called by
   * one thread at a time, in memory that this instance has placed, and gives bit-identical results. With feed(), each
   * gets an open_feed() of its own. Before an instance reads memory that another one has written, the core waits for
   * the writer. drop_lane destroys the new instance. A backend has both functions or neither; without them one client
   * trains at a time. Since ABI 1.8. */
  brim_status (*lane)(void *self, int32_t lanes, void **out);
  void (*drop_lane)(void *self, void *lane);
  /* [step] Traces, for asynchronous devices. trace_begin: from now on, measures when the device works on the nodes and
   * copies that run_program(), feed() and copy() start, for up to `room` pieces of work; *how: the name of the method,
   * such as "CUDA events". Results stay bit-identical. trace_end: waits for the device, stops measuring, and writes at
   * most `room` entries to `out`, in the order of their start in each queue; *count: the pieces of work, including
   * those without room. A backend has both functions or neither. Since ABI 1.12. */
  brim_status (*trace_begin)(void *self, size_t room, const char **how);
  brim_status (*trace_end)(void *self, brim_device_work *out, size_t room, size_t *count);
  /* [plan] For asynchronous devices: counts the launches that each later run_program() of this program makes on the
   * device, without running anything. Nothing is placed: the addresses in `run` are those that an arena could have;
   * step, proof and record are NULL. launches [run->count + 1]: for each node, the launches that begin with it (one
   * launch may compute several nodes); the last entry counts launches that belong to no node. NULL: each node is a
   * launch. Since ABI 1.13. */
  brim_status (*count_launches)(void *self, const brim_program_run *run, uint32_t *launches);
} brim_backend_ops;
#define BRIM_STORES(dtype) (1u << (dtype))
#define BRIM_FETCHES 2
#define BRIM_FETCH_BYTES 64
#define BRIM_MARKS 13

#ifdef __cplusplus
}
#endif
#endif
