/* See cards.h. A plan of a large model takes a tenth of a second, so few are made. Peaks grow almost linearly with the
 * context and with the micro-batch, so the next value to try is interpolated. All cards share the plans. One thread
 * searches contexts, another one micro-batches. */
#include "planner/cards.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/parallel.h"
#include "brim/host.h"
#include "planner/taken.h"

#define POINTS_MAX 128
#define CONTEXT_MAX ((int64_t)1 << 24)
#define BATCH_MAX ((int64_t)1 << 12)
#define REFUSED UINT64_MAX /* the model does not accept such samples */

static const uint64_t sizes[BRIM_CARDS] = {8, 12, 16, 24, 48, 80}; /* memory of GPUs on the market, in GiB */

typedef struct point {
  int64_t at;
  uint64_t peak;
} point;

/* Peaks as a function of the context or of the micro-batch. */
typedef struct line {
  const brim_planner *planner;
  brim_choice choice;
  bool of_context;
  int64_t start, most;
  point item[POINTS_MAX]; /* sorted by `at`; the first point is 0 with the persistent bytes */
  size_t count;
} line;

/* Returns the distance to the next larger value to try: for contexts at most a 32nd of the value; micro-batches are
 * powers of two. */
static int64_t step_after(const line *l, int64_t at)
{
  int64_t step = l->of_context ? 16 : 1;
  while (step * (l->of_context ? 64 : 2) <= at) step *= 2;
  return step;
}

static int64_t rounded(const line *l, double at)
{
  const int64_t whole = at < (double)l->most ? (int64_t)at : l->most, step = step_after(l, whole);
  return whole / step * step;
}

/* ---- plans ---- */

/* Computes the peak for samples of another length. Such a planner has no data, because its setup is only for plans. */
static brim_status peak_of_context(const brim_planner *p, const brim_choice *choice, int64_t context, uint64_t *peak)
{
  brim_setup *setup = brim_xcalloc(1, sizeof *setup);
  brim_recompute_cache levels = {0};
  brim_planner other = *p;
  *setup = *p->setup;
  setup->data.sample.dim[0] = setup->data.train.sample.dim[0] = context;
  other.setup = setup;
  other.levels = &levels;
  other.plans = NULL;
  other.peaks = NULL;
  const brim_status status = brim_planner_peak(&other, choice, peak);
  brim_recompute_cache_release(&levels);
  free(setup);
  return status;
}

static brim_status measure(const line *l, int64_t at, uint64_t *peak)
{
  brim_choice choice = l->choice;
  if (!l->of_context) {
    choice.micro_batch = at;
    return brim_planner_peak(l->planner, &choice, peak);
  }
  const brim_status status = peak_of_context(l->planner, &choice, at, peak);
  if (status == BRIM_ECONFIG) *peak = REFUSED;
  return status == BRIM_ECONFIG ? BRIM_OK : status;
}

static brim_status add_point(line *l, int64_t at)
{
  uint64_t peak;
  size_t i = l->count;
  BRIM_TRY(measure(l, at, &peak));
  for (; i > 0 && l->item[i - 1].at > at; i--) l->item[i] = l->item[i - 1];
  l->item[i] = (point){at, peak};
  l->count++;
  return BRIM_OK;
}

/* ---- searching ---- */

/* Returns the place where the line through two points reaches `room`. */
static double reach(const point *a, const point *b, uint64_t room)
{
  if (b->peak <= a->peak) return 2 * (double)b->at;
  const double slope = (double)(b->peak - a->peak) / (double)(b->at - a->at);
  return (double)a->at + ((double)room - (double)a->peak) / slope;
}

/* Returns the next value to try for a room into which item[low] fits; at most `most`. */
static int64_t guess(const line *l, size_t low, uint64_t room)
{
  const point *a = &l->item[low], *b = low + 1 < l->count ? a + 1 : NULL;
  const int64_t next = a->at + step_after(l, a->at);
  int64_t at;
  if (l->count == 1) return l->start;
  if (b && b->peak == REFUSED)
    at = rounded(l, 0.5 * (double)(a->at + b->at));
  else
    at = rounded(l, b ? reach(a, b, room) : reach(a - 1, a, room));
  if (at < next) at = next;
  if (b && at >= b->at) at = b->at - step_after(l, a->at) > next ? b->at - step_after(l, a->at) : next;
  return at < l->most ? at : l->most;
}

/* Finds the point with the largest value that fits; item[0] if none does. */
static brim_status find_largest(line *l, uint64_t room, point *out)
{
  *out = (point){0};
  while (l->count < POINTS_MAX) {
    size_t low = 0;
    if (l->item[0].peak > room) return BRIM_OK;
    while (low + 1 < l->count && l->item[low + 1].peak <= room) low++;
    *out = l->item[low];
    const int64_t next = out->at + step_after(l, out->at);
    if (out->at >= l->most || (low + 1 < l->count && l->item[low + 1].at <= next)) return BRIM_OK;
    BRIM_TRY(add_point(l, guess(l, low, room)));
  }
  return BRIM_OK;
}

static brim_status search_line(line *l, brim_cards *out)
{
  for (size_t i = 0; i < out->count; i++) {
    brim_card *c = &out->card[i];
    point found;
    BRIM_TRY(find_largest(l, c->room_bytes, &found));
    *(l->of_context ? &c->context : &c->micro_batch) = found.at;
    *(l->of_context ? &c->context_peak_bytes : &c->batch_peak_bytes) = found.at > 0 ? found.peak : 0;
  }
  if (l->of_context) out->limited = l->item[l->count - 1].peak == REFUSED;
  return BRIM_OK;
}

/* The searches, which set different members of the cards. */
typedef struct searches {
  line line[2];
  brim_cards *cards;
  brim_status status[2];
  brim_error error[2];
} searches;

static void search_one(void *context, int64_t task)
{
  searches *s = context;
  s->status[task] = search_line(&s->line[task], s->cards);
  if (s->status[task] != BRIM_OK) brim_error_take(&s->error[task]);
}

/* ---- cards ---- */

static void find_besides(const brim_planner *p, const brim_plan *plan, brim_cards *out)
{
  brim_taken taken = {.context_bytes = BRIM_BYTES_UNKNOWN};
  if (brim_taken_is_measured(p->setup->backend_ops)) brim_taken_predict(p, plan, &taken);
  out->is_measured = taken.context_bytes != BRIM_BYTES_UNKNOWN && taken.libraries_bytes != BRIM_BYTES_UNKNOWN &&
                     taken.programs_bytes != BRIM_BYTES_UNKNOWN;
  out->is_described = brim_setup_is_described(p->setup);
  out->besides_bytes = BRIM_CARDS_ASSUMED_BYTES;
  if (out->is_measured) out->besides_bytes = taken.total_bytes - taken.arena_bytes + taken.headroom_bytes;
}

/* Returns the largest micro-batch to try. */
static int64_t most_samples(const brim_planner *p)
{
  const int64_t most = brim_setup_limit_batch(p->setup, BATCH_MAX), count = p->setup->data.count[BRIM_PART_TRAIN];
  return count > 0 && count < most ? count : most;
}

brim_status brim_cards_find(const brim_planner *p, const brim_choice *choice, const brim_plan *plan, brim_cards *out)
{
  searches s = {.cards = out};
  brim_choice least = *choice;
  *out = (brim_cards){0};
  if (p->setup->data.train.task != BRIM_TASK_TOKENS || brim_setup_is_federated(p->setup)) return BRIM_OK;
  if (choice->recompute == BRIM_RECOMPUTE_AUTO) least.within_bytes = 1;
  out->context = p->setup->data.sample.dim[0];
  out->samples = p->setup->data.count[BRIM_PART_TRAIN];
  s.line[0] = (line){.planner = p, .choice = least, .of_context = true, .start = out->context, .most = CONTEXT_MAX};
  s.line[1] = (line){.planner = p, .choice = least, .start = 1, .most = most_samples(p)};
  for (int i = 0; i < 2; i++) s.line[i].item[s.line[i].count++] = (point){0, plan->persistent_bytes};
  find_besides(p, plan, out);
  for (; out->count < BRIM_CARDS; out->count++) {
    brim_card *c = &out->card[out->count];
    c->card_bytes = sizes[out->count] << 30;
    c->room_bytes = c->card_bytes > out->besides_bytes ? c->card_bytes - out->besides_bytes : 0;
  }
  brim_in_parallel("brim-plan", brim_planner_may_plan_together(p) ? brim_host_threads() : 1, 2, search_one, &s);
  for (int i = 0; i < 2; i++) {
    if (s.status[i] == BRIM_OK) continue;
    brim_error_put(&s.error[i]);
    return s.status[i];
  }
  return BRIM_OK;
}
