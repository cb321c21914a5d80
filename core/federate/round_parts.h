/* The parts of a federation's rounds. Internal to round*.c. */
#ifndef BRIM_FEDERATE_ROUND_PARTS_H
#define BRIM_FEDERATE_ROUND_PARTS_H
#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/error.h"
#include "federate/aggregation.h"
#include "federate/crew.h"
#include "federate/flights.h"
#include "federate/protect.h"
#include "federate/round.h"
#include "federate/round_edges.h"
#include "federate/versions.h"
#include "federate/whole.h"

/* A lane and the result of its part of a round. */
typedef struct brim_worker {
  brim_lane lane;
  brim_federation *federation;
  brim_status status;
  brim_error error;
} brim_worker;

/* A rank's report: the number of samples that it trained on in the round, and the seconds that this took. */
typedef struct brim_pace {
  double samples, seconds;
} brim_pace;

typedef struct brim_async brim_async; /* asynchronous rounds: round_async.c */

/* A function with which a lane computes a number of a client. */
typedef brim_status (*brim_lane_fn)(brim_lane *lane, int64_t client, double *out);

struct brim_federation {
  brim_arena arena; /* owns the arrays whose sizes do not depend on the plan */
  const brim_setup *setup;
  const brim_drive *drive;
  brim_exec *exec; /* NULL: nothing is placed */
  brim_worker *worker;
  brim_crew *crew;              /* a thread for each lane */
  int32_t lanes, workers;       /* number of opened lanes; number of elements of `worker`, at least one */
  brim_client_result *client;   /* [clients] in the order of selection */
  const int64_t *selected;      /* [clients] owned by the selection, or by `async` */
  int64_t clients, most, round; /* clients: number of clients in the round, at most `most` */
  brim_edges *edges;            /* NULL: each edge makes one round for each round of the server */
  bool is_model_lost;           /* the arena no longer has the global model */
  brim_async *async;            /* NULL: all clients of a round start together */
  brim_selection_host *selection;
  brim_aggregation *aggregation;
  brim_arrival *arrival;        /* [clients] the clients that will train, as the aggregator sees them */
  double *weight;               /* [clients] their weights */
  int64_t *trains;              /* [clients] their numbers */
  const brim_arrival **arrived; /* [clients] the clients whose updates have arrived */
  int64_t *place;               /* [clients] their places in the order of selection */
  brim_kept *kept;              /* client states, or NULL */
  bool shares_states;           /* all ranks use the same file of states */
  brim_protection protection;
  brim_fleet *fleet;        /* NULL: no simulated world */
  brim_moment moment;       /* the current attempt in the simulated world */
  brim_fate *fate;          /* [most] the fates of the selected clients */
  brim_expense spent;       /* costs of this round in the simulated world */
  double selection_seconds; /* real seconds */
  int64_t *order;           /* [clients] most samples first, so that lanes and ranks finish together */
  int32_t *rank;            /* [clients] the rank that trains each client */
  int64_t *turn, turns;     /* [turns] the clients that this rank still has to train, in that order */
  double *speed;            /* [ranks] samples per second in the last rounds, exchanged among the ranks */
  double *load;             /* [ranks] each rank's share of a round */
  bool has_speeds;          /* speeds are known; otherwise all are 1 */
  brim_pace pace;           /* report of this rank in the current round */
  float *sketch;            /* [most, BRIM_SKETCH] sketches of updates, or NULL if none are needed */
  void *all;                /* BRIM_EXCHANGE_BYTES for each rank */
  bool is_open;             /* the sums contain the clients of `round` that have arrived */
  void *sums;               /* the sums, tensor by tensor, while nothing is placed; or NULL */
  brim_lane_fn ask;         /* computes a number of a client in a lane instead of training the client; else NULL */
  double *answer;           /* the results of `ask`, by turn */
  const int64_t *turn_of;   /* the clients whose turns these are */
  atomic_llong next;        /* the next turn */
  atomic_bool is_over;      /* a client has failed, so no more clients are started */
  atomic_bool is_torn;      /* an addition to the sums has started but not finished */
  brim_whole *whole;        /* the updates of the round, if the aggregator needs all; else NULL */
  pthread_mutex_t adding;   /* lets only one lane at a time add to the sum */
};

/* The program that updates the global model, in the plan that is placed. */
static inline const brim_program *brim_federation_serve(const brim_federation *federation)
{
  return brim_plan_program(brim_exec_plan(federation->exec), BRIM_PROGRAM_UPDATE, 0);
}
/* [step] Assigns the clients of the round to ranks. All ranks know the same speeds, so they get the same result. */
void brim_federation_distribute(brim_federation *federation);
/* [step] All ranks exchange the results of their clients and add up their sums. Does nothing in a job of one rank. */
brim_status brim_federation_meet(brim_federation *federation);
/* A lane's part of brim_federation_work: runs one client after another, until no turn is left. For brim_crew_open. */
void brim_federation_run_lane(void *context, int32_t lane);
/* [step] Trains or evaluates the clients of all turns in all lanes; the first lane uses the caller's thread. */
brim_status brim_federation_work(brim_federation *federation);
/* [step] Computes a number of each client, such as its loss, in all lanes. Every rank computes it for all clients,
 * unless clients are isolated. */
brim_status brim_federation_ask(brim_federation *federation, brim_lane_fn ask, const int64_t *client, int64_t count,
                                double *out);
/* [step] For isolated clients: each client's process computes the number of its own client, and all exchange their
 * numbers. If one fails, all do. */
brim_status brim_federation_ask_apart(brim_federation *federation, brim_lane_fn evaluate, const int64_t *client,
                                      int64_t count, double *out);
/* [step] Sets the weights of the clients that will train. Errors of the aggregator. */
brim_status brim_federation_weigh(brim_federation *federation);
/* [step] Computes the round's result from the sums of all ranks, or from all updates: fills out->weight and clip_norm.
 * Does nothing if too few clients arrived. Errors of the aggregator. */
brim_status brim_federation_combine(brim_federation *federation, brim_round_result *out);
/* The number of samples that this rank has trained on in the round. */
int64_t brim_federation_own_samples(const brim_federation *federation);
/* [step] Trains this rank's clients that start from the version of the global model in the arena and have not arrived
 * yet. */
brim_status brim_federation_train_version(brim_federation *federation, int64_t version);

/* ---- round_async.c; without federate.async these functions do nothing ---- */

/* [init] Sets federation->async, also on failure. ENOMEM_HOST. */
brim_status brim_async_open(brim_federation *federation);
void brim_async_close(brim_async *async); /* NULL: nothing */
/* [init] Call when a plan has been placed. ENOMEM_HOST. */
brim_status brim_async_place(brim_federation *federation);
/* [step] Runs the simulated world until enough clients have arrived. These clients, and those that ended without an
 * update, are the clients of the round. ENUMERIC if not enough ever arrive; errors of the selector. */
brim_status brim_async_select(brim_federation *federation);
/* Fills the version, the number and the discount of the client at a place of the round. */
void brim_async_describe(const brim_federation *federation, int64_t place, brim_client_result *out);
/* [step] Keeps a copy of the current version of the global model, before clients train. */
brim_status brim_async_begin(brim_federation *federation);
/* [step] Trains this rank's clients, one version of the global model after another. */
brim_status brim_async_train(brim_federation *federation);
/* [step] Call when the round has committed. NULL: does nothing. */
void brim_async_commit(brim_async *async);
/* [any] Lists the clients in flight and the versions as tensors of a checkpoint, like brim_federation_tensors. NULL:
 * 0. */
size_t brim_async_tensors(brim_async *async, brim_safetensor *out);
#endif
