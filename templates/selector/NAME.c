/* @NAME@: a selector that takes the clients with the highest m(k), a moving average of their training losses:
 *
 *     m(k) = memory m(k) + (1 - memory) loss(k), each time client k has trained; its first loss to begin with
 *
 * Clients that have not trained yet come first, in random order. brim/selector.h is the interface of selectors. */
#include <brim/brim.h>

typedef struct settings { /* brim fills this struct from the table below */
  double memory;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(F64, settings, memory, "0.5", "[0,1)", "weight of a client's average before its last training"),
    BRIM_PARAMS_END,
};

/* Declares the selector's state: m(k), one number for each client. brim keeps it, and saves it in checkpoints. */
static void state(const void *self, const brim_clients *clients, int64_t *own, int64_t *of_client)
{
  (void)self, (void)clients; /* the size does not depend on them */
  *own = 0;
  *of_client = 1;
}

static double score(const brim_selection_query *q, const void *self, int64_t k)
{
  (void)self;
  return q->clients->last_round[k] < 0 ? brim_score_new(q, k) : q->of_client[k];
}

/* Must return the same clients for the same query, whatever was asked before. */
static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  return brim_select_highest(q, score, self, out); /* as many of the available clients as the round needs */
}

/* Called after a round. A client whose update did not arrive has no new loss. */
static brim_status learn(void *self, const brim_selection_result *r)
{
  const settings *s = self;
  for (int64_t i = 0; i < r->count; i++) {
    double *m = &r->of_client[r->client[i]], loss = (double)r->clients->loss[r->client[i]];
    if (r->arrived[i]) *m = *m > 0 ? s->memory * *m + (1 - s->memory) * loss : loss;
  }
  return BRIM_OK;
}

static const brim_selector_ops ops = {.size = sizeof ops, .state = state, .select = select_clients, .learn = learn};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SELECTOR,
                                   .id = "@NAME@",
                                   .ops = &ops,
                                   .help = "clients with the highest moving average of loss",
                                   .params_size = sizeof(settings),
                                   .params = table};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("@NAME@", "0.1", plugins)
