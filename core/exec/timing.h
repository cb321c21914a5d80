/* Timing what a step is made of, on the device: the programs of a plan are run in order, as in a step, so that what a
 * kernel reads is as near or as far as it will be; what the profile does not have yet is timed on the way. */
#ifndef BRIM_EXEC_TIMING_H
#define BRIM_EXEC_TIMING_H
#include "exec/predict.h"

/* [plan] What a round of timing would take, about, in seconds: of the nodes that the profile lacks, each signature
 * once. 0: it lacks none. */
double brim_timing_foresee(brim_profile *profile, const brim_rates *rates, const brim_plan *plan);
/* [init] Places the plan, times, and gives the memory back. The first program of the plan is of
 * training. ENOMEM_DEVICE if there is no room. */
brim_status brim_timing_run(brim_profile *profile, const brim_rates *rates, const brim_plan *plan, int device);
#endif
