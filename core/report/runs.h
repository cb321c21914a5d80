/* The configurations and results of runs, read from their folders for brim compare and brim report. */
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
  const char *name;        /* the shortest end of the path that differs from those of all other runs */
  const brim_yaml *config; /* resolved */
  brim_summary summary;    /* without a summary: computed from the records */
  brim_metrics metrics;
  brim_epoch *epoch;
  size_t epoch_count;
  bool by_evaluation; /* `epoch` has a row for each evaluation */
} brim_compared;

typedef struct brim_comparison {
  brim_arena arena;
  brim_compared *run;
  size_t count, room;
  const char **key; /* dotted configuration keys whose values differ, in the configuration's order */
  size_t key_count;
} brim_comparison;

/* Adds a run, or the runs of a sweep's folder, or all runs below a folder. ELOAD if there is none. */
brim_status brim_compare_add(brim_comparison *c, const char *dir);
/* Call after the last run: finds names and differing keys. */
void brim_compare_finish(brim_comparison *c);
void brim_compare_release(brim_comparison *c);
/* Replaces the run's summary by figures from its last records, because a run that is in progress or was killed has no
 * summary of its own. */
void brim_compare_summarize(brim_compared *run);
/* Adds a value as text: a scalar unchanged, lists and maps in flow style. */
void brim_compare_add_value(const brim_yaml *node, brim_text *out);
/* Returns a key's value as text; "-" if the run has no such key. The comparison's arena owns it. */
const char *brim_compare_value(brim_comparison *c, const brim_compared *run, const char *key);
/* The name of the run's dataset: the chosen option, or the plugin. */
const char *brim_compare_dataset(brim_comparison *c, const brim_compared *run);
/* Whether the run was a federation, whose steps are rounds. */
bool brim_compare_is_federated(const brim_compared *run);
/* The word for a step: "round" if all runs are federations, else "step". */
const char *brim_compare_step(const brim_comparison *c);
/* The split by which a run is judged: validation if it has records of it, else test. */
enum brim_part brim_compare_judged(const brim_metrics *metrics);
const brim_series *brim_compare_judged_series(const brim_metrics *metrics);
/* The simulated clock after round `step`, or at the next record after it; NAN: none. */
double brim_compare_clock(const brim_compared *run, double step);
/* The accuracies for which comparisons of federations show the round. */
#define BRIM_GOALS 3
extern const double brim_compare_goals[BRIM_GOALS];
/* The index of the first evaluation on the judging split with an accuracy of at least `least`, or the series' count. */
size_t brim_compare_reached(const brim_compared *run, double least);
/* The name for a legend: the run's name, with the values that distinguish the run if they are short. */
const char *brim_compare_legend(brim_comparison *c, const brim_compared *run);

/* ---- tables.c ---- */

/* The score, besides the loss, by which all runs are judged; accuracy if their scores differ. Needs at least one
 * run. */
enum brim_score brim_compare_score(const brim_comparison *comparison);
/* Makes a table with a row per run: how it ended, and its figures. */
brim_table brim_compare_figures(brim_comparison *c);
/* Makes a table with a row for each differing key and a column for each run; with many runs transposed. No rows: no
 * differences. */
brim_table brim_compare_keys(brim_comparison *c);
/* Makes a table with a row for each group of runs that differ only in their seeds: means and standard deviations of
 * loss and score. No rows: no such runs. */
brim_table brim_compare_seeds(brim_comparison *c);
/* A mean, and the sample standard deviation, which is NAN for a single value. */
typedef struct brim_mean {
  double mean, deviation;
} brim_mean;
brim_mean brim_mean_of(const double *value, size_t count);
/* Adds a cell such as "85.20 ± 0.31"; without a deviation only the mean. */
void brim_table_mean(brim_table *table, brim_mean m, int decimals);
#endif
