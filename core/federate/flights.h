/* The clients in flight of a federation with asynchronous rounds (federate.async): which clients train, from which
 * version of the global model, and when each of them ends by the simulated clock. Version v is the global model after v
 * rounds. A round changes a copy of the queue, which takes effect when the round commits. Internal to core/federate. */
#ifndef BRIM_FEDERATE_FLIGHTS_H
#define BRIM_FEDERATE_FLIGHTS_H
#include "setup/setup.h"
#include "store/safetensors.h"

/* The members are doubles, in which whole numbers are exact, because a checkpoint stores the whole queue in one
 * tensor. */
typedef struct brim_flight {
  double client, version;
  double number;                 /* number of this start, counted over all clients */
  double end;                    /* the simulated clock when the client arrives or stops */
  double seconds, joules, bytes; /* costs from its start to its end */
  double outcome;                /* enum brim_outcome: how it ends */
} brim_flight;

typedef struct brim_flights {
  double clock;         /* simulated seconds since the start of the run */
  double starts, looks; /* starts: number of clients that have started; looks: number of checks for available clients */
  double count;         /* clients in flight */
  brim_flight flight[]; /* [federate.concurrency] */
} brim_flights;

typedef struct brim_flight_queue {
  brim_flights *now, *next; /* the queue before and after the round in progress */
  int64_t places;           /* federate.concurrency */
  uint8_t *is_flying;       /* [clients] in `next` */
  int64_t clients;
} brim_flight_queue;

/* [init] Makes an empty queue. ENOMEM_HOST. */
brim_status brim_flights_open(const brim_setup *setup, brim_flight_queue *out);
void brim_flights_close(brim_flight_queue *queue);
/* [step] Begins a round: discards the changes of a round that did not commit. */
void brim_flights_begin(brim_flight_queue *queue);
void brim_flights_commit(brim_flight_queue *queue);
/* [step] Adds a client; there must be a free place. */
void brim_flights_add(brim_flight_queue *queue, const brim_flight *flight);
/* [step] The client that ends first; if several end together, the one with the lowest number. NULL if no client is in
 * flight. brim_flights_take removes it and returns it. */
const brim_flight *brim_flights_first(const brim_flight_queue *queue);
brim_flight brim_flights_take(brim_flight_queue *queue);
/* [step] Removes the clients in flight from a list of [count]; returns the number of remaining clients. */
int64_t brim_flights_leave_out(const brim_flight_queue *queue, int64_t *client, int64_t count);
/* [any] The queue between two rounds, as a tensor of a checkpoint in the queue's memory. */
void brim_flights_tensor(const brim_flight_queue *queue, brim_safetensor *out);
#endif
