/* A run that goes on takes less of its device, or more, when a policy says so: asked between two steps, once a second.
 *
 * The device is held meanwhile (drive.h), so that a run that gives something back keeps the rest whoever waits for
 * how much. More is taken only if nobody waits and it is free. No bit of the results changes. */
#ifndef BRIM_DRIVE_RESIZE_H
#define BRIM_DRIVE_RESIZE_H
#include "decide/step_question.h"
#include "drive/work.h"

#define BRIM_RESIZE_ASK_SECONDS 1.0 /* between two questions */

/* Ready when zeroed but for the first two. */
typedef struct brim_resize {
  brim_drive **drive; /* the owner's: it may be made again */
  const brim_work *work;
  brim_step_question question; /* of it step_seconds is the owner's to set */
  double asked;                /* when, by the run's world */
  brim_step_plan answer;       /* what was said last, */
  const char *who;             /* and by which policy */
} brim_resize;

/* [step] Is it time to ask? Then the step before must not begin the one behind it. Never, if no policy would answer. */
bool brim_resize_is_due(const brim_resize *resize);
/* [step] Asks. *changes: the plan is to be another, for brim_resize_do. Allocates nothing if it is not. A policy's own
 * status and text. */
brim_status brim_resize_ask(brim_resize *resize, bool *changes);
/* [step] Does what was said, which is a line of the log and an event; not if others have come since, or the host has no
 * memory to change plans through. What came of brim_work.replan where a plan did not get its memory, nor, if it was
 * to be larger, the one before. */
brim_status brim_resize_do(brim_resize *resize);
#endif
