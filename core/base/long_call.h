/* A call of a plugin that is waited for as long as it takes: after ten seconds it is said, once, whose it is. */
#ifndef BRIM_BASE_LONG_CALL_H
#define BRIM_BASE_LONG_CALL_H
#include <pthread.h>
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
#endif
