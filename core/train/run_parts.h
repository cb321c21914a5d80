/* What a run has at hand. Internal to run*.c. */
#ifndef BRIM_TRAIN_RUN_PARTS_H
#define BRIM_TRAIN_RUN_PARTS_H
#include <signal.h>

#include "drive/loop.h"
#include "memory/pressure.h"
#include "observe/progress.h"
#include "observe/tensorboard.h"
#include "train/participants.h"
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
  brim_participants participants; /* of a federation, on the rank that writes the folder; else not open */
  brim_tensorboard tensorboard;   /* not open: not wanted, or it could not be written */
  brim_progress progress;
  brim_report report;
  brim_pressure *pressure; /* NULL: nobody looks */
  brim_work work;          /* the trainer's */
  brim_loop loop;
  double turn_started;               /* brim_now() */
  bool has_stopped;                  /* early */
  bool is_interrupted;               /* by a signal, with a checkpoint */
  char checkpoint[4096];             /* to go back to; of ranks found by the first; empty: there is none */
  const volatile sig_atomic_t *stop; /* the signal that asks for an end; 0: none yet */
  int64_t told_step;                 /* that was skipped, and told; -1: none */
  double selection_seconds;          /* of the rounds since the last training record: real ones */
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
/* The newest checkpoint of the run's folder, in r->checkpoint; empty: there is none. */
brim_status brim_running_find_newest(brim_running *r);
/* Where the parameters are lost, rank 0 finds what all go back to, for brim_recover. EPEER; ELOAD. */
brim_status brim_running_find_checkpoint(brim_running *r);
/* At the end: the status of the first rank that has failed, which speaks. ECOMM if ranks are missing. */
brim_status brim_running_end_together(brim_running *r, brim_status status);
/* What this rank wishes at the next meetings. */
void brim_running_wish(brim_running *r);
/* Is the present step one after which the parameters are compared? */
bool brim_running_is_compared(const brim_running *r, int64_t step);
/* Time and memory of each rank, as events; and who holds up the others. */
brim_status brim_running_report_ranks(void *running);

/* ---- run_work.c ---- */

/* The trainer as work whose steps and plans the loop drives. */
brim_work brim_running_work(brim_running *r);
/* The report's figures of memory and of the scale of losses, as they are now: before an arena goes, and at the end. */
void brim_running_collect(brim_running *r);
/* Seconds of a step, the median of the last ones; 0: there were none under this plan. */
double brim_running_step_seconds(void *running);
/* Of this process, without what it has spent in line for devices. */
double brim_running_own_seconds(const brim_running *r);

/* ---- run_record.c ---- */

void brim_running_event(brim_running *r, const char *what, const char *detail);
/* What came of writing TensorBoard's file: a failure is a warning, and there is no more of it. */
void brim_running_heed_tensorboard(brim_running *r, brim_status status);
void brim_running_show_progress(brim_running *r);
/* The newest training record is the one that the state knows. */
void brim_running_recall(brim_running *r);
/* The training record of the steps since the one before it. */
brim_status brim_running_close_window(brim_running *r);
/* `recorded`: the record is there already, from before the run was resumed. */
brim_status brim_running_evaluate(brim_running *r, enum brim_part part, bool recorded, brim_evaluation *out);

/* At the end of a federation, for the summary, if federate.client_accuracy asks for it and samples have classes. */
brim_status brim_running_evaluate_clients(brim_running *r);

/* ---- run_early.c ---- */

/* Takes an evaluation of the present step into the state: the best so far, and what the rules below count. */
void brim_running_judge(brim_running *r, enum brim_part part, const brim_evaluation *e);
/* Does a rule (training.patience, federate.target_accuracy, federate.patience) end the run here? */
bool brim_running_is_over(void *running);
/* Then: the last record, a checkpoint, and why. */
brim_status brim_running_stop_early(brim_running *r);

/* ---- run_pressure.c ---- */

/* Starts the thread that looks, if the run's keys want one. ENOMEM_HOST. */
brim_status brim_running_watch_memory(brim_running *r);
/* The thread looks at the device and the bytes that are the trainer's now. */
void brim_running_aim(brim_running *r);
/* Cleans up, and says what it freed, as the system that brim replaces says it, in GB. */
void brim_running_clean(const brim_running *r, enum brim_cleanup cleanup);
/* As brim_work.heed_pressure. */
brim_status brim_running_heed_pressure(void *running, bool *acts, uint64_t *bytes);

#endif
