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
  brim_text
      text; /* has room for the whole file, so that steps allocate nothing; without room the file is not written */
  double written;  /* brim_now() at the last attempt */
  bool has_failed; /* brim has warned that the file cannot be written */
} brim_run_metrics;

typedef struct brim_running {
  const brim_run_options *options;
  brim_config *config; /* the run's own, because a policy may have changed the caller's */
  const brim_settings *settings;
  brim_drive *drive;
  brim_trainer *trainer;
  brim_train_state *state;
  char dir[4096];
  int lock;
  brim_jsonl metrics, events;
  brim_participants participants; /* for a federation; open only on the rank that writes the folder */
  brim_tensorboard tensorboard;   /* closed if it is turned off or could not be written */
  brim_histograms histograms;
  brim_samples samples;
  brim_progress progress;
  brim_run_metrics live_metrics;
  brim_report report;
  const char *evaluated;   /* the split of the newest evaluation, a string literal */
  brim_hooks *hooks;       /* NULL: no hooks are set, or another rank runs them */
  brim_pressure *pressure; /* NULL: memory is not watched */
  brim_work work;          /* the trainer's */
  brim_loop loop;
  double turn_started;               /* brim_now() */
  bool has_stopped;                  /* a rule ended the run early */
  bool is_interrupted;               /* a signal ended the run, with a checkpoint */
  char checkpoint[4096];             /* the checkpoint to go back to; rank 0 finds it for all ranks; empty: none */
  const volatile sig_atomic_t *stop; /* the signal that asked the run to end; 0: none yet */
  int64_t reported_step;             /* last skipped step that was reported; -1: none */
  double selection_seconds;          /* real time of the selections in the rounds since the last training record */
  double window_seconds;             /* time that this process spent in the steps of the window */
  int64_t window_timed;              /* the samples of those steps */
  double loader_seconds;             /* the part of these seconds spent waiting for samples */
  double recent[BRIM_STEPS_RECENT];  /* seconds of the last steps, without evaluations and checkpoints */
  size_t recent_count;               /* number of steps so far under this plan */
  double steps_seconds;              /* time of all steps since the ranks' figures were last reported */
  double waited_seconds;             /* time in these steps spent waiting for other ranks */
  brim_pressure_reading reading;     /* the reading that signalled ACTS */
  bool acts;                         /* the run must act on it as soon as all ranks have reached the same step */
  uint32_t trace_wish;               /* this rank's wish to trace steps, for brim_trainer_wish; 0: none */
  struct brim_run_trace *trace;      /* run_trace.c; NULL before the run has begun */
} brim_running;

/* ---- run_begin.c ---- */

/* Makes the trainer, the run's folder and its records from the configuration; a resumed run also reads its
 * checkpoint. */
brim_status brim_running_begin(brim_running *r);

/* Call after the drive was reopened. */
void brim_running_follow_drive(brim_running *r);
/* Call after that: updates the description of the run in its folder, and writes a checkpoint. */
brim_status brim_running_keep_drive(brim_running *r);

/* ---- run_ranks.c; in a job of one rank these functions do nothing ---- */

/* Whether this rank prints messages and writes the run's folder. */
bool brim_running_prints(const brim_running *r);
/* Meets the other ranks at the beginning of the run; each passes its status. EPEER: another rank failed. */
brim_status brim_running_begin_together(brim_running *r, brim_status status);
/* Checks that all ranks see rank 0's run folder; call it when the folder exists. ECONFIG, EPEER. */
brim_status brim_running_check_folder(brim_running *r);
/* Finds the newest checkpoint of the run's folder and stores it in r->checkpoint; empty: there is none. */
brim_status brim_running_find_newest(brim_running *r);
/* Call after parameters are lost: rank 0 finds the checkpoint that all ranks go back to, for brim_recover. EPEER;
 * ELOAD. */
brim_status brim_running_find_checkpoint(brim_running *r);
/* Call at the end of the run. Returns the status of the first rank that failed; only that rank prints its message.
 * ECOMM if ranks are missing. */
brim_status brim_running_end_together(brim_running *r, brim_status status);
/* Sets this rank's wishes for the next meetings. */
void brim_running_wish(brim_running *r);
/* Whether the ranks compare their parameters after this step. */
bool brim_running_is_compared(const brim_running *r, int64_t step);
/* Reports the time and memory of each rank as events, and names a rank that slows down the others. */
brim_status brim_running_report_ranks(void *running);

/* ---- run_isolated.c ---- */

/* Checks that the clients' processes on one device fit it together, and prints the device of each. EBUDGET with the
 * numbers of each process. Does nothing in other runs. */
brim_status brim_running_check_processes(brim_running *r);

/* ---- run_work.c ---- */

/* The trainer as the work that the loop drives. */
brim_work brim_running_work(brim_running *r);
/* Updates the report's figures of memory and loss scale: call it before an arena is released, and at the end. */
void brim_running_collect(brim_running *r);
/* Seconds of a step: the median of the last steps; 0: no step with this plan yet. */
double brim_running_step_seconds(void *running);
/* Seconds since this process started, without waits for devices. */
double brim_running_own_seconds(const brim_running *r);

/* ---- run_record.c ---- */

void brim_running_event(brim_running *r, const char *what, const char *detail);
/* Fills in the run's current figures, for a hook. */
void brim_running_hook_facts(const brim_running *r, brim_hook_facts *out);
/* [step] Queues a hook if it is set; `detail` may be NULL. */
void brim_running_hook(brim_running *r, enum brim_run_hook hook, const char *detail);
/* Records the failures of hooks as events. */
void brim_running_hook_failures(brim_running *r);
/* Handles the result of writing TensorBoard's file: after a failure, warns and closes the file. */
void brim_running_heed_tensorboard(brim_running *r, brim_status status);
brim_progress_state brim_running_progress(const brim_running *r);
/* Shows the progress to other programs (memory/live.h). */
void brim_running_publish(const brim_running *r, const brim_progress_state *state);
/* Shows the progress to the user and to other programs. */
void brim_running_show_progress(brim_running *r);
/* Restores the figures of the newest training record from the state. */
void brim_running_recall(brim_running *r);
/* Writes the training record of the steps since the previous record. */
brim_status brim_running_close_window(brim_running *r);
/* Evaluates a part and writes its record. `recorded`: the file already has this record, from before the run was
 * resumed. */
brim_status brim_running_evaluate(brim_running *r, enum brim_part part, bool recorded, brim_evaluation *out);

/* Evaluates each client at the end of a federation, for the summary, if federate.client_accuracy is set and samples
 * have classes. */
brim_status brim_running_evaluate_clients(brim_running *r);

/* ---- run_trace.c: traces of steps; if one fails, brim warns and the run continues without that trace ---- */

/* [plan] Checks observe.trace. ECONFIG. */
brim_status brim_running_trace_check(const brim_running *r);
/* [init] Reads observe.trace and observe.nvtx. */
void brim_running_trace_begin(brim_running *r);
/* [step] Looks for a request from `brim trace`, at most twice a second. */
void brim_running_trace_look(brim_running *r);
/* [step] trace_before: starts recording if the next step must be traced. The other function, after a commit: ends
 * recording and writes the trace. All ranks do so at the same step. EPEER, ECOMM: other ranks have failed. */
brim_status brim_running_trace_before(brim_running *r);
brim_status brim_running_trace_after(brim_running *r);
/* Whether the trainer must not begin the step after the next commit ahead, because a trace begins or ends between
 * them. */
bool brim_running_trace_stops_ahead(const brim_running *r);
/* [init] Call before the plan is released: the events refer to it. */
void brim_running_trace_seal(brim_running *r);
/* Call at the end of the run: writes a trace that is not complete, unless that needs other ranks. */
void brim_running_trace_end(brim_running *r);

/* ---- run_insight.c: histograms, and samples with wrong answers; if they fail, brim warns and the run continues
 * without ---- */

/* Opens the files. ECOMM. */
brim_status brim_running_open_insight(brim_running *r);
/* Whether the run makes histograms after a step: at evaluations, but at most BRIM_HISTOGRAMS_TIMES times. */
bool brim_running_has_histograms(const brim_running *r, int64_t step);
/* Call the first before the next step, and the second after its commit. EPEER, ECOMM. */
void brim_running_before_step(brim_running *r);
brim_status brim_running_after_step(brim_running *r);
/* Evaluates a part as brim_trainer_evaluate does, and writes the list of its worst answers if that is due. */
brim_status brim_running_evaluate_samples(brim_running *r, enum brim_part part, const volatile int *stop,
                                          brim_evaluation *out);

/* ---- run_early.c ---- */

/* Updates the state after an evaluation of the current step: the best result so far, and the counts for the rules
 * below. */
void brim_running_judge(brim_running *r, enum brim_part part, const brim_evaluation *e);
/* Whether a rule (training.patience, federate.target_accuracy, federate.patience) ends the run here. */
bool brim_running_is_over(void *running);
/* Ends the run early: writes the last record and a checkpoint, and logs the rule that applied. */
brim_status brim_running_stop_early(brim_running *r);

/* ---- run_metrics.c: observe.metrics_file ---- */

void brim_running_open_metrics(brim_running *r);
/* [step] Writes the metrics file if that is due. */
void brim_running_update_metrics(brim_running *r);
/* Writes the metrics file for the last time. `phase`: "finished", "interrupted" or "failed". */
void brim_running_close_metrics(brim_running *r, const char *phase);

/* ---- run_pressure.c ---- */

/* Starts the thread that watches memory, if the configuration enables it. ENOMEM_HOST. */
brim_status brim_running_watch_memory(brim_running *r);
/* Makes the thread watch the trainer's current device and bytes. */
void brim_running_aim(brim_running *r);
/* Cleans up and prints the freed memory in GB, in the log format of the system that brim replaces. */
void brim_running_clean(const brim_running *r, enum brim_cleanup cleanup);
/* Implement brim_work.checks_with_room and heed_pressure. */
int64_t brim_running_checks_with_room(void *running, uint64_t more);
brim_status brim_running_heed_pressure(void *running, bool *acts, uint64_t *bytes);

#endif
