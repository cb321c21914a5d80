/* Jobs of a simulation are threads that take turns, by the scenario's clock: one is at work at a time, the one that
 * wakes first, so what comes of it is the same every time. */
#ifndef BRIM_SIMULATE_TURNS_H
#define BRIM_SIMULATE_TURNS_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "brim/status.h"
#include "simulate/scenario.h"

typedef struct brim_turns {
  pthread_mutex_t lock;
  pthread_cond_t turn[BRIM_SCENE_JOBS_MAX];
  double wake[BRIM_SCENE_JOBS_MAX]; /* when each goes on */
  bool done[BRIM_SCENE_JOBS_MAX];
  size_t count, current; /* whose turn it is; `count`: nobody's */
  void (*advance)(void *context, double to);
  void *context;
} brim_turns;

/* [init] Runs job(index) for each of `count` jobs, the first time when `from` says; returns when all have
 * come back. `advance` moves the clock, on the thread of whoever has the turn. ENOMEM_HOST: no thread could be made. */
brim_status brim_turns_run(brim_turns *turns, size_t count, const double *from,
                           void (*job)(void *context, size_t index), void (*advance)(void *context, double to),
                           void *context);
/* [the job's thread] Returns when the clock is at `until`; others have had their turns meanwhile. */
void brim_turns_sleep(brim_turns *turns, size_t job, double until);
#endif
