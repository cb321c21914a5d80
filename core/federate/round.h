/* Rounds of a federation: the selected clients train side by side in the lanes of a plan, and their weighted updates
 * are added up. Sums are exact (fold in brim/ops.h), so they do not depend on which lane trains whom, or on how many
 * lanes there are. The global model does not change here: that is the server's step, when a round is whole. */
#ifndef BRIM_FEDERATE_ROUND_H
#define BRIM_FEDERATE_ROUND_H
#include "federate/client.h"

typedef struct brim_federation brim_federation;

typedef struct brim_round_result {
  const brim_client_result *client; /* [clients] in the order in which they were selected; of the federation's */
  int64_t clients, arrived;
  double weight; /* the sum of the weights of those that arrived */
} brim_round_result;

/* [init] For rounds under a plan that is placed; both must outlive it. ENOMEM_HOST. */
brim_status brim_federation_open(const brim_drive *drive, brim_exec *exec, brim_federation **out);
void brim_federation_close(brim_federation *federation); /* NULL: nothing */
/* [step] Round number `round`, counted from 0. Then the server's sums hold it; on failure they hold nothing of use, and
 * the round can be made again, to the same bits. ENUMERIC: a client has diverged and the run is to end then
 * (federate.on_divergence), or all have. ENOMEM_*, and what the data and the backend say. */
brim_status brim_federation_train(brim_federation *federation, int64_t round, brim_round_result *out);
#endif
