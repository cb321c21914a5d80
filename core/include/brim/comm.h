/* For authors of communicators: a communicator connects the processes (ranks) of a job, lets them exchange messages,
 * and adds up their gradients.
 *
 * A communicator has one or both of two parts:
 *   the host part   ranks join, exchange small messages, and end together: join .. end_all
 *   collectives     on large buffers in host or device memory: connect .. disconnect
 * comm/mpi has both, for host memory. comm/nccl has only collectives, for GPUs, and is combined with the host part of
 * another communicator.
 *
 * brim calls all functions from the main thread, except that it may call end_all from another thread while join has not
 * returned. Every rank makes the same calls in the same order, except end_all. */
#ifndef BRIM_COMM_H
#define BRIM_COMM_H
#include <stdint.h>

#include "brim/backend.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The place of this process in its job. */
typedef struct brim_world {
  int32_t rank, ranks;             /* rank: from 0; ranks: their number */
  int32_t local_rank, local_ranks; /* the place among the ranks of this host */
} brim_world;

/* Messages for a communicator without a host part. exchange: as below, with the job's time limit. */
typedef struct brim_talk {
  void *context;
  brim_status (*exchange)(void *context, const void *own, uint32_t bytes, void *all);
  double seconds;         /* the job's time limit: a rank that keeps others waiting for longer counts as failed */
  uint64_t largest_bytes; /* approximate size of the largest collective: dist.bucket_mb. Since ABI 1.8 */
} brim_talk;

enum brim_collective_kind {
  BRIM_ALL_REDUCE = 1, /* the sum of all ranks' buffers. The order of additions is the same on every rank and in every
                          run with the same number of ranks, so the results are bit-identical */
  BRIM_REDUCE_SCATTER, /* a sum like ALL_REDUCE, but each rank gets only its own part; its other parts become undefined
                        */
  BRIM_ALL_GATHER,     /* every rank gets the parts of all ranks */
  BRIM_BROADCAST       /* every rank gets the buffer of rank 0 */
};
/* A collective, done in place. `count`: elements of the buffer. Parts have count / ranks elements each, in the order of
 * the ranks. */
typedef struct brim_collective {
  uint32_t kind;  /* enum brim_collective_kind */
  uint32_t dtype; /* BRIM_DTYPE_F32 or _F64; for BRIM_ALL_GATHER and BRIM_BROADCAST also _U8 */
  void *buffer;
  uint64_t count;
} brim_collective;

#define BRIM_EXCHANGE_BYTES 4096 /* largest message of one exchange */
#define BRIM_COLLECTIVES 32      /* most collectives that may be pending */

typedef struct brim_comm_ops {
  uint32_t size;
  uint32_t on_device; /* 1: buffers are in device memory; 0: in host memory */

  /* ---- the host part; all or none ---- */
  /* [init] Joins the job of this process, as described in the environment by its launcher. Called once per process.
   * ECOMM. */
  brim_status (*join)(void *self, brim_world *out);
  /* [step] Exchanges messages: each rank sends `bytes` bytes, the same number on every rank and at most
   * BRIM_EXCHANGE_BYTES, and receives those of all ranks, in the order of the ranks. Must not allocate. ECOMM if it
   * takes longer than `seconds`, or a rank is known to be gone; EPEER if another rank reported that; the error text
   * says so. *late is the first missing rank known to this one, or -1. */
  brim_status (*exchange)(void *self, const void *own, uint32_t bytes, void *all, double seconds, int32_t *late);
  /* [init] Leaves the job; all ranks end normally. */
  void (*leave)(void *self);
  /* [any time] Ends every reachable process of the job at once, with this exit status. */
  void (*end_all)(void *self, int32_t exit_status);

  /* ---- collectives; all or none ---- */
  /* [init] Prepares for collectives. Called before brim queries the device's free memory, so a library must allocate
   * its own device memory here. `ops`, `backend`, `device`: where the buffers are; the device is selected. */
  brim_status (*connect)(void *self, const brim_world *world, const brim_talk *talk, const brim_backend_ops *ops,
                         void *backend, int32_t device);
  /* [step] Starts a collective. `queue`: the device's queue in which it runs (brim_backend_ops.native_queue). NULL for
   * host memory: it may begin at once, and its buffer must not be touched until it is done. At most BRIM_COLLECTIVES
   * may be pending. Must not allocate, except that a library may cache data for the first collective of a kind. */
  brim_status (*start)(void *self, const brim_collective *what, void *queue);
  /* [step] Makes progress on pending collectives without waiting. *done: the number completed since connect; they
   * complete in the order in which they were started. ECOMM: the other ranks cannot be reached. */
  brim_status (*poll)(void *self, uint64_t *done);
  /* [init] Ends connect. After a failure it must not wait for other ranks. */
  void (*disconnect)(void *self);
} brim_comm_ops;

#ifdef __cplusplus
}
#endif
#endif
