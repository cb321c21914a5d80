/* Calls of plugins that have no time limit: after ten seconds one message names the function and its plugin. */
#ifndef BRIM_BASE_LONG_CALL_H
#define BRIM_BASE_LONG_CALL_H
#include <stdatomic.h>
#include <stdbool.h>

/* A function that one thread calls repeatedly: a call costs two additions. Owned by the caller, opaque. */
typedef struct brim_frequent_call {
  struct brim_frequent_call *next;
  const char *what;
  const void *function;
  atomic_llong turns; /* odd: within a call */
  long long seen;     /* by the watching thread, and the time at which it first saw that value */
  double since;
  bool is_reported;
} brim_frequent_call;

/* [init] Makes a thread watch `function`, in a plugin's file, which computes `what` ("the samples"), until unwatch;
 * `what` must stay valid until then. `call` need not be initialized. No message is printed if no thread can be
 * started. */
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
