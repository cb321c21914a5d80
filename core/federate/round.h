/* Rounds of a federation: the selected clients train side by side in the lanes of a plan, and their weighted updates
 * are added up. Sums are exact (fold in brim/ops.h), so they do not depend on the number of lanes and ranks, or on
 * which of them trains a client. Only the server's step, after a complete round, changes the global model.
 *
 * If a round fails, brim keeps the updates that arrived, also while another plan is placed, and the repeated round
 * trains only the missing clients. */
#ifndef BRIM_FEDERATE_ROUND_H
#define BRIM_FEDERATE_ROUND_H
#include "federate/client.h"
#include "federate/selection.h"

typedef struct brim_federation brim_federation;

typedef struct brim_round_result {
  const brim_client_result *client; /* [clients] in the order of selection; owned by the federation */
  int64_t clients, arrived;
  int64_t own_samples;      /* trained by this rank */
  double weight;            /* divisor of the sum of updates */
  double clip_norm;         /* 0: updates were not clipped */
  int64_t diverged;         /* clients that trained, but whose updates are left out */
  bool has_attack;          /* clients may be malicious */
  bool has_world;           /* the round was simulated in a world: */
  brim_expense spent;       /* including selection and waiting; else 0 */
  double selection_seconds; /* real seconds that the selector took */
  bool is_async;            /* federate.async: */
  double staleness;         /* mean of the updates that arrived, in rounds; NAN: none arrived */
  int64_t staleness_most;   /* of these updates */
  int64_t stale;            /* updates that were too stale and are left out */
} brim_round_result;

/* [init] Makes a federation for a setup's rounds; nothing is placed yet. ENOMEM_HOST. */
brim_status brim_federation_open(const brim_setup *setup, brim_federation **out);
void brim_federation_close(brim_federation *federation); /* NULL: nothing */
/* [init] Prepares for rounds under a placed plan; drive and exec must stay until brim_federation_unplace or close.
 * ENOMEM_HOST. */
brim_status brim_federation_place(brim_federation *federation, const brim_drive *drive, brim_exec *exec);
/* [init] Call before the plan is freed. Moves the updates of the current round to host memory for the next plan; if
 * memory is short, the round starts again. */
void brim_federation_unplace(brim_federation *federation);
/* [step] Discards the updates of the current round, which starts again. */
void brim_federation_forget(brim_federation *federation);
/* [step] Call before brim_federation_train. Isolated clients exchange their losses while clients are selected, so
 * either all of their processes select clients, or none: if one cannot begin, *all_begin is false for all, and if one
 * of them has to begin a repeated round anew, all do. ECOMM. Otherwise it does nothing. */
brim_status brim_federation_gather(brim_federation *federation, int64_t round, bool begins, bool *all_begin);
/* [step] Trains this rank's clients of round `round`, counted from 0, that have not arrived yet, and adds them to its
 * sums; `clock`: simulated seconds when the round starts. Clients that will not arrive in the simulated world do not
 * train. ENUMERIC: a client has diverged, with federate.on_divergence=fail; ENOMEM_*, and errors of the data
 * and the backend. */
brim_status brim_federation_train(brim_federation *federation, int64_t round, double clock);
/* Whether the arena has the global model: false if brim_federation_train could not restore it. */
bool brim_federation_has_model(const brim_federation *federation);
/* [step] Call after brim_federation_train, on all ranks: exchanges the ranks' results and adds up their sums. From here
 * on a round can only be repeated as a whole. ECOMM, and errors of the backend. */
brim_status brim_federation_add_up(brim_federation *federation, brim_round_result *out);
/* [step] Call after brim_federation_add_up: the selector learns from the round; see brim_selection_result. EPLUGIN. */
brim_status brim_federation_learn(brim_federation *federation, double accuracy);
/* [step] Call when the round has committed or failed; if it has failed, undoes brim_federation_learn. */
void brim_federation_end(brim_federation *federation, bool is_committed);
/* [any] The accuracies of clients over their last training, or with Ditto over that of their personal models.
 * ENOMEM_HOST. */
brim_status brim_federation_accuracy(const brim_federation *federation, brim_spread *out);
/* [step] Evaluates each client on its samples, in all lanes: its personal model, or if it has none the global one; or,
 * with `finetunes`, the global model after training on these samples (federate.finetune_epochs). Every
 * rank evaluates all of them, unless clients are isolated. EINTERRUPTED once *stop is set (may be NULL); ENOMEM_HOST.
 */
brim_status brim_federation_score(brim_federation *federation, bool finetunes, const volatile int *stop,
                                  brim_spread *out);
/* [any] Epsilon (differential privacy) after `rounds` committed rounds, or with `next` after one more. With local noise
 * it is that of the client that has sent the most updates. 0 without noise. */
double brim_federation_epsilon(const brim_federation *federation, int64_t rounds, bool next);
/* [any] Describes the simulated world in a line; prints nothing without a world. */
void brim_federation_print(const brim_federation *federation, brim_text *out);
/* [any] Once a plan has been placed: the clients' statistics and the rounds of their states, as tensors of a
 * checkpoint in the federation's memory: to be written, or to be read into between two rounds. Returns their number;
 * if out is NULL, only counts them. */
size_t brim_federation_tensors(brim_federation *federation, brim_safetensor *out);

/* Client states are in a file of the run's folder: store/states.h. */

/* [init] Once a plan has been placed: opens that file, and makes one for all updates of a round if the aggregator needs
 * them. is_new: makes the file of states, on rank 0, before the other ranks open it. EBUDGET if the disk has too little
 * room; ELOAD, EIO, ENOMEM_HOST. The next three functions do nothing without client states. */
brim_status brim_federation_keep_in(brim_federation *federation, const char *folder, bool is_new);
/* [init] After tensors were read from a checkpoint (NULL: training begins anew): finds the client states of that time.
 */
brim_status brim_federation_recall(brim_federation *federation, const char *checkpoint);
/* [step] Makes the client states durable; call before a checkpoint is written. EIO. */
brim_status brim_federation_sync(brim_federation *federation);
/* [step] Call when the checkpoint is complete: the states that it refers to are not overwritten before the next one. */
void brim_federation_checkpointed(brim_federation *federation);
#endif
