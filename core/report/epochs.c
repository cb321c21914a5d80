/* Records put together by epoch: a training record is about the steps since the one before it, and none is about the
 * steps of two epochs. */
#include "report/epochs.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "report/runs.h"

#define ROUNDING 1e-6 /* of epochs that were divided by steps */

typedef struct records {
  const brim_series *series;
  const double *epoch, *loss, *accuracy, *samples, *seconds; /* NULL: no record has such a number */
} records;

static records records_of(const brim_series *s)
{
  return (records){.series = s,
                   .epoch = brim_series_values(s, "epoch"),
                   .loss = brim_series_values(s, "loss"),
                   .accuracy = brim_series_values(s, "accuracy"),
                   .samples = brim_series_values(s, "samples"),
                   .seconds = brim_series_values(s, "seconds")};
}

static double at(const double *values, size_t i)
{
  return values ? values[i] : NAN;
}

/* How much of a mean a record is: its samples, or its steps where it does not say. */
static double weight_of(const records *r, size_t i)
{
  const double samples = at(r->samples, i);
  return isfinite(samples) ? samples : r->series->step[i] - (i > 0 ? r->series->step[i - 1] : 0);
}

/* Adds a record to sums. */
static void add(brim_epoch *e, const records *r, size_t i)
{
  const double weight = weight_of(r, i);
  e->number = r->epoch[i];
  e->step = r->series->step[i];
  e->loss += weight * at(r->loss, i);
  e->accuracy += weight * at(r->accuracy, i);
  e->samples += at(r->samples, i);
  e->seconds += at(r->seconds, i);
}

/* Does record `i` begin another row? Rows end with epochs, or with evaluations: *seen are those before the record. */
static bool begins_row(const records *train, const brim_series *judged, size_t i, bool by_evaluation, size_t *seen)
{
  const size_t before = *seen;
  while (*seen < judged->count && judged->step[*seen] < train->series->step[i]) ++*seen;
  if (i == 0 || by_evaluation) return i == 0 || *seen > before;
  return ceil(train->epoch[i] - ROUNDING) != ceil(train->epoch[i - 1] - ROUNDING);
}

static size_t add_training(const records *train, const brim_series *judged, bool by_evaluation, brim_epoch *epoch)
{
  size_t count = 0, seen = 0;
  double weight = 0;
  for (size_t i = 0; i < train->series->count; i++) {
    if (begins_row(train, judged, i, by_evaluation, &seen)) {
      epoch[count++] = (brim_epoch){.evaluation = SIZE_MAX};
      weight = 0;
    }
    brim_epoch *e = &epoch[count - 1];
    e->loss *= weight, e->accuracy *= weight;
    add(e, train, i);
    weight += weight_of(train, i);
    e->loss /= weight, e->accuracy /= weight;
  }
  return count;
}

/* An evaluation belongs to the row in which its step is the last, or lies. */
static void add_evaluations(const records *judged, brim_epoch *epoch, size_t count)
{
  size_t row = 0;
  for (size_t i = 0; i < judged->series->count; i++) {
    while (row + 1 < count && epoch[row].step < judged->series->step[i]) row++;
    if (row >= count) return;
    epoch[row].evaluation = i;
    epoch[row].evaluation_seconds += at(judged->seconds, i);
  }
}

size_t brim_epochs_list(brim_arena *arena, const brim_metrics *metrics, brim_epoch **out)
{
  const records train = records_of(&metrics->split[BRIM_SPLIT_TRAIN]);
  const records judged = records_of(&metrics->split[brim_compare_judged(metrics)]);
  const size_t room = train.series->count;
  *out = NULL;
  if (!train.epoch) return 0;
  *out = BRIM_ARENA_NEW(arena, brim_epoch, room);
  const bool by_evaluation = !(train.epoch[room - 1] > 1 + ROUNDING);
  const size_t count = add_training(&train, judged.series, by_evaluation, *out);
  add_evaluations(&judged, *out, count);
  return count;
}

double brim_epochs_mean_seconds(const brim_epoch *epoch, size_t count)
{
  double sum = 0, seconds = 0;
  size_t whole = 0;
  for (size_t i = 0; i < count; i++) {
    seconds += epoch[i].seconds;
    if (fabs(epoch[i].number - round(epoch[i].number)) > ROUNDING) continue;
    if (isfinite(seconds)) sum += seconds, whole++;
    seconds = 0;
  }
  return whole > 0 ? sum / (double)whole : NAN;
}
