/* What plans leave free of a device for what the process takes later: driver, libraries, recorded programs. */
#ifndef BRIM_PLANNER_HEADROOM_H
#define BRIM_PLANNER_HEADROOM_H
#include "planner/planner.h"

/* That plans leave free on a GPU, unless memory.headroom_mb says less. */
#define BRIM_HEADROOM_LEAST_BYTES ((uint64_t)256 << 20)

/* Does the backend of a device measure what a process takes of it? */
bool brim_taken_is_measured(const brim_backend_ops *ops);
/* Does the planner's backend? Not in a simulation. */
bool brim_headroom_grows(const brim_planner *planner);
/* [plan] What a device is to have free besides a plan, for what the process takes later: memory.headroom_mb, less what
 * it has grown by since the device was selected. */
uint64_t brim_planner_headroom(const brim_planner *planner, const brim_device_info *device);
#endif
