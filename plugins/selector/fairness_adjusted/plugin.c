/* Prefers high losses, but gives all clients turns. Each client has a number of turns that it is owed, the virtual
 * queue of the paper (Huang et al.: An Efficiency-Boosting Client Selection Scheme for Federated Learning with Fairness
 * Guarantee, TPDS 2021). The paper weighs the queues against time; this selector weighs them against the loss.
 *
 *     score(k) = weight * loss(k) / highest loss + owed(k)
 *     owed(k) <- max(0, owed(k) + share * selected / clients - [k was selected])
 *
 * So each client gets at least `share` times the rounds that uniform selection would give it.
 *
 * A client never seen has the highest loss. Ties are broken at random. */
#include "brim/brim.h"

typedef struct settings {
  double weight, share;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(F64, settings, weight, "1", "[0,1e6]", "weight of the loss; 0: clients take turns"),
    BRIM_PARAM(F64, settings, share, "0.5", "[0,1]",
               "minimum number of rounds for each client, as a share of the mean over all clients"),
    BRIM_PARAMS_END,
};

typedef struct scores {
  double weight, highest;
} scores;

static double score(const brim_selection_query *q, const void *context, int64_t client)
{
  const scores *s = context;
  return s->weight * brim_loss_share(q, s->highest, client) + q->of_client[client] + brim_score_tie(q, client);
}

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  const settings *s = self;
  return brim_select_highest(q, score, &(scores){s->weight, brim_highest_loss(q)}, out);
}

static void state(const void *self, const brim_clients *clients, int64_t *own, int64_t *of_client)
{
  (void)self;
  (void)clients;
  *own = 0;
  *of_client = 1; /* owed */
}

static brim_status learn(void *self, const brim_selection_result *r)
{
  const settings *s = self;
  const double more = s->share * (double)r->count / (double)r->clients->count;
  for (int64_t i = 0; i < r->count; i++) r->of_client[r->client[i]] -= 1;
  for (int64_t k = 0; k < r->clients->count; k++) {
    const double owed = r->of_client[k] + more;
    r->of_client[k] = owed > 0 ? owed : 0;
  }
  return BRIM_OK;
}

static const brim_selector_ops ops = {.size = sizeof ops, .state = state, .select = select_clients, .learn = learn};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SELECTOR,
                                   .id = "fairness_adjusted",
                                   .help = "clients with high losses, and with fewer turns than their share",
                                   .params_size = sizeof(settings),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-selectors", "1.0", plugins)
