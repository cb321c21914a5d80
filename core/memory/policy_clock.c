#include "memory/policy_clock.h"

#include <time.h>

/* Set by who asks policies, read by those that are asked: one of them is at work at a time. */
static const double *simulated;

void brim_policy_clock_follow(const double *seconds)
{
  simulated = seconds;
}

double brim_policy_clock(void)
{
  struct timespec t;
  if (simulated) return *simulated;
  clock_gettime(CLOCK_REALTIME, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
