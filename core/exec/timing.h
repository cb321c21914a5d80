/* Times the parts of a step on the device. The programs of a plan run in order, as in a step, so that caches have the
 * same contents as in training; parts that the profile lacks are timed in that order. */
#ifndef BRIM_EXEC_TIMING_H
#define BRIM_EXEC_TIMING_H
#include "exec/predict.h"

/* [plan] Estimates the seconds that a round of timing takes. It times each signature that the profile lacks once; 0 if
 * the profile lacks none. */
double brim_timing_foresee(brim_profile *profile, const brim_rates *rates, const brim_plan *plan);
/* [init] Places the plan, times it and frees the memory. The first program of the plan must be a training program.
 * ENOMEM_DEVICE. */
brim_status brim_timing_run(brim_profile *profile, const brim_rates *rates, const brim_plan *plan, int device);
#endif
