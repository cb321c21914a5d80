/* Parts of a run that the device computes more slowly than it could: a precision whose values it cannot multiply
 * directly, and operations that a faster library does not support. A run prints them once; with backend.strict=true it
 * ends with an error. */
#ifndef BRIM_PLANNER_STRICT_H
#define BRIM_PLANNER_STRICT_H
#include "base/text.h"
#include "setup/setup.h"

/* Adds a line if the device has no instructions that multiply values of the run's precision. */
void brim_strict_print_precision(const brim_setup *setup, const brim_device_info *device, brim_text *out);
/* [init] With backend.strict=true: ECONFIG in that case. */
brim_status brim_strict_check_precision(const brim_setup *setup, const brim_device_info *device);
/* [plan] With backend.strict=true: ECONFIG, with a line for each operation and reason, if a faster library does not
 * support operations of the plan. */
brim_status brim_strict_check_plan(const brim_setup *setup, const brim_plan *plan);
#endif
