/* Runs in the text format of OpenMetrics, for node_exporter's textfile collector and other readers of that format.
 *
 * Counters have no TYPE line, because the formats disagree about the name in it: OpenMetrics requires it without
 * "_total", and the older Prometheus format, which the collector reads, with "_total". Both accept samples without a
 * TYPE line, and rate() still works. */
#ifndef BRIM_OBSERVE_OPENMETRICS_H
#define BRIM_OBSERVE_OPENMETRICS_H
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

#define BRIM_OPENMETRICS_COUNTS_MAX 16           /* kinds of decisions of a run, and classes of its memory */
#define BRIM_OPENMETRICS_ROOM ((size_t)64 << 10) /* room for the text of one run */

/* The number of decisions of one kind that a policy has made. */
typedef struct brim_openmetrics_count {
  char policy[32], kind[32]; /* "auto_plan", "choice"; "recovery", "cleanup" */
  int64_t count;
} brim_openmetrics_count;
typedef struct brim_openmetrics_counts {
  brim_openmetrics_count of[BRIM_OPENMETRICS_COUNTS_MAX];
  size_t count;
} brim_openmetrics_counts;
/* [step] Counts a decision; kinds beyond BRIM_OPENMETRICS_COUNTS_MAX are not counted. `action`: as in brim_decision;
 * NULL: none. */
void brim_openmetrics_decided(brim_openmetrics_counts *counts, const char *policy, const char *action);

/* A run; numbers that are not finite are omitted. */
typedef struct brim_openmetrics_run {
  const char *host, *run, *user; /* with pid and rank they identify the run */
  int64_t pid, rank;
  const char *model, *dataset, *device, *command; /* "": unknown */
  const char *phase;                              /* one of `phases` */
  const char *score_name;                         /* "accuracy" */
  double step, steps, epoch, loss, score, samples, rate, seconds_left, queue_seconds, rank_wait_seconds, retries;
  const char *unit; /* unit of the rate: "samples" or "tokens" */
  struct {
    const char *name;
    double bytes;
  } memory[BRIM_OPENMETRICS_COUNTS_MAX];
  size_t classes;
  const brim_openmetrics_counts *decisions; /* NULL: unknown */
} brim_openmetrics_run;

/* [step] Appends all families of these runs, at most 200 series for each. `phases`: all existing phases. */
void brim_openmetrics_runs(const brim_openmetrics_run *run, size_t count, const char *const *phases, size_t phase_count,
                           brim_text *out);

/* Functions for other families. A sample consists of its family's name, a label for each call of
 * brim_openmetrics_label, and a value:
 *
 *     brim_openmetrics_family(out, "brim_queue_runs", "runs that wait for a device", "gauge");
 *     brim_openmetrics_begin(out, "brim_queue_runs");
 *     brim_openmetrics_label(out, "Hostname", "lab7");
 *     brim_openmetrics_end(out, 3); */
void brim_openmetrics_family(brim_text *out, const char *name, const char *help, const char *type); /* NULL: no type */
void brim_openmetrics_begin(brim_text *out, const char *name);
void brim_openmetrics_label(brim_text *out, const char *key, const char *value); /* adds no label if the value is "" */
void brim_openmetrics_end(brim_text *out, double value);
void brim_openmetrics_finish(brim_text *out); /* the last line */

/* [step] Writes the text to a temporary file and renames it, so that readers see a whole file; does not sync. EIO. */
brim_status brim_openmetrics_write(const char *path, const brim_text *text);
#endif
