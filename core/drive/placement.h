/* Obtains a placed plan for a drive: plans, waits for a device, places the plan, and follows the policies' decisions if
 * there is not enough memory. No values are lost, because a plan has none before it is placed, or the caller has copied
 * them elsewhere. */
#ifndef BRIM_DRIVE_PLACEMENT_H
#define BRIM_DRIVE_PLACEMENT_H
#include "drive/drive.h"
#include "exec/exec.h"

/* The work that places a plan. Each function gets `self`. */
typedef struct brim_placing {
  void *self;
  brim_drive *drive;
  bool trains; /* ask the policies if the plan does not fit */
  /* Makes the plan for the drive's current choice and reports its peak. Frees the previous plan. */
  brim_status (*plan)(void *self, uint64_t *peak_bytes);
  void (*drop)(void *self);         /* frees a plan that is not placed; NULL: nothing to free */
  brim_status (*check)(void *self); /* checks whether the plan would fit, like brim_planner_check */
  brim_status (*open)(void *self);  /* places the plan on the run's device. ENOMEM_DEVICE */
} brim_placing;

/* [init] Places the plan, after calling brim_drive_start. EBUDGET, ENOMEM_DEVICE, ENODEVICE: no plan fits or no device
 * is available; brim_drive_asks then tells whether a policy requests another configuration. EINTERRUPTED. */
brim_status brim_placement_do(const brim_placing *placing);

/* [init] The same for training with the drive's choice, or for an evaluation if `wish` is not NULL. On success the
 * caller owns both results. */
brim_status brim_placement_open(brim_drive *drive, const brim_evaluation_wish *wish, brim_plan **plan,
                                brim_exec **exec);
/* [plan] Does the part of brim_placement_open that is possible without placing: settles the drive, and asks the
 * policies if a plan does not fit. Returns OK even if no plan fits: brim_planner_check reports that. */
brim_status brim_placement_try(brim_drive **drive);
#endif
