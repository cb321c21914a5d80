/* A plan that is placed on a device, in one allocation, with every pointer computed once; runs its programs.
 *
 * After opening, running allocates nothing. A training program changes nothing durable: gradients and metrics are
 * scratch memory of the step; parameters and optimizer state change only in the update. */
#ifndef BRIM_EXEC_EXEC_H
#define BRIM_EXEC_EXEC_H
#include "dist/dist.h"
#include "graph/plan.h"

typedef struct brim_exec brim_exec;

/* [init] Realizes the programs, places the arena (exactly plan->peak_bytes) and zeroes its persistent part. The plan
 * must outlive the exec. ENOMEM_DEVICE if it does not fit; then nothing stays allocated. */
brim_status brim_exec_open(const brim_plan *plan, int device, brim_exec **out);
/* [init] Sets the job whose ranks add up gradients; NULL, the default: a single rank. The plan must be for that
 * world. */
void brim_exec_join(brim_exec *exec, brim_dist *dist);
void brim_exec_close(brim_exec *exec);
/* A lane of a federation's plan, below plan->lane_count. Its programs may run concurrently with those of other lanes,
 * each lane on its own thread, but not with the server's. Only one lane at a time may run `fold`. A lane's memory is
 * undefined before a round. */
brim_exec *brim_exec_lane(const brim_exec *exec, int32_t lane);
const brim_plan *brim_exec_plan(const brim_exec *exec);
/* Bytes of the arena, as requested from the backend. */
uint64_t brim_exec_bytes(const brim_exec *exec);
/* Bytes of host memory for this plan's launches; without the memory that kernels allocate themselves. */
uint64_t brim_exec_table_bytes(const brim_plan *plan);
/* The device address of a program's tensor. */
void *brim_exec_pointer(const brim_exec *exec, const brim_program *program, const brim_tensor *tensor);

/* [step] Copies a micro-batch to the device: values [N, ...] and labels, of the types and shapes of the program's
 * tensors. */
brim_status brim_exec_load(brim_exec *exec, const brim_program *program, const void *values, const void *labels);
/* [step] The same for a program that continues texts: tokens and their places, both [N,T]. */
brim_status brim_exec_load_tokens(brim_exec *exec, const brim_program *program, const int32_t *tokens,
                                  const int32_t *places);

/* The part of a program to run. */
enum brim_exec_part {
  BRIM_EXEC_WHOLE,
  /* A training program that updates parameters in its backward pass has two halves; the second runs only after the loss
   * was found finite. */
  BRIM_EXEC_FORWARD,
  BRIM_EXEC_BACKWARD,
  BRIM_EXEC_NEEDED, /* for a rank without a micro-batch while others have one: only the nodes and collectives that other
                       ranks depend on */
  BRIM_EXEC_COLLECTIVES /* for a rank that failed: only the collectives */
};
typedef struct brim_exec_options {
  enum brim_exec_part part;
  /* For a step's last micro-batch, in a program of one half: each bucket of gradients is added up over the ranks as
   * soon as it is complete, while the next nodes run. If a node fails, brim_exec_reduce adds up the rest. */
  bool sums;
  /* On asynchronous devices, for an update or a backward half: if the proof is not finite when the device reaches it,
   * this run has no effect, and neither has any later run with `proved`, until the caller reads with brim_exec_metrics,
   * brim_exec_proof or brim_exec_read. */
  bool proved;
} brim_exec_options;
/* [step] Runs a program; options NULL: all of it. On an asynchronous device this only starts it; reading results
 * waits. */
brim_status brim_exec_run(brim_exec *exec, const brim_program *program, const brim_step *step,
                          const brim_exec_options *options);
/* [step] Starts the rest of a step's sums over all ranks: the other buckets and the first two metrics. `failed`:
 * discard this rank's sums and make the loss NaN on all ranks, so that no device applies the update. Every rank calls
 * this once in every step, even if the step failed, after all ranks have announced it in a meeting. */
brim_status brim_exec_reduce(brim_exec *exec, bool failed);
/* [step] Waits for these sums. An asynchronous device orders later work after them, and any read waits for them; if a
 * rank is gone, that read returns ECOMM too. */
brim_status brim_exec_finish_sums(brim_exec *exec);
/* [step] Reads the first `count` metrics of the largest program that has metrics, added up over all ranks. */
brim_status brim_exec_sum_metrics(brim_exec *exec, double *out, size_t count);
/* [init] Copies rank 0's parameters to all ranks. */
brim_status brim_exec_broadcast(brim_exec *exec);
/* Runs one node. On an asynchronous device this only starts it. */
brim_status brim_exec_run_node(brim_exec *exec, const brim_program *program, size_t node, const brim_step *step);
/* [step] Waits for all work that was started. */
brim_status brim_exec_wait(brim_exec *exec);
/* [step] Whether the device is asynchronous, so that the host continues while the device works. */
bool brim_exec_is_asynchronous(const brim_exec *exec);
/* [step] Reads the proof, which must be finite for an update to happen: the sum of the step's losses, or the result of
 * a check of them and the gradients. */
brim_status brim_exec_proof(brim_exec *exec, double *out);
/* [step] Asynchronous devices only. Starts to read the first `count` metrics, the proof and, unless NULL, a program's
 * f64 tensor, after all work that was started before; brim_exec_collect waits for the oldest request and then writes
 * its results. */
brim_status brim_exec_fetch(brim_exec *exec, double *metrics, size_t count, double *proof, const brim_program *program,
                            const brim_tensor *tensor, double *values);
brim_status brim_exec_collect(brim_exec *exec);
/* [step] Zero a tensor, the gradients, or the metrics. Gradients that the next training program overwrites are zeroed
 * only if another program runs first, or the caller reads them. */
brim_status brim_exec_zero(brim_exec *exec, const brim_program *program, const brim_tensor *tensor);
brim_status brim_exec_zero_gradients(brim_exec *exec);
brim_status brim_exec_zero_metrics(brim_exec *exec);
/* [step] For a federation: zeroes the optimizer's state. */
brim_status brim_exec_zero_states(brim_exec *exec);
/* [step] Reads the metrics: sum of losses, right answers and, in evaluation with fewer than BRIM_MANY_CLASSES classes,
 * the confusion matrix [classes*classes]; for real targets the sum of losses and the errors. See brim/ops.h. */
brim_status brim_exec_metrics(brim_exec *exec, const brim_program *program, double *out, size_t count);
/* [step] Reads the metrics in the same way, and sets them to 0. */
brim_status brim_exec_take_metrics(brim_exec *exec, const brim_program *program, double *out, size_t count);

/* Whether all elements of a tensor are finite. Slow; allocates. */
brim_status brim_exec_is_finite(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, bool *finite);
/* Runs a program node by node, checks every result, and finds the first node with a result that is not finite (NULL:
 * none). Used after a step whose loss is not finite. If the program updates parameters, runs only the forward pass.
 * Slow; allocates. */
brim_status brim_exec_find_nonfinite(brim_exec *exec, const brim_program *program, const brim_step *step,
                                     const brim_node **out);
/* Copy a persistent tensor, or, after its program has run, a tensor that the graph keeps, in plain layout. */
brim_status brim_exec_read(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, void *host);
brim_status brim_exec_write(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, const void *host);
/* Copy only `bytes` bytes of the tensor, from byte `first`. */
brim_status brim_exec_read_part(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, uint64_t first,
                                uint64_t bytes, void *host);
brim_status brim_exec_write_part(brim_exec *exec, const brim_program *program, const brim_tensor *tensor,
                                 uint64_t first, uint64_t bytes, const void *host);
/* Returns the address of a persistent tensor's values, which several threads may read and write between two steps, or
 * NULL if they are not in an arena in host memory. */
void *brim_exec_host_values(const brim_exec *exec, const brim_program *program, const brim_tensor *tensor);
/* Copy whole tensors, as numbers of type `dtype` in host memory; both types must be real. ENOMEM_HOST. */
brim_status brim_exec_read_as(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, uint32_t dtype,
                              void *host);
brim_status brim_exec_write_as(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, uint32_t dtype,
                               const void *host);
/* [step] Copies elements [first, first + count) of such a tensor. Not for states in host memory. */
brim_status brim_exec_read_range(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, int64_t first,
                                 int64_t count, void *host);
#endif
