/* The ranks of a job: one process each, all with the same configuration, of which each trains on a part of every step's
 * samples. There is at most one job a process; MPI starts once. A NULL brim_dist is a job of one rank, in which
 * everything is done at once. Called from the main thread. */
#ifndef BRIM_DIST_DIST_H
#define BRIM_DIST_DIST_H
#include <stdbool.h>

#include "brim/comm.h"
#include "brim/plugin.h"
#include "param/yaml.h"
#include "plugin/registry.h"

typedef struct brim_dist brim_dist;

/* What there is to know before the job is joined. All of it stays the caller's, and stays until the job is closed. */
typedef struct brim_dist_options {
  const brim_registry *registry; /* where "mpi" and "nccl" are found */
  const brim_plugin *comm;       /* the communicator that was chosen, with its parameters */
  void *params;
  const brim_yaml *configuration; /* of which all but what is about the rank's own machine is the same for all */
  int64_t ranks;                  /* that the user wants; below 0: as many as were started */
  double timeout_seconds;         /* to wait for other ranks */
  uint64_t bucket_bytes;          /* of most collectives */
} brim_dist_options;

/* What the group `comm` holds where nobody chooses: mpi, and between GPUs nccl. */
extern const brim_plugin brim_comm_auto;

/* [init] Joins the job that this process was started in. *out is NULL if it was started alone. ECONFIG if dist.ranks
 * says another number than whoever started it, or ranks have other configurations; ECOMM, ELOAD. */
brim_status brim_dist_open(const brim_dist_options *options, brim_dist **out);
/* [init] `failed`: the other ranks may have ended, so this one does not wait for them. Else the process will end with
 * `exit_status`: that is how it ends if the communicator does not. */
void brim_dist_close(brim_dist *dist, bool failed, int exit_status);
/* {0, 1, 0, 1} for NULL. */
brim_world brim_dist_world(const brim_dist *dist);

/* ---- talking ---- */

/* [step] Of brim_comm_ops. ECOMM with a message that names the rank; then the job is over: see brim_dist_give_up. */
brim_status brim_dist_exchange(brim_dist *dist, const void *own, uint32_t bytes, void *all);
/* [init] Rank 0's text for all, shorter than `room` and than 64 KiB. */
brim_status brim_dist_share_text(brim_dist *dist, char *text, size_t room);
/* Says what went wrong, the thread's error text, if nobody else did, and ends every process of the job. Does not
 * return unless dist is NULL. */
void brim_dist_give_up(brim_dist *dist, brim_status status);

/* What they meet for. Those of a meeting that find themselves at different ones have lost step: an internal error. */
enum brim_meeting {
  BRIM_MEET_START = 1,
  BRIM_MEET_READY,     /* a step has all it needs; what follows are its collectives */
  BRIM_MEET_COMMIT,    /* it can be committed */
  BRIM_MEET_EVALUATED, /* each its part of an evaluation */
  BRIM_MEET_CHECKPOINT,
  BRIM_MEET_CHECK, /* of the weights */
  BRIM_MEET_AGAIN, /* after something failed, all are ready to do it again */
  BRIM_MEET_END,
  BRIM_MEET_ROLL /* sums do not come: who is there? */
};
#define BRIM_BALLOT_SUMS 4
typedef struct brim_ballot {
  uint32_t meeting; /* enum brim_meeting */
  int32_t status;   /* what came of the work before it */
  int64_t step;
  uint32_t wishes;  /* bits, of enum brim_wish */
  uint32_t is_torn; /* the parameters are those of no commit */
  uint32_t is_over; /* it cannot be done again: the run ends */
  uint32_t unused;
  double sum[BRIM_BALLOT_SUMS];
} brim_ballot;
enum brim_wish {
  BRIM_WISH_STOP = 1,  /* a signal asks for the end */
  BRIM_WISH_PAUSE = 2, /* memory is short: all write a checkpoint, and one plans smaller */
  BRIM_WISH_LOOK = 4   /* something is to be looked at between two steps: none is begun ahead */
};
typedef struct brim_verdict {
  int32_t failed;               /* the first rank with another status than OK; -1: none */
  int32_t status;               /* its */
  uint32_t wishes;              /* anybody's */
  bool is_torn, is_over;        /* anybody is */
  double sum[BRIM_BALLOT_SUMS]; /* over all ranks, in their order */
} brim_verdict;
/* [step] All ranks come together. A rank that has failed in what comes before a meeting meets there all the same, with
 * its status; that is what it gets back then, with the thread's error text. Else OK although another has failed: *out
 * says so, to all the same. ECOMM, EINTERNAL: nobody knows of anybody any more, and *out says that all is over. */
brim_status brim_dist_vote(brim_dist *dist, const brim_ballot *own, brim_verdict *out);

/* ---- collectives ---- */

/* [init] Before the first; on the device that the backend has selected. */
brim_status brim_dist_connect(brim_dist *dist, const brim_backend_ops *backend, void *self, int device);
/* [init] Before that device is given up. brim_dist_connect may follow. */
void brim_dist_disconnect(brim_dist *dist);
/* [step] Starts one behind the others; see brim_comm_ops. *ticket counts them. Waits while too many are under way. */
brim_status brim_dist_start(brim_dist *dist, const brim_collective *what, void *queue, uint64_t *ticket);
/* [step] Lets them make progress. */
brim_status brim_dist_progress(brim_dist *dist);
/* [step] Waits for all up to one: in host memory, or for a device whose host waits for it. ECOMM as of exchange. */
brim_status brim_dist_finish(brim_dist *dist, uint64_t ticket);
#endif
