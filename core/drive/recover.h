/* The ladder: the actions of a started run when memory runs out.
 *
 * A step that failed was discarded (trainer.h), and an evaluation or a checkpoint that failed has changed nothing. The
 * run repeats the failed work after each of these rungs, in this order, and uses each rung at most max_retries times:
 *
 *     clean up, light and then heavy, under the same plan
 *     more recompute, unless memory.recompute is fixed
 *     half as many clients of a federation at a time
 *     the policies' decision (on_oom): smaller micro-batches, another device, waiting, the host's
 *     processors
 *     half the micro-batch and twice the accumulation, if that changes no bit of the results
 *
 * brim claims memory for a new plan and places it like the first plan: on another device with room if device=auto,
 * after waiting if wait_for_gpu. Precision and model do not change. brim logs each rung as a line and an event. */
#ifndef BRIM_DRIVE_RECOVER_H
#define BRIM_DRIVE_RECOVER_H
#include "drive/work.h"
#include "memory/pressure.h"

/* The caller zeroes all fields except the first two. */
typedef struct brim_recovery {
  brim_drive **drive; /* belongs to the owner of the recovery, which may replace it */
  const brim_work *work;
  int32_t rung;          /* current rung of the ladder; 0: none */
  int64_t tries;         /* attempts on this rung */
  int64_t step;          /* the latest step that failed: the ladder starts from the beginning once the run is past it */
  uint64_t needed_bytes; /* bytes of the last placed plan */
  /* For a federation: its choice before memory pressure made the plan smaller, and its choice since then. If there is
   * no choice to return to, the first has 0 lanes. */
  brim_choice before_pressure, under_pressure;
  bool is_over;    /* reopening the drive failed: do not use *drive any more */
  bool is_remade;  /* the last brim_recover reopened the drive */
  bool is_rewound; /* see brim_recover */
} brim_recovery;

/* [step] Recovers from `status`, which is ENOMEM_DEVICE or ENOMEM_HOST with the thread's error text, and was the result
 * of `what`, such as "step 3". OK: the caller may repeat that work. *rewound: an update failed halfway, so the work
 * went back to the last checkpoint, or to the beginning, and the caller must remove the records of later steps.
 * Otherwise nothing helped: returns `status` with its text, or the error of the recovery itself; the parameters of the
 * last commit, if there are any, are on the device or the host. */
brim_status brim_recover(brim_recovery *recovery, brim_status status, const char *what, bool *rewound);
/* Handles the loss of parameters on another rank, for a rank that must follow: goes back to the last checkpoint.
 * [step] */
brim_status brim_recover_follow(brim_recovery *recovery, const char *what);
/* The size to which an arena of `arena_bytes` should shrink under memory pressure, so that memory use falls below the
 * warning level; at least half of arena_bytes. 0: shrinking is unnecessary, or would not help because host memory is
 * short and the arena is not in host memory. */
uint64_t brim_recover_target(const brim_memory_settings *settings, bool on_host, uint64_t arena_bytes,
                             const brim_pressure_reading *reading);
/* [step] Call under memory pressure, before memory runs out. Places a plan of at most `bytes`, or else the smallest
 * above that, if it is smaller than the current plan. It tries more recompute, unless memory.recompute is fixed, then
 * half as many clients of a federation at a time, then half the micro-batch and twice the accumulation, if that changes
 * no bit of the results. OK also if no smaller plan exists. If the plan got no memory, returns the status of
 * brim_work.replan: the caller then calls brim_recover. */
brim_status brim_recover_shrink(brim_recovery *recovery, uint64_t bytes, const char *why);
/* If the original cause of a status of brim_work.replan was a lack of memory, returns that out-of-memory status, which
 * the ladder needs, even if policies have answered since. */
brim_status brim_recover_as_want(brim_drive *drive, brim_status status);
/* Call after each commit of a step. */
void brim_recover_committed(brim_recovery *recovery);
#endif
