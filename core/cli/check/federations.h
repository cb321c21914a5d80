/* Federations that `brim check` makes up to call selectors with: clients, their columns, the candidates of a round, and
 * the round's results. All of it is a function of a federation's number and of who was selected before.
 *
 * Each column, the state and the answer lie between guards, by which it is seen where a selector writes what is not for
 * it to write. */
#ifndef BRIM_CLI_CHECK_FEDERATIONS_H
#define BRIM_CLI_CHECK_FEDERATIONS_H
#include "base/text.h"
#include "brim/selector.h"

#define BRIM_FEDERATION_EDGES 8 /* federations 0 to 7 have something at its limit; the others are drawn */

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
  BRIM_PART_OWN, /* from here on what a selector writes to */
  BRIM_PART_OF_CLIENT,
  BRIM_PART_OUT,
  BRIM_PARTS
};

/* Memory with guard bytes on both sides; NULL where the selector has no such column or state. */
typedef struct brim_made_part {
  unsigned char *memory, *before; /* before: as it was when the selector was called */
  size_t bytes;                   /* without the guards */
} brim_made_part;

typedef struct brim_made_federation {
  uint64_t number;
  uint32_t needs;
  int64_t most;       /* clients that are wanted in a round, if so many are there */
  double there;       /* share of the clients that are */
  bool has_world;     /* seconds and joules are known */
  bool asked_wrongly; /* losses of clients that there are not, or without the need for them */
  brim_clients clients;
  brim_selection_query query;
  brim_selection out;
  brim_selection_result result;
  brim_made_part part[BRIM_PARTS];
  int64_t *room;      /* for the answer */
  uint8_t *is_chosen; /* see brim_selection_check */
} brim_made_federation;

/* It points into itself, so it must stay where it is. `clients`: how many; 0: as its number has it. `is_old`: all have
 * trained already. ENOMEM_HOST; brim_made_federation_close is to be called all the same. */
brim_status brim_made_federation_open(brim_made_federation *f, uint64_t number, uint32_t needs, int64_t clients,
                                      bool is_old);
void brim_made_federation_close(brim_made_federation *f);
/* Numbers of state, zero at first. ENOMEM_HOST. */
brim_status brim_made_federation_state(brim_made_federation *f, int64_t own, int64_t of_client);
/* Makes the query of a round, with an empty answer. */
void brim_made_federation_begin(brim_made_federation *f, int64_t round);
/* The same query once more, with the state that it had. */
void brim_made_federation_again(brim_made_federation *f);
/* What came of those that were selected: the columns have it, and the result. */
void brim_made_federation_end(brim_made_federation *f);
/* EPLUGIN naming the selector, the function and the part if something was written that is not for it to write. */
brim_status brim_made_federation_check(const brim_made_federation *f, const char *id, const char *function);
/* `to` is of the same number; it is where `from` is. */
void brim_made_federation_copy(brim_made_federation *to, const brim_made_federation *from);
/* "12 clients with 10 classes, 7 of them there and 3 wanted, in round 5" */
void brim_made_federation_tell(const brim_made_federation *f, brim_text *out);
#endif
