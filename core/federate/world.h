/* The simulated world of a federation, in seconds, joules and bytes: how fast clients and their networks are, when
 * clients are available, and which of a round's clients arrive. See docs/guide/federated_world.md for the formulas.
 *
 * Everything is a function of the seed, the client, the round, the attempt and the simulated clock, or comes from
 * traces. So it is the same for any number of parallel clients and ranks, after a resume, and for every selector. It is
 * known before any client trains. */
#ifndef BRIM_FEDERATE_WORLD_H
#define BRIM_FEDERATE_WORLD_H
#include "base/text.h"
#include "setup/setup.h"

typedef struct brim_fleet brim_fleet; /* the clients of the world */

/* How a client's work in a round ends. */
enum brim_outcome {
  BRIM_OUTCOME_ARRIVES,
  BRIM_OUTCOME_DROPOUT, /* the client stops before its update arrives */
  BRIM_OUTCOME_LATE,    /* the update would arrive after the deadline */
  BRIM_OUTCOME_SURPLUS, /* enough other updates arrive first (federate.over_selection) */
  BRIM_OUTCOME_STALE    /* the client started more than federate.max_staleness rounds ago (federate.async) */
};

typedef struct brim_expense {
  double seconds, joules;
  int64_t bytes;      /* in all */
  int64_t edge_bytes; /* the part of them between the server and edges */
} brim_expense;

/* A client's part in a round: what it uses until it finishes, stops, or the round ends without it. */
typedef struct brim_fate {
  enum brim_outcome outcome;
  brim_expense spent;
  /* Seconds for which the process really waits before and after it trains the client (network.sleep). */
  double down_sleep, up_sleep;
} brim_fate;

#define BRIM_ATTEMPTS_MAX 100
/* An attempt at a round. Another attempt follows only if too few clients arrive. */
typedef struct brim_moment {
  int64_t round, attempt; /* both from 0 */
  double clock;           /* simulated seconds since the start of the run */
  /* Key of the random numbers: the round; with federate.async the number of the check or of the start. */
  int64_t number;
} brim_moment;

/* Columns [clients] that the world fills for selectors. */
typedef struct brim_fleet_columns {
  int64_t *candidate;      /* the available clients, ascending */
  float *seconds, *joules; /* predicted for a round, without jitter */
} brim_fleet_columns;

/* [init] The setup must outlive the result. *out is NULL if nothing is simulated. ECONFIG naming file, line and column
 * of a trace; ENOMEM_HOST. */
brim_status brim_fleet_open(const brim_setup *setup, brim_fleet **out);
void brim_fleet_close(brim_fleet *fleet); /* NULL: nothing */
/* [step] Fills the columns. Advances moment->clock, in simulated time, until clients_per_round clients are available,
 * or with world.too_few=go_on federate.min_clients. *candidates: the number that is then available. ENUMERIC if there
 * are never enough. */
brim_status brim_fleet_gather(brim_fleet *fleet, brim_moment *moment, brim_fleet_columns *columns, int64_t *candidates);
/* [step] Fills the columns for a moment, without waiting. Returns the number of available clients. */
int64_t brim_fleet_look(brim_fleet *fleet, const brim_moment *moment, brim_fleet_columns *columns);
/* [step] Simulates a client that starts at `moment`, until it arrives or stops. */
void brim_fleet_start(const brim_fleet *fleet, const brim_moment *moment, int64_t client, brim_fate *fate);
/* [any] The longest time that network.sleep can make the process wait for a client in a round; 0 without it. */
double brim_fleet_longest_sleep(const brim_fleet *fleet);
/* [step] The cost of the losses that a selector requests. It takes as long as the slowest client. */
brim_expense brim_fleet_ask(const brim_fleet *fleet, const brim_moment *moment, const int64_t *client, int64_t count);
/* [step] Simulates the attempt with the selected clients; `fate`: [count]. Returns the cost of the whole round. */
brim_expense brim_fleet_play(const brim_fleet *fleet, const brim_moment *moment, const int64_t *client, int64_t count,
                             brim_fate *fate);
/* [any] Prints "1234 operations for a batch of 8 samples, ..." */
void brim_fleet_print(const brim_fleet *fleet, brim_text *out);
/* [any] The outcome as a word, such as "dropout"; "" for a client that arrives. */
const char *brim_outcome_name(enum brim_outcome outcome);
#endif
