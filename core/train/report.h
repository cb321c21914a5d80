/* A run's report: figures collected while it runs, and the files config.yaml, overrides.yaml, sources.yaml, plan.json,
 * plugins.json and summary.json. */
#ifndef BRIM_TRAIN_REPORT_H
#define BRIM_TRAIN_REPORT_H
#include "store/jsonl.h"
#include "train/trainer.h"

typedef struct brim_report {
  int32_t task;                             /* enum brim_task */
  int64_t tokens_each;                      /* tokens in a sample; 0: samples are not tokens */
  bool says_memory;                         /* print memory at the end: observe.memory_summary */
  brim_evaluation figures[BRIM_PART_COUNT]; /* by enum brim_part: figures of the newest training record, and of the
                                               newest evaluations */
  int64_t test_step;                        /* -1: not evaluated */
  char no_test[256];                        /* why there is no test data, for the user; "": there is test data */
  double *confusion;    /* [classes * classes] for the test data, and used by its figures. NULL: no test data, or not
                           counted */
  int64_t samples;      /* samples trained on in this process, except in its first step */
  double train_seconds; /* in those steps */
  double first_step_seconds; /* from the process's start to the end of its first step, without waits for devices; NAN:
                                no step yet */
  double queue_seconds;      /* time spent in the queue for devices; no other figure includes it */
  int64_t retries;           /* steps, evaluations and checkpoints that ran out of memory and were repeated */
  uint64_t planned_peak_bytes, host_bytes;
  uint64_t device_bytes, device_peak_bytes; /* bytes of the arena: now, and the largest so far */
  uint64_t device_taken_bytes;              /* memory of the driver and libraries outside arenas */
  char device[64];                          /* "cuda:0" */
  char device_name[128];                    /* "NVIDIA H100 80GB HBM3" */
  uint64_t predicted_rss_bytes;             /* see planner/footprint.h */
  double loss_scale;                        /* 0: no loss scaling */
  int64_t skipped_steps;
  const char *client_model;       /* the model that client_accuracy evaluates, for messages; "": the global model */
  brim_spread finetuned_accuracy; /* their accuracies after federate.finetune_epochs; NAN: not evaluated */
  brim_spread client_accuracy;    /* accuracies of a federation's clients at the end; NAN: not evaluated */
  double epsilon, delta;          /* privacy of a federation; epsilon 0: no noise, or nothing was released */
  bool has_world;                 /* a federation has a simulated world; its totals follow */
  double world_seconds, world_joules;
  int64_t world_bytes;
} brim_report;

void brim_report_init(brim_report *report);
/* Fills the fields that depend on the run's setup; call it when the setup is known. */
void brim_report_begin(brim_report *report, const brim_drive *drive);
void brim_report_step(brim_report *report, int64_t samples, double seconds, double since_start);
brim_status brim_report_evaluation(brim_report *report, enum brim_part part, const brim_evaluation *e, int64_t step);
/* [init] Takes the trainer's current values; call it after each plan that was placed, and at the end. The report
 * gives the largest plan. */
void brim_report_memory(brim_report *report, const brim_trainer *trainer);
/* Samples per second over all steps of this process except the first; 0: no such step yet. */
double brim_report_rate(const brim_report *report);
/* Writes one record of events.jsonl: time, event, step, detail (may be NULL). If an event cannot be written, only
 * warns, so that this does not end the run. */
void brim_report_event(brim_jsonl *events, const char *what, int64_t step, const char *detail);
/* Writes the event "decision"; or "seen", with the data that policies saw. */
void brim_report_decision(brim_jsonl *events, const brim_decision *decision, int64_t step);
/* Writes an event for memory pressure. target_bytes: the size to which the arena should shrink, or 0. */
void brim_report_pressure(brim_jsonl *events, bool acts, int64_t step, const char *detail, uint64_t target_bytes);
/* Writes the event "recovered": `what` ran out of memory and succeeded again after `seconds`. */
void brim_report_recovered(brim_jsonl *events, int64_t step, const char *what, double seconds);
/* The work of one rank of several since the last report, and its memory. */
typedef struct brim_rank_figures {
  double busy_seconds, waiting_seconds; /* busy: in steps; waiting: for other ranks */
  uint64_t device_bytes, resident_bytes;
  int64_t batch, step_samples; /* samples of its micro-batches, and its share of a full step */
} brim_rank_figures;
/* Writes the event "rank". */
void brim_report_rank(brim_jsonl *events, int32_t rank, const brim_rank_figures *figures, int64_t step);
/* Writes the files that describe the run's inputs; copies the backend's files, whose paths in `config` are afterwards
 * those of the copies. */
brim_status brim_report_write_inputs(const char *dir, brim_config *config, brim_drive *drive, const brim_plan *plan);
/* Frees the memory of a report whose summary is not written. */
void brim_report_release(brim_report *report);
/* The word for how a run with this status ended: "finished", "interrupted" or "failed". */
const char *brim_report_ending(brim_status status);
/* Writes summary.json and frees the report's memory. `error`: "" unless the run failed. `wall_seconds`: since the
 * process's start, without waits for devices. `plan`: the last plan, or NULL if none is placed. */
brim_status brim_report_write_summary(brim_report *report, const char *dir, const brim_plan *plan, brim_status status,
                                      const char *error, int64_t steps, double wall_seconds);
/* Writes an evaluation's figures other than the loss to `out`, for messages, as ", accuracy 91.20 %"; returns `out`. */
#define BRIM_REPORT_ROOM 160
const char *brim_report_format(char *out, size_t room, const brim_evaluation *e);
/* Prints the closing lines. */
void brim_report_say(const brim_report *report, const char *dir, double wall_seconds);
#endif
