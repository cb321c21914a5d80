/* What a run tells about itself: figures gathered on the way, and the files config.yaml, overrides.yaml, sources.yaml,
 * plan.json, plugins.json and summary.json. */
#ifndef BRIM_TRAIN_REPORT_H
#define BRIM_TRAIN_REPORT_H
#include "store/jsonl.h"
#include "train/trainer.h"

typedef struct brim_report {
  int32_t task;               /* enum brim_task */
  int64_t tokens_each;        /* in a sample; 0: samples are no tokens */
  bool says_memory;           /* at the end: observe.memory_summary */
  brim_evaluation figures[3]; /* by enum brim_part: of the newest training record, and of the newest evaluations */
  int64_t test_step;          /* -1: not evaluated */
  char no_test[256];          /* that there is no test data, for a person; "": there is */
  double *confusion;          /* of the test data, in its figures; classes * classes. NULL: none, or not counted */
  int64_t samples;            /* trained in this process, but for its first step */
  double train_seconds;       /* in those steps */
  double first_step_seconds;  /* from the process's start to the end of its first step, without queueing; NAN: none */
  double queue_seconds;       /* in line for devices, which no other figure counts */
  int64_t retries;            /* steps, evaluations and checkpoints that ran out of memory and were done again */
  uint64_t planned_peak_bytes, host_bytes;
  uint64_t device_bytes, device_peak_bytes; /* of the arena: now, and the largest that there was */
  uint64_t device_taken_bytes;              /* besides arenas, by the driver and libraries */
  char device[64];                          /* "cuda:0" */
  char device_name[128];                    /* "NVIDIA H100 80GB HBM3" */
  uint64_t predicted_rss_bytes;             /* see planner/footprint.h */
  double loss_scale;                        /* 0: the loss is not scaled */
  int64_t skipped_steps;
  brim_spread client_accuracy; /* of a federation, of the global model at the end; NAN: not evaluated */
  bool has_world;              /* of a federation, whose simulated world took in all: */
  double world_seconds, world_joules;
  int64_t world_bytes;
} brim_report;

void brim_report_init(brim_report *report);
/* When it is known what the run is about. */
void brim_report_begin(brim_report *report, const brim_drive *drive);
void brim_report_step(brim_report *report, int64_t samples, double seconds, double since_start);
brim_status brim_report_evaluation(brim_report *report, enum brim_part part, const brim_evaluation *e, int64_t step);
/* [init] What the trainer has now; after each plan that was placed, and at the end. Of plans the largest is told. */
void brim_report_memory(brim_report *report, const brim_trainer *trainer);
/* Samples a second over all steps of this process but the first; 0: none yet. */
double brim_report_rate(const brim_report *report);
/* One record of events.jsonl: time, event, step, detail (may be NULL). An event that cannot be written is only a
 * warning: it must not end a run. */
void brim_report_event(brim_jsonl *events, const char *what, int64_t step, const char *detail);
/* Event "decision"; or "seen", of what policies were shown. */
void brim_report_decision(brim_jsonl *events, const brim_decision *decision, int64_t step);
/* Of memory pressure: at which the arena is to shrink to so many bytes, 0 if it is not. */
void brim_report_pressure(brim_jsonl *events, bool acts, int64_t step, const char *detail, uint64_t target_bytes);
/* Event "recovered": `what` ran out of memory, and is done again after `seconds`. */
void brim_report_recovered(brim_jsonl *events, int64_t step, const char *what, double seconds);
/* What a rank of several had to do since the last time, and what it has. */
typedef struct brim_rank_figures {
  double busy_seconds, waiting_seconds; /* in steps; waiting: for other ranks */
  uint64_t device_bytes, resident_bytes;
  int64_t batch, step_samples; /* of its micro-batches, and of a full step */
} brim_rank_figures;
/* Event "rank". */
void brim_report_rank(brim_jsonl *events, int32_t rank, const brim_rank_figures *figures, int64_t step);
/* The files that say what the run was made of; in `config` the paths of the backend are then those of copies. */
brim_status brim_report_write_inputs(const char *dir, brim_config *config, brim_drive *drive, const brim_plan *plan);
/* Of a report of which no summary is written. */
void brim_report_release(brim_report *report);
/* Frees what the report holds. `error`: "" unless the run failed. `wall_seconds`: from the process's start, without the
 * time in the queue. `plan`: the last one, NULL if none is placed. */
brim_status brim_report_write_summary(brim_report *report, const char *dir, const brim_plan *plan, brim_status status,
                                      const char *error, int64_t steps, double wall_seconds);
/* ", accuracy 91.20 %" and the like: what an evaluation says besides the loss, for a person. Into `out`, returned. */
#define BRIM_REPORT_ROOM 160
const char *brim_report_format(char *out, size_t room, const brim_evaluation *e);
/* Closing lines for a person. */
void brim_report_say(const brim_report *report, const char *dir, double wall_seconds);
#endif
