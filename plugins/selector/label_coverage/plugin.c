/* Selects clients that together cover all classes. A greedy algorithm maximises f, the sum over classes of the square
 * root of a round's samples. It reaches at least 63 % of the maximum (Nemhauser, Wolsey, Fisher, 1978). f comes from
 * Lin, Bilmes: A Class of Submodular Functions for Document Summarization, ACL 2011.
 *
 *     f(S)    = sum over classes c of sqrt(sum over k in S of samples of c that k has)
 *     next    = argmax of (f(S + k) - f(S)) / (1 + times(k))
 *
 * The samples of clients do not change, so a client counts less the more often it has trained. Otherwise every round
 * would select the same clients. In tasks without classes, all samples count as one class. A round considers at most
 * `pool` random clients.
 *
 * Clients never seen are treated like other clients that have not trained. */
#include "brim/brim.h"

typedef struct settings {
  int64_t pool;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(I64, settings, pool, "10000", "[1,1000000]", "maximum number of random clients to consider"),
    BRIM_PARAMS_END,
};

typedef struct cover {
  const brim_clients *clients;
  double *has; /* [classes]: samples of the clients taken so far */
} cover;

static double gain(void *context, int64_t client)
{
  const cover *c = context;
  const brim_clients *all = c->clients;
  double sum = 0;
  if (!all->labels) sum = sqrt(c->has[0] + (double)all->samples[client]) - sqrt(c->has[0]);
  for (int64_t i = 0; all->labels && i < all->classes; i++) {
    const uint32_t more = all->labels[client * all->classes + i];
    if (more > 0) sum += sqrt(c->has[i] + more) - sqrt(c->has[i]);
  }
  return sum / (1 + (double)all->times[client]);
}

static void take(void *context, int64_t client)
{
  const cover *c = context;
  const brim_clients *all = c->clients;
  if (!all->labels) c->has[0] += (double)all->samples[client];
  for (int64_t i = 0; all->labels && i < all->classes; i++) c->has[i] += all->labels[client * all->classes + i];
}

/* Draws the pool of at most `room` clients into `client`. */
static brim_status draw(const brim_selection_query *q, int64_t room, int64_t *client)
{
  int64_t held = 0;
  brim_best *pool = brim_selection_alloc(room, sizeof *pool);
  if (!pool) return BRIM_ENOMEM_HOST;
  for (int64_t i = 0; i < q->candidates; i++)
    brim_best_add(pool, &held, room, q->candidate[i], brim_selection_draw(q, 0, q->candidate[i]));
  for (int64_t i = 0; i < held; i++) client[i] = pool[i].client;
  free(pool);
  return BRIM_OK;
}

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  const settings *s = self;
  const int64_t asked = s->pool < q->wanted ? q->wanted : s->pool, room = asked < q->candidates ? asked : q->candidates;
  cover c = {q->clients, brim_selection_alloc(q->clients->classes + 1, sizeof(double))};
  int64_t *client = brim_selection_alloc(room, sizeof *client);
  const brim_greedy f = {gain, take, &c};
  brim_status status = c.has && client ? draw(q, room, client) : BRIM_ENOMEM_HOST;
  if (status == BRIM_OK) status = brim_select_greedily(&f, client, room, q->wanted, out);
  free(c.has);
  free(client);
  return status;
}

static const brim_selector_ops ops = {.size = sizeof ops, .needs = BRIM_NEED_LABELS, .select = select_clients};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SELECTOR,
                                   .id = "label_coverage",
                                   .help = "clients that together have samples of all classes",
                                   .params_size = sizeof(settings),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-selectors", "1.0", plugins)
