/* Lets a run give back part of its device memory, or take more, when a policy decides so. brim asks the policies
 * between two steps, once a second.
 *
 * brim holds the device meanwhile (drive.h), so a run that gives back memory keeps the rest, even if other processes
 * wait for more. A run takes more only if that memory is free and no process waits for it. No bit of the results
 * changes. */
#ifndef BRIM_DRIVE_RESIZE_H
#define BRIM_DRIVE_RESIZE_H
#include "decide/step_question.h"
#include "drive/recover.h"

#define BRIM_RESIZE_ASK_SECONDS 1.0 /* time between two calls of the policies */

#define BRIM_RESIZE_RETURNS_MAX 32

/* The caller zeroes all fields except the first two. */
typedef struct brim_resize {
  brim_drive **drive; /* belongs to the owner of the struct; recovery may replace it */
  const brim_work *work;
  brim_step_question question; /* the owner sets its step_seconds */
  double asked;                /* time of the last call, by the clock of the run's world */
  brim_step_plan answer;       /* the last answer */
  const char *policy;          /* the policy that gave the answer */
  int64_t returns; /* number of returns to plans from before memory pressure; at most BRIM_RESIZE_RETURNS_MAX */
} brim_resize;

/* [step] Whether it is time to ask the policies. If so, the trainer must not begin the next step ahead. Always false if
 * no policy would answer. */
bool brim_resize_is_due(const brim_resize *resize);
/* [step] Asks the policies. *changes: the plan should change, so call brim_resize_do; otherwise allocates nothing.
 * Returns the policy's own status and text. */
brim_status brim_resize_ask(brim_resize *resize, bool *changes);
/* [step] Carries out the answer, and logs it as a line and an event. Does nothing if other processes have joined the
 * queue since, or if the host lacks the memory to change plans. Returns the status of brim_work.replan if the plan got
 * no memory and, for a larger plan, the previous plan got none either. */
brim_status brim_resize_do(brim_resize *resize);
/* [step] After memory pressure: if a federation trains fewer clients at a time, or recomputes more, because of it
 * (recovery->before_pressure), places its earlier plan again once BRIM_RESIZE_CHECKS consecutive checks of memory have
 * found room for it. Each return doubles this number. Does nothing while another run waits for the device. Statuses as
 * for brim_resize_do. */
#define BRIM_RESIZE_CHECKS 10
brim_status brim_resize_after_pressure(brim_resize *resize, brim_recovery *recovery);
#endif
