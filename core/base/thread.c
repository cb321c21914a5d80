#include "base/thread.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/crash.h"

typedef struct start {
  void *(*work)(void *);
  void *context;
} start;

static void *run(void *given)
{
  const start s = *(start *)given;
  brim_crash_stack stack;
  free(given);
  brim_crash_prepare_thread(&stack);
  void *result = s.work(s.context);
  brim_crash_release_thread(&stack);
  return result;
}

int brim_thread_start(pthread_t *thread, const char *name, void *(*work)(void *), void *context)
{
  sigset_t all, before;
  start *s = brim_xcalloc(1, sizeof *s);
  *s = (start){work, context};
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(thread, NULL, run, s);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed)
    free(s);
  else
    pthread_setname_np(*thread, name);
  return failed;
}

struct timespec brim_time_in(double seconds)
{
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += (long)(1e9 * fmod(seconds, 1));
  until.tv_sec += (time_t)seconds + until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  return until;
}
