/* The memory that a plan may take of a device and of the host, and the error if it takes more. */
#ifndef BRIM_PLANNER_ROOM_H
#define BRIM_PLANNER_ROOM_H
#include "planner/planner.h"

/* [init] Applies a limit of other programs, $TF_GPU_MEMORY_FRACTION, where devices are shared and the configuration
 * sets none. ECONFIG. */
brim_status brim_planner_read_fraction(brim_planner *planner);
/* Bytes that a plan may take of the device now, within all limits; `later`: of the empty device, if the run may wait.
 */
uint64_t brim_planner_room(const brim_planner *planner, bool later);
/* The same for any of the backend's devices with `has_bytes` available and a policy's limit of `cap_bytes`; 0: none. */
uint64_t brim_planner_room_on(const brim_planner *planner, const brim_device_info *device, uint64_t cap_bytes,
                              uint64_t has_bytes);
/* Returns `room`, or less if it is host memory that the process also needs for other purposes; `later`: counts all host
 * memory instead of the free part. */
uint64_t brim_planner_room_beside(const brim_planner *planner, const brim_device_info *device, uint64_t room,
                                  bool later);
/* Returns `bytes`, or memory.recompute_budget_mb if that is smaller. */
uint64_t brim_planner_within(const brim_planner *planner, uint64_t bytes);
/* [plan] EBUDGET if the plan of a choice exceeds memory.limit_mb; ENOMEM_DEVICE if it exceeds the device's free memory
 * (or all of it, if the run may wait), or if the process would exceed the memory that the host or its control group
 * leaves. The text gives the peak by class, and the largest micro-batch (for an evaluation plan the largest batch) that
 * would fit. */
brim_status brim_planner_check(brim_planner *planner, const brim_choice *choice, const brim_plan *plan);
/* The same for a training peak; the text only says how much is missing. */
brim_status brim_planner_check_peak(const brim_planner *planner, uint64_t peak_bytes);
#endif
