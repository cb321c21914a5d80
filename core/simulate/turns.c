/* Jobs are threads that take turns by the scenario's clock: only the one that wakes first runs, so results are
 * reproducible. */
#include <string.h>

#include "base/guard.h"
#include "base/thread.h"
#include "simulate/job.h"

/* Passes the turn to the job that wakes first; of several with the same time, to the first in the list. Needs the
 * lock. */
static void pass_on(brim_sim_case *c)
{
  c->current = NULL;
  for (brim_sim_job *job = c->job; job < c->job + c->count; job++)
    if (!job->is_done && (!c->current || job->wake < c->current->wake)) c->current = job;
  if (!c->current) return;
  brim_scene_advance(c->scene, c->current->wake);
  pthread_cond_signal(&c->current->turn);
}

static void wait_for_turn(brim_sim_job *job)
{
  while (job->all->current != job) pthread_cond_wait(&job->turn, &job->all->lock);
}

brim_status brim_sim_sleep(brim_sim_job *job, double seconds)
{
  brim_sim_case *c = job->all;
  const double until = brim_scene_now(c->scene) + seconds, end = c->scenario->until;
  pthread_mutex_lock(&c->lock);
  job->wake = until < end ? until : end;
  pass_on(c);
  wait_for_turn(job);
  pthread_mutex_unlock(&c->lock);
  job->is_late = job->is_late || until > end;
  return job->is_late ? brim_fail(BRIM_EINTERRUPTED, "the scenario has ended") : BRIM_OK;
}

static void *work(void *context)
{
  brim_sim_job *job = context;
  brim_sim_case *c = job->all;
  pthread_mutex_lock(&c->lock);
  wait_for_turn(job);
  pthread_mutex_unlock(&c->lock);
  c->work(job);
  brim_guard_cancel_alarm();
  pthread_mutex_lock(&c->lock);
  job->is_done = true;
  pass_on(c);
  pthread_mutex_unlock(&c->lock);
  return NULL;
}

brim_status brim_sim_take_turns(brim_sim_case *c)
{
  brim_status status = BRIM_OK;
  size_t started = 0;
  pthread_mutex_init(&c->lock, NULL);
  for (size_t i = 0; i < c->count; i++) pthread_cond_init(&c->job[i].turn, NULL);
  for (size_t i = 0; i < c->count; i++) { /* jobs without a thread have ended */
    brim_sim_job *job = &c->job[i];
    const int error = status == BRIM_OK ? brim_thread_start(&job->thread, "job", work, job) : 0;
    if (error)
      status = brim_fail(BRIM_ENOMEM_HOST, "cannot start a thread for a job of the simulation: %s", strerror(error));
    started += status == BRIM_OK;
    job->is_done = status != BRIM_OK;
  }
  pthread_mutex_lock(&c->lock);
  pass_on(c);
  pthread_mutex_unlock(&c->lock);
  for (size_t i = 0; i < started; i++) pthread_join(c->job[i].thread, NULL);
  for (size_t i = 0; i < c->count; i++) pthread_cond_destroy(&c->job[i].turn);
  pthread_mutex_destroy(&c->lock);
  return status;
}
