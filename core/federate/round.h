/* Rounds of a federation: the selected clients train side by side in the lanes of a plan, and the server adds up their
 * weighted updates. Sums are exact (fold in brim/ops.h), so they do not depend on the number of lanes and ranks, or on
 * the lane and rank that train a client. Only the server's step, after a complete round, changes the global model.
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
  int64_t diverged;         /* clients that trained, but whose updates are left out because they diverged */
  bool has_attack;          /* clients may be malicious */
  bool has_world;           /* the round has a simulated world; the next field is then set */
  brim_expense spent;       /* cost of the round, including selection and waiting; else 0 */
  double selection_seconds; /* real seconds that the selector took */
  bool is_async;            /* federate.async: */
  double staleness;         /* mean age of the updates that arrived, in rounds; NAN: none arrived */
  int64_t staleness_most;   /* the largest age among these updates */
  int64_t stale;            /* updates that were too stale and are left out */
} brim_round_result;

/* [init] Makes a federation for a setup's rounds; nothing is placed yet. ENOMEM_HOST. */
brim_status brim_federation_open(const brim_setup *setup, brim_federation **out);
void brim_federation_close(brim_federation *federation); /* NULL: nothing */
/* [init] Prepares for rounds with a placed plan; drive and exec must stay until brim_federation_unplace or close.
 * ENOMEM_HOST. */
brim_status brim_federation_place(brim_federation *federation, const brim_drive *drive, brim_exec *exec);
/* [init] Call before the plan is freed. Moves the updates of the current round to host memory for the next plan; if
 * memory is short, the round starts from the beginning. */
void brim_federation_unplace(brim_federation *federation);
/* [step] Discards the updates of the current round, which then starts from the beginning. */
void brim_federation_forget(brim_federation *federation);
/* [step] Call before brim_federation_train. Isolated clients exchange their losses during selection, so all of their
 * processes must select clients together. If one cannot begin, *all_begin is false for all; if one must begin a
 * repeated round from the start, all do. ECOMM. Does nothing without isolated clients. */
brim_status brim_federation_gather(brim_federation *federation, int64_t round, bool begins, bool *all_begin);
/* [step] Trains this rank's clients of round `round`, counted from 0, that have not arrived yet, and adds their updates
 * to this rank's sums; `clock`: simulated seconds when the round starts. Clients that will not arrive in the simulated
 * world do not train. ENUMERIC: a client has diverged, with federate.on_divergence=fail; ENOMEM_*, and errors of the
 * data and the backend. */
brim_status brim_federation_train(brim_federation *federation, int64_t round, double clock);
/* Whether the arena has the global model: false if brim_federation_train could not restore it. */
bool brim_federation_has_model(const brim_federation *federation);
/* [step] Call after brim_federation_train, on all ranks: exchanges the ranks' results and adds up their sums. From here
 * on a round can only be repeated as a whole. ECOMM, and errors of the backend. */
brim_status brim_federation_add_up(brim_federation *federation, brim_round_result *out);
/* [step] Call after brim_federation_add_up: lets the selector learn from the round; see brim_selection_result.
 * EPLUGIN. */
brim_status brim_federation_learn(brim_federation *federation, double accuracy);
/* [step] Call when the round has committed or failed; if it has failed, undoes brim_federation_learn. */
void brim_federation_end(brim_federation *federation, bool is_committed);
/* [any] Computes the accuracies of clients, measured during their last training; with Ditto those of their personal
 * models. ENOMEM_HOST. */
brim_status brim_federation_accuracy(const brim_federation *federation, brim_spread *out);
/* [step] Evaluates models on each client's samples, in all lanes: the client's personal model, or if it has none the
 * global model; or, with `finetunes`, the global model after training on these samples (federate.finetune_epochs).
 * Every rank evaluates all of them, unless clients are isolated. EINTERRUPTED once *stop is set (may be NULL);
 * ENOMEM_HOST. */
brim_status brim_federation_score(brim_federation *federation, bool finetunes, const volatile int *stop,
                                  brim_spread *out);
/* [any] Computes epsilon (differential privacy) after `rounds` committed rounds, or with `next` after one more. With
 * local noise it is the epsilon of the client that has sent the most updates. 0 without noise. */
double brim_federation_epsilon(const brim_federation *federation, int64_t rounds, bool next);
/* [any] Describes the simulated world in one line; prints nothing without a simulated world. */
void brim_federation_print(const brim_federation *federation, brim_text *out);
/* [any] Call after a plan has been placed. Lists the clients' statistics and the rounds of their states as tensors of a
 * checkpoint, in the federation's memory, to be written, or to be read between two rounds. Returns their number; if out
 * is NULL, only counts them. */
size_t brim_federation_tensors(brim_federation *federation, brim_safetensor *out);

/* Client states are in a file of the run's folder: store/states.h. */

/* [init] Call after a plan has been placed. Opens that file, and makes a file for all updates of a round if the
 * aggregator needs them. is_new: rank 0 makes the file of states before the other ranks open it. EBUDGET if the disk
 * has too little room; ELOAD, EIO, ENOMEM_HOST. The next three functions do nothing without client states. */
brim_status brim_federation_keep_in(brim_federation *federation, const char *folder, bool is_new);
/* [init] Call after tensors were read from a checkpoint (NULL: training starts from the beginning): finds the client
 * states that the checkpoint refers to. */
brim_status brim_federation_recall(brim_federation *federation, const char *checkpoint);
/* [step] Makes the client states durable; call before a checkpoint is written. EIO. */
brim_status brim_federation_sync(brim_federation *federation);
/* [step] Call when the checkpoint is complete: until the next checkpoint, the states that it refers to are not
 * overwritten. */
void brim_federation_checkpointed(brim_federation *federation);
#endif
