/* @NAME@: a selector that takes the clients with the highest m(k), in which it remembers losses of their trainings:
 *
 *     m(k) = memory m(k) + (1 - memory) loss(k), each time that client k has trained; at first its loss
 *
 * Clients that have not trained yet come first, in random order. All that a selector is told is in brim/selector.h. */
#include <brim/brim.h>

typedef struct settings { /* brim fills it from the table below */
  double memory;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(F64, settings, memory, "0.5", "[0,1)", "weight of what was known of a client before its last training"),
    BRIM_PARAMS_END,
};

/* What is remembered lies in brim's memory, and is part of checkpoints: m(k), a number for each client. */
static void state(const void *self, const brim_clients *clients, int64_t *own, int64_t *of_client)
{
  (void)self, (void)clients; /* it needs the same whatever they are */
  *own = 0;
  *of_client = 1;
}

static double score(const brim_selection_query *q, const void *self, int64_t k)
{
  (void)self;
  return q->clients->last_round[k] < 0 ? brim_score_new(q, k) : q->of_client[k];
}

/* The same clients for the same query, whatever was asked before. */
static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  return brim_select_highest(q, score, self, out); /* of those that are there, as many as are wanted */
}

/* What a round has brought: of a client whose update did not arrive nothing new is known. */
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
                                   .help = "clients whose loss has been the highest",
                                   .params_size = sizeof(settings),
                                   .params = table};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("@NAME@", "0.1", plugins)
