/* What time it is for policies. */
#ifndef BRIM_MEMORY_POLICY_CLOCK_H
#define BRIM_MEMORY_POLICY_CLOCK_H
#include "brim/policy.h"

/* [init] From now on policies are told *seconds, which stays the caller's to change while none of them is asked. NULL:
 * the system's clock again. */
void brim_policy_clock_follow(const double *seconds);
#endif
