/* The loop over the steps of a run, the same for every brim_work. After each commit, in this order:
 *
 *     evaluation -> the end of a round: policies examine memory -> checkpoint
 *     memory pressure -> another plan, if a policy wants it -> the next step
 *
 * Whether something is due after a commit depends only on the number of the step, so a resumed run does the same as one
 * that was not interrupted. A round is the time between two evaluations, which are due even if there is nothing to
 * evaluate; in a federation it is a round of clients, which is one step of the run. */
#ifndef BRIM_DRIVE_LOOP_H
#define BRIM_DRIVE_LOOP_H
#include "drive/recover.h"
#include "drive/resize.h"

typedef struct brim_loop {
  brim_drive **drive; /* belongs to the owner of the loop; recovery may replace it */
  const brim_work *work;
  brim_recovery recovery;
  brim_resize resize;
  char doing[64];          /* the current work, for the message if memory runs out: "step 3" */
  int64_t checkpoint_step; /* step of the newest checkpoint; -1: none */
  bool is_stale;           /* the newest checkpoint was written before the evaluation of its step */
  int64_t round_step;      /* step at which the last round ended; -1: none */
} brim_loop;

/* Makes a loop; both arguments must outlive it. If the run resumes from a checkpoint, the owner sets checkpoint_step
 * and round_step to its step. */
brim_loop brim_loop_begin(brim_drive **drive, const brim_work *work);
/* [step] Runs until the run is over. Returns the work's failure if recovery does not help. */
brim_status brim_loop_run(brim_loop *loop);

/* Whether work that is done every `every_steps` steps (0: at the end of an epoch) is due at a step. */
bool brim_loop_is_due(const brim_loop *loop, int64_t step, int64_t every_steps);
/* The next step after the current one at which work is due. */
int64_t brim_loop_next_due(const brim_loop *loop);
/* The number of the round of the current step. */
int64_t brim_loop_round(const brim_loop *loop);
/* [step] Writes a checkpoint of the current step; brim_loop_save does so only if this step has no checkpoint yet. */
brim_status brim_loop_checkpoint(brim_loop *loop);
brim_status brim_loop_save(brim_loop *loop);
/* [step] Calls brim_recover for the interrupted part of the loop. *rewound: the work has returned to its last
 * checkpoint. */
brim_status brim_loop_recover(brim_loop *loop, brim_status failure, bool *rewound);
/* Called when the work has returned to an earlier step: the loop forgets the later ones. */
void brim_loop_rewound(brim_loop *loop);
#endif
