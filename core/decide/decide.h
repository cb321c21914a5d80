/* Questions to policies about a run, and their results: a choice, a device, another configuration, a cleanup. These
 * functions place nothing and change no setup. */
#ifndef BRIM_DECIDE_DECIDE_H
#define BRIM_DECIDE_DECIDE_H
#include "decide/dialogue.h"

/* [init] Chooses the device to plan for and selects it, with its limit. If the run may wait, the device need not have
 * room yet. ENODEVICE, with dialogue->again to use the host's processors; ECONFIG. */
brim_status brim_decide_device(brim_dialogue *dialogue);
/* [plan] Sets the micro-batch of *choice, or dialogue->again if another configuration is requested. ECONFIG: no
 * micro-batch is allowed, or no policy chooses one. */
brim_status brim_decide_plan(brim_dialogue *dialogue, brim_choice *choice);
/* Whether policies or the planner must find the choice's micro-batch or recompute. */
bool brim_decide_is_open(const brim_dialogue *dialogue, const brim_choice *choice);
/* [init] Call when the plan of *choice did not get its memory; `failure` and the thread's error text give the reason.
 * OK: plan and place again with *choice, on the device that is selected now, which may be another one. Otherwise
 * returns `failure`, with its text, and sets dialogue->again if another configuration is requested. */
brim_status brim_decide_after_oom(brim_dialogue *dialogue, brim_choice *choice, brim_status failure,
                                  uint64_t needed_bytes);
/* Whether the failure is a lack of memory that another plan or device may solve. A run that may wait gets this failure
 * only after its waiting time has expired. */
bool brim_decide_is_want(const brim_dialogue *dialogue, brim_status status);
/* The limits that policies set for a run on a device. */
typedef struct brim_device_limit {
  bool allowed;   /* training on the device is allowed, if the user names it */
  uint64_t bytes; /* the most bytes, including libraries; 0: no limit */
} brim_device_limit;
/* [plan] Finds the limits on the first `count` devices of the backend. */
brim_status brim_decide_limits(brim_dialogue *dialogue, brim_device_limit *out, int count);
/* [step] Call between two steps, at a round's end: chooses the cleanup. `is_end`: no training follows. */
brim_status brim_decide_at_boundary(brim_dialogue *dialogue, int64_t step, int64_t round, bool is_end,
                                    uint64_t planned_bytes, enum brim_cleanup *out);
#endif
