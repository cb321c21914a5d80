/* Figures of each epoch of a run, from its records. */
#ifndef BRIM_REPORT_EPOCHS_H
#define BRIM_REPORT_EPOCHS_H
#include <stdbool.h>

#include "observe/metrics.h"

/* In a run of at most one epoch, or one that evaluates inside an epoch, a row covers the steps up to an evaluation
 * instead. Such a row may have no training record: then its figures are NAN. */
typedef struct brim_epoch {
  double number;             /* epochs trained at its end: 3, or 0.25 */
  double step;               /* the evaluation's; without one, the last step with a record */
  double loss, accuracy;     /* means over the samples trained in it; NAN: unknown, also below */
  double samples, seconds;   /* trained, and the duration of its steps, without evaluations */
  size_t evaluation;         /* the last one in this epoch, of the split that judges the run; SIZE_MAX: none */
  double evaluation_seconds; /* of all of them together */
} brim_epoch;

/* Allocates from `arena`; returns the number of rows. *by_evaluation: rows are evaluations, not epochs. */
size_t brim_epochs_list(brim_arena *arena, const brim_metrics *metrics, brim_epoch **out, bool *by_evaluation);
/* Mean duration of an epoch's steps, over complete epochs; NAN: none, or records without times. */
double brim_epochs_mean_seconds(const brim_metrics *metrics);
#endif
