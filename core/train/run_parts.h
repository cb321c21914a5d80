/* The parts of a run. Internal to run*.c. */
#ifndef BRIM_TRAIN_RUN_PARTS_H
#define BRIM_TRAIN_RUN_PARTS_H
#include <signal.h>

#include "drive/loop.h"
#include "memory/live.h"
#include "memory/pressure.h"
#include "observe/openmetrics.h"
#include "observe/progress.h"
#include "observe/tensorboard.h"
#include "train/histograms.h"
#include "train/hooks.h"
#include "train/participants.h"
#include "train/phase.h"
#include "train/report.h"
#include "train/run.h"
#include "train/samples.h"
#include "train/trainer.h"

#define BRIM_STEPS_RECENT 20

/* The file of observe.metrics_file. */
typedef struct brim_run_metrics {
  brim_openmetrics_counts decisions;
  char host[64], user[64], device[64];
  brim_text text;  /* has room for the whole file, so that steps allocate nothing; no room: the file is not written */
  double written;  /* brim_now() of the last attempt */
  bool has_failed; /* it was reported that the file cannot be written */
} brim_run_metrics;

typedef struct brim_running {
  const brim_run_options *options;
  brim_config *config; /* the run's own: a policy may have changed the caller's */
  const brim_settings *settings;
  brim_drive *drive;
  brim_trainer *trainer;
  brim_train_state *state;
  char dir[4096];
  int lock;
  brim_jsonl metrics, events;
  brim_participants participants; /* of a federation, open only on the rank that writes the folder */
  brim_tensorboard tensorboard;   /* closed if it is off or could not be written */
  brim_histograms histograms;
  brim_samples samples;
  brim_progress progress;
  brim_run_metrics live_metrics;
  brim_report report;
  const char *evaluated;   /* the split of the newest evaluation, a literal */
  brim_hooks *hooks;       /* NULL: none are set, or another rank runs them */
  brim_pressure *pressure; /* NULL: memory is not watched */
  brim_work work;          /* the trainer's */
  brim_loop loop;
  double turn_started;               /* brim_now() */
  bool has_stopped;                  /* a rule ended the run early */
  bool is_interrupted;               /* by a signal, with a checkpoint */
  char checkpoint[4096];             /* the checkpoint to return to; rank 0 finds it for all ranks; empty: none */
  const volatile sig_atomic_t *stop; /* the signal that asked the run to end; 0: none yet */
  int64_t reported_step;             /* last skipped step that was reported; -1: none */
  double selection_seconds;          /* of the rounds since the last training record, in real time */
  double window_seconds;             /* spent by this process in the steps of the window */
  int64_t window_timed;              /* the samples of those steps */
  double loader_seconds;             /* of these seconds, spent waiting for samples */
  double recent[BRIM_STEPS_RECENT];  /* seconds of the last steps, without evaluations and checkpoints */
  size_t recent_count;               /* number of steps so far under this plan */
  double steps_seconds;              /* in all steps since the ranks' figures were last reported */
  double waited_seconds;             /* for other ranks, in these steps */
  brim_pressure_reading reading;     /* the reading that asks for action */
  bool acts;                         /* the run acts as soon as all ranks have reached the same step */
  uint32_t trace_wish;               /* this rank's wish to trace steps, for brim_trainer_wish; 0: none */
  struct brim_run_trace *trace;      /* run_trace.c; NULL before the run has begun */
} brim_running;

/* ---- run_begin.c ---- */

/* Makes the trainer, the run's folder and its records from the configuration; a resumed run also reads its
 * checkpoint. */
brim_status brim_running_begin(brim_running *r);

/* Call after the drive was made again. */
void brim_running_follow_drive(brim_running *r);
/* Call after that: updates the folder's description of the run, and writes a checkpoint. */
brim_status brim_running_keep_drive(brim_running *r);

/* ---- run_ranks.c: no effect in a job of one rank ---- */

/* Whether this rank prints messages and writes the run's folder. */
bool brim_running_prints(const brim_running *r);
/* Meets the other ranks at the beginning; each passes its status. EPEER: another rank failed. */
brim_status brim_running_begin_together(brim_running *r, brim_status status);
/* Checks that all ranks see rank 0's run folder; call once it exists. ECONFIG, EPEER. */
brim_status brim_running_check_folder(brim_running *r);
/* Finds the newest checkpoint of the run's folder, in r->checkpoint; empty: none. */
brim_status brim_running_find_newest(brim_running *r);
/* After parameters are lost, rank 0 finds the checkpoint that all ranks return to, for brim_recover. EPEER; ELOAD. */
brim_status brim_running_find_checkpoint(brim_running *r);
/* Called at the end. Returns the status of the first rank that failed, which prints its message. ECOMM if ranks are
 * missing. */
brim_status brim_running_end_together(brim_running *r, brim_status status);
/* Sets this rank's wishes for the next meetings. */
void brim_running_wish(brim_running *r);
/* Whether the parameters are compared after this step. */
bool brim_running_is_compared(const brim_running *r, int64_t step);
/* Reports time and memory of each rank as events, and names a rank that holds up the others. */
brim_status brim_running_report_ranks(void *running);

/* ---- run_isolated.c ---- */

/* Checks that clients' processes on the same device fit it together, and prints where each is. EBUDGET with the numbers
 * of each. No effect otherwise. */
brim_status brim_running_check_processes(brim_running *r);

/* ---- run_work.c ---- */

/* The trainer as the work that the loop drives. */
brim_work brim_running_work(brim_running *r);
/* Updates the report's figures of memory and loss scale: call it before an arena is released, and at the end. */
void brim_running_collect(brim_running *r);
/* Seconds of a step, the median of the last ones; 0: no step under this plan yet. */
double brim_running_step_seconds(void *running);
/* Seconds since this process started, without those spent in line for devices. */
double brim_running_own_seconds(const brim_running *r);

/* ---- run_record.c ---- */

void brim_running_event(brim_running *r, const char *what, const char *detail);
/* The run's current figures, for a hook. */
void brim_running_hook_facts(const brim_running *r, brim_hook_facts *out);
/* [step] Starts a hook that is set; `detail` may be NULL. */
void brim_running_hook(brim_running *r, enum brim_run_hook hook, const char *detail);
/* Records the failures of hooks as events. */
void brim_running_hook_failures(brim_running *r);
/* Handles the result of writing TensorBoard's file: after a failure, warns and stops writing it. */
void brim_running_heed_tensorboard(brim_running *r, brim_status status);
brim_progress_state brim_running_progress(const brim_running *r);
/* Shows it to other programs (memory/live.h). */
void brim_running_publish(const brim_running *r, const brim_progress_state *state);
/* Shows it to the user, and to other programs. */
void brim_running_show_progress(brim_running *r);
/* Restores the newest training record from the state. */
void brim_running_recall(brim_running *r);
/* Writes the training record of the steps since the previous record. */
brim_status brim_running_close_window(brim_running *r);
/* Evaluates a part and writes its record. `recorded`: the record exists already, from before the run was resumed. */
brim_status brim_running_evaluate(brim_running *r, enum brim_part part, bool recorded, brim_evaluation *out);

/* Evaluates each client at the end of a federation, for the summary, if federate.client_accuracy is set and samples
 * have classes. */
brim_status brim_running_evaluate_clients(brim_running *r);

/* ---- run_trace.c: traces of steps; a failure is a warning, and the run continues without that trace ---- */

/* [plan] Checks observe.trace. ECONFIG. */
brim_status brim_running_trace_check(const brim_running *r);
/* [init] Reads observe.trace and observe.nvtx. */
void brim_running_trace_begin(brim_running *r);
/* [step] Looks for a request of `brim trace`, at most twice a second. */
void brim_running_trace_look(brim_running *r);
/* [step] Before a step: starts to record if it is to be traced. After a commit: ends, and writes the trace. All ranks
 * do so at the same step. EPEER, ECOMM: other ranks have failed. */
brim_status brim_running_trace_before(brim_running *r);
brim_status brim_running_trace_after(brim_running *r);
/* Whether the step after the next commit must not begin ahead, as a trace begins or ends between them. */
bool brim_running_trace_stops_ahead(const brim_running *r);
/* [init] Call while the plan still exists, before it is released: the events refer to it. */
void brim_running_trace_seal(brim_running *r);
/* Call at the end of the run: writes a trace that was not complete, unless it needs other ranks. */
void brim_running_trace_end(brim_running *r);

/* ---- run_insight.c: histograms, and samples with wrong answers; a failure is a warning, and the run continues without
 * them ---- */

/* Opens the files. ECOMM. */
brim_status brim_running_open_insight(brim_running *r);
/* Whether histograms are made after a step: at evaluations, at most BRIM_HISTOGRAMS_TIMES in a run. */
bool brim_running_has_histograms(const brim_running *r, int64_t step);
/* Call before the next step, and after its commit. EPEER, ECOMM. */
void brim_running_before_step(brim_running *r);
brim_status brim_running_after_step(brim_running *r);
/* Evaluates a part as brim_trainer_evaluate does, and if that is due writes the list of its worst answers. */
brim_status brim_running_evaluate_samples(brim_running *r, enum brim_part part, const volatile int *stop,
                                          brim_evaluation *out);

/* ---- run_early.c ---- */

/* Updates the state with an evaluation of the current step: the best so far, and the counts of the rules below. */
void brim_running_judge(brim_running *r, enum brim_part part, const brim_evaluation *e);
/* Whether a rule (training.patience, federate.target_accuracy, federate.patience) ends the run here. */
bool brim_running_is_over(void *running);
/* Ends the run early: writes the last record and a checkpoint, and logs which rule applied. */
brim_status brim_running_stop_early(brim_running *r);

/* ---- run_metrics.c: observe.metrics_file ---- */

void brim_running_open_metrics(brim_running *r);
/* [step] Writes the file if that is due. */
void brim_running_update_metrics(brim_running *r);
/* Writes it for the last time. `phase`: "finished", "interrupted" or "failed". */
void brim_running_close_metrics(brim_running *r, const char *phase);

/* ---- run_pressure.c ---- */

/* Starts the thread that watches memory, if the configuration asks for it. ENOMEM_HOST. */
brim_status brim_running_watch_memory(brim_running *r);
/* Makes the thread watch the trainer's current device and bytes. */
void brim_running_aim(brim_running *r);
/* Cleans up and prints the freed memory in GB, in the format of the system that brim replaces. */
void brim_running_clean(const brim_running *r, enum brim_cleanup cleanup);
/* Implement brim_work.checks_with_room and heed_pressure. */
int64_t brim_running_checks_with_room(void *running, uint64_t more);
brim_status brim_running_heed_pressure(void *running, bool *acts, uint64_t *bytes);

#endif
