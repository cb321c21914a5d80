/* Groups records by epoch or by evaluation. A training record covers the steps since the previous one, and never
 * steps of two epochs. */
#include "report/epochs.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "report/runs.h"

#define ROUNDING 1e-6 /* rounding error of epoch numbers that are computed from steps */

typedef struct records {
  const brim_series *series;
  const double *epoch, *loss, *accuracy, *samples, *seconds; /* NULL: no record has this number */
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

/* Returns the weight of a record in a mean: its samples or, if it does not give them, its steps. */
static double weight_of(const records *r, size_t i)
{
  const double samples = at(r->samples, i);
  return isfinite(samples) ? samples : r->series->step[i] - (i > 0 ? r->series->step[i - 1] : 0);
}

typedef struct rows {
  const records *train, *judged;
  brim_epoch *row;
  size_t count;
  double weight; /* weight of the records in the last row */
} rows;

static void begin_row(rows *r)
{
  r->row[r->count++] = (brim_epoch){
      .number = NAN, .step = NAN, .loss = NAN, .accuracy = NAN, .samples = NAN, .seconds = NAN, .evaluation = SIZE_MAX};
  r->weight = 0;
}

/* Returns the mean of `sum / weight` and one more value. */
static double mean(double before, double weight, double value, double more)
{
  return weight > 0 ? (before * weight + value * more) / (weight + more) : value;
}

/* Adds to the last row. */
static void add_record(rows *r, size_t i)
{
  brim_epoch *e = &r->row[r->count - 1];
  const records *train = r->train;
  const bool is_first = isnan(e->step);
  const double weight = weight_of(train, i);
  e->number = train->epoch[i];
  e->step = train->series->step[i];
  e->loss = mean(e->loss, r->weight, at(train->loss, i), weight);
  e->accuracy = mean(e->accuracy, r->weight, at(train->accuracy, i), weight);
  e->samples = (is_first ? 0 : e->samples) + at(train->samples, i);
  e->seconds = (is_first ? 0 : e->seconds) + at(train->seconds, i);
  r->weight += weight;
}

/* Adds an evaluation as the last one of the row. */
static void add_evaluation(rows *r, size_t row, size_t i)
{
  r->row[row].evaluation = i;
  r->row[row].evaluation_seconds += at(r->judged->seconds, i);
}

/* An evaluation belongs to the row that contains its step. */
static void list_epochs(rows *r)
{
  const brim_series *train = r->train->series, *judged = r->judged->series;
  for (size_t i = 0; i < train->count; i++) {
    if (i == 0 || ceil(r->train->epoch[i] - ROUNDING) != ceil(r->train->epoch[i - 1] - ROUNDING)) begin_row(r);
    add_record(r, i);
  }
  for (size_t i = 0, row = 0; i < judged->count; i++) {
    while (row + 1 < r->count && r->row[row].step < judged->step[i]) row++;
    add_evaluation(r, row, i);
  }
}

/* Makes a row for each evaluation: it has the records that end up to its step; records after the last evaluation form a
 * row without one. */
static void list_evaluations(rows *r)
{
  const brim_series *train = r->train->series, *judged = r->judged->series;
  size_t next = 0;
  for (size_t i = 0; i < judged->count; i++) {
    if (i == 0 || judged->step[i] > judged->step[i - 1]) begin_row(r);
    while (next < train->count && train->step[next] <= judged->step[i]) add_record(r, next++);
    brim_epoch *e = &r->row[r->count - 1];
    e->step = judged->step[i];
    if (isfinite(at(r->judged->epoch, i))) e->number = r->judged->epoch[i];
    add_evaluation(r, r->count - 1, i);
  }
  if (next < train->count) begin_row(r);
  while (next < train->count) add_record(r, next++);
}

static bool is_whole(double epochs)
{
  return !(fabs(epochs - round(epochs)) > ROUNDING);
}

/* Whether rows are evaluations: the run has at most one epoch, or an evaluation happens inside an epoch. */
static bool is_by_evaluation(const records *train, const records *judged)
{
  const size_t last = train->series->count - 1;
  if (!(train->epoch[last] > 1 + ROUNDING)) return true;
  for (size_t i = 0; judged->epoch && i < judged->series->count; i++)
    if (judged->series->step[i] < train->series->step[last] && !is_whole(judged->epoch[i])) return true;
  return false;
}

size_t brim_epochs_list(brim_arena *arena, const brim_metrics *metrics, brim_epoch **out, bool *by_evaluation)
{
  const records train = records_of(&metrics->split[BRIM_PART_TRAIN]);
  const records judged = records_of(brim_compare_judged_series(metrics));
  rows r = {.train = &train, .judged = &judged};
  *out = NULL;
  *by_evaluation = false;
  if (!train.epoch) return 0;
  *out = r.row = BRIM_ARENA_NEW(arena, brim_epoch, train.series->count + judged.series->count);
  *by_evaluation = is_by_evaluation(&train, &judged);
  if (*by_evaluation)
    list_evaluations(&r);
  else
    list_epochs(&r);
  return r.count;
}

double brim_epochs_mean_seconds(const brim_metrics *metrics)
{
  const records train = records_of(&metrics->split[BRIM_PART_TRAIN]);
  double sum = 0, seconds = 0;
  size_t whole = 0;
  for (size_t i = 0; train.epoch && i < train.series->count; i++) {
    seconds += at(train.seconds, i);
    if (!is_whole(train.epoch[i])) continue;
    if (isfinite(seconds)) sum += seconds, whole++;
    seconds = 0;
  }
  return whole > 0 ? sum / (double)whole : NAN;
}
