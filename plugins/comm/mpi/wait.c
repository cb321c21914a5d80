#include <sched.h>
#include <time.h>

#include "mpi.h"

#define LOOK_SECONDS 20e-6 /* time that is longer than a message takes to arrive */
#define YIELD_SECONDS 1e-3
#define SLEEP_NANOSECONDS 50000
#define STOPPED_SECONDS 0.5 /* if two polls are further apart than this, the process was stopped */

double mpi_now(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

mpi_wait mpi_wait_begin(void)
{
  const double now = mpi_now();
  return (mpi_wait){now, now};
}

double mpi_wait_turn(mpi_wait *wait)
{
  const double now = mpi_now();
  if (now - wait->last > STOPPED_SECONDS) wait->start += now - wait->last;
  wait->last = now;
  const double waited = now - wait->start;
  if (waited > YIELD_SECONDS)
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NANOSECONDS}, NULL);
  else if (waited > LOOK_SECONDS)
    sched_yield();
  return waited;
}
