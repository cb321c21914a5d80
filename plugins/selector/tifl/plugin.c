/* Tiers of clients of similar speed (Chai et al.: TiFL, HPDC 2020, algorithm 2): each round draws a tier, then random
 * clients of it, so no client waits for a much slower one.
 *
 *     every `interval` rounds, if the accuracy of the last tier has not risen in the last `interval` rounds:
 *         probability(tier) = (n - i) / (n (n - 1) / 2), where the tier's accuracy is the i-th lowest, from 1, of the n
 *         tiers that have credits left
 *     drawing a tier costs one credit; when all credits are spent, each tier gets `credits` again
 *
 * Clients are sorted by the time of a round into tiers of equal size. The paper tests the global model on data of each
 * tier, which takes time of all clients; here a tier's accuracy is the share of correct answers in the last trainings
 * of its clients. In tasks with targets instead of classes, exp(-loss) replaces a client's accuracy. If the drawn tier
 * has too few clients, the next tiers supply the rest.
 *
 * Clients never seen are treated like all others, because times are predicted, but they do not count in accuracies. A
 * tier without clients seen has accuracy 0. A client without a time has the average time. If no client has a time,
 * clients are sorted by number. */
#include "brim/brim.h"

typedef struct settings {
  int64_t tiers, interval, credits;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(I64, settings, tiers, "5", "[1,64]", "number of tiers of clients with similar speed"),
    BRIM_PARAM(I64, settings, interval, "10", "[1,1000000]", "rounds between updates of the tiers' accuracies"),
    BRIM_PARAM(I64, settings, credits, "100", "[1,1000000]",
               "number of times that a tier may be drawn before all tiers have used up as many"),
    BRIM_PARAMS_END,
};

/* State: arrays of [tiers] for the credits spent, the accuracy `interval` rounds ago and the probability; then the last
 * tier. */
static void state(const void *self, const brim_clients *clients, int64_t *own, int64_t *of_client)
{
  const settings *s = self;
  (void)clients;
  *own = 3 * s->tiers + 1;
  *of_client = 0;
}

typedef struct tiers {
  int64_t count;
  double first[64]; /* [count]: the lowest time of each tier; if no times are known, the lowest client number */
  double mean;      /* mean of the known times, or NAN */
} tiers;

static double time_of(const tiers *t, const brim_clients *c, int64_t client)
{
  if (!isfinite(t->mean)) return (double)client;
  return isfinite(c->seconds[client]) ? (double)c->seconds[client] : t->mean;
}

static int64_t tier_of(const tiers *t, const brim_clients *c, int64_t client)
{
  const double seconds = time_of(t, c, client);
  int64_t tier = 0;
  for (int64_t i = 1; i < t->count; i++) tier = seconds >= t->first[i] ? i : tier;
  return tier;
}

/* Sorts the clients' times into tiers of equal size and stores the first time of each. If two tiers have the same first
 * time, all clients with that time are in the later tier, and the earlier one is empty. */
static brim_status make_tiers(const settings *s, const brim_selection_query *q, tiers *t)
{
  double *seconds = brim_selection_alloc(q->clients->count, sizeof *seconds);
  if (!seconds) return BRIM_ENOMEM_HOST;
  *t = (tiers){.count = s->tiers, .mean = brim_mean_known(q, q->clients->seconds)};
  for (int64_t k = 0; k < q->clients->count; k++) seconds[k] = time_of(t, q->clients, k);
  for (int64_t i = 0; i < t->count; i++)
    t->first[i] = brim_value_of_rank(seconds, q->clients->count, i * q->clients->count / t->count);
  free(seconds);
  return BRIM_OK;
}

/* Returns NAN if the accuracy is not known. */
static double accuracy_of(const brim_clients *c, int64_t client)
{
  return isfinite(c->accuracy[client]) ? (double)c->accuracy[client] : exp(-(double)c->loss[client]);
}

/* Computes for each tier the number of candidates and the accuracy, in which clients are weighted by their samples. */
static void look(const tiers *t, const brim_selection_query *q, int64_t *members, double *accuracy)
{
  double seen[64] = {0};
  for (int64_t i = 0; i < q->candidates; i++) {
    const int64_t k = q->candidate[i], tier = tier_of(t, q->clients, k);
    const double samples = (double)q->clients->samples[k], right = accuracy_of(q->clients, k);
    members[tier]++;
    if (!isfinite(right)) continue;
    accuracy[tier] += samples * right;
    seen[tier] += samples;
  }
  for (int64_t i = 0; i < t->count; i++) accuracy[i] = seen[i] > 0 ? accuracy[i] / seen[i] : 0;
}

static void change_probabilities(int64_t count, const double *accuracy, const bool *may, double *probability)
{
  int64_t n = 0;
  for (int64_t i = 0; i < count; i++) n += may[i];
  for (int64_t i = 0; i < count; i++) {
    int64_t place = 1;
    for (int64_t j = 0; j < count; j++)
      place += may[j] && (accuracy[j] < accuracy[i] || (accuracy[j] == accuracy[i] && j < i));
    probability[i] = may[i] ? 2.0 * (double)(n - place) / (double)(n > 1 ? n * (n - 1) : 1) : 0;
  }
}

/* Draws one of the allowed tiers. If all of them have probability 0, they are equally likely. */
static int64_t draw_tier(const brim_selection_query *q, int64_t count, const bool *may, const double *probability)
{
  double sum = 0, equal = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < count; i++) sum += may[i] ? probability[i] : 0;
  if (sum <= 0) equal = 1;
  for (int64_t i = 0; i < count && equal > 0; i++) sum += may[i];
  double left = brim_selection_draw(q, 0, 0) * sum;
  for (int64_t i = 0; i < count; i++) {
    const double part = may[i] ? (equal > 0 ? 1 : probability[i]) : 0;
    if (part <= 0) continue;
    last = i;
    if (left < part) return i;
    left -= part;
  }
  return last;
}

static int64_t choose_tier(const settings *s, const brim_selection_query *q, const tiers *t)
{
  double *spent = q->own, *before = spent + t->count, *probability = before + t->count, accuracy[64] = {0};
  double *last = probability + t->count;
  int64_t members[64] = {0}, with_credits = 0;
  bool may[64];
  look(t, q, members, accuracy);
  for (int64_t i = 0; i < t->count; i++) with_credits += members[i] > 0 && spent[i] < (double)s->credits;
  for (int64_t i = 0; i < t->count; i++) {
    if (with_credits == 0) spent[i] = 0;
    may[i] = members[i] > 0 && spent[i] < (double)s->credits;
  }
  if (q->round % s->interval == 0) {
    if (q->round > 0 && accuracy[(int64_t)*last] <= before[(int64_t)*last])
      change_probabilities(t->count, accuracy, may, probability);
    for (int64_t i = 0; i < t->count; i++) before[i] = accuracy[i];
  }
  const int64_t tier = draw_tier(q, t->count, may, probability);
  *last = (double)tier;
  spent[tier] += 1;
  return tier;
}

typedef struct choice {
  tiers tiers;
  int64_t tier;
} choice;

/* Gives the highest scores to clients of the tier, then to those of the next tiers. */
static double score(const brim_selection_query *q, const void *context, int64_t client)
{
  const choice *c = context;
  const int64_t steps = (tier_of(&c->tiers, q->clients, client) - c->tier + c->tiers.count) % c->tiers.count;
  return brim_selection_draw(q, 1, client) - (double)steps;
}

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  choice c;
  BRIM_TRY(make_tiers(self, q, &c.tiers));
  c.tier = choose_tier(self, q, &c.tiers);
  return brim_select_highest(q, score, &c, out);
}

static const brim_selector_ops ops = {.size = sizeof ops, .state = state, .select = select_clients};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SELECTOR,
                                   .id = "tifl",
                                   .help =
                                       "random clients of one tier of speed; less accurate tiers are chosen more often",
                                   .params_size = sizeof(settings),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-selectors", "1.0", plugins)
