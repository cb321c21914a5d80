/* The ranks of a job: one process each, all with the same configuration; each trains on a part of every step's samples.
 * A process takes part in at most one job, as MPI starts only once. A NULL brim_dist is a job of one rank, whose
 * operations complete at once. Call all functions from the main thread. */
#ifndef BRIM_DIST_DIST_H
#define BRIM_DIST_DIST_H
#include <stdbool.h>

#include "brim/comm.h"
#include "brim/plugin.h"
#include "param/yaml.h"
#include "plugin/registry.h"

typedef struct brim_dist brim_dist;

/* Options for joining a job. The caller owns them and keeps them until the job is closed. */
typedef struct brim_dist_options {
  const brim_registry *registry; /* to find "mpi" and "nccl" */
  const brim_plugin *comm;       /* the chosen communicator, with its parameters */
  void *params;
  const brim_yaml *configuration; /* the configuration as the user set it */
  int64_t ranks;                  /* the user's dist.ranks; below 0: as many as were started */
  double timeout_seconds;         /* maximum wait for other ranks */
  uint64_t bucket_bytes;          /* the size of most collectives */
  bool by_messages;               /* the ranks may share a GPU, or lack MPI: collectives go through host memory */
} brim_dist_options;

/* The default of the group `comm`: mpi, and nccl between GPUs. */
extern const brim_plugin brim_comm_auto;

/* [init] Joins the job that this process was started in. *out is NULL if it was started alone. ECONFIG if dist.ranks
 * differs from the number that was started, or the ranks' configurations differ; ECOMM, ELOAD. If *out is set after an
 * error, report the error before brim_dist_close, because mpirun ends all ranks when the first one has ended. */
brim_status brim_dist_open(const brim_dist_options *options, brim_dist **out);
/* [init] Leaves the job. `failed`: the other ranks may have ended, so this one does not wait for them. Otherwise, if
 * the communicator hangs, ends the process with `exit_status`, the status with which the caller is about to end it. */
void brim_dist_close(brim_dist *dist, bool failed, int exit_status);
/* This process's place in the job; {0, 1, 0, 1} for NULL. */
brim_world brim_dist_world(const brim_dist *dist);

/* ---- messages ---- */

/* [step] As in brim_comm_ops. ECOMM with a message that names the rank: the job has failed, see brim_dist_give_up. */
brim_status brim_dist_exchange(brim_dist *dist, const void *own, uint32_t bytes, void *all);
/* [init] Copies rank 0's text to all ranks; it must be shorter than `room` and than 64 KiB. */
brim_status brim_dist_share_text(brim_dist *dist, char *text, size_t room);
/* Reports the thread's error text, unless another rank has reported an error, and ends every process of the job. Does
 * not return unless dist is NULL. */
void brim_dist_give_up(brim_dist *dist, brim_status status);

/* The purpose of a meeting. If ranks are in different meetings at the same time, brim has an internal error. */
enum brim_meeting {
  BRIM_MEET_START = 1,
  BRIM_MEET_READY,     /* each rank has everything that the step needs; the step's collectives follow */
  BRIM_MEET_COMMIT,    /* the step can be committed */
  BRIM_MEET_EVALUATED, /* each rank has evaluated its part */
  BRIM_MEET_CHECKPOINT,
  BRIM_MEET_CHECK, /* comparison of the weights */
  BRIM_MEET_AGAIN, /* after a failure, each rank is ready to repeat the step */
  BRIM_MEET_END,
  BRIM_MEET_ROLL /* sums do not arrive: find the ranks that are still present */
};
#define BRIM_BALLOT_SUMS 4
typedef struct brim_ballot {
  uint32_t meeting; /* enum brim_meeting */
  int32_t status;   /* the result of the work before the meeting */
  int64_t step;
  uint32_t wishes;  /* bits, of enum brim_wish */
  uint32_t is_torn; /* an update failed halfway: the parameters belong to no commit */
  uint32_t is_over; /* the step cannot be repeated: the run ends */
  uint32_t unused;
  double sum[BRIM_BALLOT_SUMS];
} brim_ballot;
enum brim_wish {
  BRIM_WISH_STOP = 1,  /* a signal requests the end */
  BRIM_WISH_PAUSE = 2, /* memory is short: all ranks write a checkpoint, and one rank chooses a smaller plan */
  BRIM_WISH_LOOK = 4,  /* work between two steps is due: no rank starts a step ahead */
  /* Trace steps, beginning with the next one; their number is in the bits from BRIM_WISH_STEPS_AT on. */
  BRIM_WISH_TRACE = 8
};
#define BRIM_WISH_STEPS_AT 8 /* 8 bits; only rank 0 sets them */
typedef struct brim_verdict {
  int32_t failed;               /* the first rank with a status other than OK; -1: none */
  int32_t status;               /* the status of that rank */
  uint32_t wishes;              /* the wishes of all ranks together */
  bool is_torn, is_over;        /* true if any rank says so */
  double sum[BRIM_BALLOT_SUMS]; /* sums over all ranks, in the order of the ranks */
} brim_verdict;
/* [step] A meeting of all ranks. A rank that failed before a meeting still takes part and passes its status; to that
 * rank the call returns the same status, and the thread's error text is unchanged. The other ranks get OK, and *out
 * reports the failure to all. ECOMM, EINTERNAL: the ranks have lost contact, and *out is set to end the run. */
brim_status brim_dist_vote(brim_dist *dist, const brim_ballot *own, brim_verdict *out);

/* ---- collectives ---- */

/* [init] Called before the first collective; uses the device that the backend has selected. */
brim_status brim_dist_connect(brim_dist *dist, const brim_backend_ops *backend, void *self, int device);
/* [init] Called before that device is released. brim_dist_connect may follow. */
void brim_dist_disconnect(brim_dist *dist);
/* [step] Starts a collective after the previous ones; see brim_comm_ops. *ticket is its number. Waits while too many
 * are in progress. */
brim_status brim_dist_start(brim_dist *dist, const brim_collective *what, void *queue, uint64_t *ticket);
/* [step] Lets the collectives make progress. */
brim_status brim_dist_progress(brim_dist *dist);
/* [step] Waits for all collectives up to a ticket, if they are in host memory or the host must wait for the device.
 * ECOMM as in exchange. */
brim_status brim_dist_finish(brim_dist *dist, uint64_t ticket);
#endif
