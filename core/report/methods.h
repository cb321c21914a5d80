/* Federations compared: runs that differ in their seeds only are a method, whatever else differs between methods. Only
 * runs that have finished count. */
#ifndef BRIM_REPORT_METHODS_H
#define BRIM_REPORT_METHODS_H
#include "report/runs.h"
#include "report/svg.h"

enum brim_method_figure {
  BRIM_METHOD_ACCURACY,
  BRIM_METHOD_LOSS,
  BRIM_METHOD_F1,
  BRIM_METHOD_ROUNDS_50, /* and to 80 and 90 %, here and of seconds */
  BRIM_METHOD_ROUNDS_80,
  BRIM_METHOD_ROUNDS_90,
  BRIM_METHOD_SECONDS_50,
  BRIM_METHOD_SECONDS_80,
  BRIM_METHOD_SECONDS_90,
  BRIM_METHOD_AUC,
  BRIM_METHOD_SECONDS, /* all simulated ones */
  BRIM_METHOD_JOULES,
  BRIM_METHOD_BYTES,
  BRIM_METHOD_VARIANCE,
  BRIM_METHOD_GINI,
  BRIM_METHOD_CLIENT_VARIANCE, /* of the accuracy on each client's samples; and its Gini coefficient */
  BRIM_METHOD_CLIENT_GINI,
  BRIM_METHOD_COVERAGE,
  BRIM_METHOD_SELECTING,
  BRIM_METHOD_SCORE,
  BRIM_METHOD_FIGURES
};

/* For programs: "rounds_to_80". */
const char *brim_method_key(enum brim_method_figure figure);
/* What the score is made of, in words. */
extern const char brim_method_score_words[];

typedef struct brim_method {
  const char *name;          /* "oort", and the other keys that tell it from the rest: "oort network.latency_ms=[30]" */
  const brim_compared **run; /* `runs` of them */
  size_t runs;
  brim_mean of[BRIM_METHOD_FIGURES];  /* NAN unless all runs have it; of the score there is no deviation */
  size_t having[BRIM_METHOD_FIGURES]; /* runs that have it */
} brim_method;

/* Into the comparison's arena; returns how many, in the order of the runs. */
size_t brim_methods_list(brim_comparison *c, brim_method **out);
/* A row for each figure that there is, a column for each method; with many methods the other way round. */
brim_table brim_methods_table(brim_comparison *c, const brim_method *method, size_t count);
/* Mean accuracy of the seeds by round and, where there is a simulated world, by simulated time, with a band of a
 * standard deviation to both sides. Returns how many charts; method k is entry k of the legend. 0: no method has
 * accuracies. */
size_t brim_methods_charts(brim_comparison *c, const brim_method *method, size_t count, brim_chart chart[2]);
/* A line for each method, with a mean and a deviation of each figure; empty: there is none. */
void brim_methods_csv(const brim_method *method, size_t count, brim_text *out);
#endif
