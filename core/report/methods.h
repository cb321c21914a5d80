/* Compares federations. Runs that differ only in their seeds belong to one method; runs with any other difference
 * belong to different methods. Only finished runs count. */
#ifndef BRIM_REPORT_METHODS_H
#define BRIM_REPORT_METHODS_H
#include "report/runs.h"
#include "report/svg.h"

enum brim_method_figure {
  BRIM_METHOD_ACCURACY,
  BRIM_METHOD_LOSS,
  BRIM_METHOD_F1,
  BRIM_METHOD_ROUNDS_50, /* rounds until 50, 80 and 90 % accuracy; the same in seconds follow */
  BRIM_METHOD_ROUNDS_80,
  BRIM_METHOD_ROUNDS_90,
  BRIM_METHOD_SECONDS_50,
  BRIM_METHOD_SECONDS_80,
  BRIM_METHOD_SECONDS_90,
  BRIM_METHOD_AUC,
  BRIM_METHOD_SECONDS, /* total simulated seconds */
  BRIM_METHOD_JOULES,
  BRIM_METHOD_BYTES,
  BRIM_METHOD_VARIANCE,
  BRIM_METHOD_GINI,
  BRIM_METHOD_CLIENT_VARIANCE, /* variance of the accuracy on each client's samples; its Gini coefficient follows */
  BRIM_METHOD_CLIENT_GINI,
  BRIM_METHOD_COVERAGE,
  BRIM_METHOD_SELECTING,
  BRIM_METHOD_SCORE,
  BRIM_METHOD_FIGURES
};

/* The figure's name for programs: "rounds_to_80". */
const char *brim_method_key(enum brim_method_figure figure);
/* The definition of the score, in words. */
extern const char brim_method_score_words[];

typedef struct brim_method {
  const char *name; /* "oort", with the other keys that distinguish the method: "oort network.latency_ms=[30]" */
  const brim_compared **run; /* `runs` of them */
  size_t runs;
  brim_mean of[BRIM_METHOD_FIGURES];  /* NAN unless all runs have the figure; the score has no deviation */
  size_t having[BRIM_METHOD_FIGURES]; /* runs that have it */
} brim_method;

/* Allocates from the comparison's arena; returns the number of methods, in the order of the runs. */
size_t brim_methods_list(brim_comparison *c, brim_method **out);
/* Makes a table with a row for each available figure and a column for each method; with many methods transposed. */
brim_table brim_methods_table(brim_comparison *c, const brim_method *method, size_t count);
/* Makes charts of the mean accuracy of the seeds by round and, in a simulated world, by simulated time, with a band of
 * one standard deviation on both sides. Returns the number of charts; method k is entry k of the legend. 0: no method
 * has accuracies. */
size_t brim_methods_charts(brim_comparison *c, const brim_method *method, size_t count, brim_chart chart[2]);
/* Writes a line of CSV for each method, with mean and deviation of each figure; nothing if there are no methods. */
void brim_methods_csv(const brim_method *method, size_t count, brim_text *out);
#endif
