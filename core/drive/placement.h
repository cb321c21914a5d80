/* From a drive to a plan that has its memory: planning, waiting for a device, placing, and going on with what the
 * policies say where there is none. Nothing is lost, as what is placed has no values yet, or has them elsewhere. */
#ifndef BRIM_DRIVE_PLACEMENT_H
#define BRIM_DRIVE_PLACEMENT_H
#include "drive/drive.h"
#include "exec/exec.h"

/* What is placed; all get `self`. */
typedef struct brim_placing {
  void *self;
  brim_drive *drive;
  bool trains; /* policies are asked where it does not fit */
  /* The plan as the drive has it now: its peak. The one of before goes. */
  brim_status (*plan)(void *self, uint64_t *peak_bytes);
  void (*drop)(void *self);         /* the plan, which is not placed; NULL: there is nothing to free */
  brim_status (*check)(void *self); /* does it fit, as far as can be known? As brim_planner_check */
  brim_status (*open)(void *self);  /* places it on the run's device. ENOMEM_DEVICE */
} brim_placing;

/* [init] Places. The drive has begun (brim_drive_start) then. EBUDGET, ENOMEM_DEVICE, ENODEVICE: no plan and no
 * device were found; brim_drive_asks if a policy asks for another configuration. EINTERRUPTED. */
brim_status brim_placement_do(const brim_placing *placing);

/* [init] The same of training, as the drive goes, or of an evaluation, if `wish` is not NULL. Both belong to the
 * caller on success. */
brim_status brim_placement_open(brim_drive *drive, const brim_evaluation_wish *wish, brim_plan **plan,
                                brim_exec **exec);
/* [plan] What brim_placement_open would do as far as it can be known without placing: settles the drive, and lets the
 * policies go on where a plan does not fit. OK also if they find none that fits: brim_planner_check tells. */
brim_status brim_placement_try(brim_drive **drive);
#endif
