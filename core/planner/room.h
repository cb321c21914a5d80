/* What a plan may take of a device, and of the host, and what is said if it takes more. */
#ifndef BRIM_PLANNER_ROOM_H
#define BRIM_PLANNER_ROOM_H
#include "planner/planner.h"

/* [init] What other programs are limited by holds for brim too, where devices are shared and the configuration has no
 * share of its own: $TF_GPU_MEMORY_FRACTION. ECONFIG. */
brim_status brim_planner_read_fraction(brim_planner *planner);
/* Bytes that a plan may take of the device now, within all limits; `later`: of the empty one, if the run may wait. */
uint64_t brim_planner_room(const brim_planner *planner, bool later);
/* The same of any of the backend's devices, if `has_bytes` of it are to be had, and a policy lets the run have
 * `cap_bytes`; 0: all. */
uint64_t brim_planner_room_on(const brim_planner *planner, const brim_device_info *device, uint64_t cap_bytes,
                              uint64_t has_bytes);
/* `room`, or less if it is of the host and the process needs what is left there for something else; `later`: what the
 * host has in all counts, not what it has free. */
uint64_t brim_planner_room_beside(const brim_planner *planner, const brim_device_info *device, uint64_t room,
                                  bool later);
/* `bytes`, or memory.recompute_budget_mb if that is less. */
uint64_t brim_planner_within(const brim_planner *planner, uint64_t bytes);
/* [plan] EBUDGET if the plan of a choice is over memory.limit_mb, ENOMEM_DEVICE if it is over what the device has free,
 * or if the run may wait has in all, or if the process would be over what the host or its control group leaves: with
 * the peak by class, and the largest micro-batch, or for a plan of evaluation the largest batch, that would fit. */
brim_status brim_planner_check(brim_planner *planner, const brim_choice *choice, const brim_plan *plan);
/* The same of a peak of training: says only what is missing. */
brim_status brim_planner_check_peak(const brim_planner *planner, uint64_t peak_bytes);
#endif
