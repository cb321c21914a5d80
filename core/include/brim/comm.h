/* For authors of communicators: how the processes of a job, its ranks, find each other, talk, and add up what they have
 * computed.
 *
 * A communicator has one of two halves, or both:
 *   the host's    ranks join, exchange small messages, and end together: join .. end_all
 *   collectives   on large buffers, in the host's memory or in that of a device: connect .. disconnect
 * comm/mpi has both, for host memory; comm/nccl has the second, for GPUs, and uses whatever host's half the job has.
 *
 * All functions are called from the main thread, but end_all also from another one while join does not return. Every
 * rank makes the same calls in the same order, but for end_all. */
#ifndef BRIM_COMM_H
#define BRIM_COMM_H
#include <stdint.h>

#include "brim/backend.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Who this process is in its job. */
typedef struct brim_world {
  int32_t rank, ranks;             /* from 0; how many there are */
  int32_t local_rank, local_ranks; /* the same among those of this host */
} brim_world;

/* How a communicator without a host's half talks. exchange: as below, within the job's time. */
typedef struct brim_talk {
  void *context;
  brim_status (*exchange)(void *context, const void *own, uint32_t bytes, void *all);
  double seconds;         /* the job's time: whoever keeps others waiting for longer is given up */
  uint64_t largest_bytes; /* of the collectives to come, about: dist.bucket_mb. Since ABI 1.8 */
} brim_talk;

enum brim_collective_kind {
  BRIM_ALL_REDUCE = 1, /* the sum of all ranks' buffers, in the same order of additions on every rank and in every run
                          of so many ranks: everywhere the same bits */
  BRIM_REDUCE_SCATTER, /* the same, of which a rank gets its own part; the other parts are undefined then */
  BRIM_ALL_GATHER,     /* the own parts of all ranks */
  BRIM_BROADCAST       /* what rank 0 has */
};
/* In place. `count`: elements of the buffer; with parts each rank's has count / ranks, in the order of the ranks. */
typedef struct brim_collective {
  uint32_t kind;  /* enum brim_collective_kind */
  uint32_t dtype; /* BRIM_DTYPE_F32, _F64; gathered and broadcast also _U8 */
  void *buffer;
  uint64_t count;
} brim_collective;

#define BRIM_EXCHANGE_BYTES 4096 /* the most of one exchange */
#define BRIM_COLLECTIVES 32      /* the most under way */

typedef struct brim_comm_ops {
  uint32_t size;
  uint32_t on_device; /* buffers are memory of the backend's device; 0: of the host */

  /* ---- the host's half; all or none ---- */
  /* [init] Joins the job that this process was started in, as whoever started it says in the environment: once a
   * process. ECOMM. */
  brim_status (*join)(void *self, brim_world *out);
  /* [step] Each rank gives `bytes`, everywhere as many and at most BRIM_EXCHANGE_BYTES, and gets those of all in the
   * order of the ranks. Does not allocate. ECOMM if that takes longer than `seconds`, or a rank is known to be gone;
   * EPEER if that is so and another rank has told this one, and says it: *late is the first rank that is missing, as
   * far as this one knows; -1: it does not know. */
  brim_status (*exchange)(void *self, const void *own, uint32_t bytes, void *all, double seconds, int32_t *late);
  /* [init] The end of all ranks, in good order. */
  void (*leave)(void *self);
  /* [any time] Ends every process of the job at once, as far as it can be reached, with this exit status. */
  void (*end_all)(void *self, int32_t exit_status);

  /* ---- collectives; all or none ---- */
  /* [init] Before the first, and before the device is asked how much of it is free: what a library takes there for
   * itself it takes here. `ops`, `backend`, `device`: where the buffers are; the device is selected. */
  brim_status (*connect)(void *self, const brim_world *world, const brim_talk *talk, const brim_backend_ops *ops,
                         void *backend, int32_t device);
  /* [step] Starts one. `queue`: of the device (brim_backend_ops.native_queue), in whose order it is done; NULL for host
   * memory: then it may begin at once, and its buffer must not be touched until it is done. At most BRIM_COLLECTIVES
   * may be under way. Does not allocate but for what a library keeps of the first of its kind. */
  brim_status (*start)(void *self, const brim_collective *what, void *queue);
  /* [step] Lets those that are under way make progress, without waiting. *done: how many are done since connect; they
   * end in the order in which they were started. ECOMM: the other ranks cannot be reached. */
  brim_status (*poll)(void *self, uint64_t *done);
  /* [init] Also after a failure: then it must not wait for others. */
  void (*disconnect)(void *self);
} brim_comm_ops;

#ifdef __cplusplus
}
#endif
#endif
