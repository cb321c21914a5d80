/* A bandit (Sutton, Barto: Reinforcement Learning, 2.2 and 2.5). For each place in a round, it selects a random client
 * with probability epsilon, and otherwise the client with the highest value. The reward is the client's loss in a
 * round, as usual for such bandits (Cho, Gupta, Joshi, Yagan: Bandit-based Communication-Efficient Client Selection
 * Strategies for Federated Learning, 2020), or 0 if its update did not arrive.
 *
 *     value(k) <- value(k) + step * (reward - value(k)); the first reward is the first value
 *
 * A client never seen has the average value of the clients seen. Ties are broken at random. */
#include "brim/brim.h"

typedef struct settings {
  double epsilon, step;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(F64, settings, epsilon, "0.1", "[0,1]", "probability that a place in a round goes to a random client"),
    BRIM_PARAM(F64, settings, step, "0.3", "(0,1]", "weight of the newest reward in a client's average"),
    BRIM_PARAMS_END,
};

/* The state of each client: its value, and 1 if it has one. */
static void state(const void *self, const brim_clients *clients, int64_t *own, int64_t *of_client)
{
  (void)self;
  (void)clients;
  *own = 0;
  *of_client = 2;
}

static double value(const brim_selection_query *q, const void *mean, int64_t k)
{
  return (q->of_client[2 * k + 1] > 0 ? q->of_client[2 * k] : *(const double *)mean) + brim_score_tie(q, k);
}

/* Chooses the `greedy` clients with the highest values, and the rest at random among the others. */
static void choose(const brim_selection_query *q, int64_t greedy, brim_best *best, uint8_t *is_taken,
                   brim_selection *out)
{
  double sum = 0, known = 0;
  for (int64_t i = 0; i < q->candidates; i++) {
    sum += q->of_client[2 * q->candidate[i]];
    known += q->of_client[2 * q->candidate[i] + 1];
  }
  const double mean = known > 0 ? sum / known : 0;
  int64_t taken = 0, drawn = 0;
  for (int64_t i = 0; i < q->candidates && greedy > 0; i++)
    brim_best_add(best, &taken, greedy, i, value(q, &mean, q->candidate[i]));
  brim_best_sort(best, taken);
  for (int64_t i = 0; i < taken; i++) is_taken[best[i].client] = 1;
  for (int64_t i = 0; i < q->candidates && taken < q->wanted; i++)
    if (!is_taken[i])
      brim_best_add(best + taken, &drawn, q->wanted - taken, i, brim_selection_draw(q, 1, q->candidate[i]));
  brim_best_sort(best + taken, drawn);
  for (int64_t i = 0; i < taken + drawn; i++) out->client[out->count++] = q->candidate[best[i].client];
}

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  const settings *s = self;
  int64_t greedy = 0;
  for (int64_t place = 0; place < q->wanted; place++) greedy += brim_selection_draw(q, 2, place) >= s->epsilon;
  brim_best *best = brim_selection_alloc(q->wanted, sizeof *best);
  uint8_t *is_taken = brim_selection_alloc(q->candidates, 1); /* indexed like the candidates */
  const brim_status status = best && is_taken ? BRIM_OK : BRIM_ENOMEM_HOST;
  if (status == BRIM_OK) choose(q, greedy, best, is_taken, out);
  free(best);
  free(is_taken);
  return status;
}

static brim_status learn(void *self, const brim_selection_result *r)
{
  const settings *s = self;
  for (int64_t i = 0; i < r->count; i++) {
    double *of = &r->of_client[2 * r->client[i]];
    const double reward = r->arrived[i] ? (double)r->clients->loss[r->client[i]] : 0;
    of[0] = of[1] > 0 ? of[0] + s->step * (reward - of[0]) : reward;
    of[1] = 1;
  }
  return BRIM_OK;
}

static const brim_selector_ops ops = {.size = sizeof ops, .state = state, .select = select_clients, .learn = learn};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SELECTOR,
                                   .id = "epsilon_greedy",
                                   .help = "a bandit: the clients with the highest losses so far, and some random ones",
                                   .params_size = sizeof(settings),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-selectors", "1.0", plugins)
