/* What rounds of a federation are made of. Internal to round*.c. */
#ifndef BRIM_FEDERATE_ROUND_PARTS_H
#define BRIM_FEDERATE_ROUND_PARTS_H
#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "federate/crew.h"
#include "federate/round.h"

/* A lane, and what became of its part of a round. */
typedef struct brim_worker {
  brim_lane lane;
  brim_federation *federation;
  brim_status status;
  brim_error error;
} brim_worker;

/* What a rank tells of itself: what it has trained in the round, and how long that took. */
typedef struct brim_pace {
  double samples, seconds;
} brim_pace;

struct brim_federation {
  const brim_setup *setup;
  const brim_drive *drive;
  brim_exec *exec; /* NULL: nothing is placed */
  brim_worker *worker;
  brim_crew *crew; /* a thread for each */
  int32_t lanes;
  brim_client_result *client;   /* [clients] as selected */
  const int64_t *selected;      /* [clients] the selection's own */
  int64_t clients, most, round; /* clients: of the round, at most `most` */
  brim_selection_host *selection;
  brim_kept *kept;          /* by clients between rounds; NULL: nothing */
  brim_fleet *fleet;        /* NULL: there is no simulated world */
  brim_moment moment;       /* of the present attempt there */
  brim_fate *fate;          /* [most] of the selected clients */
  brim_expense spent;       /* there, in the round */
  double selection_seconds; /* real ones */
  int64_t *order;           /* [clients] those with the most samples first, so that lanes and ranks end together */
  int32_t *rank;            /* [clients] that trains each */
  int64_t *turn, turns;     /* [turns] those of them that this rank still has to train, in that order */
  double *speed;            /* [ranks] samples a second, as all have agreed; of the last rounds */
  double *load;             /* [ranks] what each is dealt of a round */
  bool has_speeds;          /* else all are 1 */
  brim_pace pace;           /* of this rank in the present round */
  float *sketch;            /* [most, BRIM_SKETCH] of updates; NULL: nobody needs them */
  void *all;                /* of all ranks: BRIM_EXCHANGE_BYTES each */
  bool is_open;             /* the sums hold the clients of `round` that have arrived */
  void *sums;               /* these sums while nothing is placed, tensor by tensor; NULL: there are none */
  float *losses;            /* by turn, while lanes evaluate clients for the selector in the place of training */
  const int64_t *turn_of;   /* these clients */
  atomic_llong next;        /* turn */
  atomic_bool is_over;      /* a client has failed: no other begins */
  atomic_bool is_torn;      /* in the middle of an addition */
  pthread_mutex_t adding;   /* one lane at a time adds to the sum */
};

/* [step] Says which rank trains which client of the round: the same on all ranks, as all have the same speeds. */
void brim_federation_deal(brim_federation *federation);
/* [step] All ranks tell each other what came of their clients, and add up their sums. Nothing in a job of one rank. */
brim_status brim_federation_meet(brim_federation *federation);
/* Samples that this rank has trained on in the round. */
int64_t brim_federation_own_samples(const brim_federation *federation);
#endif
