/* Synthetic federations with which `brim check` calls selectors: clients, their columns, the candidates of a round, and
 * the round's results. All of it is a function of a federation's number and of the clients selected so far.
 *
 * Each column, the state and the answer lie between guard bytes, which reveal writes outside the memory that a selector
 * may write. */
#ifndef BRIM_CLI_CHECK_FEDERATIONS_H
#define BRIM_CLI_CHECK_FEDERATIONS_H
#include "base/text.h"
#include "brim/selector.h"

#define BRIM_FEDERATION_EDGES 8 /* federations 0 to 7 are edge cases; the others are random */

enum brim_made_part_id {
  BRIM_PART_SAMPLES,
  BRIM_PART_LOSS,
  BRIM_PART_SQUARE_LOSS,
  BRIM_PART_NORM,
  BRIM_PART_ACCURACY,
  BRIM_PART_SECONDS,
  BRIM_PART_JOULES,
  BRIM_PART_LAST_ROUND,
  BRIM_PART_TIMES,
  BRIM_PART_LABELS,
  BRIM_PART_SKETCH,
  BRIM_PART_CANDIDATE,
  BRIM_PART_ARRIVED,
  BRIM_PART_OWN, /* this and the following parts are memory that a selector may write */
  BRIM_PART_OF_CLIENT,
  BRIM_PART_OUT,
  BRIM_PARTS
};

/* Memory with guard bytes on both sides; NULL if the selector has no such column or state. */
typedef struct brim_made_part {
  unsigned char *memory, *before; /* before: a copy of the memory, made before the call */
  size_t bytes;                   /* size of the memory, without the guards */
} brim_made_part;

typedef struct brim_made_federation {
  uint64_t number;
  uint32_t needs;
  int64_t most;       /* clients that a round requests, if that many are available */
  double there;       /* fraction of the clients that are available */
  bool has_world;     /* seconds and joules are known */
  bool asked_wrongly; /* the selector asked for losses of clients that do not exist, or without BRIM_NEED_LOSSES */
  brim_clients clients;
  brim_selection_query query;
  brim_selection out;
  brim_selection_result result;
  brim_made_part part[BRIM_PARTS];
  int64_t *room;      /* for the answer */
  uint8_t *is_chosen; /* see brim_selection_check */
} brim_made_federation;

/* Makes a federation. It points into itself, so it must not be moved. `clients`: their number; 0: derived from
 * `number`. `is_old`: all clients have trained already. ENOMEM_HOST; call brim_made_federation_close in any case. */
brim_status brim_made_federation_open(brim_made_federation *f, uint64_t number, uint32_t needs, int64_t clients,
                                      bool is_old);
void brim_made_federation_close(brim_made_federation *f);
/* Allocates zeroed state: `own` numbers, and `of_client` numbers per client. ENOMEM_HOST. */
brim_status brim_made_federation_state(brim_made_federation *f, int64_t own, int64_t of_client);
/* Makes the query of a round, with an empty answer. */
void brim_made_federation_begin(brim_made_federation *f, int64_t round);
/* Makes the same query again, with the state from before it. */
void brim_made_federation_repeat(brim_made_federation *f);
/* Updates the columns and the result as if the selected clients had trained. */
void brim_made_federation_end(brim_made_federation *f);
/* EPLUGIN, naming the selector, the function and the part, if the selector wrote to memory that it must not write. */
brim_status brim_made_federation_check(const brim_made_federation *f, const char *id, const char *function);
/* Brings `to`, which must have the same number, to the state of `from`. */
void brim_made_federation_copy(brim_made_federation *to, const brim_made_federation *from);
/* Adds "12 clients with 10 classes, 7 of them available and 3 wanted, in round 5". */
void brim_made_federation_print(const brim_made_federation *f, brim_text *out);
#endif
