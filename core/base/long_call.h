/* Calls of plugins that have no time limit: after ten seconds one message names the function and its plugin. */
#ifndef BRIM_BASE_LONG_CALL_H
#define BRIM_BASE_LONG_CALL_H
#include <stdatomic.h>
#include <stdbool.h>

/* The watch over a function that one thread calls repeatedly; each call costs two additions. Owned by the caller, who
 * must not use its fields. */
typedef struct brim_frequent_call {
  struct brim_frequent_call *next;
  const char *what;
  const void *function;
  atomic_llong turns; /* odd: within a call */
  long long seen;     /* the last value that the watching thread saw, and when it first saw that value */
  double since;
  bool is_reported;
} brim_frequent_call;

/* [init] Makes a thread watch `function`, at an address in a plugin's file, until unwatch. `what` ("the samples") names
 * its result in the message and must stay valid until then. `call` need not be initialized. If no thread can be
 * started, no message is printed. */
void brim_frequent_call_watch(brim_frequent_call *call, const char *what, const void *function);
void brim_frequent_call_unwatch(brim_frequent_call *call);
/* [any thread] Call it before and after the function. */
static inline void brim_frequent_call_turn(brim_frequent_call *call)
{
  atomic_fetch_add_explicit(&call->turns, 1, memory_order_relaxed);
}

/* A single call. */
typedef struct brim_long_call {
  brim_frequent_call call;
} brim_long_call;

/* [init] Call it when `function` begins to compute `what` ("the model's build"). */
void brim_long_call_begin(brim_long_call *call, const char *what, const void *function);
/* [init] Call it when the function has returned. */
void brim_long_call_end(brim_long_call *call);
#endif
