/* Parts of a run that the device computes in a slower way than it could: a precision whose values it cannot multiply,
 * and operations that a faster library refuses. A run prints them once; with backend.strict=true it ends instead. */
#ifndef BRIM_PLANNER_STRICT_H
#define BRIM_PLANNER_STRICT_H
#include "base/text.h"
#include "setup/setup.h"

/* Adds a line if the device does not multiply values of the run's precision by its own instructions. */
void brim_strict_print_precision(const brim_setup *setup, const brim_device_info *device, brim_text *out);
/* [init] With backend.strict=true: ECONFIG in that case. */
brim_status brim_strict_check_precision(const brim_setup *setup, const brim_device_info *device);
/* [plan] With backend.strict=true: ECONFIG, with a line for each operation and reason, if a faster library refuses
 * operations of the plan. Plans that generate text are not checked, as most of their products have a single row. */
brim_status brim_strict_check_plan(const brim_setup *setup, const brim_plan *plan);
#endif
