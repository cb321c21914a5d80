/* Oort (Lai et al.: Oort: Efficient Federated Learning via Guided Participant Selection, OSDI 2021, algorithm 1):
 * selects fast clients with hard data, and some new ones.
 *
 *     U(k)    = samples * sqrt(mean of squared losses of its last training)
 *     u(k)    = (min(U(k), high) - low) / (high - low) + sqrt(0.1 log(R) / L(k)), L(k): round of the last training
 *     score   = u(k) * (T / t(k))^alpha if its time t(k) is above T, else u(k)
 *     explore = max(explore_min, explore * explore_decay^R), the share of new clients, drawn by speed
 *
 * The other clients are drawn by score, among those whose score is at least `cutoff` times the n-th highest score, if n
 * are drawn. The pacer sets T, which is a percentile of all times. It rises by pacer_step percent after `window` rounds
 * whose participants' sum of U was lower than in the `window` rounds before, and is never above the deadline.
 *
 * high is the 95th percentile of U, low is the lowest U. Rounds count from 1. As in the authors' program (FedScale,
 * thirdparty/oort), U is scaled to [0, 1] and T is a percentile: without the scaling the term of L(k) would be
 * negligible with hundreds of samples. The pacer's condition is that of the paper. A client that has trained
 * `most_times` times is left out while enough others are available.
 *
 * Exploration draws clients never seen, and clients whose updates have never arrived. Such a client is drawn less often
 * the more often it was tried. If no times are known, all speeds are equal and T is no limit. A client without a time
 * has the average speed and counts as below T. */
#include "brim/brim.h"

typedef struct settings {
  double alpha, explore, explore_decay, explore_min, cutoff, clip, pacer_start, pacer_step;
  int64_t window, most_times;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(F64, settings, alpha, "2", "[0,100]", "exponent of the penalty for slow clients"),
    BRIM_PARAM(F64, settings, explore, "0.9", "[0,1]", "share of new clients in the first round"),
    BRIM_PARAM(F64, settings, explore_decay, "0.98", "(0,1]", "factor for that share in each round"),
    BRIM_PARAM(F64, settings, explore_min, "0.2", "[0,1]", "minimum share of new clients"),
    BRIM_PARAM(F64, settings, cutoff, "0.95", "[0,1]",
               "draw from clients whose score is at least this share of the last selected one's"),
    BRIM_PARAM(F64, settings, clip, "0.95", "(0,1]", "quantile at which utilities are clipped"),
    BRIM_PARAM(F64, settings, pacer_start, "30", "(0,100]", "initial percentile of times that is fast enough"),
    BRIM_PARAM(F64, settings, pacer_step, "5", "[0,100]",
               "percentage points by which the pacer raises that percentile"),
    BRIM_PARAM(I64, settings, window, "20", "[1,1000000]", "rounds between checks of the pacer"),
    BRIM_PARAM(I64, settings, most_times, "0", "[0,1000000]",
               "exclude a client after it was selected this many times; 0: never"),
    BRIM_PARAMS_END,
};

/* state: percent added to the pacer's percentile; sums of U in the previous window and in this one. */
enum { RELAXED, BEFORE, ACHIEVED, OWN };

static void state(const void *self, const brim_clients *clients, int64_t *own, int64_t *of_client)
{
  (void)self;
  (void)clients;
  *own = OWN;
  *of_client = 0;
}

static double utility(const brim_clients *c, int64_t k)
{
  return (double)c->samples[k] * sqrt((double)c->square_loss[k]);
}

typedef struct work {
  const settings *s;
  const brim_selection_query *q;
  double *value; /* [candidates]: scores; NAN for a new client, -1 for one that is left out */
  brim_best *best;
  int64_t known, fresh; /* fresh: number of new clients */
  double fast_seconds, mean_seconds;
} work;

static void set_speeds(work *w)
{
  const brim_selection_query *q = w->q;
  const float *seconds = q->clients->seconds;
  int64_t known = 0;
  for (int64_t i = 0; i < q->candidates; i++)
    if (isfinite(seconds[q->candidate[i]])) w->value[known++] = (double)seconds[q->candidate[i]];
  w->mean_seconds = brim_mean_known(q, seconds);
  w->fast_seconds = INFINITY;
  if (known > 0) {
    const double percent = w->s->pacer_start + q->own[RELAXED];
    const int64_t rank = (int64_t)((percent < 100 ? percent : 100) / 100 * (double)known);
    w->fast_seconds = brim_value_of_rank(w->value, known, rank < known ? rank : known - 1);
  }
  if (q->deadline_seconds > 0 && q->deadline_seconds < w->fast_seconds) w->fast_seconds = q->deadline_seconds;
}

static bool is_known(const brim_selection_query *q, int64_t k)
{
  return q->clients->last_round[k] >= 0 && isfinite(q->clients->square_loss[k]);
}

static bool is_left_out(const work *w, int64_t k)
{
  return w->s->most_times > 0 && w->q->clients->times[k] >= w->s->most_times;
}

static double score(const work *w, int64_t k, double low, double high)
{
  const brim_clients *c = w->q->clients;
  const double raw = utility(c, k), clipped = raw < high ? raw : high, seconds = (double)c->seconds[k];
  double u = high > low ? (clipped - low) / (high - low) : 1;
  u += sqrt(0.1 * log((double)w->q->round + 1) / ((double)c->last_round[k] + 1));
  return seconds > w->fast_seconds ? u * pow(w->fast_seconds / seconds, w->s->alpha) : u;
}

/* Computes the scores of all candidates. */
static void set_scores(work *w)
{
  const brim_selection_query *q = w->q;
  double low = INFINITY, high = 0;
  int64_t allowed = 0;
  for (int64_t i = 0; i < q->candidates; i++) allowed += !is_left_out(w, q->candidate[i]);
  const bool all = allowed < q->wanted;
  for (int64_t i = 0; i < q->candidates; i++) {
    const int64_t k = q->candidate[i];
    if (is_known(q, k) && (all || !is_left_out(w, k))) w->value[w->known++] = utility(q->clients, k);
  }
  for (int64_t i = 0; i < w->known; i++) low = w->value[i] < low ? w->value[i] : low;
  const int64_t rank = (int64_t)(w->s->clip * (double)w->known);
  if (w->known > 0) high = brim_value_of_rank(w->value, w->known, rank < w->known ? rank : w->known - 1);
  for (int64_t i = 0; i < q->candidates; i++) {
    const int64_t k = q->candidate[i];
    if (!all && is_left_out(w, k)) {
      w->value[i] = -1;
    } else if (is_known(q, k)) {
      w->value[i] = score(w, k, low, high);
    } else {
      w->value[i] = NAN;
      w->fresh++;
    }
  }
}

/* Draws `count` of the clients seen, in proportion to their scores. */
static void exploit(const work *w, int64_t count, brim_selection *out)
{
  const brim_selection_query *q = w->q;
  int64_t held = 0;
  for (int64_t i = 0; i < q->candidates && count > 0; i++)
    if (w->value[i] >= 0) brim_best_add(w->best, &held, count, q->candidate[i], w->value[i]);
  /* The heap is full, and its first score is the lowest. */
  const double enough = held > 0 ? w->s->cutoff * w->best[0].score : 0;
  held = 0;
  for (int64_t i = 0; i < q->candidates && count > 0; i++) {
    const int64_t k = q->candidate[i];
    if (w->value[i] >= enough) brim_best_add(w->best, &held, count, k, brim_score_drawn(q, 0, k, w->value[i]));
  }
  brim_best_sort(w->best, held);
  for (int64_t i = 0; i < held; i++) out->client[out->count++] = w->best[i].client;
}

/* Draws `count` new clients, in proportion to their speeds. */
static void explore(const work *w, int64_t count, brim_selection *out)
{
  const brim_selection_query *q = w->q;
  int64_t held = 0;
  for (int64_t i = 0; i < q->candidates && count > 0; i++) {
    const int64_t k = q->candidate[i];
    if (!isnan(w->value[i])) continue;
    double seconds = (double)q->clients->seconds[k];
    if (!isfinite(seconds)) seconds = isfinite(w->mean_seconds) ? w->mean_seconds : 1;
    const double tried = 1 + (double)q->clients->times[k];
    brim_best_add(w->best, &held, count, k, brim_score_drawn(q, 1, k, 1 / (seconds * tried)));
  }
  brim_best_sort(w->best, held);
  for (int64_t i = 0; i < held; i++) out->client[out->count++] = w->best[i].client;
}

static void choose(work *w, brim_selection *out)
{
  const int64_t wanted = w->q->wanted;
  double share = w->s->explore * pow(w->s->explore_decay, (double)w->q->round);
  if (share < w->s->explore_min) share = w->s->explore_min;
  set_speeds(w);
  set_scores(w);
  int64_t fresh = (int64_t)(share * (double)wanted + 0.5);
  if (fresh > w->fresh) fresh = w->fresh;
  const int64_t known = w->known < wanted - fresh ? w->known : wanted - fresh;
  exploit(w, known, out);
  explore(w, w->fresh < wanted - known ? w->fresh : wanted - known, out);
}

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  work w = {.s = self, .q = q};
  w.value = brim_selection_alloc(q->candidates, sizeof *w.value);
  w.best = brim_selection_alloc(q->wanted, sizeof *w.best);
  const brim_status status = w.value && w.best ? BRIM_OK : BRIM_ENOMEM_HOST;
  if (status == BRIM_OK) choose(&w, out);
  free(w.value);
  free(w.best);
  return status;
}

static brim_status learn(void *self, const brim_selection_result *r)
{
  const settings *s = self;
  double *own = r->own;
  for (int64_t i = 0; i < r->count; i++)
    if (r->arrived[i]) own[ACHIEVED] += utility(r->clients, r->client[i]);
  if ((r->round + 1) % s->window != 0) return BRIM_OK;
  if (own[BEFORE] > own[ACHIEVED]) own[RELAXED] += s->pacer_step; /* BEFORE is 0 in the first window */
  own[BEFORE] = own[ACHIEVED];
  own[ACHIEVED] = 0;
  return BRIM_OK;
}

static const brim_selector_ops ops = {
    .size = sizeof ops, .needs = BRIM_NEED_SQUARES, .state = state, .select = select_clients, .learn = learn};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_SELECTOR,
    .id = "oort",
    .help = "clients with high losses and fast devices, and some new clients in each round (Lai et al., Oort)",
    .params_size = sizeof(settings),
    .params = table,
    .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-selectors", "1.0", plugins)
