#include "base/long_call.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>

#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"

#define LONG_SECONDS 10
#define LOOK_SECONDS 0.25 /* seconds between two looks at the calls */

/* One thread watches all calls. It stays alive for a while without calls, because to start and end a thread for each
 * call takes longer than most calls. */
#define IDLE_LOOKS_MAX 20

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static brim_frequent_call *first;
static bool has_watcher;

/* Warns once per function, even if several threads call it. */
static void look_at(brim_frequent_call *c, double now)
{
  const long long turns = atomic_load_explicit(&c->turns, memory_order_relaxed);
  if (turns != c->seen || turns % 2 == 0) {
    c->seen = turns;
    c->since = now;
    return;
  }
  if (c->is_reported || now - c->since < LONG_SECONDS) return;
  for (brim_frequent_call *k = first; k; k = k->next) k->is_reported = k->is_reported || k->function == c->function;
  Dl_info info;
  if (dladdr(c->function, &info) && info.dli_fname)
    brim_log(BRIM_LOG_WARN, "%s has not returned yet: plugin %s", c->what, info.dli_fname);
  else
    brim_log(BRIM_LOG_WARN, "%s has not returned yet", c->what);
}

static void *watch_all(void *context)
{
  pthread_cond_t never = PTHREAD_COND_INITIALIZER; /* the thread waits on it to release the lock; nothing signals it */
  pthread_mutex_lock(&lock);
  for (int idle = 0; idle < IDLE_LOOKS_MAX; idle = first ? 0 : idle + 1) {
    const double now = brim_now();
    for (brim_frequent_call *c = first; c; c = c->next) look_at(c, now);
    const struct timespec until = brim_time_in(LOOK_SECONDS);
    while (pthread_cond_clockwait(&never, &lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT) continue;
  }
  has_watcher = false;
  pthread_mutex_unlock(&lock);
  return context;
}

void brim_frequent_call_watch(brim_frequent_call *c, const char *what, const void *function)
{
  pthread_mutex_lock(&lock);
  *c = (brim_frequent_call){.next = first, .what = what, .function = function};
  first = c;
  if (!has_watcher) {
    pthread_t watcher;
    has_watcher = brim_thread_start(&watcher, "brim-watch", watch_all, NULL) == 0;
    if (has_watcher) pthread_detach(watcher);
  }
  pthread_mutex_unlock(&lock);
}

void brim_frequent_call_unwatch(brim_frequent_call *c)
{
  brim_frequent_call **at = &first;
  pthread_mutex_lock(&lock);
  while (*at && *at != c) at = &(*at)->next;
  if (*at) *at = c->next;
  pthread_mutex_unlock(&lock);
}

void brim_long_call_begin(brim_long_call *c, const char *what, const void *function)
{
  brim_frequent_call_watch(&c->call, what, function);
  brim_frequent_call_turn(&c->call); /* starts the clock of the call */
}

void brim_long_call_end(brim_long_call *c)
{
  brim_frequent_call_unwatch(&c->call);
}
