/* What each epoch of a run was like, from its records. */
#ifndef BRIM_REPORT_EPOCHS_H
#define BRIM_REPORT_EPOCHS_H
#include <stdbool.h>

#include "observe/metrics.h"

/* Or, in a run of one epoch at most, or one that evaluates inside an epoch, what the steps up to each evaluation were
 * like. Such a row may have no record of training: then its figures are NAN. */
typedef struct brim_epoch {
  double number;             /* epochs trained at its end: 3, or 0.25 */
  double step;               /* the evaluation's; without one the last that has a record */
  double loss, accuracy;     /* means over the samples trained in it; NAN: unknown, and so in the next */
  double samples, seconds;   /* trained, and what its steps took, without evaluations */
  size_t evaluation;         /* of the split that the run is judged by, in this epoch the last; SIZE_MAX: none */
  double evaluation_seconds; /* of all of them together */
} brim_epoch;

/* Into `arena`; returns how many. *by_evaluation: rows are evaluations, not epochs. */
size_t brim_epochs_list(brim_arena *arena, const brim_metrics *metrics, brim_epoch **out, bool *by_evaluation);
/* Mean time of the steps of an epoch, over those that went to their end; NAN: none, or records tell no time. */
double brim_epochs_mean_seconds(const brim_metrics *metrics);
#endif
