/* Device memory that plans leave free for later allocations of the process: driver, libraries, recorded programs. */
#ifndef BRIM_PLANNER_HEADROOM_H
#define BRIM_PLANNER_HEADROOM_H
#include "planner/planner.h"

/* The bytes left free on a GPU, unless memory.headroom_mb is smaller. */
#define BRIM_HEADROOM_LEAST_BYTES ((uint64_t)256 << 20)

/* Whether the backend of a device measures the process's memory on it. */
bool brim_taken_is_measured(const brim_backend_ops *ops);
/* Whether the planner's backend does so; false in a simulation. */
bool brim_headroom_grows(const brim_planner *planner);
/* [plan] The memory that must stay free on a device besides a plan, for later allocations of the process:
 * memory.headroom_mb, minus the memory that the process has allocated since it selected the device. */
uint64_t brim_planner_headroom(const brim_planner *planner, const brim_device_info *device);
#endif
