/* What becomes of a run that has begun when memory runs out: the ladder.
 *
 * A step that failed was discarded (trainer.h), an evaluation or a checkpoint has changed nothing; each is done again
 * after one of these, in this order, each at most max_retries times:
 *
 *     clean up, light and then heavy, under the same plan
 *     more recompute, unless memory.recompute is fixed
 *     what the policies answer (on_oom): smaller micro-batches, another device, waiting, the host's
 *     processors
 *     half the micro-batch and twice the accumulation, as long as no bit changes
 *
 * A new plan is claimed and placed as the first one was: on another device with room if device=auto, after waiting if
 * wait_for_gpu. Precision and model stay. Each step of the ladder is a line of the log and an event. */
#ifndef BRIM_DRIVE_RECOVER_H
#define BRIM_DRIVE_RECOVER_H
#include "drive/work.h"
#include "memory/pressure.h"

/* Ready when zeroed but for the first two. */
typedef struct brim_recovery {
  brim_drive **drive; /* the owner's: it may be made again */
  const brim_work *work;
  int32_t rung;          /* of the ladder; 0: it begins below */
  int64_t tries;         /* on this rung */
  int64_t step;          /* commits when it failed, at most: the ladder begins anew behind it */
  uint64_t needed_bytes; /* by the last plan that was placed */
  bool is_over;          /* making the drive again has failed: *drive is of no use any more */
  bool is_remade;        /* the drive was made again by the last brim_recover */
  bool is_rewound;       /* see brim_recover */
} brim_recovery;

/* [step] `status`, ENOMEM_DEVICE or ENOMEM_HOST with the thread's error text, came of `what`, as "step 3". OK: it may
 * be done again. *rewound: an update had failed in the middle, so the work went back to what was saved last, or to the
 * beginning; records behind its state must go. Else nothing helped, and the parameters of the last commit are on the
 * device or the host, if there are any: `status` with its text; or what went wrong in between. */
brim_status brim_recover(brim_recovery *recovery, brim_status status, const char *what, bool *rewound);
/* [step] The same for a rank whose parameters are lost as another's are: back to what was saved last. */
brim_status brim_recover_follow(brim_recovery *recovery, const char *what);
/* What an arena of so many bytes should shrink to under memory pressure, so that the use falls below where it is
 * warned; at most by half. 0: it needs not, or a smaller one would not help: the host's memory is short, and the arena
 * is not in it. */
uint64_t brim_recover_target(const brim_memory_settings *settings, bool on_host, uint64_t arena_bytes,
                             const brim_pressure_reading *reading);
/* [step] Before memory runs out: places a plan of at most `bytes`, or the least there is above, if it is smaller than
 * the present one: with more recompute, unless memory.recompute is fixed, then with half as many clients of a
 * federation at a time, then with half the micro-batch and twice the accumulation, as long as no bit changes. OK also
 * if no smaller plan exists. If the plan did not get its memory, what brim_work.replan returned: then the caller calls
 * brim_recover. */
brim_status brim_recover_shrink(brim_recovery *recovery, uint64_t bytes, const char *why);
/* What came of brim_work.replan, as want of memory where that is what it is, whatever policies have said in the
 * meantime: for the ladder. */
brim_status brim_recover_as_want(brim_drive *drive, brim_status status);
/* A step was committed. */
void brim_recover_committed(brim_recovery *recovery);
#endif
