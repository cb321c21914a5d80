/* What policies are asked about a run, and what it comes to: a choice, a device, another configuration, a cleanup.
 * Nothing is placed and no setup is changed here. */
#ifndef BRIM_DECIDE_DECIDE_H
#define BRIM_DECIDE_DECIDE_H
#include "decide/dialogue.h"

/* [init] Which device to plan for: it is selected, with its limit. If the run may wait, it need not have room yet.
 * ENODEVICE, with dialogue->again if it is to be the host's processors; ECONFIG. */
brim_status brim_decide_device(brim_dialogue *dialogue);
/* [plan] The micro-batch of *choice, or dialogue->again, if another configuration is asked for. ECONFIG: none is
 * allowed, or nobody chooses. */
brim_status brim_decide_plan(brim_dialogue *dialogue, brim_choice *choice);
/* Is the micro-batch or the recompute of a choice for policies or the planner to find? */
bool brim_decide_is_open(const brim_dialogue *dialogue, const brim_choice *choice);
/* [init] The plan of *choice did not get its memory: `failure` and the thread's error text say why. OK: plan and place
 * again, by *choice, perhaps on another device, which is selected. Else `failure`, with its text; with
 * dialogue->again if another configuration is asked for. */
brim_status brim_decide_after_oom(brim_dialogue *dialogue, brim_choice *choice, brim_status failure,
                                  uint64_t needed_bytes);
/* Is it want of memory that another plan or device may have? A run that may wait has had all its time. */
bool brim_decide_is_want(const brim_dialogue *dialogue, brim_status status);
/* What policies let a run have of a device. */
typedef struct brim_device_limit {
  bool allowed;   /* it may train there, if the user says so */
  uint64_t bytes; /* at most, libraries included; 0: no limit of theirs */
} brim_device_limit;
/* [plan] Of the first `count` devices of the backend. */
brim_status brim_decide_limits(brim_dialogue *dialogue, brim_device_limit *out, int count);
/* [step] Between two steps, at a round's end: what to clean up. `is_end`: nothing is trained after it. */
brim_status brim_decide_at_boundary(brim_dialogue *dialogue, int64_t step, int64_t round, bool is_end,
                                    uint64_t planned_bytes, enum brim_cleanup *out);
#endif
