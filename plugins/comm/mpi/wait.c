#include <sched.h>
#include <time.h>

#include "mpi.h"

#define LOOK_SECONDS 20e-6 /* longer than a message takes that is on its way */
#define YIELD_SECONDS 1e-3
#define SLEEP_NANOSECONDS 50000

double mpi_now(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double mpi_wait_turn(const mpi_wait *wait)
{
  const double waited = mpi_now() - wait->start;
  if (waited > YIELD_SECONDS)
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NANOSECONDS}, NULL);
  else if (waited > LOOK_SECONDS)
    sched_yield();
  return waited;
}
