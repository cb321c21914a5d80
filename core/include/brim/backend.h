/* For authors of backends: devices, their one allocation, and a kernel per operation.
 *
 * The life of a program (a list of nodes for one batch shape):
 *   prepare   per node, in order: choose the layout of the outputs and say how much scratch is needed.
 *             Fast (brim plan calls it for many batch sizes). The backend allocates nothing on the device; a library
 *             that it asks may load code there, which `takes` counts.
 *   realize   per node, once, when the program will really be run: compile, create primitives.
 *   place     once per run: the arena, exactly as many bytes as the plan says.
 *   run       per node, each step: pointers into the arena; must not allocate device memory, nor
 *             64 KiB or more of the host's.
 *   release   per node.
 * A device that works while the host goes on has run_program too, and what stands with it: then whole programs are
 * started, and the host waits in collect, download and synchronize only. */
#ifndef BRIM_BACKEND_H
#define BRIM_BACKEND_H
#include <stddef.h>

#include "brim/ops.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_device_info {
  char name[128];       /* "AMD EPYC 9654" */
  uint64_t total_bytes; /* memory of the device */
  uint64_t free_bytes;  /* what place() may get now; for hosts, of the cgroup's limit */
  int32_t threads;      /* host threads that kernels use; 0 where that means nothing */
  int32_t on_host;      /* 1: arena pointers can be dereferenced by the core */
  int32_t limited;      /* 1: a share of a host, with a ledger (brim/ledger.h) that says who has how much of it */
  /* What this process has of the device besides arenas: a GPU's context, and its libraries' memory. 0: nothing, or not
   * known */
  uint64_t taken_bytes;
  /* of GPUs; 0 and empty for others */
  int32_t capability_major, capability_minor; /* compute capability 9.0 */
  char uuid[64];                              /* "GPU-8a5f2b1c-..." */
} brim_device_info;

/* A process that has memory of a device. */
typedef struct brim_device_user {
  int64_t pid;
  uint64_t bytes; /* BRIM_BYTES_UNKNOWN: the driver does not say */
  char name[64];  /* of the process; empty: it cannot be seen from here */
} brim_device_user;
#define BRIM_BYTES_UNKNOWN UINT64_MAX

/* What this process takes of a device besides arenas, in bytes, by class. A class that the backend cannot measure here
 * is BRIM_BYTES_UNKNOWN. Since ABI 1.8. */
typedef struct brim_device_takes {
  uint64_t context_bytes;   /* the driver's, for the process to use the device at all */
  uint64_t libraries_bytes; /* code and tables of kernels and libraries, as far as they are loaded by now */
  uint64_t programs_bytes;  /* recorded programs */
  uint64_t program_nodes;   /* in these recorded programs */
  uint64_t grown_bytes;     /* of the libraries' and the programs' bytes: those that came after select() */
} brim_device_takes;

/* What holds for a whole program. */
typedef struct brim_program_info {
  int64_t batch; /* samples in the micro-batch, N */
  int64_t grain; /* samples; products and weight gradients are computed per grain and summed in
                    sample order, so that results do not depend on `batch`. 0: the backend's choice */
  int32_t training;
} brim_program_info;

/* What one step brings along: the same for every node of it. */
typedef struct brim_step {
  uint64_t seed;
  uint64_t step;        /* counts steps, from 0; for updates, the updates before: steps that were skipped are none */
  int64_t first_sample; /* position of the micro-batch's first sample in the effective batch */
  /* 1 / samples of the effective batch. Where activations are kept in F16, times a power of two that keeps their
   * gradients in its range (dynamic loss scaling); gradient_scale takes it back in the update */
  double loss_scale;
  int64_t norm_groups; /* groups of batch norm in the effective batch; see moving_average in brim/ops.h */
  /* for updates */
  double lr, weight_decay, beta1, beta2, eps, momentum;
  double bias_correction1, bias_correction2; /* 1 - beta^t, t = step + 1; without correction 1 */
  double gradient_scale; /* what the gradients must be multiplied by; see gradient_scale in brim/ops.h */
  /* In a federation. For steer, what a client's distance from the global model is multiplied by: FedProx's mu, divided
   * by gradient_scale. For fold, the weight of the client's update: its samples times a power of two, chosen so that
   * all weights of a round add up to at most 1. For serve, 1 / the sum of these weights. Since ABI 1.8 */
  double federated;
  /* yogi, adagrad: the update adds it to the second moment or sum of squares that it reads. Step 0 brings the first
   * value of that state, which is 0 in memory until then; later steps bring 0. Since ABI 1.8. */
  double initial_accumulator;
  /* For formulas: what the optimizer's step() has written. Since ABI 1.10. */
  double scalar[BRIM_SCALARS_MAX];
} brim_step;

typedef struct brim_kernel_need {
  uint64_t workspace_bytes; /* scratch while the node runs; may be any size */
  /* Where an operation allows it (core/graph/ops), an output may lie in the memory of an input that nobody needs later:
   * the kernel reads each element before it writes that place. 1: not for this node, as its kernel does otherwise. */
  int32_t no_inplace;
  uint64_t host_bytes; /* that realize() will take of the host's memory; 0: nothing worth telling */
  /* For people, who would wonder why a run is slow. Text that stays as long as the plugin. Since ABI 1.8. */
  const char *library; /* that computes the node: "cuDNN"; NULL: a kernel of the backend's own */
  const char *refused; /* why a library that would be faster does not; NULL: there is none */
} brim_kernel_need;

typedef struct brim_launch {
  const brim_node *node;
  void *state;     /* what prepare returned */
  void *const *in; /* in node order */
  void *const *out;
  void *workspace;       /* 64-byte aligned; contents undefined */
  const brim_step *step; /* NULL within run_program: see there */
} brim_launch;

typedef struct brim_kernel {
  const char *op; /* "conv2d" */
  /* [plan] NULL: plain layout, no scratch, no state. May set channel_block and bytes of the outputs;
   * those of the inputs are final. A reshape between layouts that differ in memory copies. */
  brim_status (*prepare)(void *self, const brim_program_info *program, const brim_node *node, brim_kernel_need *need,
                         void **state);
  brim_status (*realize)(void *self, const brim_node *node, void *state); /* [init] NULL: nothing */
  brim_status (*run)(void *self, const brim_launch *launch);              /* [step] */
  void (*release)(void *self, void *state);                               /* [init] NULL: nothing */
} brim_kernel;

/* Puts a kernel into its plugin's table, beside the functions it names:
 *
 *     BRIM_KERNEL(relu) = {.op = "relu", .run = relu_run};
 *
 * The linker gathers them; a backend's ops have .kernels = BRIM_KERNELS, .kernels_end = BRIM_KERNELS_END. */
#ifdef __cplusplus /* which knows no tentative definitions */
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

/* What a device works at side by side, each in the order in which it was started. */
enum brim_queue {
  BRIM_QUEUE_COMPUTE, /* everything but: */
  BRIM_QUEUE_IN,      /* copies of states to the device, */
  BRIM_QUEUE_OUT,     /* and from it; */
  BRIM_QUEUE_COMM,    /* what communicators do with memory of the device. Since ABI 1.4 */
  BRIM_QUEUES
};

/* Bytes from one place to another. */
typedef struct brim_copy {
  void *to;
  const void *from;
  uint64_t bytes;
} brim_copy;

/* A program, to be run whole. All but `step` and `proof` is the same at every call for one record. */
typedef struct brim_program_run {
  const brim_launch *launch; /* per node, in order; their step is NULL */
  const brim_kernel *const *kernel;
  size_t count;
  const brim_step *step; /* read before the call returns */
  const double *proof;   /* on the device; NULL: none. See run_program */
  void **record;         /* what the backend keeps of this program; NULL at first */
} brim_program_run;

typedef struct brim_backend_ops {
  uint32_t size;
  uint32_t real; /* dtype of activations, parameters and gradients: BRIM_DTYPE_F32 or _F64 */
  const brim_kernel *const *kernels, *const *kernels_end; /* one for each operation that the backend has */
  uint64_t alignment; /* bytes; every tensor and workspace starts at a multiple of it */
  /* [init] */
  int (*device_count)(void *self);
  brim_status (*describe)(void *self, int device, brim_device_info *out);
  /* [init] The arena: exactly `bytes`, populated, aligned. ENOMEM_DEVICE if it does not fit. */
  brim_status (*place)(void *self, int device, uint64_t bytes, void **base);
  void (*unplace)(void *self, void *base, uint64_t bytes);
  /* [step] Host to device and back, plain layout; complete when they return. */
  brim_status (*upload)(void *self, void *device_to, const void *host_from, uint64_t bytes);
  brim_status (*download)(void *self, void *host_to, const void *device_from, uint64_t bytes);
  brim_status (*zero)(void *self, void *device_to, uint64_t bytes);
  /* [step] Waits until everything launched has run. */
  brim_status (*synchronize)(void *self);

  /* ---- For devices that work while the host goes on. A backend has all of these or none. ---- */
  /* [plan] The device that prepare and everything after it is for; before the first of them. */
  brim_status (*select)(void *self, int device);
  /* [plan] Bytes that feed() needs at the start of the arena, a multiple of the alignment; feed_bytes: the most that
   * one feed() copies, each copy rounded up to the alignment. open_feed [init]: here they are, after place(). */
  uint64_t (*reserve_bytes)(void *self, uint64_t feed_bytes);
  brim_status (*open_feed)(void *self, void *base, uint64_t feed_bytes);
  /* [step] Starts all nodes of a program, behind what was started before (but copy(), below). A run with a proof has no
   * effect if *proof is not finite by then, nor has any later one with a proof until the next synchronize(). */
  brim_status (*run_program)(void *self, const brim_program_run *run);
  void (*drop_record)(void *self, void *record); /* [init] */
  /* [step] Copies to the device, in time for what run_program starts next; the host's memory is free when it returns.
   */
  brim_status (*feed)(void *self, const brim_copy *copy, size_t count);
  /* [step] Starts copies from the device, behind what was started before, at most BRIM_FETCH_BYTES together; collect()
   * waits for those of the oldest fetch() and then writes to the host. At most BRIM_FETCHES may be under way. */
  brim_status (*fetch)(void *self, const brim_copy *copy, size_t count);
  brim_status (*collect)(void *self);

  /* Types that activations can be kept in, besides `real`: a bit each, BRIM_STORES(BRIM_DTYPE_BF16). With
   * BRIM_DTYPE_F16, which has a range of its own: what is too large when it is stored must become infinite, not the
   * largest number, and what is small a subnormal number, as IEEE 754 says (conv2d: but see brim/ops.h). The core
   * scales the loss, and skips the update of a step in which a gradient is not finite. A device that works ahead gets a
   * program before the update that adds up the squares of all gradients; its result is the update's proof (see
   * run_program). So every operation of an update that changes something durable must heed the proof: parameters,
   * optimizer state, moving averages. */
  uint32_t stores;

  /* [init] Who uses a device: writes the first `room` of *count. ENOTSUP if it cannot be known here, saying why. NULL:
   * such devices are used through the host's memory. */
  brim_status (*users)(void *self, int device, brim_device_user *out, size_t room, size_t *count);

  /* ---- For devices that work while the host goes on: memory.offload. A backend has all of these or none. ---- */
  /* [init] Host memory that `copy` reads and writes, populated. ENOMEM_HOST if there is no room. Given back when the
   * arena is gone. */
  brim_status (*place_host)(void *self, uint64_t bytes, void **at);
  void (*unplace_host)(void *self, void *at, uint64_t bytes);
  /* [step] Starts copies between that memory and the arena: to the device in BRIM_QUEUE_IN, from it in BRIM_QUEUE_OUT;
   * and no others. They are made in the order of their queue, whatever becomes of a proof. A queue is in no order with
   * the other two but what mark() and wait() say. synchronize() waits for all three and has the errors of copies. */
  brim_status (*copy)(void *self, uint32_t queue, const brim_copy *copy, size_t count);
  /* [step] Puts mark number `mark`, below BRIM_MARKS, behind what was started in a queue so far; it was nowhere, or
   * leaves its place. wait(): what is started next in a queue begins when what stands before the mark, where that is at
   * the time of the call, is done; at once if it is nowhere. The host waits in neither. */
  brim_status (*mark)(void *self, uint32_t queue, uint32_t mark);
  brim_status (*wait)(void *self, uint32_t queue, uint32_t mark);

  /* [any thread] What all processes together have of a device, and how much it has: cheap, and without allocating.
   * ENOTSUP if it is the host's memory, or cannot be known. NULL: always so. */
  brim_status (*usage)(void *self, int device, uint64_t *used, uint64_t *total);
  /* [step] Gives back what libraries keep and can make again. NULL: there is nothing. */
  void (*trim)(void *self);

  /* [init] The device's own name for a queue, once it is selected: a cudaStream_t. In that of BRIM_QUEUE_COMM a
   * communicator for memory of the device (brim/comm.h) puts its work, in order with the other queues by mark() and
   * wait(), which such a backend has too. synchronize() does not wait for that one: what is done there may depend on
   * other processes. NULL: its memory is added up by no communicator. Since ABI 1.4. */
  void *(*native_queue)(void *self, uint32_t queue);

  /* [init] What this process takes of the device that is selected. brim leaves that much room, and more for what such a
   * process was measured to grow by, before it places an arena (memory.headroom_mb). NULL: the process takes nothing
   * that is worth counting. Since ABI 1.8. */
  void (*takes)(void *self, brim_device_takes *out);
  /* [any time] What the backend needs of the driver and the device, and which driver is here, in one line of text;
   * empty if there is nothing to say. NULL: nothing. Since ABI 1.8. */
  void (*needs)(void *self, char *out, size_t room);
  /* [plan] For federations, which train several clients at a time: one more instance for the same devices, with
   * 1/`lanes` of the host's threads that kernels use, at least one. It works at the same time as the others, in memory
   * that this instance has placed, and its results are the same bits. drop_lane gives it back. A backend has both or
   * neither: then one client trains at a time. Since ABI 1.8. */
  brim_status (*lane)(void *self, int32_t lanes, void **out);
  void (*drop_lane)(void *self, void *lane);
} brim_backend_ops;
#define BRIM_STORES(dtype) (1u << (dtype))
#define BRIM_FETCHES 2
#define BRIM_FETCH_BYTES 64
#define BRIM_MARKS 13

#ifdef __cplusplus
}
#endif
#endif
