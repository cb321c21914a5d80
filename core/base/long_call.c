#include "base/long_call.h"

#include <dlfcn.h>
#include <errno.h>
#include <time.h>

#include "base/log.h"
#include "base/thread.h"

#define LONG_SECONDS 10

static void tell(const brim_long_call *c)
{
  Dl_info info;
  if (dladdr(c->function, &info) && info.dli_fname)
    brim_log(BRIM_LOG_WARN, "%s has not come back yet: plugin %s", c->what, info.dli_fname);
  else
    brim_log(BRIM_LOG_WARN, "%s has not come back yet", c->what);
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
  if (!c->has_ended) tell(c);
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
