/* A plan placed on a device: one allocation, every pointer computed once, and the running of its programs.
 *
 * After open, running allocates nothing. Nothing durable changes while a training program runs: gradients and metrics
 * are scratch of the step; parameters and optimizer state change only in the update. */
#ifndef BRIM_EXEC_EXEC_H
#define BRIM_EXEC_EXEC_H
#include "dist/dist.h"
#include "graph/plan.h"

typedef struct brim_exec brim_exec;

/* [init] Realizes the programs, places the arena (exactly plan->peak_bytes) and zeroes its persistent part. The plan
 * must outlive the exec. ENOMEM_DEVICE if it does not fit; then nothing is held. */
brim_status brim_exec_open(const brim_plan *plan, int device, brim_exec **out);
/* [init] The job with whose ranks gradients are added up; NULL, as at first: there are no others. The plan is of that
 * world. */
void brim_exec_join(brim_exec *exec, brim_dist *dist);
void brim_exec_close(brim_exec *exec);
/* A lane of a federation's plan, below plan->lane_count. Its programs run beside those of other lanes, on a thread of
 * the caller's each, but not beside the server's, but for `fold`, which one lane at a time does. What it has of memory
 * is undefined before a round. */
brim_exec *brim_exec_lane(const brim_exec *exec, int32_t lane);
const brim_plan *brim_exec_plan(const brim_exec *exec);
/* Bytes of the arena as asked of the backend. */
uint64_t brim_exec_bytes(const brim_exec *exec);
/* Bytes of the host's memory that an exec of this plan takes for its launches; what kernels take is in their needs. */
uint64_t brim_exec_table_bytes(const brim_plan *plan);
/* Where a program's tensor lies on the device. */
void *brim_exec_pointer(const brim_exec *exec, const brim_program *program, const brim_tensor *tensor);

/* [step] Copies a micro-batch in: values [N, ...] and labels, of the types and shapes of the program's tensors. */
brim_status brim_exec_load(brim_exec *exec, const brim_program *program, const void *values, const void *labels);

/* What of a program runs. */
enum brim_exec_part {
  BRIM_EXEC_WHOLE,
  /* A training program that updates parameters in its backward pass has two halves, the second of which runs only when
   * the loss was seen to be finite. */
  BRIM_EXEC_FORWARD,
  BRIM_EXEC_BACKWARD,
  BRIM_EXEC_NEEDED,     /* of a rank without a micro-batch where others have one: what the others need of it */
  BRIM_EXEC_COLLECTIVES /* of a rank that has failed: what the ranks do together, and nothing else */
};
typedef struct brim_exec_options {
  enum brim_exec_part part;
  /* A step's last micro-batch, of a program of one half: each bucket of gradients is added up over the ranks as soon as
   * it is complete, beside what comes after. If a node fails the rest is left to brim_exec_reduce. */
  bool sums;
  /* Asynchronous devices, for an update or a backward half: it has no effect if the proof is not finite by then, nor
   * has any later one until something is read with brim_exec_metrics, brim_exec_proof or brim_exec_read. */
  bool proved;
} brim_exec_options;
/* [step] Runs a program; options NULL: the whole. On a device that works while the host goes on this starts it: what
 * reads something back waits. */
brim_status brim_exec_run(brim_exec *exec, const brim_program *program, const brim_step *step,
                          const brim_exec_options *options);
/* [step] Starts what is left of a step's sums over all ranks: the other buckets, the first two metrics. `failed`: this
 * rank's are of no use, and all ranks' losses become no number, so that no device makes the update. Every rank calls it
 * once a step, whatever became of it, when all have said that they will. */
brim_status brim_exec_reduce(brim_exec *exec, bool failed);
/* [step] Waits for these sums. On a device that works ahead what is started next is behind them, and whatever reads
 * something back waits for them; a rank that is gone is ECOMM there too. */
brim_status brim_exec_finish_sums(brim_exec *exec);
/* [step] The first `count` metrics, of the largest program that has some, added up over all ranks. */
brim_status brim_exec_sum_metrics(brim_exec *exec, double *out, size_t count);
/* [init] All ranks get rank 0's parameters. */
brim_status brim_exec_broadcast(brim_exec *exec);
/* One node of it. On a device that works while the host goes on this starts it. */
brim_status brim_exec_run_node(brim_exec *exec, const brim_program *program, size_t node, const brim_step *step);
/* [step] Waits until everything that was started has run. */
brim_status brim_exec_wait(brim_exec *exec);
/* [step] Can the host go on while the device works? */
bool brim_exec_is_asynchronous(const brim_exec *exec);
/* What an update depends on, and must be finite: the sum of the step's losses, or what a check made of them and of the
 * gradients. [step] Reads it. */
brim_status brim_exec_proof(brim_exec *exec, double *out);
/* [step] Asynchronous devices only. Asks for the first `count` metrics, the proof and, unless NULL, a program's f64
 * tensor, behind what was started before; brim_exec_collect waits for what was asked for first and then writes it. */
brim_status brim_exec_fetch(brim_exec *exec, double *metrics, size_t count, double *proof, const brim_program *program,
                            const brim_tensor *tensor, double *values);
brim_status brim_exec_collect(brim_exec *exec);
/* [step] Zeroes a tensor; the gradients; the metrics. */
brim_status brim_exec_zero(brim_exec *exec, const brim_program *program, const brim_tensor *tensor);
brim_status brim_exec_zero_gradients(brim_exec *exec);
brim_status brim_exec_zero_metrics(brim_exec *exec);
/* [step] Of a federation: zeroes what the optimizer keeps. */
brim_status brim_exec_zero_states(brim_exec *exec);
/* [step] Reads the metrics: sum of losses, right answers, and in evaluation the confusion matrix [classes*classes] of
 * fewer than BRIM_MANY_CLASSES; of real targets the sum of losses and the errors. See brim/ops.h. */
brim_status brim_exec_metrics(brim_exec *exec, const brim_program *program, double *out, size_t count);

/* Are all elements of a tensor finite now? Slow; allocates. */
brim_status brim_exec_is_finite(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, bool *finite);
/* Runs a program node by node, looking at every result, and says which node first made a value that is not finite
 * (NULL: none) — for a step whose loss is not. Of a program that updates parameters only the forward pass. Slow;
 * allocates. */
brim_status brim_exec_find_nonfinite(brim_exec *exec, const brim_program *program, const brim_step *step,
                                     const brim_node **out);
/* Copies a persistent tensor, or after a program the one that its graph keeps; plain layout. */
brim_status brim_exec_read(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, void *host);
brim_status brim_exec_write(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, const void *host);
/* The same as numbers of type `dtype` in host memory, both types real. ENOMEM_HOST. */
brim_status brim_exec_read_as(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, uint32_t dtype,
                              void *host);
brim_status brim_exec_write_as(brim_exec *exec, const brim_program *program, const brim_tensor *tensor, uint32_t dtype,
                               const void *host);
#endif
