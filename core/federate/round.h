/* Rounds of a federation: the selected clients train side by side in the lanes of a plan, and their weighted updates
 * are added up. Sums are exact (fold in brim/ops.h), so they do not depend on which lane or rank trains whom, or on how
 * many there are. The global model does not change here: that is the server's step, when a round is whole.
 *
 * What has arrived in a round that fails is kept, also while another plan is placed: made again, the round goes on with
 * the clients that are missing. */
#ifndef BRIM_FEDERATE_ROUND_H
#define BRIM_FEDERATE_ROUND_H
#include "federate/client.h"
#include "federate/selection.h"

typedef struct brim_federation brim_federation;

typedef struct brim_round_result {
  const brim_client_result *client; /* [clients] in the order in which they were selected; of the federation's */
  int64_t clients, arrived;
  int64_t own_samples;      /* that this rank has trained on */
  double weight;            /* the sum of the weights of those that arrived */
  int64_t diverged;         /* clients that trained, and whose updates are left out */
  bool has_world;           /* the round was played in the simulated world: */
  brim_expense spent;       /* with what selecting and waiting took there; else 0 */
  double selection_seconds; /* real ones, that the selector took */
} brim_round_result;

/* [init] For rounds of a setup; nothing is placed yet. ENOMEM_HOST. */
brim_status brim_federation_open(const brim_setup *setup, brim_federation **out);
void brim_federation_close(brim_federation *federation); /* NULL: nothing */
/* [init] For rounds under a plan that is placed; both must outlive it, or brim_federation_unplace. ENOMEM_HOST. */
brim_status brim_federation_place(brim_federation *federation, const brim_drive *drive, brim_exec *exec);
/* [init] Before the plan is given up. What has arrived in the present round comes along to the next plan, in memory of
 * the host's; where there is none the round begins anew. */
void brim_federation_unplace(brim_federation *federation);
/* [step] Nothing has arrived in the present round: it begins anew. */
void brim_federation_forget(brim_federation *federation);
/* [step] Trains those clients of round number `round`, counted from 0, that this rank has and that have not arrived
 * yet; `clock`: simulated seconds when the round begins. Clients that the world keeps from arriving do not train. Then
 * its sums hold them. ENUMERIC: a client has diverged and the run is to end then (federate.on_divergence); ENOMEM_*,
 * and what the data and the backend say. */
brim_status brim_federation_train(brim_federation *federation, int64_t round, double clock);
/* [step] Behind that, when all ranks have trained theirs: they tell each other what came of them, and add up their
 * sums. From here on a round can only be made again as a whole. ECOMM, and what the backend says. */
brim_status brim_federation_add_up(brim_federation *federation, brim_round_result *out);
/* [step] Behind that: the selector learns of the round; see brim_selection_result. EPLUGIN. */
brim_status brim_federation_learn(brim_federation *federation, double accuracy);
/* [step] The round is committed, or has failed: then nothing was learned of it. */
void brim_federation_end(brim_federation *federation, bool is_committed);
/* [any] What the simulated world reckons with, as a line; without a world nothing. */
void brim_federation_tell(const brim_federation *federation, brim_text *out);
/* [any] While a plan is placed, or was: what is known of clients and what they keep, as tensors of a checkpoint, which
 * lie in memory of the federation: to be written, or to be read into between two rounds. Returns how many; out NULL:
 * only that. */
size_t brim_federation_tensors(brim_federation *federation, brim_safetensor *out);
#endif
