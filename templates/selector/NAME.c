/* @NAME@: a selector that takes the clients with the highest m(k), in which it remembers losses of their trainings:
 *     m(k) = memory m(k) + (1 - memory) loss(k), each time that client k has trained; at first its loss
 * Clients that have not trained yet come first, in random order. All that a selector is told is in brim/selector.h. */
#include <brim/brim.h>
#include <stdlib.h>

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

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  (void)self;
  brim_best *best = malloc((size_t)q->wanted * sizeof *best); /* those of the highest score so far */
  if (!best) return brim_fail(BRIM_ENOMEM_HOST, "no memory to select %lld clients", (long long)q->wanted);
  for (int64_t i = 0; i < q->candidates; i++) { /* those that are there */
    const int64_t k = q->candidate[i];
    const double first = 1e30 * (1 + brim_selection_draw(q, 0, k)); /* more than any loss */
    brim_best_add(best, &out->count, q->wanted, k, q->clients->last_round[k] < 0 ? first : q->of_client[k]);
  }
  for (int64_t i = 0; i < out->count; i++) out->client[i] = best[i].client;
  free(best);
  return BRIM_OK;
}

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
