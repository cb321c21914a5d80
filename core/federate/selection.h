/* Selects the clients of a round: calls the configured selector (brim/selector.h) and stores the columns of client
 * statistics that it uses. A column takes at most 8 bytes per client, all of them together 48.
 *
 * A round is a transaction: the selector's changes to its state take effect when it has learned from the round, and
 * brim_selection_end undoes them if the round fails. Selectors of plugins run on a guarded thread
 * (memory/plugin_call.h), those of the core on the calling thread. */
#ifndef BRIM_FEDERATE_SELECTION_H
#define BRIM_FEDERATE_SELECTION_H
#include "base/spread.h"
#include "brim/selector.h"
#include "federate/client.h"
#include "federate/world.h"
#include "setup/setup.h"
#include "store/safetensors.h"

typedef struct brim_selection_host brim_selection_host;

/* Answers a selector's question about losses: the mean loss of these clients' data under the global model. */
typedef brim_status (*brim_losses_fn)(void *context, const int64_t *client, int64_t count, float *out);

/* [init] The setup must outlive the result. ENOMEM_HOST, EPLUGIN, and errors of the selector. */
brim_status brim_selection_open(const brim_setup *setup, brim_selection_host **out);
void brim_selection_close(brim_selection_host *host); /* NULL: nothing */

/* [step] The host's columns, which the simulated world fills before clients are selected; the caller passes the number
 * of listed candidates to brim_selection_select. Without a world all clients are available. */
brim_fleet_columns brim_selection_columns(brim_selection_host *host);
typedef struct brim_selection_wish {
  int64_t round, wanted, candidates; /* round: from 0; wanted: at most `candidates` */
  brim_losses_fn losses;
  void *context;  /* passed to `losses` */
  int64_t number; /* key of the selector's random numbers; equal to the round if each round has one selection */
  bool continues; /* another selection came before, since brim_selection_begin: the selector's changes accumulate */
} brim_selection_wish;
/* [step] Begins a round with any number of selections: discards uncommitted changes of the selector's state. */
void brim_selection_begin(brim_selection_host *host);
/* [step] Selects clients. *out belongs to the host and is valid until the next call; *count is their number. EPLUGIN
 * naming the selector if it fails, hangs, or selects no client, too many, a client twice, or a client that is not a
 * candidate. ENOMEM_HOST. */
brim_status brim_selection_select(brim_selection_host *host, const brim_selection_wish *wish, const int64_t **out,
                                  int64_t *count);
/* [step] Passes the round's results to the selector, for [count] clients in the order of selection. `accuracy`,
 * `seconds`: see brim_selection_result. EPLUGIN. */
brim_status brim_selection_learn(brim_selection_host *host, int64_t round, const brim_client_result *client,
                                 int64_t count, double accuracy, double seconds);
/* [any] The largest number of rounds for which any client was selected. */
int64_t brim_selection_most_times(const brim_selection_host *host);
/* [step] Call when the round has committed or failed; if it has failed, undoes brim_selection_learn. */
void brim_selection_end(brim_selection_host *host, bool is_committed);

/* [any] Computes the accuracies of the clients that have trained, measured during their last training; with Ditto those
 * of their personal models. ENOMEM_HOST. */
brim_status brim_selection_accuracy(const brim_selection_host *host, brim_spread *out);

/* [any] Lists the columns and the selector's state as tensors of a checkpoint, in the host's memory, to be written, or
 * to be read between two rounds. */
#define BRIM_SELECTION_TENSORS 10
size_t brim_selection_tensors(brim_selection_host *host, brim_safetensor out[BRIM_SELECTION_TENSORS]);
#endif
