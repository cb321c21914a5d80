/* The memory that a plan may use on a device and on the host, and the error if it needs more. */
#ifndef BRIM_PLANNER_ROOM_H
#define BRIM_PLANNER_ROOM_H
#include "planner/planner.h"

/* [init] Reads $TF_GPU_MEMORY_FRACTION, a limit of other programs, and applies it if devices are shared and the
 * configuration sets no limit. ECONFIG. */
brim_status brim_planner_read_fraction(brim_planner *planner);
/* The bytes that a plan may use on the device now, within all limits; `later`: on the empty device, if the run may
 * wait. */
uint64_t brim_planner_room(const brim_planner *planner, bool later);
/* Returns the bytes that a plan may use on any of the backend's devices, with `has_bytes` available and a policy's
 * limit of `cap_bytes` (0: no limit). */
uint64_t brim_planner_room_on(const brim_planner *planner, const brim_device_info *device, uint64_t cap_bytes,
                              uint64_t has_bytes);
/* Returns `room`, or less if `room` is host memory that the process needs for other purposes too; `later`: counts all
 * host memory instead of the free part. */
uint64_t brim_planner_room_beside(const brim_planner *planner, const brim_device_info *device, uint64_t room,
                                  bool later);
/* Returns `bytes`, or memory.recompute_budget_mb if that is smaller. */
uint64_t brim_planner_within(const brim_planner *planner, uint64_t bytes);
/* [plan] EBUDGET if the plan of a choice exceeds memory.limit_mb; ENOMEM_DEVICE if it exceeds the device's free memory
 * (or its whole memory, if the run may wait), or if the process would exceed the memory that is left on the host or in
 * its control group. The text gives the peak by class, and the largest micro-batch (for an evaluation plan the largest
 * batch) that would fit. */
brim_status brim_planner_check(brim_planner *planner, const brim_choice *choice, const brim_plan *plan);
/* Checks only a training peak; the text only says how much is missing. */
brim_status brim_planner_check_peak(const brim_planner *planner, uint64_t peak_bytes);
#endif
