#include "base/parallel.h"

#include <stdatomic.h>

#include "base/thread.h"

enum { THREADS_MAX = 64 };

typedef struct tasks {
  void (*work)(void *context, int64_t task);
  void *context;
  int64_t count;
  _Atomic int64_t next;
} tasks;

static void *do_tasks(void *shared)
{
  tasks *t = shared;
  for (;;) {
    const int64_t task = atomic_fetch_add(&t->next, 1);
    if (task >= t->count) return NULL;
    t->work(t->context, task);
  }
}

void brim_in_parallel(const char *name, int32_t threads, int64_t count, void (*work)(void *context, int64_t task),
                      void *context)
{
  pthread_t thread[THREADS_MAX];
  int64_t started = 0, others = (threads < THREADS_MAX ? threads : THREADS_MAX) - 1;
  tasks shared = {.work = work, .context = context, .count = count};
  if (others > count - 1) others = count - 1;
  while (started < others && brim_thread_start(&thread[started], name, do_tasks, &shared) == 0) started++;
  do_tasks(&shared);
  while (started > 0) pthread_join(thread[--started], NULL);
}
