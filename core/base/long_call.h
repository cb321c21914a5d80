/* Calls of plugins that have no time limit: after ten seconds one message names the function and its plugin. */
#ifndef BRIM_BASE_LONG_CALL_H
#define BRIM_BASE_LONG_CALL_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Owned by the caller from begin to end; opaque. */
typedef struct brim_long_call {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t change;
  const char *what;
  const void *function;
  bool is_watched, has_ended;
} brim_long_call;

/* [init] Call it when `function`, in a plugin's file, begins to compute `what` ("the model's build"), which must stay
 * valid until the end. No message is printed if no thread can be started. */
void brim_long_call_begin(brim_long_call *call, const char *what, const void *function);
/* [init] Call it when the function has returned. */
void brim_long_call_end(brim_long_call *call);

/* The same for a function that one thread calls repeatedly: a call costs two additions. */
typedef struct brim_frequent_call {
  struct brim_frequent_call *next;
  const char *what;
  const void *function;
  atomic_llong turns; /* odd: within a call */
  long long seen;     /* by the watching thread, and the time at which it first saw that value */
  double since;
  bool is_reported;
} brim_frequent_call;

/* [init] Makes a thread watch the function until unwatch. `call`: the caller's; need not be initialized. */
void brim_frequent_call_watch(brim_frequent_call *call, const char *what, const void *function);
void brim_frequent_call_unwatch(brim_frequent_call *call);
/* [any thread] Call it before and after the function. */
static inline void brim_frequent_call_turn(brim_frequent_call *call)
{
  atomic_fetch_add_explicit(&call->turns, 1, memory_order_relaxed);
}
#endif
