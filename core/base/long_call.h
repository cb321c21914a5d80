/* Calls of plugins that are waited for as long as they take: after ten seconds it is said, once, whose it is. */
#ifndef BRIM_BASE_LONG_CALL_H
#define BRIM_BASE_LONG_CALL_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* The caller's, from begin to end, and looked into by nobody else. */
typedef struct brim_long_call {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t change;
  const char *what;
  const void *function;
  bool is_watched, has_ended;
} brim_long_call;

/* [init] `what` ("the model's build"), valid until the end, is done by `function`, which is in the plugin's file. Where
 * no thread can be had nothing is said. */
void brim_long_call_begin(brim_long_call *call, const char *what, const void *function);
/* [init] It has come back. */
void brim_long_call_end(brim_long_call *call);

/* The same of a function that is called again and again, by one thread: a call costs two additions. */
typedef struct brim_frequent_call {
  struct brim_frequent_call *next;
  const char *what;
  const void *function;
  atomic_llong turns; /* odd: within a call */
  long long seen;     /* by the thread that watches, with the time since which it is so */
  double since;
  bool is_told;
} brim_frequent_call;

/* [init] From here to unwatch a thread looks at it. `call`: the caller's, of which nothing need be set. */
void brim_frequent_call_watch(brim_frequent_call *call, const char *what, const void *function);
void brim_frequent_call_unwatch(brim_frequent_call *call);
/* [any thread] Before the function is called, and when it has come back. */
static inline void brim_frequent_call_turn(brim_frequent_call *call)
{
  atomic_fetch_add_explicit(&call->turns, 1, memory_order_relaxed);
}
#endif
