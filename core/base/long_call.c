#include "base/long_call.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <time.h>

#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"

#define LONG_SECONDS 10

static void report_long_call(const char *what, const void *function)
{
  Dl_info info;
  if (dladdr(function, &info) && info.dli_fname)
    brim_log(BRIM_LOG_WARN, "%s has not returned yet: plugin %s", what, info.dli_fname);
  else
    brim_log(BRIM_LOG_WARN, "%s has not returned yet", what);
}

static void *watch(void *context)
{
  brim_long_call *c = context;
  struct timespec until;
  int reason = 0;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += LONG_SECONDS;
  pthread_mutex_lock(&c->lock);
  while (!c->has_ended && reason != ETIMEDOUT)
    reason = pthread_cond_clockwait(&c->change, &c->lock, CLOCK_MONOTONIC, &until);
  if (!c->has_ended) report_long_call(c->what, c->function);
  pthread_mutex_unlock(&c->lock);
  return NULL;
}

void brim_long_call_begin(brim_long_call *c, const char *what, const void *function)
{
  *c = (brim_long_call){.what = what, .function = function};
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->change, NULL);
  c->is_watched = brim_thread_start(&c->thread, "brim-watch", watch, c) == 0;
}

void brim_long_call_end(brim_long_call *c)
{
  pthread_mutex_lock(&c->lock);
  c->has_ended = true;
  pthread_cond_signal(&c->change);
  pthread_mutex_unlock(&c->lock);
  if (c->is_watched) pthread_join(c->thread, NULL);
  pthread_cond_destroy(&c->change);
  pthread_mutex_destroy(&c->lock);
}

/* ---- functions that are called repeatedly ---- */

#define LOOK_SECONDS 1

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static brim_frequent_call *first;
static pthread_t watcher; /* runs while there are calls to watch */
static bool has_watcher;
static uintptr_t generation; /* of the watcher; it ends when this changes */

/* Warns once per function, whichever threads call it. */
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
  report_long_call(c->what, c->function);
}

static void *watch_all(void *own)
{
  pthread_mutex_lock(&lock);
  while (generation == (uintptr_t)own) {
    struct timespec until;
    const double now = brim_now();
    for (brim_frequent_call *c = first; c; c = c->next) look_at(c, now);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LOOK_SECONDS;
    pthread_cond_clockwait(&change, &lock, CLOCK_MONOTONIC, &until);
  }
  pthread_mutex_unlock(&lock);
  return NULL;
}

void brim_frequent_call_watch(brim_frequent_call *c, const char *what, const void *function)
{
  pthread_mutex_lock(&lock);
  *c = (brim_frequent_call){.next = first, .what = what, .function = function};
  first = c;
  if (!has_watcher) has_watcher = brim_thread_start(&watcher, "brim-watch", watch_all, (void *)generation) == 0;
  pthread_mutex_unlock(&lock);
}

void brim_frequent_call_unwatch(brim_frequent_call *c)
{
  brim_frequent_call **at = &first;
  pthread_mutex_lock(&lock);
  while (*at && *at != c) at = &(*at)->next;
  if (*at) *at = c->next;
  const bool ends = !first && has_watcher;
  const pthread_t last = watcher;
  if (ends) {
    has_watcher = false;
    generation++;
    pthread_cond_broadcast(&change);
  }
  pthread_mutex_unlock(&lock);
  if (ends) pthread_join(last, NULL);
}
