#include "base/thread.h"

#include <signal.h>

int brim_thread_start(pthread_t *thread, const char *name, void *(*work)(void *), void *context)
{
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(thread, NULL, work, context);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!failed) pthread_setname_np(*thread, name);
  return failed;
}
