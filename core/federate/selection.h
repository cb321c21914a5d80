/* Which clients of a federation train in a round: the selector that the configuration chooses, and the columns of what
 * is known of clients that it chooses by (brim/selector.h). A column has at most 8 bytes a client, all together 48.
 *
 * A round is a transaction here too: what a selector writes to its state counts when it has learned of the round, and
 * brim_selection_end undoes that if the round has failed. Selectors of plugins are called on a thread that
 * guards against them (memory/plugin_call.h), those of the core are not. */
#ifndef BRIM_FEDERATE_SELECTION_H
#define BRIM_FEDERATE_SELECTION_H
#include "brim/selector.h"
#include "federate/client.h"
#include "federate/world.h"
#include "setup/setup.h"
#include "store/safetensors.h"

typedef struct brim_selection_host brim_selection_host;

/* What a selector's question about losses is answered with: means of these clients' data under the global model. */
typedef brim_status (*brim_losses_fn)(void *context, const int64_t *client, int64_t count, float *out);

/* [init] The setup must outlive it. ENOMEM_HOST, EPLUGIN, and what the selector says. */
brim_status brim_selection_open(const brim_setup *setup, brim_selection_host **out);
void brim_selection_close(brim_selection_host *host); /* NULL: nothing */

/* [step] The columns of the host that the simulated world fills before clients are selected; it says to
 * brim_selection_select how many candidates it has listed. Without a world all clients are there. */
brim_fleet_columns brim_selection_columns(brim_selection_host *host);
typedef struct brim_selection_wish {
  int64_t round, wanted, candidates; /* round: from 0; wanted: at most `candidates` */
  brim_losses_fn losses;
  void *context; /* of losses */
} brim_selection_wish;
/* [step] Selects clients; *out is the host's, until the next time, and *count how many. EPLUGIN naming the selector if
 * it fails, does not come back, or selects a client twice, one that is not there, none, or too many. ENOMEM_HOST. */
brim_status brim_selection_select(brim_selection_host *host, const brim_selection_wish *wish, const int64_t **out,
                                  int64_t *count);
/* [step] What came of the clients of the round, [count] as selected. `accuracy`, `seconds`: see brim_selection_result.
 * EPLUGIN. */
brim_status brim_selection_learn(brim_selection_host *host, int64_t round, const brim_client_result *client,
                                 int64_t count, double accuracy, double seconds);
/* [step] The round is committed, or has failed: then nothing was learned of it. */
void brim_selection_end(brim_selection_host *host, bool is_committed);

/* [any] The columns and the selector's state as tensors of a checkpoint, which lie in the host's own memory: to be
 * written, or to be read into between two rounds. */
#define BRIM_SELECTION_TENSORS 9
size_t brim_selection_tensors(brim_selection_host *host, brim_safetensor out[BRIM_SELECTION_TENSORS]);
#endif
