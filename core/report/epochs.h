/* The figures of each epoch of a run, from its records. */
#ifndef BRIM_REPORT_EPOCHS_H
#define BRIM_REPORT_EPOCHS_H
#include <stdbool.h>

#include "observe/metrics.h"

/* A row for an epoch. In a run of at most one epoch, or with evaluations inside an epoch, a row covers the steps up to
 * an evaluation instead. If such a row has no training record, its figures are NAN. */
typedef struct brim_epoch {
  double number;             /* number of epochs trained when it ends: 3, or 0.25 */
  double step;               /* step of the evaluation; without one, the last step with a record */
  double loss, accuracy;     /* means over the samples trained on in it; NAN: unknown, also below */
  double samples, seconds;   /* samples trained on, and the duration of its steps, without evaluations */
  size_t evaluation;         /* the last evaluation in this epoch, on the split that judges the run; SIZE_MAX: none */
  double evaluation_seconds; /* duration of all evaluations in it */
} brim_epoch;

/* Allocates from `arena`; returns the number of rows. *by_evaluation: rows are evaluations, not epochs. */
size_t brim_epochs_list(brim_arena *arena, const brim_metrics *metrics, brim_epoch **out, bool *by_evaluation);
/* Returns the mean duration of an epoch's steps, over complete epochs; NAN: no complete epoch, or records without
 * times. */
double brim_epochs_mean_seconds(const brim_metrics *metrics);
#endif
