/* See frontier.h. */
#include "planner/frontier.h"

#include <stdlib.h>
#include <string.h>

#include "planner/room.h"

#define MICRO_BATCHES 8 /* number of micro-batches to examine besides the chosen one: the largest, and then halves */
/* A choice is worth a row if its time is at most this factor of that of a choice with less memory. */
#define BETTER 0.995

static brim_status add(brim_planner *p, const brim_choice *v, const brim_choice *chosen, brim_frontier *f)
{
  if (f->count == BRIM_FRONTIER_MAX) return BRIM_OK;
  brim_frontier_row *c = &f->row[f->count];
  *c = (brim_frontier_row){.choice = *v, .chosen = brim_choice_equal(v, chosen)};
  BRIM_TRY(brim_planner_figures(p, v, &c->figures));
  f->count++;
  return BRIM_OK;
}

/* Plans a choice with each recompute mode except auto. */
static void plan_next(const brim_planner *p, brim_choice v)
{
  brim_choice next[BRIM_RECOMPUTE_AUTO];
  for (v.recompute = BRIM_RECOMPUTE_NONE; v.recompute < BRIM_RECOMPUTE_AUTO; v.recompute++) next[v.recompute] = v;
  brim_planner_plan_next(p, next, BRIM_RECOMPUTE_AUTO);
}

void brim_frontier_plan_next(brim_planner *p, const brim_choice *chosen)
{
  const size_t count = brim_planner_list_cuts(p);
  plan_next(p, brim_choice_cut(chosen, count > 0 ? p->micro_batch[0] : chosen->micro_batch));
}

/* Adds a micro-batch with every recompute mode. Adds `auto` as configured, and with fractions of the peak without
 * recompute as limits. */
static brim_status add_levels(brim_planner *p, const brim_choice *chosen, int64_t batch, int32_t precision,
                              brim_frontier *f)
{
  static const double shares[] = {0.85, 0.7, 0.55};
  brim_choice v = {.micro_batch = batch, .precision = precision, .lanes = chosen->lanes};
  brim_choice own = brim_choice_cut(chosen, batch);
  const size_t first = f->count;
  plan_next(p, v);
  for (v.recompute = BRIM_RECOMPUTE_NONE; v.recompute <= BRIM_RECOMPUTE_FULL; v.recompute++)
    BRIM_TRY(add(p, &v, chosen, f));
  own.precision = precision;
  if (own.recompute == BRIM_RECOMPUTE_AUTO) BRIM_TRY(add(p, &own, chosen, f));
  v.recompute = BRIM_RECOMPUTE_AUTO;
  for (size_t i = 0; i < sizeof shares / sizeof shares[0] && first < f->count; i++) {
    v.within_bytes = (uint64_t)(shares[i] * (double)f->row[first].figures.peak_bytes);
    BRIM_TRY(add(p, &v, chosen, f));
  }
  return BRIM_OK;
}

static brim_status add_precision(brim_planner *p, const brim_choice *chosen, int32_t precision, brim_frontier *f)
{
  const size_t count = brim_planner_list_cuts(p);
  int64_t next = INT64_MAX;
  bool has_own = false;
  for (size_t i = 0, looked = 0; i < count && looked < MICRO_BATCHES; i++) {
    const int64_t batch = p->micro_batch[i];
    if (batch > next && batch != chosen->micro_batch) continue;
    BRIM_TRY(add_levels(p, chosen, batch, precision, f));
    has_own = has_own || batch == chosen->micro_batch;
    next = batch / 2;
    looked++;
  }
  return has_own ? BRIM_OK : add_levels(p, chosen, chosen->micro_batch, precision, f);
}

static int by_peak(const void *a, const void *b)
{
  const brim_frontier_row *x = a, *y = b;
  if (x->figures.peak_bytes != y->figures.peak_bytes) return x->figures.peak_bytes < y->figures.peak_bytes ? -1 : 1;
  if (x->chosen != y->chosen) return x->chosen ? -1 : 1;
  return (x->figures.step_seconds > y->figures.step_seconds) - (x->figures.step_seconds < y->figures.step_seconds);
}

/* Keeps the choices for which no other has both less memory and less time, and the chosen one. */
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

brim_status brim_frontier_find(brim_planner *p, const brim_choice *chosen, bool precisions, brim_frontier *frontier)
{
  *frontier = (brim_frontier){.room_bytes = brim_planner_room(p, true)};
  for (int32_t k = 0; k < BRIM_PRECISIONS; k++)
    if (k == chosen->precision || (precisions && brim_setup_precisions(p->setup) >> k & 1))
      BRIM_TRY(add_precision(p, chosen, k, frontier));
  keep_best(frontier);
  return BRIM_OK;
}
