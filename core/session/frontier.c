/* See frontier.h. */
#include "session/frontier.h"

#include <stdlib.h>
#include <string.h>

#include "session/cuts.h"

#define MICRO_BATCHES 8 /* that are looked at, besides the chosen one: the largest, and then by halves */
#define BETTER 0.995    /* of the time of one with less memory, so that the difference is worth a row */

static brim_status add(brim_session *s, const brim_choice *v, brim_frontier *f)
{
  if (f->count == BRIM_FRONTIER_MAX) return BRIM_OK;
  brim_frontier_row *c = &f->row[f->count];
  *c = (brim_frontier_row){.choice = *v, .chosen = brim_choice_equal(v, &s->choice)};
  BRIM_TRY(brim_session_figures(s, v, &c->figures));
  f->count++;
  return BRIM_OK;
}

/* A micro-batch in every way to make things again. `auto` is as configured, and then with shares of what the plan takes
 * that makes nothing again. */
static brim_status add_levels(brim_session *s, int64_t batch, int32_t precision, brim_frontier *f)
{
  static const double shares[] = {0.85, 0.7, 0.55};
  brim_choice v = {.micro_batch = batch, .precision = precision};
  brim_choice own = brim_session_choice(s, batch);
  const size_t first = f->count;
  for (v.recompute = BRIM_RECOMPUTE_NONE; v.recompute <= BRIM_RECOMPUTE_FULL; v.recompute++) BRIM_TRY(add(s, &v, f));
  own.precision = precision;
  if (own.recompute == BRIM_RECOMPUTE_AUTO) BRIM_TRY(add(s, &own, f));
  v.recompute = BRIM_RECOMPUTE_AUTO;
  for (size_t i = 0; i < sizeof shares / sizeof shares[0] && first < f->count; i++) {
    v.within_bytes = (uint64_t)(shares[i] * (double)f->row[first].figures.peak_bytes);
    BRIM_TRY(add(s, &v, f));
  }
  return BRIM_OK;
}

static brim_status add_precision(brim_session *s, int32_t precision, brim_frontier *f)
{
  const size_t count = brim_session_list_micro_batches(s);
  int64_t next = INT64_MAX;
  bool has_own = false;
  for (size_t i = 0, looked = 0; i < count && looked < MICRO_BATCHES; i++) {
    const int64_t batch = s->micro_batch[i];
    if (batch > next && batch != s->choice.micro_batch) continue;
    BRIM_TRY(add_levels(s, batch, precision, f));
    has_own = has_own || batch == s->choice.micro_batch;
    next = batch / 2;
    looked++;
  }
  return has_own ? BRIM_OK : add_levels(s, s->choice.micro_batch, precision, f);
}

static int by_peak(const void *a, const void *b)
{
  const brim_frontier_row *x = a, *y = b;
  if (x->figures.peak_bytes != y->figures.peak_bytes) return x->figures.peak_bytes < y->figures.peak_bytes ? -1 : 1;
  if (x->chosen != y->chosen) return x->chosen ? -1 : 1;
  return (x->figures.step_seconds > y->figures.step_seconds) - (x->figures.step_seconds < y->figures.step_seconds);
}

/* Leaves those that no other beats in both, and the chosen one. */
static void keep_best(brim_frontier *f)
{
  size_t kept = 0;
  double least = 0;
  qsort(f->row, f->count, sizeof f->row[0], by_peak);
  for (size_t i = 0; i < f->count; i++) {
    const double seconds = f->row[i].figures.step_seconds;
    const bool better = least == 0 || seconds < BETTER * least;
    if (better) least = seconds;
    if (better || f->row[i].chosen) f->row[kept++] = f->row[i];
  }
  f->count = kept;
}

brim_status brim_frontier_find(brim_session *s, bool precisions, brim_frontier *frontier)
{
  *frontier = (brim_frontier){.room_bytes = brim_session_room(s, true)};
  for (int32_t p = 0; p < BRIM_PRECISIONS; p++)
    if (p == s->choice.precision || (precisions && brim_session_precisions(s) >> p & 1))
      BRIM_TRY(add_precision(s, p, frontier));
  keep_best(frontier);
  return BRIM_OK;
}
