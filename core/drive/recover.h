/* The ladder: the actions of a started run when memory runs out.
 *
 * A step that failed was discarded (trainer.h), and an evaluation or a checkpoint has changed nothing. Each is repeated
 * after one of these rungs, in this order, each at most max_retries times:
 *
 *     clean up, light and then heavy, under the same plan
 *     more recompute, unless memory.recompute is fixed
 *     half as many clients of a federation at a time
 *     the policies' decision (on_oom): smaller micro-batches, another device, waiting, the host's
 *     processors
 *     half the micro-batch and twice the accumulation, as long as no bit changes
 *
 * A new plan is claimed and placed like the first one: on another device with room if device=auto, after waiting if
 * wait_for_gpu. Precision and model do not change. Each rung is logged as a line and an event. */
#ifndef BRIM_DRIVE_RECOVER_H
#define BRIM_DRIVE_RECOVER_H
#include "drive/work.h"
#include "memory/pressure.h"

/* Zero all fields except the first two. */
typedef struct brim_recovery {
  brim_drive **drive; /* the owner's; recovery may replace it */
  const brim_work *work;
  int32_t rung;          /* of the ladder; 0: not on it */
  int64_t tries;         /* attempts on this rung */
  int64_t step;          /* the furthest step that failed: the ladder starts again once the run is past it */
  uint64_t needed_bytes; /* of the last placed plan */
  /* For a federation: its choice before memory pressure made it smaller, and its choice since then; the first has no
   * lanes if there is no choice to return to. */
  brim_choice before_pressure, under_pressure;
  bool is_over;    /* reopening the drive failed: *drive must not be used any more */
  bool is_remade;  /* the last brim_recover reopened the drive */
  bool is_rewound; /* see brim_recover */
} brim_recovery;

/* [step] Recovers from `status`, ENOMEM_DEVICE or ENOMEM_HOST with the thread's error text, in `what`, such as "step
 * 3". OK: the caller may repeat it. *rewound: an update failed halfway, so the work returned to the last checkpoint, or
 * to the beginning; records of later steps must go. Otherwise nothing helped, and the parameters of the last commit are
 * on the device or the host, if there are any: returns `status` with its text, or the error of recovery itself. */
brim_status brim_recover(brim_recovery *recovery, brim_status status, const char *what, bool *rewound);
/* [step] The same for a rank whose parameters are lost because another rank's are: returns to the last checkpoint. */
brim_status brim_recover_follow(brim_recovery *recovery, const char *what);
/* The size that an arena of `arena_bytes` should shrink to under memory pressure, so that use falls below the warning
 * level; at least half of it. 0: shrinking is unnecessary or would not help, because host memory is short and the arena
 * is not in it. */
uint64_t brim_recover_target(const brim_memory_settings *settings, bool on_host, uint64_t arena_bytes,
                             const brim_pressure_reading *reading);
/* [step] Called before memory runs out: places a plan of at most `bytes`, or the smallest above that, if it is smaller
 * than the current one. It tries more recompute, unless memory.recompute is fixed, then half as many clients of a
 * federation at a time, then half the micro-batch and twice the accumulation, as long as no bit changes. OK also if
 * no smaller plan exists. If the plan got no memory, returns the status of brim_work.replan: the caller then calls
 * brim_recover. */
brim_status brim_recover_shrink(brim_recovery *recovery, uint64_t bytes, const char *why);
/* Maps a status of brim_work.replan to an out-of-memory status if that was its original cause, whatever policies
 * answered since. The ladder needs that status. */
brim_status brim_recover_as_want(brim_drive *drive, brim_status status);
/* Called after each commit of a step. */
void brim_recover_committed(brim_recovery *recovery);
#endif
