/* What runs were, and how they went, read from their folders: for brim compare and brim report. */
#ifndef BRIM_REPORT_RUNS_H
#define BRIM_REPORT_RUNS_H
#include "base/table.h"
#include "observe/metrics.h"
#include "param/yaml.h"
#include "report/epochs.h"
#include "store/summary.h"

#define BRIM_COMPARE_RUNS_MAX 10000

typedef struct brim_compared {
  const char *dir;
  const char *name;        /* the shortest end of the path that tells it from the others */
  const brim_yaml *config; /* resolved */
  brim_summary summary;    /* a run without one: what its records say */
  brim_metrics metrics;
  brim_epoch *epoch;
  size_t epoch_count;
  bool by_evaluation; /* `epoch` has a row for each evaluation */
} brim_compared;

typedef struct brim_comparison {
  brim_arena arena;
  brim_compared *run;
  size_t count, room;
  const char **key; /* configuration keys whose values differ, dotted, in the configuration's order */
  size_t key_count;
} brim_comparison;

/* Adds a run, or the runs of a sweep's folder. ELOAD if it is neither. */
brim_status brim_compare_add(brim_comparison *c, const char *dir);
/* After the last run: names and differing keys. */
void brim_compare_finish(brim_comparison *c);
void brim_compare_release(brim_comparison *c);
/* A key's value as text; "-" if the run has no such key. Lives in the comparison's arena. */
const char *brim_compare_value(brim_comparison *c, const brim_compared *run, const char *key);
/* The name of its data set: the option that was chosen, or the plugin. */
const char *brim_compare_dataset(brim_comparison *c, const brim_compared *run);
/* Was it a federation, whose steps are rounds? */
bool brim_compare_is_federated(const brim_compared *run);
/* "round" if all runs are federations, else "step". */
const char *brim_compare_step(const brim_comparison *c);
/* What a run is judged by: validation data if it has some, else test data. */
enum brim_split brim_compare_judged(const brim_metrics *metrics);
/* The simulated clock after round `step`, or when the next record was made; NAN: there is none. */
double brim_compare_clock(const brim_compared *run, double step);
/* The first evaluation of what the run is judged by whose accuracy is `least`; that series' count if none is. */
size_t brim_compare_reached(const brim_compared *run, double least);
/* A name for a legend: the run's, and what is special about it if that is short. */
const char *brim_compare_legend(brim_comparison *c, const brim_compared *run);

/* ---- tables.c ---- */

/* What all runs are judged by besides the loss, of which there is one at least; accuracy if that differs. */
enum brim_score brim_compare_score(const brim_comparison *comparison);
/* A row a run: how it ended, and its figures. */
brim_table brim_compare_figures(brim_comparison *c);
/* A row for each differing key, a column for each run; with many runs the other way round. No rows: nothing differs. */
brim_table brim_compare_keys(brim_comparison *c);
/* A row for runs that differ in their seeds only: means of what they are judged by, and standard deviations. No rows:
 * there are no such runs. */
brim_table brim_compare_seeds(brim_comparison *c);
/* A mean, and the standard deviation of a sample: NAN of one value. */
typedef struct brim_mean {
  double mean, deviation;
} brim_mean;
brim_mean brim_mean_of(const double *value, size_t count);
/* "85.20 ± 0.31"; without a deviation the mean alone. */
void brim_table_mean(brim_table *table, brim_mean m, int decimals);
#endif
