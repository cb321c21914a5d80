/* What a run has at hand. Internal to run*.c. */
#ifndef BRIM_TRAIN_RUN_PARTS_H
#define BRIM_TRAIN_RUN_PARTS_H
#include <signal.h>

#include "drive/recover.h"
#include "drive/resize.h"
#include "observe/progress.h"
#include "observe/tensorboard.h"
#include "train/relief.h"
#include "train/report.h"
#include "train/run.h"
#include "train/trainer.h"

#define BRIM_STEPS_RECENT 20

typedef struct brim_running {
  const brim_run_options *options;
  brim_config *config; /* the run's: a policy may have asked for another than the caller's */
  const brim_settings *settings;
  brim_drive *drive;
  brim_trainer *trainer;
  brim_train_state *state;
  char dir[4096];
  int lock;
  brim_jsonl metrics, events;
  brim_tensorboard tensorboard; /* not open: not wanted, or it could not be written */
  brim_progress progress;
  brim_report report;
  brim_pressure *pressure; /* NULL: nobody looks */
  brim_work work;          /* the trainer's */
  brim_recovery recovery;
  brim_resize resize;
  char doing[64];                    /* what memory would be wanting for */
  double turn_started;               /* brim_now() */
  bool has_stopped;                  /* early */
  bool is_interrupted;               /* by a signal, with a checkpoint */
  char checkpoint[4096];             /* to go back to; of ranks found by the first; empty: there is none */
  const volatile sig_atomic_t *stop; /* the signal that asks for an end; 0: none yet */
  int64_t checkpoint_step;           /* of the newest checkpoint; -1: none */
  int64_t round_step;                /* at which a round ended last; -1: none */
  int64_t told_step;                 /* that was skipped, and told; -1: none */
  double window_seconds;             /* spent in the steps of the window that this process has made */
  int64_t window_timed;              /* their samples */
  double recent[BRIM_STEPS_RECENT];  /* seconds of the steps made last, without evaluations and checkpoints, */
  size_t recent_count;               /* of all so far under this plan */
  double steps_seconds;              /* in all steps since what ranks take was told last */
  double waited_seconds;             /* for other ranks, in these steps */
  brim_pressure_reading reading;     /* that asks for something to be done, */
  bool acts;                         /* as soon as all ranks have come to the same step */
} brim_running;

/* ---- run_begin.c ---- */

/* From the configuration to a trainer, a folder and its records, with what a checkpoint has. */
brim_status brim_running_begin(brim_running *r);

/* After the drive was made again. */
void brim_running_follow_drive(brim_running *r);
/* Then: the folder says what is trained from now on, and has a checkpoint of it. */
brim_status brim_running_keep_drive(brim_running *r);

/* ---- run_ranks.c: nothing of it in a job of one rank ---- */

/* Is this the rank that speaks, and writes the run's folder? */
bool brim_running_speaks(const brim_running *r);
/* All come together in the beginning, each with what came of its own. EPEER: another has failed. */
brim_status brim_running_begin_together(brim_running *r, brim_status status);
/* Do all ranks see the run's folder that rank 0 has? Once it is there; ECONFIG, EPEER. */
brim_status brim_running_check_folder(brim_running *r);
/* Where the parameters are lost, rank 0 finds what all go back to, for brim_recover. EPEER; ELOAD. */
brim_status brim_running_find_checkpoint(brim_running *r);
/* At the end: the status of the first rank that has failed, which speaks. ECOMM if ranks are missing. */
brim_status brim_running_end_together(brim_running *r, brim_status status);
/* What this rank wishes at the next meetings. */
void brim_running_wish(brim_running *r);
/* Does anybody ask for the end, as far as all know? */
bool brim_running_stops(const brim_running *r);
/* Is the present step one after which the parameters are compared? */
bool brim_running_is_compared(const brim_running *r, int64_t step);
/* Time and memory of each rank, as events; and who holds up the others. */
brim_status brim_running_report_ranks(brim_running *r);

/* ---- run_work.c ---- */

brim_work brim_running_work(brim_running *r);
/* The newest checkpoint of the run's folder, in r->checkpoint; empty: there is none. */
brim_status brim_running_find_newest(brim_running *r);

/* ---- run_due.c ---- */

void brim_running_event(brim_running *r, const char *what, const char *detail);
/* What came of writing TensorBoard's file: a failure is a warning, and there is no more of it. */
void brim_running_heed_tensorboard(brim_running *r, brim_status status);
void brim_running_show_progress(brim_running *r);
/* The newest training record is the one that the state knows. */
void brim_running_recall(brim_running *r);
/* The training record of the steps since the one before it. */
brim_status brim_running_close_window(brim_running *r);
/* Is what comes every so many steps (0: at the end of an epoch) due at the present step? */
bool brim_running_is_due(const brim_running *r, int64_t every_steps);
/* Will the step after the present one be followed by another at once, with nothing that needs the parameters between?
 */
bool brim_running_goes_on(const brim_running *r);
/* `recorded`: the record is there already, from before the run was resumed. */
brim_status brim_running_evaluate(brim_running *r, enum brim_part part, bool recorded, brim_evaluation *out);
brim_status brim_running_write_checkpoint(brim_running *r);
/* Has the validation loss not got better for long enough? By the state alone, so a resumed run ends where it would. */
bool brim_running_is_out_of_patience(const brim_running *r);
/* Evaluation, the end of a round, checkpoint, as they are due; what was done is not done again. */
brim_status brim_running_after_commit(brim_running *r);
/* The number of the round that the present step is in: a round is what lies between two evaluations; they may be
 * switched off, but are due all the same. */
int64_t brim_running_round(const brim_running *r);

/* ---- run_pressure.c ---- */

/* Before a step: warns where memory is short, or acts. Want of memory may come of a smaller plan that does not get its
 * memory; then nothing is placed, and brim_recover goes on. */
brim_status brim_running_heed_pressure(brim_running *r);
#endif
