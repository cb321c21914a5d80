#include "federate/crew.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/tracing.h"

/* Time for which a thread spins before it sleeps: longer than the pause between two rounds without evaluation. */
#define LOOK_SECONDS 100e-6
#define LOOKS_PER_CLOCK 64

typedef struct member {
  brim_crew *crew;
  pthread_t thread;
  int32_t number;
} member;

struct brim_crew {
  brim_crew_fn work;
  void *context;
  member *member; /* [size]; the first member is the caller */
  int32_t size, started;
  atomic_uint job;     /* number of the current job */
  atomic_int busy;     /* number of members that have not finished the job */
  atomic_bool is_over; /* no more jobs will come */
  pthread_mutex_t lock;
  pthread_cond_t changed; /* job, busy or is_over */
};

/* Whether the event that the thread waits for has happened. */
typedef bool (*condition)(brim_crew *crew, uint32_t seen);

static bool is_called(brim_crew *c, uint32_t seen)
{
  return atomic_load(&c->job) != seen || atomic_load(&c->is_over);
}

static bool is_done(brim_crew *c, uint32_t seen)
{
  (void)seen;
  return atomic_load(&c->busy) == 0;
}

/* Spins for a moment, then sleeps until a signal. */
static void wait_until(brim_crew *c, condition holds, uint32_t seen)
{
  const double until = brim_now() + LOOK_SECONDS;
  do {
    for (int i = 0; i < LOOKS_PER_CLOCK; i++)
      if (holds(c, seen)) return;
    sched_yield(); /* lets another thread compute if it waits for this processor */
  } while (brim_now() < until);
  pthread_mutex_lock(&c->lock);
  while (!holds(c, seen)) pthread_cond_wait(&c->changed, &c->lock);
  pthread_mutex_unlock(&c->lock);
}

/* The lock prevents that a signal comes between a thread's last test and its sleep. */
static void wake(brim_crew *c)
{
  pthread_mutex_lock(&c->lock);
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

static void *serve(void *context)
{
  const member *m = context;
  brim_crew *c = m->crew;
  brim_tracing_name_thread(BRIM_TRACING_LANE + (unsigned)m->number);
  for (uint32_t seen = 0;; seen++) {
    wait_until(c, is_called, seen);
    if (atomic_load(&c->is_over)) return NULL;
    c->work(c->context, m->number);
    if (atomic_fetch_sub(&c->busy, 1) == 1) wake(c);
  }
}

brim_status brim_crew_open(int32_t size, brim_crew_fn work, void *context, brim_crew **out)
{
  brim_crew *c = brim_try_calloc(1, sizeof *c);
  if (!c) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for %d threads", (int)size);
  *c = (brim_crew){.work = work, .context = context, .size = size, .started = 1};
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->changed, NULL);
  c->member = brim_try_calloc((size_t)size, sizeof *c->member);
  int failed = c->member ? 0 : -1;
  for (; !failed && c->started < size; c->started += !failed) {
    member *m = &c->member[c->started];
    *m = (member){.crew = c, .number = c->started};
    failed = brim_thread_start(&m->thread, "brim-lane", serve, m);
  }
  if (!failed) {
    *out = c;
    return BRIM_OK;
  }
  brim_crew_close(c);
  return brim_fail(BRIM_ENOMEM_HOST, "cannot start a thread for a lane: %s",
                   failed < 0 ? "no host memory" : strerror(failed));
}

void brim_crew_close(brim_crew *c)
{
  if (!c) return;
  atomic_store(&c->is_over, true);
  wake(c);
  for (int32_t i = 1; i < c->started; i++) pthread_join(c->member[i].thread, NULL);
  pthread_cond_destroy(&c->changed);
  pthread_mutex_destroy(&c->lock);
  free(c->member);
  free(c);
}

void brim_crew_run(brim_crew *c)
{
  if (c->size > 1) {
    atomic_store(&c->busy, c->size - 1);
    atomic_fetch_add(&c->job, 1);
    wake(c);
  }
  c->work(c->context, 0);
  if (c->size > 1) wait_until(c, is_done, 0);
}
