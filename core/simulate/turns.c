#include "simulate/turns.h"

#include <string.h>

#include "base/thread.h"

typedef struct worker {
  brim_turns *turns;
  size_t job;
  void (*work)(void *context, size_t job);
  pthread_t thread;
} worker;

/* Whoever wakes first, of those at the same time the first of the list. Called with the lock. */
static void pass_on(brim_turns *t)
{
  t->current = t->count;
  for (size_t i = 0; i < t->count; i++)
    if (!t->done[i] && (t->current == t->count || t->wake[i] < t->wake[t->current])) t->current = i;
  if (t->current == t->count) return;
  t->advance(t->context, t->wake[t->current]);
  pthread_cond_signal(&t->turn[t->current]);
}

static void wait_for_turn(brim_turns *t, size_t job)
{
  while (t->current != job) pthread_cond_wait(&t->turn[job], &t->lock);
}

void brim_turns_sleep(brim_turns *t, size_t job, double until)
{
  pthread_mutex_lock(&t->lock);
  t->wake[job] = until;
  pass_on(t);
  wait_for_turn(t, job);
  pthread_mutex_unlock(&t->lock);
}

static void *work(void *context)
{
  worker *w = context;
  brim_turns *t = w->turns;
  pthread_mutex_lock(&t->lock);
  wait_for_turn(t, w->job);
  pthread_mutex_unlock(&t->lock);
  w->work(t->context, w->job);
  pthread_mutex_lock(&t->lock);
  t->done[w->job] = true;
  pass_on(t);
  pthread_mutex_unlock(&t->lock);
  return NULL;
}

/* Those that there is no thread for are done. */
static brim_status start(brim_turns *t, worker *all, size_t *started)
{
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < t->count; i++) {
    const int error = status == BRIM_OK ? brim_thread_start(&all[i].thread, "job", work, &all[i]) : 0;
    if (error) status = brim_fail(BRIM_ENOMEM_HOST, "no thread for a job of the simulation: %s", strerror(error));
    if (status == BRIM_OK) ++*started;
    if (status != BRIM_OK) t->done[i] = true;
  }
  return status;
}

brim_status brim_turns_run(brim_turns *t, size_t count, const double *from, void (*job)(void *context, size_t index),
                           void (*advance)(void *context, double to), void *context)
{
  worker all[BRIM_SCENE_JOBS_MAX];
  size_t started = 0;
  *t = (brim_turns){.count = count, .current = count, .advance = advance, .context = context};
  pthread_mutex_init(&t->lock, NULL);
  for (size_t i = 0; i < count; i++) {
    pthread_cond_init(&t->turn[i], NULL);
    t->wake[i] = from[i];
    all[i] = (worker){.turns = t, .job = i, .work = job};
  }
  const brim_status status = start(t, all, &started);
  pthread_mutex_lock(&t->lock);
  pass_on(t);
  pthread_mutex_unlock(&t->lock);
  for (size_t i = 0; i < started; i++) pthread_join(all[i].thread, NULL);
  for (size_t i = 0; i < count; i++) pthread_cond_destroy(&t->turn[i]);
  pthread_mutex_destroy(&t->lock);
  return status;
}
